//! `posthaste status`: once, and periodically.

use std::io::Write as _;

use anyhow::Context as _;
use posthaste_testkit::{Sql as _, eventually};

use crate::stage::{self, BOUND, Stage};

#[tokio::test(flavor = "multi_thread")]
async fn status_counts_jobs_by_queue_and_state() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::database().await?;
    let nothing = stage.run_on(&database, &["status"]).await?.good()?;
    assert_eq!(nothing, "no jobs: all enqueued jobs are completed");
    for arguments in [
        &["jobs", "enqueue", "a", "--queue", "mail"][..],
        &[
            "jobs",
            "enqueue",
            "b",
            "--queue",
            "mail",
            "--scheduled-at",
            "2999-01-01T00:00:00Z",
            "--expires-at",
            "2999-02-01T00:00:00Z",
        ],
        &["jobs", "enqueue", "c"],
    ] {
        stage.run_on(&database, arguments).await?.good()?;
    }
    let table = stage.run_on(&database, &["status"]).await?.good()?;
    // On a slow machine jobs may have waited for a minute by now.
    let (table, found) = table.split_once("\n\n").context("no findings")?;
    let error = "ERROR worker.none: No worker is running: 3 jobs waiting in 2 queues";
    assert!(found.starts_with(error), "{found}");
    let table: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().take(3).collect())
        .collect();
    assert_eq!(
        table,
        [
            ["queue", "available", "scheduled"],
            ["default", "1", "0"],
            ["mail", "1", "1"]
        ]
    );
    let names = stage.run_on(&database, &["status", "--by", "name,tag"]);
    assert_eq!(
        names.await?.good()?,
        "name   tag     available   scheduled\na                      1           0\n\
         b                      0           1\nc                      1           0"
    );
    let json = stage
        .run_on(&database, &["status", "--json"])
        .await?
        .good()?;
    let json: serde_json::Value = serde_json::from_str(&json)?;
    assert_eq!(json["queues"]["mail"]["scheduled"], 1);
    assert_eq!(json["queues"]["mail"]["dead"], 0);
    assert_eq!(json["queues"]["mail"]["is_unworked"], true);
    assert_eq!(json["findings"][0]["id"], "worker.none");
    assert!(json["queues"]["mail"]["oldest_seconds"].as_f64() >= Some(0.0));
    assert_eq!(json["jobs"][2]["name"], "b");
    assert_eq!(json["jobs"][2]["scheduled"], 1);
    assert_eq!(json["jobs"][2]["completed_total"], 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn status_watch_refreshes_until_ctrl_c() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::database().await?;
    let mut watched = stage.spawn_on(&database, &["status", "--watch", "1"])?;
    watched.line("no jobs", BOUND).await?;
    let enqueue = stage.run_on(&database, &["jobs", "enqueue", "a"]);
    enqueue.await?.good()?;
    watched.line("default", BOUND).await?;
    watched.interrupt()?;
    assert!(watched.exit(BOUND).await?.success());
    let shown = watched.stdout();
    assert!(!shown.concat().contains('\u{1b}'), "no terminal: {shown:?}");

    let mut json = stage.spawn_on(&database, &["status", "--json", "--watch", "1"])?;
    for _ in 0..2 {
        let line = json.line("{", BOUND).await?;
        let line: serde_json::Value = serde_json::from_str(&line)?;
        assert_eq!(line["queues"]["default"]["available"], 1);
    }
    json.terminate()?;
    assert!(json.exit(BOUND).await?.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn status_watch_ends_when_its_output_is_closed() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let watch = ["status", "--watch", "1"];
    let mut command = stage.through("sh", "\"$@\" | head -n 1", &watch);
    let mut watched = posthaste_testkit::Child::spawn(command.env("DATABASE_URL", database.url()))?;
    assert!(watched.exit(BOUND).await?.success());
    assert_eq!(watched.stdout().len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn status_watch_redraws_in_place_on_a_terminal() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::database().await?;
    let keys = stage.folder.join("keys");
    // `script` makes the terminal and types the input of the pipe. It starts a shell; after Ctrl-C
    // only the command must remain.
    let mut command = std::process::Command::new("sh");
    command
        .args([
            "-c",
            "mkfifo keys; echo ready; exec script -qefc \"exec $0 status --watch 1\" /dev/null \
             <>keys",
        ])
        .arg(stage.program())
        .current_dir(&stage.folder)
        .env("DATABASE_URL", database.url());
    let mut watched = posthaste_testkit::Child::spawn(&mut command)?;
    watched.line("no jobs", BOUND).await?;
    stage
        .run_on(&database, &["jobs", "enqueue", "a"])
        .await?
        .good()?;
    watched.line("default", BOUND).await?;
    let mut keyboard = std::fs::OpenOptions::new().append(true).open(&keys)?;
    keyboard.write_all(b"\x03")?;
    assert!(
        watched.exit(BOUND).await?.success(),
        "{:?}",
        watched.stdout()
    );
    let shown = watched.stdout().join("\n");
    let drawn: Vec<&str> = shown.split("\u{1b}[H\u{1b}[2J").skip(1).collect();
    assert!(drawn.len() >= 2, "{shown:?}");
    assert!(drawn[0].starts_with("no jobs"), "{shown:?}");
    assert!(
        drawn.last().is_some_and(|last| last.starts_with("queue")),
        "{shown:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unserved_queues_are_reported_by_worker_status_and_doctor() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let arguments = ["work", "--queue", "mail", "--exec", "letter=/bin/true"];
    let mut worker = stage.spawn_on(&database, &arguments)?;
    worker.error_line("working on", BOUND).await?;
    for queue in ["mail", "mial"] {
        let enqueue = ["jobs", "enqueue", "letter", "--queue", queue];
        stage.run_on(&database, &enqueue).await?.good()?;
    }
    let line = "jobs wait in a queue that no worker serves";
    let warning = worker.error_line(line, BOUND).await?;
    assert!(warning.contains("queue=\"mial\""), "{warning}");
    let status = stage.run_on(&database, &["status"]).await?.good()?;
    let finding = "ERROR queue.no_worker: Queue mial has no worker: 1 job waiting";
    assert!(status.contains(finding), "{status}");
    let doctor = stage.run_on(&database, &["doctor"]).await?;
    assert_eq!(doctor.code, Some(3), "{doctor:?}");
    let finding = "queue.no_worker: Queue mial has no worker: 1 job waiting";
    assert!(doctor.out.contains(finding), "{doctor:?}");
    worker.terminate()?;
    assert!(worker.exit(BOUND).await?.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_schedules_are_reported_by_status_and_doctor() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let rows = "INSERT INTO posthaste.periodic (name, schedule, job)
                SELECT 'p' || g, '@daily', 'x' FROM generate_series(1, 12) g;
                UPDATE posthaste.periodic SET error = E'no zone \\x1b[2J\\nx', looked_at = now()";
    client.run(rows).await?;
    let status = stage.run_on(&database, &["status"]).await?.good()?;
    let found = "ERROR periodic.failing: 12 periodic jobs are not enqueued: p1, p10, p11, p12, p2 \
                 and 7 more.";
    assert!(status.contains(found), "{status}");
    let json = stage.run_on(&database, &["status", "--json"]).await?;
    let json: serde_json::Value = serde_json::from_str(&json.good()?)?;
    assert_eq!(json["findings"][0]["subject"], "p1");
    let first = json["findings"][0]["summary"].as_str().unwrap_or_default();
    assert!(first.starts_with("Periodic job p1 is not enqueued: no zone "));
    assert!(!first.contains(['\u{1b}', '\n']), "{first:?}");
    let doctor = stage.run_on(&database, &["doctor"]).await?;
    let finding = "periodic.failing: 12 periodic jobs are not enqueued: p1, ";
    assert!(doctor.out.contains(finding), "{doctor:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_names_cannot_control_the_terminal() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let evil = "\u{1b}[2Jx\r\n\u{9b}y";
    let enqueue = "SELECT posthaste.enqueue($1, queue => $1, tag => $1)";
    let id: i64 = client.one_with(enqueue, &[&evil]).await?;
    let id = id.to_string();
    client
        .query_one("SELECT posthaste.limit_rate($1, 5)", &[&evil])
        .await?;
    for arguments in [
        &["status"][..],
        &["status", "--by", "name,tag"],
        &["--json", "status"],
        &["jobs", "list"],
        &["jobs", "show", &id],
        &["--json", "jobs", "show", &id],
        &["queues", "list"],
        &["queues", "pause", evil],
        &["queues", "limit", evil, "none"],
        &["queues", "keep", evil, "1 day"],
    ] {
        let output = stage.run_on(&database, arguments).await?;
        assert_eq!(output.code, Some(0), "{arguments:?}: {output:?}");
        let acts = |letter: char| letter.is_control() && letter != '\n';
        assert!(!output.out.contains(acts), "{arguments:?}: {output:?}");
        assert!(output.out.contains("[2Jx"), "{arguments:?}: {output:?}");
    }
    Ok(())
}

/// Jobs that expired, one that a worker had when it died for the last allowed time, and one that
/// was never confirmed.
const ENDING: &str = "INSERT INTO posthaste.job (name, queue, expires_at, kwargs)
    SELECT n.name, n.queue, now() - interval '1 s', '{\"n\": \"geheim\"}'
      FROM (VALUES ('late', 'default', 3), ('crowd', 'nobodys', 20)) n(name, queue, jobs),
           generate_series(1, n.jobs);
    UPDATE posthaste.store SET last_error = 'kwargs.n: geheim' || id WHERE name = 'crowd';
    INSERT INTO posthaste.worker (name, stopped_at) VALUES ('hand', clock_timestamp());
    INSERT INTO posthaste.in_flight (id, until, enqueued_at, scheduled_at, expires_at, priority,
      attempt, max_attempts, kwargs_bytes, crashes, state, worker, token, queue, name, tag, kwargs)
    SELECT nextval('posthaste.job_id'), now(), now(), now(), 'infinity', 0, 0, 1, 2, 1, o.state,
           o.worker, gen_random_uuid(), 'default', o.name, '', '{\"n\": \"geheim\"}'
      FROM (VALUES ('running', (SELECT max(id) FROM posthaste.worker), 'orphan'),
                   ('awaiting', NULL, 'unconfirmed')) o(state, worker, name)";

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_logs_jobs_that_end_without_a_worker_in_groups() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    database.client().await?.run(ENDING).await?;
    let arguments = ["work", "--queue", "default", "--exec", "x=/bin/true"];
    let mut worker = stage.spawn_on(&database, &arguments)?;
    let all = [
        ("late", 3, "a job expired while no worker held it job="),
        ("crowd", 1, "jobs expired while no worker held them jobs=20"),
        ("orphan", 1, "its worker died 2 times while it had this job"),
        ("unconfirmed", 1, "it was not confirmed in time"),
    ];
    let lines = |log: &[String], name: &str| -> Vec<String> {
        let named = format!("name=\"{name}\" queue=");
        let lines = log.iter().filter(|line| line.contains(&named));
        lines.cloned().collect()
    };
    eventually(BOUND, "each kind has its lines", async || {
        let stderr = worker.stderr();
        let has = |(name, most, _): &(&str, usize, _)| lines(&stderr, name).len() == *most;
        Ok(all.iter().all(has))
    })
    .await?;
    worker.terminate()?;
    worker.exit(BOUND).await?;
    let stderr = worker.stderr();
    for (name, most, expected) in all {
        let lines = lines(&stderr, name);
        assert_eq!(lines.len(), most, "{stderr:?}");
        for line in lines {
            assert!(line.contains("WARN") && line.contains(expected), "{line}");
        }
    }
    assert!(!stderr.concat().contains("geheim"), "{stderr:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pauses_are_shown_everywhere() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    for arguments in [
        &["jobs", "enqueue", "a", "--queue", "mail"][..],
        &["jobs", "enqueue", "a"],
        &["queues", "pause", "mail"],
        &["queues", "pause", "empty"],
    ] {
        stage.run_on(&database, arguments).await?.good()?;
    }
    let status = stage.run_on(&database, &["status"]).await?.good()?;
    for queue in ["mail", "empty"] {
        let line = format!("\nqueue {queue} is paused\n");
        assert!(status.contains(&line), "{status}");
    }
    let json = async |command: &str| {
        let output = stage
            .run_on(&database, &["--json", command])
            .await?
            .good()?;
        anyhow::Ok(serde_json::from_str::<serde_json::Value>(&output)?)
    };
    let status = json("status").await?;
    assert_eq!(status["queues"]["mail"]["is_paused"], true);
    assert_eq!(status["queues"]["empty"]["is_paused"], true);
    assert_eq!(status["queues"]["default"]["is_paused"], false);
    let top = json("top").await?;
    let lines = top["queues"].as_array().into_iter().flatten();
    let paused = lines.filter(|line| line["is_paused"] == true);
    let mut paused: Vec<&str> = paused.filter_map(|line| line["queue"].as_str()).collect();
    paused.sort_unstable();
    assert_eq!(paused, ["empty", "mail"], "{top}");
    let top = stage.run_on(&database, &["top", "--once"]).await?.good()?;
    assert!(
        top.lines()
            .any(|line| line.ends_with("  paused, no worker")),
        "{top}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn status_reports_uncounted_jobs() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::database().await?;
    let many = "INSERT INTO posthaste.job (name) SELECT 'n' FROM generate_series(1, 30000)";
    database.client().await?.run(many).await?;
    let output = stage.run_on(&database, &["status"]).await?.good()?;
    let note = "many jobs are not counted yet: the numbers of waiting jobs are too low";
    assert!(output.lines().any(|line| line == note), "{output}");
    let json = stage.run_on(&database, &["status", "--json"]).await?;
    let report: serde_json::Value = serde_json::from_str(&json.good()?)?;
    assert_eq!(report["queues"]["default"]["available"], 20_000);
    let found = report["findings"].as_array().context("findings")?;
    assert!(
        found.iter().any(|one| one["id"] == "jobs.uncounted"),
        "{report}"
    );
    Ok(())
}
