//! Child processes that tests kill, interrupt and pause.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::sync::watch;

use crate::eventually;
use crate::watchdog::Watchdog;

/// The path of `env` on every Unix. Tests may change `PATH`.
const ENV_PROGRAM: &str = "/usr/bin/env";
/// An option of GNU `env`: the program that it executes does not ignore these signals.
const RESET_SIGNALS_OPTION: &str = "--default-signal=HUP,INT,QUIT,PIPE,TERM";

/// A child process whose output is read continuously.
///
/// It leads a separate process group. It is killed with that group and reaped when it is dropped,
/// or when the test process ends in any way.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    status: Option<ExitStatus>,
    watchdog: Option<Watchdog>,
    stdout: Lines,
    stderr: Lines,
}

impl Child {
    /// Starts a command with empty input and collects its output.
    pub fn spawn(command: &mut Command) -> anyhow::Result<Self> {
        Self::start(command.stdin(Stdio::null()))
    }

    /// Starts a command whose input is these bytes, followed by the end of the input.
    pub fn spawn_fed(command: &mut Command, input: Vec<u8>) -> anyhow::Result<Self> {
        let mut child = Self::start(command.stdin(Stdio::piped()))?;
        let mut stdin = child.process.stdin.take().context("no input")?;
        // A child that ends before it has read everything breaks the pipe; that is allowed.
        std::thread::spawn(move || stdin.write_all(&input));
        Ok(child)
    }

    fn start(command: &mut Command) -> anyhow::Result<Self> {
        let mut process = command
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {:?}", command.get_program()))?;
        let watchdog = Watchdog::over_process_group(process.id());
        let stdout = Lines::read(process.stdout.take().context("no output")?);
        let stderr = Lines::read(process.stderr.take().context("no output")?);
        let mut child = Self {
            process,
            status: None,
            watchdog: None,
            stdout,
            stderr,
        };
        child.watchdog = Some(watchdog?);
        Ok(child)
    }

    /// The process ID.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Waits for the next line of its standard output that contains this text. The search begins
    /// after the line that was found before.
    pub async fn line(&mut self, text: &str, within: Duration) -> anyhow::Result<String> {
        let found = self.stdout.find(text, within).await;
        found.map_err(|error| error.context(format!("its standard error: {:?}", self.stderr.all())))
    }

    /// As [`line`](Self::line), on its standard error.
    pub async fn error_line(&mut self, text: &str, within: Duration) -> anyhow::Result<String> {
        let found = self.stderr.find(text, within).await;
        found
            .map_err(|error| error.context(format!("its standard output: {:?}", self.stdout.all())))
    }

    /// All lines of its standard output until now.
    pub fn stdout(&self) -> Vec<String> {
        self.stdout.all()
    }

    /// All lines of its standard error until now.
    pub fn stderr(&self) -> Vec<String> {
        self.stderr.all()
    }

    /// Waits until the child has ended by itself and all its output is read.
    pub async fn exit(&mut self, within: Duration) -> anyhow::Result<ExitStatus> {
        let outcome = eventually(within, "the child ended", async || {
            Ok(self.reap()?.is_some())
        })
        .await;
        let Some(status) = self.status else {
            let said = format!(
                "it said {:?} and {:?}",
                self.stdout.all(),
                self.stderr.all()
            );
            return Err(outcome.err().context("it did not end")?.context(said));
        };
        self.stdout.end(within).await?;
        self.stderr.end(within).await?;
        Ok(status)
    }

    /// Kills the child with SIGKILL and reaps it.
    pub fn kill(&mut self) -> anyhow::Result<ExitStatus> {
        if self.reap()?.is_none() {
            self.process.kill()?;
            let status = self.process.wait()?;
            self.record_end(status);
        }
        self.status.context("it did not end")
    }

