//! Holds jobs back from an endpoint that takes nothing.

use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::sleep_until;

use crate::consumer::Breaker;

/// An endpoint that comes and goes is logged no more often than this.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// Lets all jobs through while the endpoint takes some, else one at a time.
pub(super) struct Gate {
    /// Where the endpoint is, without secrets.
    endpoint: String,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    breaker: Breaker,
    /// Why the endpoint accepts nothing; none while it accepts jobs.
    reason: Option<String>,
    /// When that was logged; none since it was logged that it accepts jobs again.
    logged: Option<Instant>,
    last_logged: Option<Instant>,
}

impl Gate {
    pub(super) fn to(endpoint: String) -> Self {
        let (state, changed) = (Mutex::default(), Notify::new());
        Self {
            endpoint,
            state,
            changed,
        }
    }

    /// Waits until a job may be posted, for no longer than this.
    pub(super) async fn pass(&self, longest: Duration) -> Option<Pass<'_>> {
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

    /// Why jobs are held back; nothing while they are let through.
    pub(super) fn reason(&self) -> Option<String> {
        self.state().reason.clone()
    }

    /// As [`reason`](Self::reason), with where the endpoint is.
    pub(super) fn summary(&self) -> Option<String> {
        let endpoint = &self.endpoint;
        let reason = self.state().reason.clone();
        reason.map(|reason| format!("{endpoint}: {reason}"))
    }

    /// Else when to ask again without a notification.
    fn admit(&self, now: Instant) -> Result<Pass<'_>, Option<Instant>> {
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
        Ok(Pass { gate, is_trial })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// The right to post one job.
pub(super) struct Pass<'a> {
    gate: &'a Gate,
    is_trial: bool,
}

impl Pass<'_> {
    /// It is the one job that shows whether the endpoint accepts jobs again.
    pub(super) fn is_trial(&self) -> bool {
        self.is_trial
    }

    /// The endpoint takes jobs.
    pub(super) fn succeeded(self) {
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

    /// The endpoint takes nothing.
    pub(super) fn failed(self, reason: &str) {
        let now = Instant::now();
        let mut state = self.gate.state();
        state.breaker.failed(now, fastrand::f64());
        state.reason = Some(reason.to_owned());
        let is_known = state.logged.is_some()
            || (state.last_logged).is_some_and(|then| now.duration_since(then) < SAID_EVERY);
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

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        // If its outcome was reported already, this changes nothing.
        if self.is_trial {
            self.gate.state().breaker.release();
            self.gate.changed.notify_waiters();
        }
    }
}
