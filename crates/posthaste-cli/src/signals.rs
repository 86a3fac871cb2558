//! SIGINT, SIGTERM and SIGHUP: the first one stops the process gracefully, the second one at once.
//!
//! A signal that the process was started to ignore remains ignored, as `nohup` and background jobs
//! of a shell require; SIGTERM is always handled. A separate thread handles signals, so that no
//! blocked code can delay them.

use std::sync::Arc;

use anyhow::Context as _;
use parking_lot::Mutex;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::local_postgres::QuickStopper;
use crate::terminal::Terminal;

/// The exit code that a shell reports for a program ended by Ctrl-C.
const EXIT_CODE_OF_CTRL_C: i32 = 130;

/// The signals that the process has received.
#[derive(Clone)]
pub(crate) struct Signals {
    stop: CancellationToken,
    quick_stopper: Arc<Mutex<Option<QuickStopper>>>,
}

impl Signals {
    /// Starts to handle signals; they no longer end the process by default.
    pub(crate) fn listen(terminal: Terminal) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let heard = {
            let _entered = runtime.enter();
            SignalStreams {
                interrupt: stream_unless_ignored(SignalKind::interrupt())?,
                terminate: Some(signal_stream(SignalKind::terminate())?),
                hangup: stream_unless_ignored(SignalKind::hangup())?,
            }
        };
        let signals = Self {
            stop: CancellationToken::new(),
            quick_stopper: Arc::default(),
        };
        let listener = signals.clone();
        std::thread::Builder::new()
            .name("posthaste-signals".into())
            .spawn(move || runtime.block_on(listener.handle(heard, terminal)))?;
        Ok(signals)
    }

    async fn handle(self, mut streams: SignalStreams, terminal: Terminal) {
        streams.next_signal().await;
        terminal.print_remark("stopping gracefully; a second signal stops at once");
        self.stop.cancel();
        streams.next_signal().await;
        if let Some(quick_stopper) = self.quick_stopper.lock().as_ref() {
            quick_stopper.run();
        }
        terminal.flush_at_once();
        std::process::exit(EXIT_CODE_OF_CTRL_C);
    }

    /// Returns a token that the first signal cancels.
    pub(crate) fn stop_token(&self) -> &CancellationToken {
        &self.stop
    }

    /// Fails after a signal: a one-time command may be incomplete.
    pub(crate) fn fail_if_signalled(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            !self.stop.is_cancelled(),
            "stopped before everything was complete."
        );
        Ok(())
    }

    /// Sets the action that the second signal runs.
    pub(crate) fn set_quick_stopper(&self, quick_stopper: Option<QuickStopper>) {
        *self.quick_stopper.lock() = quick_stopper;
    }
}

struct SignalStreams {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hangup: Option<Signal>,
}

impl SignalStreams {
    async fn next_signal(&mut self) {
        tokio::select! {
            () = next_signal(&mut self.interrupt) => {}
            () = next_signal(&mut self.terminate) => {}
            () = next_signal(&mut self.hangup) => {}
        }
    }
}

async fn next_signal(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => _ = signal.recv().await,
        None => std::future::pending().await,
    }
}

/// Returns a stream of a signal, `None` if it is ignored.
pub(crate) fn stream_unless_ignored(kind: SignalKind) -> anyhow::Result<Option<Signal>> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if ignores(&status, kind.as_raw_value()) {
        return Ok(None);
    }
    signal_stream(kind).map(Some)
}

fn signal_stream(kind: SignalKind) -> anyhow::Result<Signal> {
    signal(kind).context("cannot listen for signals")
}

/// Whether a process with this status file of Linux ignores a signal. Other systems have no such
/// file, and every signal is handled.
fn ignores(status: &str, signal: i32) -> bool {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::ignores;

    #[test]
    fn ignored_signals_are_read_from_the_process_status() {
        let status = "Name:\tposthaste\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001003\n";
        let ignored: Vec<i32> = (1..=31).filter(|one| ignores(status, *one)).collect();
        assert_eq!(ignored, [1, 2, 13]);
        assert!(!ignores("", 1));
    }
}
