//! Standard output and standard error of the program, in one module because lines and progress bars
//! must not overwrite each other: results go to standard output, everything else to standard error.
//! Only a command that ends without a signal waits for the reader of its results.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use indicatif::MultiProgress;
use serde::Serialize;
use tracing::Level;
use tracing_subscriber::fmt::MakeWriter;

pub(crate) use posthaste_observe::format::{escape_control, escape_controls_in_json, escape_name};

use crate::failure::{CommandExit, USAGE_EXIT_CODE};
use crate::log_line::{self, Format};
use crate::stream::Stream;

/// How long a long-running command waits for a reader of its standard output, the first time.
const READER_TIMEOUT: Duration = Duration::from_secs(1);
/// How long an ending process waits for its readers.
const FINAL_FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a result waits for earlier remarks.
const REMARKS_FLUSH_TIMEOUT: Duration = Duration::from_millis(200);
/// How long the second signal waits for readers.
const SHORT_FLUSH_TIMEOUT: Duration = Duration::from_millis(100);

/// Follows a number of lines.
const DROPPED_LINES: &str = "log lines were dropped because standard error was not read";

/// Writes the last line of a program to standard error, and waits for the reader at most
/// `FINAL_FLUSH_TIMEOUT`.
pub(crate) fn write_last_line(line: &str) {
    let (written, wait) = mpsc::channel();
    let line = format!("{line}\n");
    let write = move || {
        // If standard error is closed, the line is lost.
        let _ = io::stderr().lock().write_all(line.as_bytes());
        let _ = written.send(());
    };
    if std::thread::Builder::new().spawn(write).is_ok() {
        let _ = wait.recv_timeout(FINAL_FLUSH_TIMEOUT);
    }
}

/// Standard output and standard error of the program.
#[derive(Clone)]
pub(crate) struct Terminal {
    bars: MultiProgress,
    json: bool,
    /// The command runs until it is stopped: each event is a line of JSON, not one document.
    is_long_running: bool,
    log: Format,
    /// Lines for standard error.
    remarks: Stream,
    /// Lines of a long-running command for standard output.
    events: Stream,
    /// The reader of standard output has stopped reading.
    is_stuck: Arc<AtomicBool>,
    /// The reader of standard output has closed it.
    is_unread: Arc<AtomicBool>,
}

/// A line of JSON of a long-running command.
#[derive(Serialize)]
struct JsonEventLine<'a, T> {
    event: &'a str,
    #[serde(flatten)]
    more: &'a T,
}

impl Terminal {
    pub(crate) fn new(json: bool, is_long_running: bool, log: Format) -> io::Result<Self> {
        let bars = MultiProgress::new();
        let say_dropped: fn(u64) -> String = match log {
            Format::Text => |lines| format!("{lines} {DROPPED_LINES}\n"),
            Format::Json => |lines| format!("{}\n", log_line::dropped_lines(lines, DROPPED_LINES)),
        };
        let (above, beside) = (bars.clone(), bars.clone());
        let remarks = Stream::start("posthaste-stderr", say_dropped, move |lines| {
            above.suspend(|| io::stderr().lock().write_all(lines))
        })?;
        // A stream of JSON does not report dropped lines.
        let events = Stream::start(
            "posthaste-stdout",
            |_| String::new(),
            move |lines| {
                beside.suspend(|| {
                    let mut out = io::stdout().lock();
                    out.write_all(lines).and_then(|()| out.flush())
                })
            },
        )?;
        Ok(Self {
            bars,
            json,
            is_long_running,
            log,
            remarks,
            events,
            is_stuck: Arc::default(),
            is_unread: Arc::default(),
        })
    }

    /// Waits for the readers at the end of a process.
    pub(crate) fn flush(&self) {
        self.events.flush(FINAL_FLUSH_TIMEOUT);
        self.remarks.flush(FINAL_FLUSH_TIMEOUT);
    }

    /// Waits briefly for the reader of standard error, when a process ends at once.
    pub(crate) fn flush_at_once(&self) {
        self.remarks.flush(SHORT_FLUSH_TIMEOUT);
    }

    /// Whether the reader of standard output has closed it: a command whose output is its only
    /// purpose may end.
    pub(crate) fn is_unread(&self) -> bool {
        self.is_unread.load(Ordering::Relaxed)
    }

    /// Whether results are JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Fails with a usage error if JSON is requested from a command without JSON results.
    pub(crate) fn refuse_json(&self, why: &str) -> anyhow::Result<()> {
        let line = format!("{why}: omit --json.");
        match self.json {
            true => Err(CommandExit {
                code: USAGE_EXIT_CODE,
                line,
            }
            .into()),
            false => Ok(()),
        }
    }

