//! Nothing outlives the test process, however it ends.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use posthaste_testkit::receivers::{self, OpenSearch, RabbitMq, Receiver, Redis, Service, Worker};
use posthaste_testkit::{Child, PgServer, PgVersion, SERVERS, eventually, is_alive};

use crate::BOUND;

const END: &str = "POSTHASTE_TESTKIT_END";

/// The processes and folders that another test process reported.
struct Leftover {
    processes: Vec<u32>,
    folders: Vec<PathBuf>,
}

impl Leftover {
    fn told_by(line: &str) -> anyhow::Result<Self> {
        let told = line.split_once("started ").context("nothing told")?.1;
        let (numbers, folders) = told.split_once(' ').context("no folders told")?;
        let processes = numbers.split(',').map(str::parse);
        Ok(Self {
            processes: processes.collect::<Result<_, _>>()?,
            folders: folders.split(',').map(PathBuf::from).collect(),
        })
    }
}

/// Runs a role below in a separate process, until it has started its servers and its child.
async fn test_process(end: &str) -> anyhow::Result<(Child, Leftover)> {
    test_process_as("watchdog::role_of_a_test_process", end).await
}

async fn test_process_as(role: &str, end: &str) -> anyhow::Result<(Child, Leftover)> {
    let mut process = Child::spawn(
        posthaste_testkit::command(std::env::current_exe()?)
            .args(["--exact", role, "--ignored", "--nocapture"])
            .env(END, end)
            .env_remove("POSTHASTE_RAN")
            .env_remove(SERVERS),
    )?;
    let told = Leftover::told_by(&process.line("started ", BOUND).await?)?;
    Ok((process, told))
}

