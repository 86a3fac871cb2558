//! Checks whether the destination answers, keeps the guarantees, and accepts messages.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::destination::answer::FILE_LIMIT_REACHED;
use crate::destination::contract::Destination;
use crate::destination::reason::Reason;
use crate::engine::options::Ack;
use crate::engine::shared::Shared;

/// Timeout of a check of the destination.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The reason why nothing is sent to a destination.
pub(crate) enum DestinationProblem {
    /// It does not answer, or would accept nothing.
    Down(String),
    /// A setting breaks the guarantees, or the destination cannot be used at all.
    Unsafe(String),
}

/// Checks whether a destination answers and keeps the guarantees.
pub(crate) async fn verify_destination(
    destination: &dyn Destination,
    ack: Ack,
    longest_outage: Duration,
    allowed: &[String],
) -> Result<(), DestinationProblem> {
    let asked = async {
        if let Some(problem) = destination.misconfiguration().await {
            let label = destination.label();
            return Err(DestinationProblem::Unsafe(format!("{label}: {problem}")));
        }
        let probed = destination.probe().await;
        probed.map_err(DestinationProblem::Down)?;
        // Messages that the destination loses are sent again.
        if ack != Ack::Accepted {
            return Ok(());
        }
        let unsafe_settings = destination.unsafe_settings(longest_outage).await;
        let unsafe_settings =
            unsafe_settings.map_err(|error| DestinationProblem::Down(error.to_string()))?;
        let is_allowed = |setting: &str| allowed.iter().any(|one| one == setting);
        match unsafe_settings
            .into_iter()
            .find(|one| !is_allowed(&one.setting))
        {
            None => Ok(()),
            Some(unsafe_setting) => Err(DestinationProblem::Unsafe(format!(
                "{}: {}: {}; to relay anyway: allow_unsafe = [{:?}]",
                destination.label(),
                unsafe_setting.setting,
                unsafe_setting.lost,
                unsafe_setting.setting,
            ))),
        }
    };
    let unavailable = |_| {
        Err(DestinationProblem::Down(format!(
            "no answer within {} s",
            PROBE_TIMEOUT.as_secs()
        )))
    };
    tokio::time::timeout(PROBE_TIMEOUT, asked)
        .await
        .unwrap_or_else(unavailable)
}

impl Shared {
    /// Checks the destination; returns whether it can be used now.
    pub(crate) async fn check_destination(&self) -> bool {
        match self.verify().await {
            Ok(()) => {
                self.buffer().breaker.close();
                self.resume_sending();
                return true;
            }
            Err(DestinationProblem::Down(reason)) => self.record_outage(&reason),
            Err(DestinationProblem::Unsafe(problem)) => self.record_unsafe_setting(&problem),
        }
        if !self.keeps_unsent() {
            let waiting = self.buffer().take_all();
            self.reschedule(waiting.into_iter().map(|one| one.ticket));
        }
        false
    }

    /// Records that every message of a batch was answered.
    pub(crate) fn record_success(&self) {
        let were_held = self.buffer().breaker.succeeded();
        if were_held && self.destination.probes_with_message() {
            self.resume_sending();
        }
    }

    /// Checks the destination, or sends one message to probe it.
    pub(crate) async fn check_or_try_one(&self) {
        match self.destination.probes_with_message() {
            true => self.admit_probe(),
            false => _ = self.check_destination().await,
        }
    }

    /// Resumes sending.
    fn resume_sending(&self) {
        self.room.notify_one();
        self.arrived.notify_one();
        if self.status().down_since.take().is_some() {
            tracing::info!(
                destination = self.destination.label(),
                "the destination accepts messages again"
            );
        }
    }

    /// Lets one message through as a probe.
    fn admit_probe(&self) {
        let others = self.buffer().let_one_through(self.keeps_unsent());
        self.reschedule(others.into_iter().map(|one| one.ticket));
        self.room.notify_one();
    }

    /// Checks whether the destination answers and keeps the guarantees.
    pub(crate) async fn verify(&self) -> Result<(), DestinationProblem> {
        let (options, allowed) = (&self.options, &self.allowed);
        let destination = &*self.destination;
        verify_destination(destination, options.ack, options.longest_outage, allowed).await
    }

    /// Records that the destination answers and accepts no more: messages that it did not accept
    /// are offered again after growing delays, until it accepts one.
    pub(crate) fn record_backpressure(&self, reason: &Reason, took_some: bool) {
        if !took_some {
            self.buffer()
                .breaker
                .failed(Instant::now(), fastrand::f64());
            self.arrived.notify_one();
        }
        if &**reason != FILE_LIMIT_REACHED
            && self.logged_reasons().should_log(reason, Instant::now())
        {
            let (destination, error) = (self.destination.label(), &**reason);
            match reason.is_denial() {
                true => tracing::warn!(
                    destination,
                    error,
                    "the destination denies permission to send; its jobs wait in Postgres"
                ),
                false => tracing::warn!(
                    destination,
                    error,
                    "the destination accepts no more messages for now"
                ),
            }
        }
        self.status().last_error = Some(reason.to_string());
    }

    /// Records that the destination does not answer, and pauses sending.
    pub(crate) fn record_outage(&self, reason: &str) {
        if self.pause_sending(reason) {
            let destination = self.destination.label();
            tracing::warn!(
                destination,
                error = reason,
                "the destination does not answer; its jobs wait in Postgres"
            );
        }
    }

    /// Records that the destination answers and may lose accepted messages; it is checked again
    /// later.
    pub(crate) fn record_unsafe_setting(&self, problem: &str) {
        let is_new = self.status().last_error.as_deref() != Some(problem);
        self.pause_sending(problem);
        if is_new {
            let destination = self.destination.label();
            tracing::warn!(
                destination,
                error = problem,
                "the destination has an unsafe setting; its jobs wait in Postgres"
            );
        }
    }

    /// Pauses sending; returns whether the destination was up before.
    fn pause_sending(&self, reason: &str) -> bool {
        self.buffer()
            .breaker
            .failed(Instant::now(), fastrand::f64());
        // The task that waits for jobs checks the destination from now on: no jobs arrive while it
        // is down.
        self.arrived.notify_one();
        let mut status = self.status();
        status.last_error = Some(reason.to_owned());
        let is_new = status.down_since.is_none();
        status.down_since.get_or_insert_with(Timestamp::now);
        drop(status);
        // Cancelled last: a waiting caller then finds the reason in the status.
        if self.destination.is_gone() {
            self.gone.cancel();
        }
        is_new
    }
}