    /// Prints a JSON document.
    pub(crate) fn print_json(&self, value: &impl Serialize) -> anyhow::Result<()> {
        self.print(&escape_controls_in_json(&serde_json::to_string(value)?))
    }

    /// Reports an event: `text` on standard error, and for a long-running command with `--json` a
    /// line of JSON.
    pub(crate) fn report_event(
        &self,
        event: &str,
        text: &str,
        more: &impl Serialize,
    ) -> anyhow::Result<()> {
        self.print_remark(text);
        self.print_event_line(event, more)
    }

    /// Prints an event as a line of JSON, for a long-running command with `--json` only.
    pub(crate) fn print_event_line(
        &self,
        event: &str,
        more: &impl Serialize,
    ) -> anyhow::Result<()> {
        match self.json && self.is_long_running {
            true => self.print_json(&JsonEventLine { event, more }),
            false => Ok(()),
        }
    }

    /// Prints a result. A long-running command prints it with `--json` as the line of an event.
    pub(crate) fn print_outcome(
        &self,
        event: &str,
        text: impl Display,
        value: &impl Serialize,
    ) -> anyhow::Result<()> {
        match self.json && self.is_long_running {
            true => self.print_event_line(event, value),
            false => self.print_result(text, value),
        }
    }

    /// Prints a result: either `text` or, with `--json`, `value`.
    pub(crate) fn print_result(
        &self,
        text: impl Display,
        value: &impl Serialize,
    ) -> anyhow::Result<()> {
        let line = if self.json {
            escape_controls_in_json(&serde_json::to_string(value)?)
        } else {
            escape_control(&text.to_string())
        };
        self.print(&line)
    }

    /// Prints several results: a line each, or `none` if there are none; with `--json`, a list.
    pub(crate) fn print_results<T: Display + Serialize>(
        &self,
        all: &[T],
        none: &str,
    ) -> anyhow::Result<()> {
        let lines: Vec<String> = all.iter().map(T::to_string).collect();
        let text = lines.join("\n");
        self.print_result(if all.is_empty() { none } else { &text }, &all)
    }

    /// Prints a line on standard output. A reader that stops reading (`| head`) is not an error.
    pub(crate) fn print(&self, line: &str) -> anyhow::Result<()> {
        match self.print_after_remarks(&format!("{}\n", line.trim_end())) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_unread.store(true, Ordering::Relaxed);
                Ok(())
            }
            other => Ok(other?),
        }
    }

    /// Prints after all earlier remarks. A long-running command waits briefly.
    fn print_after_remarks(&self, lines: &str) -> io::Result<()> {
        self.remarks.flush(REMARKS_FLUSH_TIMEOUT);
        if !self.is_long_running {
            return self.bars.suspend(|| {
                let mut out = io::stdout().lock();
                out.write_all(lines.as_bytes()).and_then(|()| out.flush())
            });
        }
        self.events.write(lines.as_bytes());
        let patience = match self.is_stuck.load(Ordering::Relaxed) {
            true => Duration::ZERO,
            false => READER_TIMEOUT,
        };
        let is_stuck = !self.events.flush(patience);
        if is_stuck && !self.is_stuck.swap(is_stuck, Ordering::Relaxed) {
            tracing::warn!(
                "standard output is blocked; lines that do not fit in the buffer are dropped"
            );
        }
        self.is_stuck.store(is_stuck, Ordering::Relaxed);
        self.events.error().map_or(Ok(()), Err)
    }

    /// Clears the screen and moves the cursor to its beginning.
    pub(crate) fn clear(&self) -> anyhow::Result<()> {
        if !self.json {
            let mut out = io::stdout().lock();
            write!(out, "\x1b[H\x1b[2J")?;
        }
        Ok(())
    }

    /// Prints a remark on standard error, in the format of the log.
    pub(crate) fn print_remark(&self, line: &str) {
        let line = match self.log {
            Format::Text => escape_control(line),
            Format::Json => log_line::line_without_event(Level::INFO, line),
        };
        self.remarks.write(format!("{line}\n").as_bytes());
    }

    /// Returns the progress bars of the terminal.
    pub(crate) fn bars(&self) -> &MultiProgress {
        &self.bars
    }
}

/// Writes log lines above the bars.
impl<'a> MakeWriter<'a> for Terminal {
    type Writer = Remarks;

    fn make_writer(&'a self) -> Remarks {
        Remarks(self.remarks.clone())
    }
}

/// A writer of whole lines to standard error.
pub(crate) struct Remarks(Stream);

impl Write for Remarks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