async fn nothing_is_left(leftover: Leftover) -> anyhow::Result<()> {
    for pid in leftover.processes {
        eventually(BOUND, &format!("process {pid} is gone"), async || {
            Ok(!is_alive(pid))
        })
        .await?;
    }
    for folder in leftover.folders {
        eventually(
            BOUND,
            &format!("{} is gone", folder.display()),
            async || Ok(!folder.exists()),
        )
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_killed_test_process_leaves_nothing_behind() -> anyhow::Result<()> {
    let (mut process, leftover) = test_process("waits").await?;
    assert!(leftover.processes.iter().all(|pid| is_alive(*pid)));
    assert!(leftover.folders.iter().all(|folder| folder.exists()));
    process.kill()?;
    nothing_is_left(leftover).await
}

#[tokio::test]
async fn a_killed_test_process_leaves_no_receiver_behind() -> anyhow::Result<()> {
    let needed = [Receiver::Redis, Receiver::RabbitMq, Receiver::Celery];
    if !receivers::are_here("a killed test process leaves no receiver behind", &needed) {
        return Ok(());
    }
    let role = "watchdog::role_of_a_test_process_with_receivers";
    let (mut process, leftover) = test_process_as(role, "waits").await?;
    assert!(leftover.processes.iter().all(|pid| is_alive(*pid)));
    assert!(leftover.folders.iter().all(|folder| folder.exists()));
    process.kill()?;
    nothing_is_left(leftover).await
}

#[tokio::test]
async fn an_interrupted_test_process_leaves_nothing_behind() -> anyhow::Result<()> {
    let (mut process, leftover) = test_process("waits").await?;
    process.interrupt()?;
    process.exit(BOUND).await?;
    nothing_is_left(leftover).await
}

#[tokio::test]
async fn ended_test_processes_leave_nothing_of_their_statics() -> anyhow::Result<()> {
    for end in ["returns", "panics", "exits"] {
        let (mut process, leftover) = test_process(end).await?;
        process.exit(BOUND).await.context(end)?;
        nothing_is_left(leftover).await.context(end)?;
    }
    Ok(())
}

#[tokio::test]
async fn a_run_that_is_killed_leaves_nothing_behind() -> anyhow::Result<()> {
    let role = "watchdog::role_of_a_test_process";
    let mut run = posthaste_testkit::command(env!("CARGO_BIN_EXE_posthaste-test-run"));
    run.arg(std::env::current_exe()?)
        .args(["--exact", role, "--ignored", "--nocapture"])
        .env(END, "waits")
        .env_remove(SERVERS)
        .env_remove("POSTHASTE_RAN");
    let mut run = Child::spawn(&mut run)?;
    let leftover = Leftover::told_by(&run.line("started ", BOUND).await?)?;
    assert!(leftover.processes.iter().all(|pid| is_alive(*pid)));
    run.kill()?;
    nothing_is_left(leftover).await
}

#[tokio::test]
async fn servers_start_under_a_restrictive_umask() -> anyhow::Result<()> {
    let needed = [Receiver::Redis, Receiver::RabbitMq, Receiver::OpenSearch];
    if !receivers::are_here("servers start under any umask", &needed) {
        return Ok(());
    }
    let role = "watchdog::role_that_starts_servers";
    let mut hidden = posthaste_testkit::command("/bin/sh");
    hidden
        .args(["-c", "umask 077; exec \"$0\" --exact \"$1\" --ignored"])
        .arg(std::env::current_exe()?)
        .arg(role)
        .env(END, "returns")
        .env_remove(SERVERS)
        .env_remove("POSTHASTE_RAN");
    let mut hidden = Child::spawn(&mut hidden)?;
    hidden.line("1 passed", BOUND * 2).await?;
    Ok(())
}

#[tokio::test]
#[ignore = "a role that the test above runs in a process of its own"]
async fn role_that_starts_servers() -> anyhow::Result<()> {
    if std::env::var_os(END).is_none() {
        return Ok(());
    }
    let _server = PgServer::start(PgVersion::V18, &[])?;
    let _redis = Redis::start(&[])?;
    let _rabbitmq = RabbitMq::start()?;
    let _opensearch = OpenSearch::start(&[])?;
    Ok(())
}

#[tokio::test]
#[ignore = "a role that the tests above run in a process of its own"]
async fn role_of_a_test_process() -> anyhow::Result<()> {
    let Ok(end) = std::env::var(END) else {
        return Ok(());
    };
    let shared = PgServer::shared(PgVersion::any())?;
    let private = PgServer::start(PgVersion::V18, &[])?;
    let child = Child::spawn(Command::new("sleep").arg("600"))?;
    let servers = [shared, &private];
    let mut processes: Vec<_> = servers.iter().filter_map(|server| server.pid()).collect();
    processes.push(child.pid());
    let processes: Vec<_> = processes.iter().map(u32::to_string).collect();
    let folders: Vec<_> = servers
        .iter()
        .map(|server| server.data().with_file_name("").display().to_string())
        .collect();
    // The test runner writes the name of the test first, on the same line.
    println!("started {} {}", processes.join(","), folders.join(","));
    match end.as_str() {
        "returns" => Ok(()),
        "panics" => panic!("as asked"),
        "exits" => std::process::exit(7),
        _ => {
            tokio::time::sleep(Duration::from_secs(600)).await;
            Ok(())
        }
    }
}

#[tokio::test]
#[ignore = "a role that a test above runs in a process of its own"]
async fn role_of_a_test_process_with_receivers() -> anyhow::Result<()> {
    if std::env::var_os(END).is_none() {
        return Ok(());
    }
    let redis = Redis::start(&[])?;
    let worker = Worker::celery(&redis.url(), &["celery"])?;
    let services: [&Service; 3] = [&redis, &worker, RabbitMq::shared()?];
    let processes: Vec<_> = services
        .iter()
        .filter_map(|service| service.pid())
        .map(|pid| pid.to_string())
        .collect();
    let folders: Vec<_> = services
        .iter()
        .map(|service| service.path().display().to_string())
        .collect();
    println!("started {} {}", processes.join(","), folders.join(","));
    tokio::time::sleep(Duration::from_secs(600)).await;
    Ok(())
}
