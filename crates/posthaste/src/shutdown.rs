//! Signals that ask a process to stop.

use crate::error::{Error, ErrorKind};

/// Waits for the next SIGTERM or SIGINT.
pub async fn signal() -> Result<(), Error> {
    use tokio::signal::unix::{SignalKind, signal};
    let failed = |error: std::io::Error| {
        Error::from(ErrorKind::Config(format!(
            "cannot listen for signals: {error}"
        )))
    };
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
    Ok(())
}
