//! Signals that ask a process to stop.

use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal as on};

use crate::error::{Error, ErrorKind};

/// Waits for the next SIGTERM or SIGINT. Within a Tokio runtime it listens from the call on,
/// otherwise from the first poll on: call it before you report that you are ready, and await it
/// later. From then on these signals no longer end the process by themselves. Signals between two
/// calls are lost.
///
/// ```no_run
/// # async fn serve(listener: tokio::net::TcpListener) {}
/// # async fn run(worker: posthaste::WorkerHandle) -> Result<(), Box<dyn std::error::Error>> {
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
/// let signal = posthaste::signal();
/// println!("listening on {}", listener.local_addr()?);
/// tokio::select! {
///     () = serve(listener) => {}
///     asked = signal => asked?,
/// }
/// worker.stop().await?;
/// # Ok(())
/// # }
/// ```
pub fn signal() -> impl Future<Output = Result<(), Error>> + Send {
    let signals = Handle::try_current().is_ok().then(Signals::listen);
    async move {
        let mut signals = signals.unwrap_or_else(Signals::listen)?;
        signals.next().await;
        Ok(())
    }
}

/// Receives SIGTERM and SIGINT of the process: all that arrive after `listen`, even while no task
/// waits.
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

    /// Completes when a signal has arrived since the last call.
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
    async fn signals_before_the_wait_are_not_lost() {
        let mut witness = Signals::listen().expect("signals");
        let signal = signal();
        terminated().await;
        witness.next().await;
        let heard = tokio::time::timeout(Duration::from_secs(10), signal).await;
        heard.expect("it came before").expect("signals");
    }

    #[tokio::test]
    async fn signals_without_a_waiter_are_not_lost() {
        let mut signals = Signals::listen().expect("signals");
        let mut witness = Signals::listen().expect("signals");
        for _ in 0..2 {
            terminated().await;
            // The signal has arrived before `next` is called.
            witness.next().await;
            tokio::time::timeout(Duration::from_secs(10), signals.next())
                .await
                .expect("it is heard");
        }
    }
}
