//! Commands as handlers, observed from outside: their input, the meaning of their exit, and that no
//! process of them is left.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use posthaste::{Backoff, Exec, NewJob, QueueConfig, WorkerHandle, enqueue};
use posthaste_testkit::{PgVersion, Sql as _, TestDb, TestResult, eventually, is_alive};
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::support::{SOON, all_done, connected, count, database, unfinished, worker};

/// A delay that no test waits out.
const LONG: Duration = Duration::from_secs(600);

/// A folder for commands and their output.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = format!("posthaste-exec-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    /// Makes a command of this script; `$1` is the folder.
    fn script(&self, text: &str) -> Exec {
        Exec::new(self.file(text)).unwrap().arguments([&self.0])
    }

    fn file(&self, text: &str) -> PathBuf {
        let file = self.0.join("command");
        // Written under another name and renamed: a file that is open for writing cannot be
        // executed.
        let made = self.0.join("command.new");
        fs::write(&made, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&made, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(&made, &file).unwrap();
        file
    }

    async fn read(&self, name: &str) -> String {
        let file = self.0.join(name);
        eventually(SOON, name, async || {
            Ok(fs::read_to_string(&file)?.ends_with('\n'))
        })
        .await
        .unwrap();
        fs::read_to_string(file).unwrap()
    }

    async fn pids(&self) -> Vec<u32> {
        let pids = self.read("pids").await;
        pids.split_whitespace()
            .map(|pid| pid.parse().unwrap())
            .collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Starts a worker that runs `command` for jobs of any name.
async fn start(db: &TestDb, command: Exec) -> WorkerHandle {
    let queue = QueueConfig {
        backoff: Backoff {
            base: LONG,
            cap: LONG,
        },
        timeout: LONG,
        ..QueueConfig::new("default", 4)
    };
    worker(&db.pool(4).unwrap())
        .queue_config(queue)
        .handler("*", command.handler())
        .shutdown_grace(Duration::from_millis(100))
        .start()
        .await
        .unwrap()
}

async fn put(client: &Client, name: &str, kwargs: &Value) {
    enqueue(client, &NewJob::new(name, kwargs).unwrap().tag("a tag"))
        .await
        .unwrap();
}

/// Returns state, attempts and error of the only job.
async fn job(client: &Client) -> (String, i32, String) {
    let row = client
        .query_one(
            "SELECT state, attempt, coalesce(last_error, '') FROM posthaste.job",
            &[],
        )
        .await
        .unwrap();
    (row.get(0), row.get(1), row.get(2))
}

async fn state(client: &Client, state: &str) {
    eventually(SOON, state, async || Ok(count(client, state).await == 1))
        .await
        .unwrap();
}

async fn gone(pids: &[u32]) {
    eventually(SOON, "its processes are gone", async || {
        Ok(!pids.iter().any(|pid| is_alive(*pid)))
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_receive_the_job_on_stdin_and_in_the_environment() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let folder = Folder::new("given");
    let command = folder.script("cat >$1/input; env >$1/env.new; mv $1/env.new $1/env");
    let worker = start(&db, command).await;
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let job = NewJob::new("mail.send", &json!({ "to": "ü", "n": [1, 2] }))?;
    let job = job.tag("a tag").trace(format!("{parent} a=b, c=d"));
    enqueue(&client, &job).await?;
    all_done(&client).await;
    worker.stop().await?;
    let input: Value = serde_json::from_str(&folder.read("input").await)?;
    assert_eq!(input, json!({ "to": "ü", "n": [1, 2] }));
    let environment = folder.read("env").await;
    let ids = client
        .query_one(
            "SELECT i::text, posthaste.delivery_id(i)::text FROM (SELECT last_value AS i \
             FROM posthaste.job_id) AS last",
            &[],
        )
        .await?;
    for (name, value) in [
        ("JOB_ID", ids.get(0)),
        ("DELIVERY_ID", ids.get(1)),
        ("JOB_NAME", "mail.send"),
        ("QUEUE", "default"),
        ("ATTEMPT", "1"),
        ("TAG", "a tag"),
    ] {
        let line = format!("POSTHASTE_{name}={value}");
        assert!(environment.lines().any(|found| found == line), "{line}");
    }
    for line in [&*format!("TRACEPARENT={parent}"), "TRACESTATE=a=b, c=d"] {
        assert!(environment.lines().any(|found| found == line), "{line}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_untraced_jobs_get_no_trace() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let folder = Folder::new("untraced");
    let command = folder.script("echo none $TRACEPARENT $TRACESTATE >$1/trace");
    let worker = start(&db, command).await;
    put(&client, "mail.send", &json!({})).await;
    all_done(&client).await;
    worker.stop().await.unwrap();
    assert_eq!(folder.read("trace").await, "none\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_map_to_outcomes() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let folder = Folder::new("codes");
    let command = folder.script(
        "echo busy; case $POSTHASTE_JOB_NAME in signal) kill -9 $$;; *) exit $POSTHASTE_JOB_NAME;; \
         esac",
    );
    let worker = start(&db, command).await;
    for name in ["0", "65", "75", "1", "127", "signal"] {
        put(&client, name, &json!({})).await;
    }
    eventually(SOON, "all have ended", async || {
        let rows = client
            .one::<i64>("SELECT count(*) FROM posthaste.job WHERE attempt > 0")
            .await?;
        Ok(rows == 5 && unfinished(&client).await == 5)
    })
    .await?;
    worker.stop().await?;
    let found: Vec<String> = client
        .rows(
            "SELECT concat_ws(' ', name, state, attempt, last_error) FROM posthaste.job ORDER BY 1",
        )
        .await?;
    assert_eq!(
        found,
        [
            "1 retrying 1 the command failed with exit code 1: busy",
            "127 retrying 1 the command failed with exit code 127: busy",
            "65 discarded 1 the command discarded the job (exit code 65): busy",
            "75 retrying 1 the command asked for a retry (exit code 75): busy",
            "signal retrying 1 the command was killed by signal 9: busy",
        ]
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_100_mb_of_output_is_stored() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let folder = Folder::new("output");
    let command =
        folder.script("head -c 100000000 /dev/zero | tr '\\0' x; echo the cause >&2; exit 65");
    let worker = start(&db, command).await;
    put(&client, "loud", &json!({})).await;
    state(&client, "discarded").await;
    let (_, _, error) = job(&client).await;
    assert!(error.ends_with("xxxthe cause"), "{error}");
    assert!(error.chars().count() < 2_000);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_may_ignore_large_inputs() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let folder = Folder::new("ignores");
    let worker = start(&db, folder.script("exec 0<&-")).await;
    put(&client, "large", &json!({ "text": "x".repeat(900_000) })).await;
    all_done(&client).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn timeouts_end_a_command_and_its_children() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let folder = Folder::new("limit");
    // The command ends on request, and prints that; its child ignores the request.
    let command = folder.script(
        "trap 'echo asked to end; exit 1' TERM; (trap '' TERM; sleep 600) & echo $$ $! >$1/pids; \
         wait",
    );
    let worker = start(&db, command.time_limit(Duration::from_millis(300))).await;
    put(&client, "slow", &json!({})).await;
    eventually(SOON, "it was tried", async || Ok(job(&client).await.1 == 1)).await?;
    let (_, _, error) = job(&client).await;
    assert_eq!(error, "the command ran longer than 0.3 s: asked to end");
    gone(&folder.pids().await).await;
    worker.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_ignore_sigterm_get_sigkill() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let folder = Folder::new("stubborn");
    let command = folder.script("trap '' TERM; echo $$ >$1/pids; while :; do sleep 600; done");
    let worker = start(&db, command.time_limit(Duration::from_millis(200))).await;
    put(&client, "stubborn", &json!({})).await;
    let pids = folder.pids().await;
    gone(&pids).await;
    eventually(SOON, "it was tried", async || Ok(job(&client).await.1 == 1)).await?;
    worker.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn children_of_a_command_end_with_it() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let folder = Folder::new("behind");
    let worker = start(&db, folder.script("sleep 600 & echo $! >$1/pids")).await;
    let began = Instant::now();
    put(&client, "forks", &json!({})).await;
    all_done(&client).await;
    assert!(began.elapsed() < SOON, "it was not waited for");
    gone(&folder.pids().await).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_the_worker_releases_the_job_and_ends_its_command() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let folder = Folder::new("stop");
    let command = folder.script("sleep 600 & echo $$ $! >$1/pids; wait");
    let worker = start(&db, command).await;
    put(&client, "long", &json!({})).await;
    let pids = folder.pids().await;
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    worker.stop().await.unwrap();
    let (state, attempt, _) = job(&client).await;
    assert_eq!((state.as_str(), attempt), ("available", 0));
    gone(&pids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_commands_are_rejected_and_vanished_ones_count_no_attempt() -> TestResult {
    for wrong in ["/nowhere/command", "command", "/etc", "/etc/passwd"] {
        assert!(Exec::new(wrong).is_err(), "{wrong}");
    }
    let (db, client) = connected(PgVersion::any()).await?;
    let folder = Folder::new("absent");
    let command = folder.script("exit 0");
    fs::remove_file(folder.0.join("command")).unwrap();
    let worker = start(&db, command).await;
    put(&client, "any", &json!({})).await;
    eventually(SOON, "it was rescheduled", async || {
        Ok(job(&client).await.2.contains("cannot run the command"))
    })
    .await?;
    assert_eq!(job(&client).await.1, 0, "no attempt was counted");
    worker.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_most_specific_handler_pattern_wins() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let folder = Folder::new("patterns");
    let program = folder.file("echo $2 $POSTHASTE_JOB_NAME >>$1/ran");
    let print = |word: &str| {
        let words = [folder.0.as_os_str(), Path::new(word).as_os_str()];
        Exec::new(&program).unwrap().arguments(words).handler()
    };
    let worker = worker(&db.pool(4)?)
        .queue("default", 1)
        .handler("*", print("any"))
        .handler("mail.*", print("prefix"))
        .handler("mail.x*", print("longer"))
        .handler("mail.xy", print("exact"))
        .start()
        .await?;
    for name in ["mail", "mail.", "mail.x", "mail.xy", "mail.xyz"] {
        put(&client, name, &json!({})).await;
    }
    all_done(&client).await;
    worker.stop().await?;
    let ran = folder.read("ran").await;
    let mut ran: Vec<&str> = ran.lines().collect();
    ran.sort_unstable();
    assert_eq!(
        ran,
        [
            "any mail",
            "exact mail.xy",
            "longer mail.x",
            "longer mail.xyz",
            "prefix mail."
        ]
    );
    Ok(())
}
