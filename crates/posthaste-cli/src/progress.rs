//! Progress of long operations: a bar on a terminal, periodic lines elsewhere.

use std::fmt;
use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{HumanCount, HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use parking_lot::Mutex;

use crate::terminal::Terminal;

/// Time between two progress lines without a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// The unit of progress.
#[derive(Clone, Copy)]
pub(crate) enum Unit {
    Files,
    Jobs,
    Rows,
    Bytes,
}

impl Unit {
    fn bar(self) -> ProgressStyle {
        let counts = match self {
            Self::Bytes => "{bytes}/{total_bytes} ({bytes_per_sec}, {eta} left)",
            Self::Files | Self::Jobs | Self::Rows => "{human_pos}/{human_len} ({rate}, {eta} left)",
        };
        style(&format!("{{prefix:>10}} {{wide_bar}} {counts} {{msg}}"))
    }

    fn spinner(self) -> ProgressStyle {
        style("{prefix:>10} {spinner} {human_pos} ({rate}) {msg}")
    }

    fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Jobs => "jobs",
            Self::Rows => "rows",
            Self::Bytes => "bytes",
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key(
            "rate",
            |state: &ProgressState, text: &mut dyn fmt::Write| {
                let _ = write!(text, "{:.0}/s", state.per_sec());
            },
        )
}

struct LogState {
    last: Instant,
    last_done: Option<u64>,
    /// Steps that were done before the progress began: not part of the rate.
    first_done: Option<u64>,
}

/// A bar on a terminal, periodic lines elsewhere.
pub(crate) struct Progress {
    terminal: Terminal,
    label: &'static str,
    total: Option<u64>,
    unit: Unit,
    bar: Option<ProgressBar>,
    begun: Instant,
    line: Arc<Mutex<LogState>>,
}

impl Terminal {
    /// Shows the progress of an operation with `total` steps, if known.
    pub(crate) fn progress(&self, label: &'static str, total: Option<u64>, unit: Unit) -> Progress {
        Progress::begin(self, label, total, unit)
    }
}

impl Progress {
    fn begin(terminal: &Terminal, label: &'static str, total: Option<u64>, unit: Unit) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = match total {
                Some(total) => ProgressBar::new(total).with_style(unit.bar()),
                None => ProgressBar::new_spinner().with_style(unit.spinner()),
            };
            let bar = terminal.bars().add(bar.with_prefix(label));
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        let now = Instant::now();
        Self {
            terminal: terminal.clone(),
            label,
            total,
            unit,
            bar,
            begun: now,
            line: Arc::new(Mutex::new(LogState {
                last: now,
                last_done: None,
                first_done: None,
            })),
        }
    }

    /// Sets the number of completed steps.
    pub(crate) fn set(&self, done: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            return;
        }
        let mut line = self.line.lock();
        let first = *line.first_done.get_or_insert(done);
        if line.last.elapsed() >= LINE_INTERVAL && line.last_done != Some(done) {
            line.last = Instant::now();
            line.last_done = Some(done);
            self.terminal.print_remark(&self.progress_text(done, first));
        }
    }

    /// Shows a message beside the bar.
    pub(crate) fn show_message(&self, message: impl Into<String>) {
        if let Some(bar) = &self.bar {
            bar.set_message(message.into());
        }
    }

    fn progress_text(&self, done: u64, first: u64) -> String {
        let seconds = self.begun.elapsed().as_secs_f64().max(0.001);
        let rate = (done - first.min(done)) as f64 / seconds;
        let (label, name, done_text) = (self.label, self.unit.name(), HumanCount(done));
        match self.total {
            Some(total) if rate > 0.0 => {
                let left = total.saturating_sub(done) as f64 / rate;
                let left =
                    HumanDuration(Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX));
                format!(
                    "{label}: {done_text} of {} {name} ({rate:.0}/s, {left} left)",
                    HumanCount(total)
                )
            }
            Some(total) => format!("{label}: {done_text} of {} {name}", HumanCount(total)),
            None => format!("{label}: {done_text} {name} ({rate:.0}/s)"),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
