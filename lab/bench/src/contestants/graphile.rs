//! graphile-worker on Node.js, run by its own library, which uses LISTEN.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_postgres::{Client, Statement};

use crate::database::Database;
use crate::statements::Statements;

const LONGEST_START: Duration = Duration::from_secs(60);

/// A worker in a separate process, and a session that enqueues.
pub(crate) struct Graphile {
    child: Child,
    started: watch::Receiver<u64>,
    producer: Client,
    enqueue: Statement,
}

/// The folder of its packages, if they are installed.
pub(crate) fn packages() -> Option<PathBuf> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/rivals");
    let place = tools.join("graphile-worker");
    // The mark of a complete installation.
    let is_installed = place.join("installed").is_file();
    is_installed.then(|| place.join("node_modules"))
}

impl Graphile {
    /// Starts a worker; `started` is called with the number in each job's arguments.
    pub(crate) async fn start(
        database: &Database,
        started: impl Fn(u64) + Send + 'static,
    ) -> Result<Self> {
        let packages = packages().context("graphile-worker is not installed")?;
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("rivals/graphile-worker");
        let mut child = Command::new("node")
            .arg(program.join("worker.cjs"))
            .env("NODE_PATH", packages)
            .env("NODE_ENV", "production")
            .env("DATABASE_URL", database.url())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting node")?;
        let said = child.stdout.take().context("no output")?;
        let (count, counted) = watch::channel(0);
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        tokio::spawn(read(said, ready, count, started));
        let begun = timeout(LONGEST_START, is_ready).await;
        begun.context("graphile-worker does not start")??;
        let producer = database.connect().await?;
        let statements = Statements::parse(include_str!("../../locking/graphile_worker.sql"));
        let enqueue = producer.prepare(statements.get("enqueue")?).await?;
        Ok(Self {
            child,
            started: counted,
            producer,
            enqueue,
        })
    }

    /// Enqueues a job in a separate transaction.
    pub(crate) async fn enqueue(&self, number: u64) -> Result<()> {
        let number = i64::try_from(number)?;
        self.producer.query_one(&self.enqueue, &[&number]).await?;
        Ok(())
    }

    /// Waits until this many jobs were started.
    pub(crate) async fn reach(&self, jobs: u64, within: Duration) -> Result<()> {
        let mut started = self.started.clone();
        let all = timeout(within, started.wait_for(|count| *count >= jobs)).await;
        all.context("it does not get on")??;
        Ok(())
    }

    /// Kills the process.
    pub(crate) async fn stop(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }
}

/// Reads its output: that it listens, and a number for each job.
async fn read(
    said: ChildStdout,
    ready: tokio::sync::oneshot::Sender<()>,
    count: watch::Sender<u64>,
    started: impl Fn(u64) + Send + 'static,
) {
    let mut lines = BufReader::new(said).lines();
    let mut ready = Some(ready);
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(number) = line.parse() {
            started(number);
            count.send_modify(|count| *count += 1);
        } else if line == "ready"
            && let Some(ready) = ready.take()
        {
            let _ = ready.send(());
        }
    }
}
