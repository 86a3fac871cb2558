//! Signals that ask a process to stop.

use tokio::signal::unix::{Signal, SignalKind, signal as on};

use crate::error::{Error, ErrorKind};

/// Waits for the next SIGTERM or SIGINT from the call on, which needs a Tokio runtime. Call it
/// before you say that you are ready, and await it later. Signals between two calls are lost.
pub fn signal() -> impl Future<Output = Result<(), Error>> + Send {
    let signals = Signals::listen();
    async move {
        signals?.next().await;
        Ok(())
    }
}

/// Receives SIGTERM and SIGINT of the process: all that come from now on, also while nobody waits.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn listen() -> Result<Self, Error> {
        let failed = |error: std::io::Error| {
            Error::from(ErrorKind::Config(format!(
                "cannot listen for signals: {error}"
            )))
        };
        Ok(Self {
            terminate: on(SignalKind::terminate()).map_err(failed)?,
            interrupt: on(SignalKind::interrupt()).map_err(failed)?,
        })
    }

    /// Completes when a signal has come since the last time.
    pub(crate) async fn next(&mut self) {
        tokio::select! { _ = self.terminate.recv() => {}, _ = self.interrupt.recv() => {} }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::*;

    async fn terminated() {
        let this = std::process::id().to_string();
        let sent = Command::new("kill").args(["-TERM", &this]).status();
        assert!(sent.expect("kill runs").success());
    }

    #[tokio::test]
    async fn a_signal_that_comes_while_nobody_waits_is_heard() {
        let mut signals = Signals::listen().expect("signals");
        let mut witness = Signals::listen().expect("signals");
        for _ in 0..2 {
            terminated().await;
            // It has arrived, and is not asked for before that.
            witness.next().await;
            tokio::time::timeout(Duration::from_secs(10), signals.next())
                .await
                .expect("it is heard");
        }
    }
}
