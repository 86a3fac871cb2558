use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use posthaste_testkit::{Child, eventually, is_alive, number};

use crate::stage::{self, BOUND, Stage};

/// The size of a sparse file in bytes: reading it takes minutes, storing it takes no space.
const ENDLESS: u64 = 1 << 42;

/// Starts a command whose worker is running a job that does not end.
async fn busy(stage: &Stage, arguments: &[&str]) -> anyhow::Result<Child> {
    let folder = stage.folder.join("files");
    std::fs::create_dir(&folder)?;
    File::create(folder.join("endless"))?.set_len(ENDLESS)?;
    let mut child = stage.spawn(arguments)?;
    child.error_line("run 1: 1 files", BOUND).await?;
    let client = stage.client().await?;
    eventually(BOUND, "the job runs", async || {
        Ok(number(
            &client,
            "SELECT count(*) FROM posthaste.job WHERE state = 'running'",
        )
        .await?
            == 1)
    })
    .await?;
    Ok(child)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_the_command_and_the_private_server_at_once() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let mut child = busy(&stage, &["demo", "files"]).await?;
    let server = stage.server()?;
    child.interrupt()?;
    child
        .error_line("a second signal stops at once", BOUND)
        .await?;
    assert!(is_alive(server), "the running job lost its database");
    child.interrupt()?;
    assert_eq!(child.exit(BOUND).await?.code(), Some(130));
    eventually(BOUND, "the private server is gone", async || {
        Ok(!is_alive(server))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn background_and_nohup_workers_react_only_to_sigterm() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let work = ["work", "--exec", "x=true"];
    let mut command = stage.started_by("trap '' HUP INT", &work);
    let mut child = Child::spawn(command.env("DATABASE_URL", database.url()))?;
    child.error_line("working on", BOUND).await?;
    child.interrupt()?;
    child.hang_up()?;
    stage
        .run_on(&database, &["jobs", "enqueue", "x"])
        .await?
        .good()?;
    let client = database.client().await?;
    eventually(BOUND, "it works on", async || {
        Ok(number(&client, "SELECT count(*) FROM posthaste.job").await? == 0)
    })
    .await?;
    child.terminate()?;
    assert!(child.exit(BOUND).await?.success());
    let stderr = child.stderr().join("\n");
    assert_eq!(stderr.matches("stopping gracefully").count(), 1, "{stderr}");
    Ok(())
}

/// A process whose standard error is a pipe without a reader.
struct Unread(std::process::Child);

impl Drop for Unread {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Unread {
    fn signal(&self, signal: &str) -> anyhow::Result<()> {
        let pid = self.0.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status()?;
        anyhow::ensure!(sent.success(), "{sent}");
        Ok(())
    }

    async fn code(&mut self) -> anyhow::Result<Option<i32>> {
        let mut status = None;
        eventually(BOUND, "it ends", async || {
            status = self.0.try_wait()?;
            Ok(status.is_some())
        })
        .await?;
        Ok(status.and_then(|status| status.code()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_logs_block_neither_jobs_nor_signals() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let mut work = stage.command(&["work", "--exec", "x=true", "--exec", "long=sleep 600"]);
    work.env("DATABASE_URL", database.url())
        .env("POSTHASTE_LOG", "trace")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0);
    let start = |work: &mut Command| work.spawn().map(Unread);
    let mut worker = start(&mut work)?;
    let enqueue = "SELECT count(posthaste.enqueue($1, '{}')) FROM generate_series(1, $2::integer)";
    client.execute(enqueue, &[&"x", &500]).await?;
    let unfinished = "SELECT count(*) FROM posthaste.job";
    eventually(BOUND, "all jobs are done", async || {
        Ok(number(&client, unfinished).await? == 0)
    })
    .await?;
    let mut held = 0;
    if let Some(pipe) = &worker.0.stderr {
        held = rustix::io::ioctl_fionread(pipe)?;
    }
    assert!(held > 32 << 10, "the pipe is not full: {held}");
    worker.signal("-TERM")?;
    assert_eq!(
        worker.code().await?,
        Some(0),
        "one signal ends it in good order"
    );

    let mut worker = start(&mut work)?;
    client.execute(enqueue, &[&"long", &1]).await?;
    client.execute(enqueue, &[&"x", &500]).await?;
    eventually(BOUND, "all but one are done", async || {
        Ok(number(&client, unfinished).await? == 1)
    })
    .await?;
    worker.signal("-TERM")?;
    worker.signal("-INT")?;
    assert_eq!(
        worker.code().await?,
        Some(130),
        "the second ends it at once"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_raise_their_file_limit_to_the_hard_limit() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let work = ["work", "--exec", "x=true"];
    let mut command = stage.started_by("ulimit -S -n 64", &work);
    let mut child = Child::spawn(command.env("DATABASE_URL", database.url()))?;
    child.error_line("working on", BOUND).await?;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.pid()))?;
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let numbers: Vec<&str> = files.unwrap_or_default().split_whitespace().collect();
    assert!(numbers.len() > 4 && numbers[3] == numbers[4], "{files:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_signal_releases_unfinished_jobs_without_an_attempt() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let mut child = busy(&stage, &["demo", "files", "--grace", "1"]).await?;
    child.terminate()?;
    assert!(child.exit(BOUND).await?.success());
    let mut idle = stage.spawn(&["work", "--queue", "nothing", "--exec", "x=true"])?;
    idle.error_line("working on", BOUND).await?;
    let client = stage.client().await?;
    let row = client
        .query_one("SELECT state, attempt FROM posthaste.job", &[])
        .await?;
    assert_eq!(
        (row.get::<_, &str>(0), row.get::<_, i32>(1)),
        ("available", 0)
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_demo_fails_if_verification_was_requested() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let mut child = busy(&stage, &["demo", "files", "--once", "--grace", "1"]).await?;
    child.terminate()?;
    assert_eq!(child.exit(BOUND).await?.code(), Some(1));
    let stderr = child.stderr();
    assert_eq!(
        stderr.last().map(String::as_str),
        Some("error: stopped before the comparison. Run the same command again to continue.")
    );
    Ok(())
}
