//! SIGINT, SIGTERM and SIGHUP: the first asks to stop in good order, the second ends at once.
//!
//! A signal that the process was started to ignore stays ignored, as `nohup` and a shell that
//! starts it in the background want it; SIGTERM asks in any case. They are heard on a thread of
//! their own, which nothing that stands still elsewhere in the process stops.

use std::sync::Arc;

use anyhow::Context as _;
use parking_lot::Mutex;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::local_postgres::QuickStop;
use crate::terminal::Terminal;

/// What a shell reports for a program that Ctrl-C ended.
const ENDED_BY_SIGNAL: i32 = 130;

/// What the process gets of signals.
#[derive(Clone)]
pub(crate) struct Signals {
    stop: CancellationToken,
    quick_stop: Arc<Mutex<Option<QuickStop>>>,
}

impl Signals {
    /// Listens from now on; signals no longer end the process by themselves.
    pub(crate) fn listen(terminal: Terminal) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let heard = {
            let _entered = runtime.enter();
            SignalStreams {
                interrupt: listener(SignalKind::interrupt())?,
                terminate: Some(signal_stream(SignalKind::terminate())?),
                hangup: listener(SignalKind::hangup())?,
            }
        };
        let signals = Self {
            stop: CancellationToken::new(),
            quick_stop: Arc::default(),
        };
        let listener = signals.clone();
        std::thread::Builder::new()
            .name("posthaste-signals".into())
            .spawn(move || runtime.block_on(listener.handle(heard, terminal)))?;
        Ok(signals)
    }

    async fn handle(self, mut streams: SignalStreams, terminal: Terminal) {
        streams.next().await;
        terminal.note("stopping gracefully; a second signal stops at once");
        self.stop.cancel();
        streams.next().await;
        if let Some(quick_stop) = self.quick_stop.lock().as_ref() {
            quick_stop.run();
        }
        terminal.flush_at_once();
        std::process::exit(ENDED_BY_SIGNAL);
    }

    /// Set by the first signal.
    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// An error when one came: nobody knows whether what was to be done once is all done.
    pub(crate) fn fail_if_signalled(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            !self.stop.is_cancelled(),
            "stopped before everything was done."
        );
        Ok(())
    }

    /// What is still to be done when the second signal comes.
    pub(crate) fn set_quick_stop(&self, quick_stop: Option<QuickStop>) {
        *self.quick_stop.lock() = quick_stop;
    }
}

struct SignalStreams {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hangup: Option<Signal>,
}

impl SignalStreams {
    async fn next(&mut self) {
        tokio::select! {
            () = next(&mut self.interrupt) => {}
            () = next(&mut self.terminate) => {}
            () = next(&mut self.hangup) => {}
        }
    }
}

async fn next(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => _ = signal.recv().await,
        None => std::future::pending().await,
    }
}

/// Hears a signal, unless it is ignored.
pub(crate) fn listener(kind: SignalKind) -> anyhow::Result<Option<Signal>> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if ignores(&status, kind.as_raw_value()) {
        return Ok(None);
    }
    signal_stream(kind).map(Some)
}

fn signal_stream(kind: SignalKind) -> anyhow::Result<Signal> {
    signal(kind).context("cannot listen for signals")
}

/// Whether a process with this status (of Linux) ignores a signal. Other systems report no status,
/// and every signal is handled.
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
