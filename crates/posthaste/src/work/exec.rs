//! Handlers that are commands: one process, and the group that it leads, per job.

mod end;
mod guard;

use std::ffi::OsString;
use std::fs::Metadata;
use std::future::Future;
use std::io::{self, PipeReader};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind};
use crate::handler::{HandlerResult, RetryLater};
use crate::job::Job;
use crate::work::context::Context;
use end::{End, Tail, decide};
use guard::GUARD;

/// Between the friendly signal and the one that cannot be refused.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// What was written before the end is read for this long: a process that left the group may hold
/// the pipe open.
const DRAIN: Duration = Duration::from_secs(1);
/// A command that cannot be started is searched for again after this.
const ABSENT: Duration = Duration::from_secs(60);
/// Never handed down: they open the worker's database.
const WITHHELD: [&str; 8] = [
    "DATABASE_URL",
    "PGHOST",
    "PGPORT",
    "PGUSER",
    "PGDATABASE",
    "PGPASSWORD",
    "PGPASSFILE",
    "PGSERVICE",
];

/// A handler that runs a command for each job.
///
/// The command reads the job's arguments as JSON from its standard input, and finds
/// `POSTHASTE_JOB_ID`, `POSTHASTE_JOB_NAME`, `POSTHASTE_QUEUE`, `POSTHASTE_ATTEMPT` (1 at the
/// first), `POSTHASTE_TAG` and `POSTHASTE_DELIVERY_ID` in its environment; for a job with trace
/// context ([`NewJob::trace`](crate::NewJob::trace)) also `TRACEPARENT` and `TRACESTATE`, which are
/// never the worker's own. Exit code 0 is done, 65 discards the job, 75 and everything else is
/// tried again. The end of what it wrote, to either stream, goes into the error.
///
/// It leads a process group of its own. The group ends with the command, with its time, with the
/// worker's patience at a stop (by SIGKILL then), and with the worker itself, also when that is
/// killed. Who leaves the group (`setsid`) gets away.
///
/// ```no_run
/// # fn example(pool: deadpool_postgres::Pool) -> Result<(), posthaste::Error> {
/// use posthaste::{Exec, Worker};
/// let worker = Worker::builder(pool)
///     .queue("default", 4)
///     .handler("mail.*", Exec::new("/usr/local/bin/send-mail")?.handler());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Exec(Arc<Settings>);

#[derive(Clone, Debug)]
struct Settings {
    program: PathBuf,
    arguments: Vec<OsString>,
    time_limit: Duration,
    withheld: Vec<OsString>,
}

impl Exec {
    /// Runs this program, which must be there now and be named with a path: nothing is searched
    /// for.
    pub fn new(program: impl Into<PathBuf>) -> Result<Self, Error> {
        let program = program.into();
        if !program.as_os_str().as_encoded_bytes().contains(&b'/') {
            let hint = format!("write the path of the command {}", program.display());
            return Err(ErrorKind::Config(hint).into());
        }
        present(&program).map_err(|reason| ErrorKind::Config(reason.to_string()))?;
        Ok(Self(Arc::new(Settings {
            program,
            arguments: Vec::new(),
            time_limit: Duration::from_secs(240),
            withheld: WITHHELD.map(OsString::from).into(),
        })))
    }

    /// Arguments of the program, the same for each job.
    pub fn arguments(self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.with(|settings| settings.arguments = arguments.into_iter().map(Into::into).collect())
    }

    /// How long a run may take; then it is asked to end (SIGTERM), and five seconds later made to.
    /// Four minutes by default. Keep it below the queue's timeout by more than that:
    /// the queue's ends it without asking.
    pub fn time_limit(self, limit: Duration) -> Self {
        self.with(|settings| settings.time_limit = limit)
    }

    /// Variables of the environment that the command does not inherit, beside those of the worker's
    /// database (`DATABASE_URL`, `PGPASSWORD` and the like).
    pub fn withhold(self, variables: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.with(|settings| {
            let more = variables.into_iter().map(Into::into);
            settings.withheld.extend(more);
        })
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// For [`WorkerBuilder::handler`](crate::WorkerBuilder::handler).
    pub fn handler<S: Send + Sync + 'static>(
        self,
    ) -> impl Fn(Context<S>, Arc<Job>) -> Pin<Box<dyn Future<Output = HandlerResult> + Send>>
    + Send
    + Sync
    + 'static {
        move |context, job| {
            let settings = Arc::clone(&self.0);
            Box::pin(async move { settings.run(&context, &job).await })
        }
    }
}

impl Settings {
    async fn run(&self, context: &Context<impl Sync>, job: &Job) -> HandlerResult {
        let reschedule = |error: io::Error| RetryLater::without_attempt(ABSENT, error.to_string());
        present(&self.program).map_err(reschedule)?;
        let Running {
            group,
            input,
            output,
            ended,
        } = self.start(context, job).map_err(reschedule)?;
        let mut tail = Tail::default();
        let end = {
            let talk = pin!(async {
                tokio::join!(feed(input, job.kwargs_json()), listen(output, &mut tail))
            });
            let end = pin!(self.end(&group, ended));
            match select(end, talk).await {
                Either::Left((end, talk)) => {
                    let _ = tokio::time::timeout(DRAIN, talk).await;
                    end
                }
                Either::Right((_, end)) => end.await,
            }
        }?;
        Ok(decide(end, &tail)?)
    }

