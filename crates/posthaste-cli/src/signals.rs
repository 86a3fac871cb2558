//! SIGINT, SIGTERM and SIGHUP: the first asks to stop in good order, the second ends at once.

use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::local_postgres::LastWord;
use crate::terminal::Terminal;

/// What a shell reports for a program that Ctrl-C ended.
const ENDED_BY_SIGNAL: i32 = 130;

/// What the process gets of signals.
#[derive(Clone)]
pub(crate) struct Signals {
    stop: CancellationToken,
    last_word: Arc<Mutex<Option<LastWord>>>,
}

impl Signals {
    /// Listens from now on; signals no longer end the process by themselves.
    pub(crate) fn listen(terminal: Terminal) -> anyhow::Result<Self> {
        let mut heard = Heard {
            interrupt: signal(SignalKind::interrupt()).context("cannot listen for signals")?,
            terminate: signal(SignalKind::terminate()).context("cannot listen for signals")?,
            hangup: signal(SignalKind::hangup()).context("cannot listen for signals")?,
        };
        let signals = Self {
            stop: CancellationToken::new(),
            last_word: Arc::default(),
        };
        let told = signals.clone();
        tokio::spawn(async move {
            heard.next().await;
            terminal.note("stopping in good order; a second signal ends at once");
            told.stop.cancel();
            heard.next().await;
            if let Ok(last_word) = told.last_word.lock()
                && let Some(last_word) = last_word.as_ref()
            {
                last_word.say();
            }
            std::process::exit(ENDED_BY_SIGNAL);
        });
        Ok(signals)
    }

    /// Set by the first signal.
    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// What is still to be done when the second signal comes.
    pub(crate) fn leave(&self, last_word: Option<LastWord>) {
        if let Ok(mut kept) = self.last_word.lock() {
            *kept = last_word;
        }
    }
}

struct Heard {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Heard {
    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
