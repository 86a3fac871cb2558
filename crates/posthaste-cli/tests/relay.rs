//! `posthaste relay run` and `relay preview`: routes of a file, to standard output and to a real
//! Redis.

mod few_files;
mod secret;
mod shown;

use std::collections::BTreeSet;

use anyhow::ensure;
use posthaste_testkit::receivers::{Receiver, Redis, are_here};
use posthaste_testkit::{Child, Sql as _, TestDb, eventually, number};
use serde_json::Value;
use tokio_postgres::Client;

use crate::stage::{self, BOUND, Stage};

const LINES: &str = "[route.audit]\nqueue = \"a\"\nto = \"stdout:\"\nkind = \"audit.{name}\"\n";
const ORDERED: &str = "[route.audit]\nqueue = \"a\"\nto = \"stdout:\"\nordered = true\nbatch = 7\n";

async fn enqueue(client: &Client, jobs: i32) -> anyhow::Result<()> {
    let insert = "INSERT INTO posthaste.job (name, queue, kwargs)
        SELECT 'n', 'a', jsonb_build_object('n', n) FROM generate_series(1, $1) n";
    client.execute(insert, &[&jobs]).await?;
    Ok(())
}

/// Returns the numbers of the jobs that the lines on standard output report as sent.
fn sent(lines: &[String]) -> anyhow::Result<Vec<i64>> {
    let numbers = lines.iter().map(|line| {
        let line: Value = serde_json::from_str(line)?;
        let n = line["payload"]["n"].as_i64();
        n.ok_or_else(|| anyhow::anyhow!("{line}"))
    });
    numbers.collect()
}

