//! The worker processes of one point. A process answers each line with the number of jobs that it
//! has finished, and ends at the end of its input.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt, BufReader, Lines, stdin, stdout,
};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::ScaleOptions;
use crate::contestants::posthaste::Sleeper;
use crate::database::Database;

/// Options of one process.
#[derive(Debug, Args)]
pub(crate) struct FleetWorkerOptions {
    /// URL of the database
    #[arg(long, env = "POSTHASTE_BENCH_URL", hide_env_values = true)]
    pub(crate) url: String,
    #[arg(long)]
    pub(crate) queues: u32,
    #[arg(long)]
    pub(crate) slots: usize,
    #[arg(long)]
    pub(crate) takes_ms: u64,
}

/// All processes.
pub(super) struct Fleet(Vec<Member>);

struct Member {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Fleet {
    /// Starts the processes, and waits until all of them work.
    pub(super) async fn start(
        url: &str,
        workers: u32,
        options: &ScaleOptions,
        queues: u32,
    ) -> Result<Self> {
        let program = std::env::current_exe()?;
        let start = |_| {
            let mut child = Command::new(&program)
                .arg("fleet-worker")
                .arg(format!("--queues={queues}"))
                .arg(format!("--slots={}", options.slots_per_queue(queues)))
                .arg(format!("--takes-ms={}", options.takes_ms))
                // The password must not appear in the process list.
                .env("POSTHASTE_BENCH_URL", url)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()?;
            Ok(Member {
                input: child.stdin.take().context("no input")?,
                output: BufReader::new(child.stdout.take().context("no output")?).lines(),
                child,
            })
        };
        let mut fleet = Self((0..workers).map(start).collect::<Result<_>>()?);
        fleet.finished().await?;
        Ok(fleet)
    }

    /// The number of jobs that all processes have finished.
    pub(super) async fn finished(&mut self) -> Result<u64> {
        for member in &mut self.0 {
            member.input.write_all(b"\n").await?;
        }
        let mut finished = 0;
        for member in &mut self.0 {
            let line = member.output.next_line().await?;
            let line = line.context("a worker process has ended")?;
            finished += line.parse::<u64>()?;
        }
        Ok(finished)
    }

    /// Ends all processes.
    pub(super) async fn stop(self) -> Result<()> {
        for mut member in self.0 {
            drop(member.input);
            member.child.wait().await?;
        }
        Ok(())
    }
}

/// Runs the worker process.
pub(crate) async fn work(options: &FleetWorkerOptions) -> Result<()> {
    let database = Database::named(&options.url)?;
    let takes = Duration::from_millis(options.takes_ms);
    let sleeper = Sleeper::start(&database, options.slots, takes, options.queues).await?;
    answer(&sleeper, BufReader::new(stdin()), stdout()).await?;
    sleeper.stop().await
}

/// Answers each line with the number of finished jobs, until the input ends.
async fn answer(
    sleeper: &Sleeper,
    input: impl AsyncBufRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
) -> Result<()> {
    let mut requests = input.lines();
    while requests.next_line().await?.is_some() {
        let line = format!("{}\n", sleeper.finished());
        output.write_all(line.as_bytes()).await?;
        output.flush().await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anyhow::{Result, ensure};
    use posthaste_testkit::{PgVersion, eventually};

    use super::answer;
    use crate::contestants::posthaste::{self, Sleeper};
    use crate::database::Database;
    use crate::server;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_worker_process_counts_the_jobs_of_all_queues() -> Result<()> {
        let server = server::start(PgVersion::any(), &std::env::temp_dir())?;
        let database = Database::fresh(&server).await?;
        posthaste::prepare(&database).await?;
        posthaste::preload_queues(&database, 3, 2).await?;
        let sleeper = Sleeper::start(&database, 2, Duration::from_millis(1), 2).await?;
        eventually(Duration::from_secs(20), "all jobs are worked", async || {
            let mut answers = Vec::new();
            answer(&sleeper, &b"\n"[..], &mut answers).await?;
            ensure!(String::from_utf8(answers.clone())?.trim().parse::<u64>()? <= 6);
            Ok(answers == b"6\n")
        })
        .await?;
        sleeper.stop().await
    }
}