    /// Starts the group; the command itself begins when its input does.
    fn start(&self, context: &Context<impl Sync>, job: &Job) -> io::Result<Running> {
        let (output, writer) = io::pipe()?;
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", include_str!("exec/gate.sh"), "posthaste"])
            .arg(&self.program)
            .args(&self.arguments)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(writer.try_clone()?)
            .stderr(writer);
        for name in &self.withheld {
            command.env_remove(name);
        }
        command
            .env("POSTHASTE_JOB_ID", job.id.to_string())
            .env("POSTHASTE_JOB_NAME", &*job.name)
            .env("POSTHASTE_QUEUE", &*job.queue)
            .env("POSTHASTE_ATTEMPT", job.attempt.to_string())
            .env("POSTHASTE_TAG", &*job.tag)
            .env("POSTHASTE_DELIVERY_ID", context.delivery_id().to_string());
        for (name, part) in job.trace_headers() {
            let name = name.to_uppercase();
            match part {
                Some(part) => command.env(name, part),
                // The worker's own is not the job's.
                None => command.env_remove(name),
            };
        }
        let (group, input, ended) = Group::start(command)?;
        Ok(Running {
            group,
            input,
            output,
            ended,
        })
    }

    async fn end(&self, group: &Group, mut ended: Ended) -> io::Result<End> {
        let in_time = tokio::time::timeout(self.time_limit, &mut ended).await;
        if let Ok(status) = in_time {
            return Ok(End::from_status(status.map_err(io::Error::other)??));
        }
        group.0.signal(Signal::TERM);
        if tokio::time::timeout(LAST_WORDS, &mut ended).await.is_err() {
            group.0.signal(Signal::KILL);
            let _ = ended.await;
        }
        Ok(End::OverTime(self.time_limit))
    }
}

/// A regular file that this process may execute.
fn present(program: &Path) -> io::Result<()> {
    let absent = |reason: &dyn std::fmt::Display| {
        io::Error::other(format!(
            "cannot run the command {}: {reason}",
            program.display()
        ))
    };
    if !program
        .metadata()
        .is_ok_and(|file: Metadata| file.is_file())
    {
        return Err(absent(&"no such file"));
    }
    rustix::fs::access(program, rustix::fs::Access::EXEC_OK)
        .map_err(|_| absent(&"it is not executable"))
}

/// Says "go" and hands over the arguments. A command that does not care for them closes the pipe,
/// as it may.
async fn feed(input: ChildStdin, arguments: &str) {
    let Ok(mut input) = pipe::Sender::from_owned_fd(OwnedFd::from(input)) else {
        return;
    };
    for part in ["\n", arguments, "\n"] {
        if input.write_all(part.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Reads everything, so that the command never waits, and keeps the end.
async fn listen(output: PipeReader, tail: &mut Tail) {
    let Ok(mut output) = pipe::Receiver::from_owned_fd(OwnedFd::from(output)) else {
        return;
    };
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read @ 1..) = output.read(&mut bytes).await {
        tail.push(&bytes[..read]);
    }
}

struct Running {
    group: Group,
    input: ChildStdin,
    output: PipeReader,
    ended: Ended,
}

/// The leader's end.
type Ended = oneshot::Receiver<io::Result<ExitStatus>>;

/// A process group that runs; dropped, it is killed. That is how a run ends whose time is over for
/// the queue, or whose worker stops: the job is somebody else's from then on.
struct Group(Arc<Leader>);

struct Leader {
    pid: Pid,
    reaped: Mutex<bool>,
}

impl Group {
    /// The thread comes first: where there can be none, nothing was started that nobody would wait
    /// for.
    fn start(mut command: Command) -> io::Result<(Self, ChildStdin, Ended)> {
        let (hand, handed) = std::sync::mpsc::channel::<(Child, Arc<Leader>)>();
        let (sender, ended) = oneshot::channel();
        // A thread, because somebody must reap the child even when the runtime has gone.
        std::thread::Builder::new()
            .name("posthaste-exec".into())
            .spawn(move || {
                if let Ok((child, leader)) = handed.recv() {
                    // The one that asked may have been dropped.
                    let _ = sender.send(leader.reap(child));
                }
            })?;
        let mut child = command.spawn()?;
        let input = child.stdin.take();
        let pid = Pid::from_child(&child);
        let group = Self(Arc::new(Leader {
            pid,
            reaped: Mutex::new(false),
        }));
        // The thread waits for it.
        let _ = hand.send((child, Arc::clone(&group.0)));
        GUARD.watch(pid.as_raw_pid())?;
        Ok((group, input.ok_or(io::ErrorKind::BrokenPipe)?, ended))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.0.signal(Signal::KILL);
    }
}

impl Leader {
    fn signal(&self, signal: Signal) {
        let reaped = self.reaped.lock();
        if !*reaped {
            // There is nobody to be killed when all have ended by themselves.
            let _ = kill_process_group(self.pid, signal);
        }
    }

    /// Waits for the leader, ends the processes that it left, and only then releases the number.
    fn reap(&self, mut child: Child) -> io::Result<ExitStatus> {
        let seen = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(self.pid), seen), Err(Errno::INTR)) {}
        let mut reaped = self.reaped.lock();
        let _ = kill_process_group(self.pid, Signal::KILL);
        GUARD.forget(self.pid.as_raw_pid());
        *reaped = true;
        child.wait()
    }
}