async fn relay(stage: &Stage, database: &TestDb) -> anyhow::Result<Child> {
    let mut relay = stage.spawn_on(database, &["relay", "run", "--rescue-after", "3"])?;
    relay.error_line("Ctrl-C stops", BOUND).await?;
    Ok(relay)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_sends_until_it_is_stopped() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    stage.write("posthaste.toml", LINES)?;
    let mut relay = relay(&stage, &database).await?;
    enqueue(&client, 1).await?;
    let line: Value = serde_json::from_str(&relay.line("audit.n", BOUND).await?)?;
    assert_eq!(line["payload"], serde_json::json!({"n": 1}));
    eventually(BOUND, "it says how it goes", async || {
        let status = stage.run_on(&database, &["status", "--json"]).await?;
        let status: Value = serde_json::from_str(&status.good()?)?;
        let relay = &status["relays"][0];
        ensure!(
            relay["route"] == "audit" && relay["destination"] == "lines",
            "{relay}"
        );
        Ok(relay["state"] == "up" && relay["accepted"] == 1)
    })
    .await?;
    relay.terminate()?;
    assert!(relay.exit(BOUND).await?.success());
    let status = stage.run_on(&database, &["status"]).await?.good()?;
    let last = status.lines().last().unwrap_or_default();
    let cells: Vec<&str> = last.split_whitespace().collect();
    assert_eq!(
        cells,
        ["audit", "lines", "stopped", "-", "-", "-"],
        "{status}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_to_unread_receiver_queues_are_reported() -> anyhow::Result<()> {
    let test = "routes_to_unread_receiver_queues_are_reported";
    if !are_here(test, &[Receiver::Redis]) {
        return Ok(());
    }
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let redis = Redis::start(&[("appendonly", "yes")])?;
    let to = redis.url().replace("redis:", "asynq:");
    stage.write(
        "posthaste.toml",
        &format!("[route.mail]\nqueue = 'a'\nto = '{to}'\n"),
    )?;
    let mut relay = relay(&stage, &database).await?;
    enqueue(&database.client().await?, 3).await?;
    let output = relay
        .error_line("no worker of the receiver reads this queue", BOUND)
        .await?;
    assert!(output.contains("queue=\"default\""), "{output}");
    relay.terminate()?;
    assert!(relay.exit(BOUND).await?.success());
    let lines = relay.stderr();
    let output = lines
        .iter()
        .filter(|line| line.contains("reads this queue"));
    assert_eq!(output.count(), 1, "{lines:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_with_a_closed_stdout_ends_without_an_attempt() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    stage.write("posthaste.toml", LINES)?;
    // More than the pipe and its reader can buffer.
    enqueue(&client, 3_000).await?;
    let mut command = stage.through(
        "bash",
        "set -o pipefail; \"$@\" | head -n 1",
        &["relay", "run", "audit"],
    );
    command.env("DATABASE_URL", database.url());
    let mut relay = Child::spawn(&mut command)?;
    assert_eq!(relay.exit(BOUND).await?.code(), Some(1));
    let stderr = relay.stderr().join("\n");
    let reason = "error: route audit: lines no longer accepts messages: Broken pipe. Its jobs wait";
    assert!(stderr.contains(reason), "{stderr}");
    let waiting = number(&client, "SELECT count(*) FROM posthaste.job").await?;
    assert!(waiting > 0);
    let counted = "SELECT count(*) FROM posthaste.job WHERE attempt > 0";
    assert_eq!(number(&client, counted).await?, 0);
    let status = stage.run_on(&database, &["status", "--json"]).await?;
    let status: Value = serde_json::from_str(&status.good()?)?;
    let lag = status["relays"][0]["lag_seconds"].as_f64();
    assert!(lag > Some(0.0), "{status}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unnamed_routes_are_not_run() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let both = format!("{LINES}[route.other]\nqueue = \"b\"\nto = \"stdout:\"\n");
    stage.write("posthaste.toml", &both)?;
    enqueue(&client, 1).await?;
    let other = "SELECT posthaste.enqueue('n', queue => 'b')";
    client.run(other).await?;
    let once = ["relay", "run", "--once", "audit"];
    let out = stage.run_on(&database, &once).await?.good()?;
    assert_eq!(out.lines().last(), Some("audit: 1 sent"));
    let left = "SELECT count(*) FROM posthaste.job WHERE queue = 'b' AND state = 'available'";
    assert_eq!(number(&client, left).await?, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn once_ends_with_a_summary_when_the_queues_are_empty() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    stage.write("posthaste.toml", LINES)?;
    enqueue(&client, 500).await?;
    let output = stage.run_on(&database, &["relay", "run", "--once"]).await?;
    let out = output.good()?;
    let mut lines: Vec<String> = out.lines().map(Into::into).collect();
    assert_eq!(lines.pop().as_deref(), Some("audit: 500 sent"));
    let numbers: BTreeSet<i64> = sent(&lines)?.into_iter().collect();
    assert_eq!(numbers, (1..=500).collect());
    let left = number(&client, "SELECT count(*) FROM posthaste.job").await?;
    assert_eq!(left, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn previews_show_messages_without_side_effects() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    stage.write("other.toml", LINES)?;
    enqueue(&client, 3).await?;
    let arguments = ["relay", "preview", "--config", "other.toml", "audit"];
    let out = stage.run_on(&database, &arguments).await?.good()?;
    let lines: Vec<String> = out.lines().map(Into::into).collect();
    assert_eq!(sent(&lines)?, [1, 2, 3]);
    let first: Value = serde_json::from_str(&lines[0])?;
    let id = "SELECT posthaste.delivery_id(min(id))::text FROM posthaste.job";
    let id: String = client.one(id).await?;
    assert_eq!(
        (first["id"].as_str(), first["kind"].as_str()),
        (Some(&*id), Some("audit.n"))
    );
    let waiting = "SELECT count(*) FROM posthaste.job WHERE state = 'available'";
    assert_eq!(number(&client, waiting).await?, 3);
    let one = [&arguments[..], &["--limit", "1"]].concat();
    let out = stage.run_on(&database, &one).await?.good()?;
    assert_eq!(out.lines().count(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn file_errors_are_one_line() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let failure = async |arguments: &[&str]| stage.run_on(&database, arguments).await?.failure();
    let none = failure(&["relay", "run"]).await?;
    assert!(
        none.contains("posthaste.toml does not exist. Create it"),
        "{none}"
    );
    stage.write("posthaste.toml", LINES)?;
    let unknown = failure(&["relay", "run", "mail"]).await?;
    assert!(unknown.contains(": no route is named mail; the file has audit"));
    stage.write(
        "posthaste.toml",
        "[route.a]\nto = \"sidekiq://:geheim@h\"\ncolour = 1\n",
    )?;
    let setting = failure(&["relay", "run"]).await?;
    assert!(
        setting.contains("posthaste.toml: route a: colour: is not a setting of a route to Sidekiq"),
        "{setting}"
    );
    assert!(!setting.contains("geheim"), "{setting}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn evicting_redis_servers_are_refused_unless_allowed() -> anyhow::Result<()> {
    if !are_here(
        "evicting_redis_servers_are_refused_unless_allowed",
        &[Receiver::Redis],
    ) {
        return Ok(());
    }
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let redis = Redis::start(&[])?;
    let route = "[route.a]\nto = \"sidekiq+${REDIS}\"\nclass = \"MailJob\"\n";
    stage.write("posthaste.toml", route)?;
    enqueue(&client, 2).await?;
    let run = async || {
        let mut command = stage.command(&["relay", "run", "--once"]);
        command
            .env("DATABASE_URL", database.url())
            .env("REDIS", redis.url());
        stage::CommandOutput::by(Child::spawn(&mut command)?).await
    };
    let refused = run().await?.failure()?;
    assert!(
        refused.contains("route a did not start: sidekiq at"),
        "{refused}"
    );
    assert!(
        refused.contains("to relay anyway: allow_unsafe = [\"appendonly\"]"),
        "{refused}"
    );
    stage.write(
        "posthaste.toml",
        &format!("{route}allow_unsafe = [\"appendonly\"]\n"),
    )?;
    let done = run().await?.good()?;
    assert_eq!(done, "a: 2 sent");
    let jobs = redis.ask(&["LLEN", "queue:default"])?;
    assert_eq!(jobs, 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_routes_stop_no_other_and_start_once_fixed() -> anyhow::Result<()> {
    let test = "rejected_routes_stop_no_other_and_start_once_fixed";
    if !are_here(test, &[Receiver::Redis]) {
        return Ok(());
    }
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let redis = Redis::start(&[])?;
    let routes = format!("{LINES}[route.b]\nto = \"sidekiq+{}\"\n", redis.url());
    stage.write("posthaste.toml", &routes)?;
    enqueue(&client, 1).await?;
    let other = "SELECT posthaste.enqueue('n', queue => 'b')";
    client.run(other).await?;
    let mut relay = relay(&stage, &database).await?;
    relay.line("audit.n", BOUND).await?;
    let stderr = relay.stderr().join("\n");
    assert!(stderr.contains("it waits until this is fixed"), "{stderr}");
    eventually(BOUND, "the status says why", async || {
        let status = stage.run_on(&database, &["status"]).await?.good()?;
        let says = |line: &str| line.contains(" down ") && line.contains("appendonly");
        Ok(status
            .lines()
            .any(|line| line.starts_with("b ") && says(line)))
    })
    .await?;
    redis.ask(&["CONFIG", "SET", "appendonly", "yes"])?;
    eventually(BOUND, "it begins", async || {
        Ok(redis.ask(&["LLEN", "queue:default"])? == 1)
    })
    .await?;
    relay.terminate()?;
    assert!(relay.exit(BOUND).await?.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rejection_reasons_are_logged_and_counted() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let lacking = "kind = \"{kwargs.x}\"\nheaders = { y = \"{kwargs.y}\" }\n";
    let route = format!("[route.audit]\nqueue = \"a\"\nto = \"stdout:\"\n{lacking}");
    stage.write("posthaste.toml", &route)?;
    enqueue(&client, 3).await?;
    let other = "SELECT posthaste.enqueue('n', '{\"x\": \"1\"}', queue => 'a')";
    client.run(other).await?;
    let once = stage.run_on(&database, &["relay", "run", "--once"]).await?;
    let once = once.good()?;
    let lines: Vec<&str> = once.lines().collect();
    let counts = "audit: 0 sent, 4 rejected permanently";
    assert!(lines[0].starts_with(counts), "{once}");
    assert!(
        lines[1..].contains(&"  3 rejected: the job has no argument \"x\""),
        "{once}"
    );
    assert!(
        lines[1..].contains(&"  1 rejected: the job has no argument \"y\""),
        "{once}"
    );
    let status = stage.run_on(&database, &["status"]).await?.good()?;
    assert!(
        status.contains("\naudit: 3 rejected permanently: "),
        "{status}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_relay_continues_in_order_after_a_kill() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    stage.write("posthaste.toml", ORDERED)?;
    // So slowly that it is killed while it sends them.
    client
        .run("SELECT posthaste.limit_rate('a', 50, burst => 10)")
        .await?;
    let mut first = relay(&stage, &database).await?;
    enqueue(&client, 200).await?;
    first.line("\"n\":", BOUND).await?;
    let second = relay(&stage, &database).await?;
    eventually(BOUND, "some are sent", async || {
        Ok(first.stdout().len() > 25)
    })
    .await?;
    first.kill()?;
    let before = second.stdout();
    ensure!(before.is_empty(), "both send: {before:?}");
    eventually(BOUND, "all are sent", async || {
        Ok(number(&client, "SELECT count(*) FROM posthaste.job").await? == 0)
    })
    .await?;
    // The last line of a killed process may be incomplete.
    let mut lines = first.stdout();
    lines.retain(|line| line.ends_with('}'));
    ensure!(lines.len() < 200, "it was killed too late");
    lines.extend(second.stdout());
    let mut seen = BTreeSet::new();
    let mut sent = sent(&lines)?;
    sent.retain(|n| seen.insert(*n));
    assert_eq!(sent, (1..=200).collect::<Vec<i64>>());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn up_runs_the_relays_of_posthaste_toml() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::empty_database().await?);
    stage.write("posthaste.toml", LINES)?;
    let mut up = stage.spawn_on(&database, &["up"])?;
    up.error_line("running routes, captures and syncs only", BOUND)
        .await?;
    enqueue(&database.client().await?, 1).await?;
    up.line("audit.n", BOUND).await?;
    up.terminate()?;
    assert!(up.exit(BOUND).await?.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_retain_sent_jobs_and_resolve_row_references() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let route = "[route.audit]\nqueue = \"a\"\nto = \"stdout:\"\nkeep = \"7d\"\n\
                 [route.audit.resolve]\norders = \"SELECT to_jsonb(o) FROM orders o WHERE o.id = \
                 $1::bigint\"\n";
    stage.write("posthaste.toml", route)?;
    let orders = "CREATE TABLE orders AS SELECT 4711 AS id, 7 AS total;
        INSERT INTO posthaste.route (pattern, queue) VALUES ('*', 'a');
        INSERT INTO posthaste.outbox (type, table_name, table_id)
          VALUES ('placed', 'orders', '4711')";
    client.run(orders).await?;
    let output = stage.run_on(&database, &["relay", "run", "--once"]).await?;
    let out = output.good()?;
    let line: Value = serde_json::from_str(out.lines().next().unwrap_or_default())?;
    assert_eq!(line["payload"], serde_json::json!({"id": 4711, "total": 7}));
    let completed = "SELECT count(*) FROM posthaste.outbox WHERE completed_at IS NOT NULL";
    assert_eq!(number(&client, completed).await?, 1);
    Ok(())
}
