//! Both streams of the program, in one file because lines and progress bars must not write over
//! each other: results go to standard output, everything else to standard error. Only a command
//! that ends by itself waits for the reader of its results.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use indicatif::MultiProgress;
use serde::Serialize;
use tracing::Level;
use tracing_subscriber::fmt::MakeWriter;

pub(crate) use posthaste_observe::format::{escape_control, escape_json, escape_name};

use crate::failure::{Ended, USAGE};
use crate::log_line::{self, Format};
use crate::stream::Stream;

/// What goes on waits this long for a reader of its standard output, the first time.
const READER: Duration = Duration::from_secs(1);
/// The end waits this long for those who read.
const LAST_LINES: Duration = Duration::from_secs(2);
/// A result waits this long for remarks that came before it.
const REMARKS: Duration = Duration::from_millis(200);
/// The second signal waits this long.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Follows a number, when standard error was not read.
const DROPPED: &str = "log lines were dropped because standard error was not read";

/// The last line of a program, on standard error: waited for as long as at any end.
pub(crate) fn last_line(line: &str) {
    let (written, wait) = mpsc::channel();
    let line = format!("{line}\n");
    let write = move || {
        // With standard error closed there is nobody left to tell.
        let _ = io::stderr().lock().write_all(line.as_bytes());
        let _ = written.send(());
    };
    if std::thread::Builder::new().spawn(write).is_ok() {
        let _ = wait.recv_timeout(LAST_LINES);
    }
}

/// Both streams of the program.
#[derive(Clone)]
pub(crate) struct Terminal {
    bars: MultiProgress,
    json: bool,
    /// It works until somebody stops it: what happens is a line of JSON each, not one document.
    is_long_running: bool,
    log: Format,
    /// Standard error.
    remarks: Stream,
    /// Standard output of a command that goes on.
    events: Stream,
    /// The one that reads standard output has stopped to.
    is_stuck: Arc<AtomicBool>,
    /// The one that read standard output has gone.
    is_unread: Arc<AtomicBool>,
}

/// A line of JSON of a command that goes on.
#[derive(Serialize)]
struct Event<'a, T> {
    event: &'a str,
    #[serde(flatten)]
    more: &'a T,
}

impl Terminal {
    pub(crate) fn new(json: bool, is_long_running: bool, log: Format) -> io::Result<Self> {
        let bars = MultiProgress::new();
        let say_dropped: fn(u64) -> String = match log {
            Format::Text => |lines| format!("{lines} {DROPPED}\n"),
            Format::Json => |lines| format!("{}\n", log_line::dropped(lines, DROPPED)),
        };
        let (above, beside) = (bars.clone(), bars.clone());
        let remarks = Stream::start("posthaste-stderr", say_dropped, move |lines| {
            above.suspend(|| io::stderr().lock().write_all(lines))
        })?;
        // The reader of a stream of JSON knows no remarks.
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

    /// Waits for those who read, as long as it may at the end.
    pub(crate) fn flush(&self) {
        self.events.flush(LAST_LINES);
        self.remarks.flush(LAST_LINES);
    }

    /// The same for a process that ends at once.
    pub(crate) fn flush_at_once(&self) {
        self.remarks.flush(AT_ONCE);
    }

    /// Whether the one that read standard output has gone: what goes on only to be read may end.
    pub(crate) fn is_unread(&self) -> bool {
        self.is_unread.load(Ordering::Relaxed)
    }

    /// Whether a program reads the results.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// An error where a program asks for results and there are none to give it.
    pub(crate) fn refuse_json(&self, why: &str) -> anyhow::Result<()> {
        let line = format!("{why}: leave --json out.");
        match self.json {
            true => Err(Ended { code: USAGE, line }.into()),
            false => Ok(()),
        }
    }

    /// A result that only programs get.
    pub(crate) fn document(&self, value: &impl Serialize) -> anyhow::Result<()> {
        self.print(&escape_json(&serde_json::to_string(value)?))
    }

    /// Something that happened: `text` for a person on standard error, and a line of JSON for a
    /// program where the command goes on.
    pub(crate) fn event(
        &self,
        event: &str,
        text: &str,
        more: &impl Serialize,
    ) -> anyhow::Result<()> {
        self.note(text);
        self.line(event, more)
    }

    /// The same without a word for people.
    pub(crate) fn line(&self, event: &str, more: &impl Serialize) -> anyhow::Result<()> {
        match self.json && self.is_long_running {
            true => self.document(&Event { event, more }),
            false => Ok(()),
        }
    }

    /// A result of a command that may go on: for a program a line of JSON then, else the document.
    pub(crate) fn outcome(
        &self,
        event: &str,
        text: impl Display,
        value: &impl Serialize,
    ) -> anyhow::Result<()> {
        match self.json && self.is_long_running {
            true => self.line(event, value),
            false => self.result(text, value),
        }
    }

    /// A result: `text` for a person, `value` for a program, never both.
    pub(crate) fn result(&self, text: impl Display, value: &impl Serialize) -> anyhow::Result<()> {
        let line = if self.json {
            escape_json(&serde_json::to_string(value)?)
        } else {
            escape_control(&text.to_string())
        };
        self.print(&line)
    }

    /// Several results: a line each for a person, `none` where there are none; a list for a
    /// program.
    pub(crate) fn results<T: Display + Serialize>(
        &self,
        all: &[T],
        none: &str,
    ) -> anyhow::Result<()> {
        let lines: Vec<String> = all.iter().map(T::to_string).collect();
        let text = lines.join("\n");
        self.result(if all.is_empty() { none } else { &text }, &all)
    }

    /// A line on standard output. A reader that has seen enough (`| head`) is not a failure.
    pub(crate) fn print(&self, line: &str) -> anyhow::Result<()> {
        match self.printed(&format!("{}\n", line.trim_end())) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_unread.store(true, Ordering::Relaxed);
                Ok(())
            }
            other => Ok(other?),
        }
    }

    /// After all earlier remarks. A command that continues does not wait for long.
    fn printed(&self, lines: &str) -> io::Result<()> {
        self.remarks.flush(REMARKS);
        if !self.is_long_running {
            return self.bars.suspend(|| {
                let mut out = io::stdout().lock();
                out.write_all(lines.as_bytes()).and_then(|()| out.flush())
            });
        }
        self.events.write(lines.as_bytes());
        let patience = match self.is_stuck.load(Ordering::Relaxed) {
            true => Duration::ZERO,
            false => READER,
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

    /// Empties the screen: what follows stands where the last one stood.
    pub(crate) fn clear(&self) -> anyhow::Result<()> {
        if !self.json {
            let mut out = io::stdout().lock();
            write!(out, "\x1b[H\x1b[2J")?;
        }
        Ok(())
    }

    /// A remark on standard error, where the log is.
    pub(crate) fn note(&self, line: &str) {
        let line = match self.log {
            Format::Text => escape_control(line),
            Format::Json => log_line::line(Level::INFO, line),
        };
        self.remarks.write(format!("{line}\n").as_bytes());
    }

    /// What bars are drawn with.
    pub(crate) fn bars(&self) -> &MultiProgress {
        &self.bars
    }
}

/// Log lines go above the bars.
impl<'a> MakeWriter<'a> for Terminal {
    type Writer = Remarks;

    fn make_writer(&'a self) -> Remarks {
        Remarks(self.remarks.clone())
    }
}

/// Standard error, for whole lines.
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
