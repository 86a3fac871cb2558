//! Runs a capture: connects, retries lost connections, and stops when an operator is needed.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use posthaste::__private::panic_text;
use posthaste::Database;
use tokio::sync::oneshot;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::capture::{Capture, SharedStatus, State, Status, Until};
use crate::error::Error;
use crate::session::Session;

/// The first and the longest delay before a retry; it doubles each time.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(200);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);
/// Time between two attempts to take over from another process.
const STANDBY_POLL: Duration = Duration::from_secs(1);

/// A running capture.
pub struct Running {
    shared: Arc<SharedStatus>,
    ended: oneshot::Receiver<Result<(), Error>>,
    stopping: CancellationToken,
}

impl Capture {
    /// Runs it on a separate thread, so that other work of the process cannot delay its status
    /// messages to the server.
    pub fn start(self, database: impl Into<Database>, until: Until) -> Result<Running, Error> {
        let database = database.into();
        let (shared, stopping) = (Arc::new(SharedStatus::default()), CancellationToken::new());
        let (sender, ended) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::io)?;
        let (their_shared, their_stop) = (Arc::clone(&shared), stopping.clone());
        let body = move || {
            let run = self.run(&database, until, &their_shared, &their_stop);
            let ran =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runtime.block_on(run)));
            let ran = ran.unwrap_or_else(|panic| Err(Error::stopped(panic_text(&*panic))));
            their_shared.set_state(State::Ended);
            if let Err(error) = &ran {
                their_shared.record_error(error);
            }
            // The receiver may be dropped.
            let _ = sender.send(ran);
        };
        let spawned = thread::Builder::new().name("posthaste-capture".into());
        spawned.spawn(body).map_err(Error::io)?;
        Ok(Running {
            shared,
            ended,
            stopping,
        })
    }

    async fn run(
        &self,
        database: &Database,
        until: Until,
        shared: &SharedStatus,
        stopping: &CancellationToken,
    ) -> Result<(), Error> {
        let mut retry = MIN_RETRY_DELAY;
        loop {
            let was = shared.status().events;
            let session = self.run_session(database, until, shared, stopping);
            let ran = Box::pin(session).await;
            let error = match ran {
                Ok(()) => return Ok(()),
                Err(error) if stopping.is_cancelled() => {
                    tracing::warn!(capture = %self.name, %error, "a capture failed while stopping");
                    return Ok(());
                }
                Err(error) => error,
            };
            if error.is_stopped() {
                tracing::error!(capture = %self.name, %error, "a capture has stopped");
                return Err(error);
            }
            if error.is_paused() && until == Until::Caught {
                return Err(error);
            }
            shared.record_error(&error);
            if shared.status().events > was {
                retry = MIN_RETRY_DELAY;
            }
            let wait = match (error.is_in_use(), error.is_paused()) {
                (true, _) => {
                    shared.set_state(State::Standby);
                    STANDBY_POLL
                }
                (false, true) => {
                    shared.set_state(State::Paused);
                    STANDBY_POLL
                }
                (false, false) => {
                    shared.set_state(State::Connecting);
                    tracing::warn!(capture = %self.name, %error, "a capture connects again");
                    retry
                }
            };
            retry = (retry * 2).min(MAX_RETRY_DELAY);
            tokio::select! {
                () = sleep(wait) => {}
                () = stopping.cancelled() => return Ok(()),
            }
        }
    }

    async fn run_session(
        &self,
        database: &Database,
        until: Until,
        shared: &SharedStatus,
        stopping: &CancellationToken,
    ) -> Result<(), Error> {
        let begun = tokio::select! {
            begun = Session::begin(self, database, shared, stopping) => begun,
            () = stopping.cancelled() => return Ok(()),
        };
        let mut session = begun?;
        let end = (until == Until::Caught).then_some(session.end);
        let ran = Box::pin(session.run(end)).await;
        let is_in_order = |error: &Error| error.is_paused() || error.is_stopped();
        if ran.as_ref().err().is_none_or(is_in_order) {
            session.end().await;
        }
        ran
    }
}

impl Running {
    /// Its status.
    pub fn status(&self) -> Status {
        self.shared.status().clone()
    }

    /// Stops it after it has written the events that it read.
    pub fn stop(&self) {
        self.stopping.cancel();
    }

    /// Completes when it has ended, with the error that ended it.
    pub async fn ended(&mut self) -> Result<(), Error> {
        match (&mut self.ended).await {
            Ok(ended) => ended,
            Err(_) => Err(Error::stopped(
                "the thread of the capture panicked: report this bug",
            )),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopping.cancel();
    }
}
