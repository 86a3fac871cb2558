//! Holds jobs back while an endpoint accepts no jobs.

use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::sleep_until;

use crate::consumer::Breaker;

/// The shortest time between two log lines about an endpoint that fails repeatedly.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Admits all jobs while the endpoint accepts some, otherwise one at a time.
pub(super) struct EndpointGate {
    /// The origin of the endpoint, without secrets.
    endpoint: String,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    breaker: Breaker,
    /// Why the endpoint accepts no jobs; `None` while it accepts jobs.
    reason: Option<String>,
    /// When the failure was logged; `None` once the recovery was logged.
    logged: Option<Instant>,
    last_logged: Option<Instant>,
}

impl EndpointGate {
    pub(super) fn new(endpoint: String) -> Self {
        let (state, changed) = (Mutex::default(), Notify::new());
        Self {
            endpoint,
            state,
            changed,
        }
    }

    /// Waits until a job may be posted; returns `None` after this timeout.
    pub(super) async fn pass(&self, longest: Duration) -> Option<GatePass<'_>> {
        let end = Instant::now() + longest;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let opens = match self.admit(Instant::now()) {
                Ok(pass) => return Some(pass),
                Err(opens) => opens.unwrap_or(end),
            };
            tokio::select! {
                () = changed => {}
                () = sleep_until(opens.min(end).into()) => {}
            }
            if Instant::now() >= end {
                return None;
            }
        }
    }

    /// Returns why jobs are held back, `None` while they are admitted.
    pub(super) fn reason(&self) -> Option<String> {
        self.state().reason.clone()
    }

    /// As [`reason`](Self::reason), preceded by the origin of the endpoint.
    pub(super) fn summary(&self) -> Option<String> {
        let endpoint = &self.endpoint;
        let reason = self.state().reason.clone();
        reason.map(|reason| format!("{endpoint}: {reason}"))
    }

    /// Admits a job, or returns when to ask again if no notification comes first.
    fn admit(&self, now: Instant) -> Result<GatePass<'_>, Option<Instant>> {
        let mut state = self.state();
        let breaker = &mut state.breaker;
        match breaker.opened_until() {
            Some(until) if until > now => return Err(Some(until)),
            Some(_) => breaker.half_open(),
            None => {}
        }
        if breaker.admit(1) == 0 {
            return Err(None);
        }
        let (gate, is_trial) = (self, breaker.is_half_open());
        Ok(GatePass { gate, is_trial })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// The permission to post one job.
pub(super) struct GatePass<'a> {
    gate: &'a EndpointGate,
    is_trial: bool,
}

impl GatePass<'_> {
    /// Whether this is the job that tests whether the endpoint accepts jobs again.
    pub(super) fn is_trial(&self) -> bool {
        self.is_trial
    }

    /// Records that the endpoint accepts jobs.
    pub(super) fn record_success(self) {
        let mut state = self.gate.state();
        if !state.breaker.succeeded() {
            return;
        }
        state.reason = None;
        if state.logged.take().is_some() {
            tracing::info!(endpoint = self.gate.endpoint, "accepts jobs again");
        }
        drop(state);
        self.gate.changed.notify_waiters();
    }

    /// Records that the endpoint accepts no jobs.
    pub(super) fn record_failure(self, reason: &str) {
        let now = Instant::now();
        let mut state = self.gate.state();
        state.breaker.failed(now, fastrand::f64());
        state.reason = Some(reason.to_owned());
        let is_known = state.logged.is_some()
            || (state.last_logged).is_some_and(|then| now.duration_since(then) < LOG_INTERVAL);
        if !is_known {
            (state.logged, state.last_logged) = (Some(now), Some(now));
            tracing::warn!(
                endpoint = self.gate.endpoint,
                error = reason,
                "the endpoint accepts no jobs; they wait without counting an attempt, and one at \
                 a time is tried"
            );
        }
    }
}

impl Drop for GatePass<'_> {
    fn drop(&mut self) {
        // This changes nothing if the outcome was reported.
        if self.is_trial {
            self.gate.state().breaker.release();
            self.gate.changed.notify_waiters();
        }
    }
}
