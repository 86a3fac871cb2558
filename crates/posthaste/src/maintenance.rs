//! Maintenance by an elected leader. Any worker can be the leader. Each duty is a short transaction
//! under a separate lock, so two leaders at once only waste a little work. The promoter has a
//! separate connection: due jobs do not wait for other duties.

mod counting;
mod dead_jobs;
pub(crate) mod duties;
mod holders;
mod liveness;
mod periodic;
mod promoter;
mod segments;
mod unworked;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::periodic::PeriodicTicker;
use self::promoter::Promoter;
use crate::config::Config;
use crate::error::Error;
use crate::identity::Registration;
use crate::parts::notifications::Notifications;
use crate::store;
use crate::store::reconnecting::ReconnectingClient;

/// The shortest wait for a tick, which may not be due yet by the database's clock.
const MIN_TICK_WAIT: Duration = Duration::from_millis(2);
/// The longest pause between rounds without work, in maintenance intervals.
const MAX_PAUSE_INTERVALS: u32 = 16;
/// Jobs moved to the overflow in one transaction.
const OVERFLOW_BATCH: i32 = 10_000;

/// Performs a duty. Logs an error; the next round retries the duty.
macro_rules! attempt {
    ($link:expr, $duty:ident($($argument:expr),*)) => {
        $crate::maintenance::log_failure(
            stringify!($duty),
            $crate::store::$duty($link $(, $argument)*).await,
        )
    };
}
use attempt;

fn log_failure<T>(duty: &'static str, result: Result<T, Error>) -> Option<T> {
    result
        .inspect_err(
            |error| tracing::warn!(duty, %error, "a maintenance task failed; it is retried"),
        )
        .ok()
}

/// Performs the duties while this worker is the leader.
pub(crate) struct Maintenance {
    pub(crate) config: Arc<Config>,
    pub(crate) registration: Arc<Registration>,
    pub(crate) notifications: Arc<Notifications>,
    /// The connection of the promoter and the lease.
    pub(crate) link: ReconnectingClient,
    /// The connection of all other duties, some of which are slow.
    pub(crate) duties: ReconnectingClient,
    pub(crate) stopping: CancellationToken,
}

impl Maintenance {
    /// Runs until the worker stops.
    pub(crate) async fn run(self) {
        let (leads, led) = watch::channel(false);
        tokio::join!(self.promote(leads), duties::run(&self, led));
    }

    /// Renews the lease independently of the other duties, promotes jobs, advances jobs with
    /// ordering keys, and enqueues periodic jobs.
    async fn promote(&self, leads: watch::Sender<bool>) {
        let lease = (self.config.maintenance_interval * 8).max(Duration::from_secs(5));
        let mut led_until: Option<Instant> = None;
        let mut periodic = PeriodicTicker::default();
        let mut tick_at = Instant::now();
        let mut promoter = Promoter::new();
        while !self.stopping.is_cancelled() {
            // Losing the session releases the lease, so the next session requests it at once.
            let is_due = led_until.is_none_or(|until| Instant::now() + lease / 2 > until);
            if is_due || !self.link.is_connected().await {
                let asked = Instant::now();
                led_until = match self.renew_lease(lease).await {
                    Ok(true) => Some(asked + lease),
                    Ok(false) => None,
                    Err(error) => {
                        tracing::debug!(%error, "the maintenance lease could not be requested");
                        led_until.filter(|until| Instant::now() < *until)
                    }
                };
                leads.send_replace(led_until.is_some());
            }
            let tick = self.config.maintenance_interval * 4;
            if led_until.is_some() && Instant::now() >= tick_at {
                let next = periodic.tick(&self.link).await.unwrap_or(tick);
                tick_at = Instant::now() + next.max(MIN_TICK_WAIT).min(tick);
            }
            let pause = match led_until {
                Some(_) => {
                    let pause = promoter.promote_if_due(self).await;
                    pause.min(tick_at.saturating_duration_since(Instant::now()))
                }
                None => {
                    self.notifications.promoter.reset();
                    lease / 4
                }
            };
            let woken = async {
                match led_until {
                    Some(_) => promoter.wait_for_scheduled(self).await,
                    // Notifications announce work only for the leader.
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = woken => {}
                () = self.stopping.cancelled() => {}
            }
        }
    }

    async fn renew_lease(&self, lease: Duration) -> Result<bool, Error> {
        let worker = self.registration.worker().await?;
        store::acquire_lease(&self.link, worker.id, lease).await
    }
}
