//! Handlers that run a command for each job, in a separate process group.

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
use end::{CommandEnd, OutputTail, decide_outcome};
use guard::GUARD;

/// Time between SIGTERM and SIGKILL.
const KILL_DELAY: Duration = Duration::from_secs(5);
/// How long the remaining output is read after the command ended: a process that left the group may
/// keep the pipe open.
const OUTPUT_DRAIN_TIME: Duration = Duration::from_secs(1);
/// Delay before a job is retried whose command cannot be started.
const MISSING_COMMAND_DELAY: Duration = Duration::from_secs(60);
/// Variables that are never passed on, because they give access to the worker's database.
const WITHHELD_VARIABLES: [&str; 8] = [
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
/// The command reads the job's arguments as JSON from its standard input. Its environment contains
/// `POSTHASTE_JOB_ID`, `POSTHASTE_JOB_NAME`, `POSTHASTE_QUEUE`, `POSTHASTE_ATTEMPT` (1 for the
/// first), `POSTHASTE_TAG` and `POSTHASTE_DELIVERY_ID`; for a job with trace context
/// ([`NewJob::trace`](crate::NewJob::trace)) also `TRACEPARENT` and `TRACESTATE`, which are never
/// inherited from the worker. Exit code 0 completes the job, 65 discards it, and 75 and all others
/// retry it. The end of its output, from both streams, is added to the error.
///
/// The command leads a separate process group. The group is ended when the command exits, at the
/// time limit, at the end of the worker's grace period (by SIGKILL), and when the worker ends, even
/// if that is killed. A process that leaves the group (`setsid`) is not ended.
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
pub struct Exec(Arc<ExecSettings>);

#[derive(Clone, Debug)]
struct ExecSettings {
    program: PathBuf,
    arguments: Vec<OsString>,
    time_limit: Duration,
    withheld: Vec<OsString>,
}

impl Exec {
    /// Runs this program, which must exist now and be given with a path: `PATH` is not searched.
    pub fn new(program: impl Into<PathBuf>) -> Result<Self, Error> {
        let program = program.into();
        if !program.as_os_str().as_encoded_bytes().contains(&b'/') {
            let hint = format!("write the path of the command {}", program.display());
            return Err(ErrorKind::Config(hint).into());
        }
        check_executable(&program).map_err(|reason| ErrorKind::Config(reason.to_string()))?;
        Ok(Self(Arc::new(ExecSettings {
            program,
            arguments: Vec::new(),
            time_limit: Duration::from_secs(240),
            withheld: WITHHELD_VARIABLES.map(OsString::from).into(),
        })))
    }

    /// Sets the arguments of the program, the same for each job.
    pub fn arguments(self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.change_settings(|settings| {
            settings.arguments = arguments.into_iter().map(Into::into).collect()
        })
    }

    /// Sets the time limit of a run, at which the group receives SIGTERM, followed by SIGKILL after
    /// five seconds. The default is four minutes. Keep it more than five seconds below the queue's
    /// timeout, which kills the group without SIGTERM.
    pub fn time_limit(self, limit: Duration) -> Self {
        self.change_settings(|settings| settings.time_limit = limit)
    }

    /// Excludes variables from the environment of the command, in addition to those of the worker's
    /// database (`DATABASE_URL`, `PGPASSWORD` and the like).
    pub fn withhold(self, variables: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.change_settings(|settings| {
            let more = variables.into_iter().map(Into::into);
            settings.withheld.extend(more);
        })
    }

    fn change_settings(mut self, change: impl FnOnce(&mut ExecSettings)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Returns the handler for [`WorkerBuilder::handler`](crate::WorkerBuilder::handler).
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

impl ExecSettings {
    async fn run(&self, context: &Context<impl Sync>, job: &Job) -> HandlerResult {
        let reschedule = |error: io::Error| {
            RetryLater::without_attempt(MISSING_COMMAND_DELAY, error.to_string())
        };
        check_executable(&self.program).map_err(reschedule)?;
        let RunningCommand {
            group,
            input,
            output,
            ended,
        } = self.start(context, job).map_err(reschedule)?;
        let mut tail = OutputTail::default();
        let end = {
            let talk = pin!(async {
                tokio::join!(
                    write_arguments(input, job.kwargs_json()),
                    read_output(output, &mut tail)
                )
            });
            let end = pin!(self.end(&group, ended));
            match select(end, talk).await {
                Either::Left((end, talk)) => {
                    let _ = tokio::time::timeout(OUTPUT_DRAIN_TIME, talk).await;
                    end
                }
                Either::Right((_, end)) => end.await,
            }
        }?;
        Ok(decide_outcome(end, &tail)?)
    }

    /// Starts the group; the command itself begins when it receives its first line of input.
    fn start(&self, context: &Context<impl Sync>, job: &Job) -> io::Result<RunningCommand> {
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
                // The worker's own trace context does not belong to the job.
                None => command.env_remove(name),
            };
        }
        let (group, input, ended) = ProcessGroup::start(command)?;
        Ok(RunningCommand {
            group,
            input,
            output,
            ended,
        })
    }

    async fn end(&self, group: &ProcessGroup, mut ended: ExitReceiver) -> io::Result<CommandEnd> {
        let in_time = tokio::time::timeout(self.time_limit, &mut ended).await;
        if let Ok(status) = in_time {
            return Ok(CommandEnd::from_status(status.map_err(io::Error::other)??));
        }
        group.0.signal(Signal::TERM);
        if tokio::time::timeout(KILL_DELAY, &mut ended).await.is_err() {
            group.0.signal(Signal::KILL);
            let _ = ended.await;
        }
        Ok(CommandEnd::OverTime(self.time_limit))
    }
}

/// Checks that the program is a regular file that this process may execute.
fn check_executable(program: &Path) -> io::Result<()> {
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

/// Starts the command and writes the arguments. A command that does not read them may close the
/// pipe.
async fn write_arguments(input: ChildStdin, arguments: &str) {
    let Ok(mut input) = pipe::Sender::from_owned_fd(OwnedFd::from(input)) else {
        return;
    };
    for part in ["\n", arguments, "\n"] {
        if input.write_all(part.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Reads all output, so that the command never blocks, and stores the end of it.
async fn read_output(output: PipeReader, tail: &mut OutputTail) {
    let Ok(mut output) = pipe::Receiver::from_owned_fd(OwnedFd::from(output)) else {
        return;
    };
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read @ 1..) = output.read(&mut bytes).await {
        tail.push(&bytes[..read]);
    }
}

struct RunningCommand {
    group: ProcessGroup,
    input: ChildStdin,
    output: PipeReader,
    ended: ExitReceiver,
}

/// Receives the exit status of the leader.
type ExitReceiver = oneshot::Receiver<io::Result<ExitStatus>>;

/// A running process group, which is killed when it is dropped. This ends a run that exceeds the
/// queue's timeout or whose worker stops: from then on another run may have the job.
struct ProcessGroup(Arc<GroupLeader>);

struct GroupLeader {
    pid: Pid,
    reaped: Mutex<bool>,
}

impl ProcessGroup {
    /// Starts the thread first: if that fails, no process exists that would not be waited for.
    fn start(mut command: Command) -> io::Result<(Self, ChildStdin, ExitReceiver)> {
        let (hand, handed) = std::sync::mpsc::channel::<(Child, Arc<GroupLeader>)>();
        let (sender, ended) = oneshot::channel();
        // A thread reaps the child even after the runtime has ended.
        std::thread::Builder::new()
            .name("posthaste-exec".into())
            .spawn(move || {
                if let Ok((child, leader)) = handed.recv() {
                    // The receiver may have been dropped.
                    let _ = sender.send(leader.reap(child));
                }
            })?;
        let mut child = command.spawn()?;
        let input = child.stdin.take();
        let pid = Pid::from_child(&child);
        let group = Self(Arc::new(GroupLeader {
            pid,
            reaped: Mutex::new(false),
        }));
        // The thread is waiting for the child.
        let _ = hand.send((child, Arc::clone(&group.0)));
        GUARD.guard_group(pid.as_raw_pid())?;
        Ok((group, input.ok_or(io::ErrorKind::BrokenPipe)?, ended))
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.0.signal(Signal::KILL);
    }
}

impl GroupLeader {
    fn signal(&self, signal: Signal) {
        let reaped = self.reaped.lock();
        if !*reaped {
            // This fails if all processes of the group have ended.
            let _ = kill_process_group(self.pid, signal);
        }
    }

    /// Waits for the leader, kills the remaining processes of the group, and only then releases the
    /// process id.
    fn reap(&self, mut child: Child) -> io::Result<ExitStatus> {
        let seen = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(self.pid), seen), Err(Errno::INTR)) {}
        let mut reaped = self.reaped.lock();
        let _ = kill_process_group(self.pid, Signal::KILL);
        GUARD.release_group(self.pid.as_raw_pid());
        *reaped = true;
        child.wait()
    }
}