    /// Whether the child catches SIGTERM, which would end it otherwise.
    pub fn catches_term(&self) -> anyhow::Result<bool> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.context("no SigCgt")?.trim(), 16)?;
        Ok(caught >> (Signal::TERM.as_raw() - 1) & 1 == 1)
    }

    /// Requests the child to end, with SIGTERM.
    pub fn terminate(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)
    }

    /// Interrupts the child with SIGINT, as Ctrl-C does.
    pub fn interrupt(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::INT)
    }

    /// Sends SIGHUP, as a terminal does when it is closed.
    pub fn hang_up(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::HUP)
    }

    /// Pauses the child with SIGSTOP.
    pub fn pause(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Resumes the child with SIGCONT.
    pub fn resume(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Stops reading standard error: the child's writes to it block once the pipe is full.
    pub fn stop_reading_errors(&self) {
        self.stderr.gate.set_open(false);
    }

    /// Reads standard error again.
    pub fn read_errors_again(&self) {
        self.stderr.gate.set_open(true);
    }

    fn signal(&mut self, signal: Signal) -> anyhow::Result<()> {
        if let Some(status) = self.reap()? {
            bail!("it has ended already ({status}): {:?}", self.stderr.all());
        }
        kill_process(self.process_group()?, signal).with_context(|| format!("sending {signal:?}"))
    }

    fn reap(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        if self.status.is_none()
            && let Some(status) = self.process.try_wait()?
        {
            self.record_end(status);
        }
        Ok(self.status)
    }

    fn record_end(&mut self, status: ExitStatus) {
        // The process ID may soon belong to another process, which the watchdog must not kill.
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.dismiss();
        }
        self.status = Some(status);
    }

    fn process_group(&self) -> anyhow::Result<Pid> {
        Pid::from_raw(self.pid().cast_signed()).context("no such process")
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.status.is_none() {
            if let Ok(group) = self.process_group() {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = self.kill();
        }
    }
}

/// Creates a command that does not ignore the signals that request its end. This process may have
/// been started with some of them ignored, as shells do for background processes.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    static ENV_CAN_RESET_SIGNALS: LazyLock<bool> = LazyLock::new(|| {
        let resets = Command::new(ENV_PROGRAM)
            .args([RESET_SIGNALS_OPTION, "true"])
            .output();
        resets.is_ok_and(|output| output.status.success())
    });
    if !*ENV_CAN_RESET_SIGNALS {
        return Command::new(program);
    }
    let mut command = Command::new(ENV_PROGRAM);
    command.arg(RESET_SIGNALS_OPTION).arg(program);
    command
}

/// A gate that readers pass while it is open.
#[derive(Debug)]
struct Gate {
    is_open: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn set_open(&self, is_open: bool) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = is_open;
        self.changed.notify_all();
    }

    fn wait_until_open(&self) {
        let is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(is_open, |is_open| !*is_open));
    }
}

/// Lines of a pipe. A separate thread reads them, so that the child never waits for its reader.
#[derive(Debug)]
struct Lines {
    lines: Arc<Mutex<Vec<String>>>,
    /// The number of lines, and whether the pipe has ended.
    progress: watch::Receiver<(usize, bool)>,
    next: usize,
    gate: Arc<Gate>,
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.gate.set_open(true);
    }
}

impl Lines {
    fn read(pipe: impl Read + Send + 'static) -> Self {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (sender, progress) = watch::channel((0, false));
        let written = Arc::clone(&lines);
        let gate = Arc::new(Gate {
            is_open: Mutex::new(true),
            changed: Condvar::new(),
        });
        let passed = Arc::clone(&gate);
        std::thread::spawn(move || {
            let mut count = 0;
            for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                written
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(line);
                count += 1;
                sender.send_replace((count, false));
                passed.wait_until_open();
            }
            sender.send_replace((count, true));
        });
        Self {
            lines,
            progress,
            next: 0,
            gate,
        }
    }

    fn all(&self) -> Vec<String> {
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    async fn find(&mut self, text: &str, within: Duration) -> anyhow::Result<String> {
        let search = async {
            loop {
                let (_, ended) = *self.progress.borrow_and_update();
                let found = {
                    let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
                    let rest = lines.iter().enumerate().skip(self.next);
                    rest.into_iter()
                        .find(|(_, line)| line.contains(text))
                        .map(|(at, line)| (at, line.clone()))
                };
                if let Some((at, line)) = found {
                    self.next = at + 1;
                    return Ok(line);
                }
                if ended {
                    bail!("it ended its output without {text:?}");
                }
                self.progress.changed().await?;
            }
        };
        let outcome = tokio::time::timeout(within, search).await;
        let outcome =
            outcome.unwrap_or_else(|_| Err(anyhow::anyhow!("not within {within:?}: {text:?}")));
        outcome.map_err(|error| error.context(format!("it wrote {:?}", self.all())))
    }

    async fn end(&mut self, within: Duration) -> anyhow::Result<()> {
        tokio::time::timeout(within, self.progress.wait_for(|(_, ended)| *ended))
            .await
            .context("the child ended, and something still holds its output")??;
        Ok(())
    }
}

/// Returns whether a process runs: it exists and does not wait to be reaped.
pub fn is_alive(pid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !matches!(stat_fields(&stat).next(), Some("Z" | "X") | None),
        Err(_) if fs::exists("/proc/self").unwrap_or(false) => false,
        Err(_) => Pid::from_raw(pid.cast_signed())
            .is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok()),
    }
}

/// Lists the running processes that this one started. Works on Linux only.
pub(crate) fn children_of(parent: u32) -> anyhow::Result<Vec<u32>> {
    let parent = parent.to_string();
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc").context("reading /proc")? {
        let Some(pid) = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if stat_fields(&stat).nth(1) == Some(&parent) {
            children.push(pid);
        }
    }
    Ok(children)
}

/// The fields after the name (state, parent, …). The name may contain spaces and brackets.
fn stat_fields(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(')')
        .map_or("", |(_, rest)| rest)
        .split_ascii_whitespace()
}
