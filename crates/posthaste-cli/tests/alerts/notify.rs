//! The jobs of `posthaste alerts --notify`: each beginning and each end once, despite failures.

use std::process::Stdio;

use posthaste_testkit::{Sql as _, TestDb, eventually, number};
use serde_json::Value;
use tokio_postgres::Client;

use crate::stage::{self, BOUND, Stage};

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_notify_once_and_ignore_the_notification_queue() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let work = ["work", "--queue", "none", "--exec", "ok=true"];
    let _worker = stage.spawn_on(&database, &work)?;
    let alerts = ["alerts", "--lasting", "1", "--notify", "alerts"];
    let mut both = Vec::new();
    for _ in 0..2 {
        let mut child = stage.spawn_on(&database, &alerts)?;
        child.error_line("watching", BOUND).await?;
        both.push(child);
    }
    let enqueue = "SELECT posthaste.enqueue('slow', queue => 'mail')";
    client.run(enqueue).await?;
    for child in &mut both {
        child
            .line("begins: queue.no_worker: Queue mail", BOUND)
            .await?;
    }
    let cancel = "SELECT posthaste.cancel(id) FROM posthaste.job WHERE queue = 'mail'";
    client.run(cancel).await?;
    for child in &mut both {
        child.line("ends: queue.no_worker (mail)", BOUND).await?;
    }
    // A process enqueues the printed events before its next read.
    for child in &mut both {
        child.terminate()?;
        assert!(child.exit(BOUND).await?.success());
    }
    let jobs = "SELECT kwargs ->> 'event' || ' ' || (kwargs ->> 'id') || ' ' ||
                       (kwargs ->> 'subject')
                  FROM posthaste.job WHERE queue = 'alerts' ORDER BY id";
    let jobs: Vec<String> = client.rows(jobs).await?;
    let once = ["begins queue.no_worker mail", "ends queue.no_worker mail"];
    assert_eq!(jobs, once);
    Ok(())
}

/// Fields of the beginning and of the end of an alert about a long queue.
const BEGINS: &str = "\"event\":\"begins\",\"id\":\"queue.long\"";
const ENDS: &str = "\"event\":\"ends\",\"id\":\"queue.long\"";

/// Allows new sessions to write or not, and ends the others, as when a replica answers for a while.
async fn let_write(client: &Client, database: &TestDb, may: bool) -> anyhow::Result<()> {
    let name: String = client
        .query_one("SELECT current_database()::text", &[])
        .await?
        .try_get(0)?;
    let value = if may { "off" } else { "on" };
    let set = format!("ALTER DATABASE \"{name}\" SET default_transaction_read_only = {value}");
    // This session always writes.
    let own = "SET default_transaction_read_only = off";
    client.run(&format!("{own}; {set}")).await?;
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE datname = current_database() AND pid <> pg_backend_pid()";
    client.run(end).await?;
    drop(database.client().await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn undelivered_alerts_are_delivered_once_with_their_end() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let mut child = stage.spawn_on(
        &database,
        &[
            "--json",
            "alerts",
            "--queue",
            "mail",
            "--length-above",
            "0",
            "--lasting",
            "1",
            "--notify",
            "alerts",
        ],
    )?;
    child.error_line("watching", BOUND).await?;
    let notified = "SELECT count(*) FROM posthaste.job
                 WHERE queue = 'alerts' AND kwargs ->> 'id' = 'queue.long'";
    let enqueue = "SELECT posthaste.enqueue('slow', queue => 'mail')";
    let cancel = "SELECT posthaste.cancel(id) FROM posthaste.job WHERE queue = 'mail'";

    // Three alerts: failed notifications are delivered later, in order.
    let_write(&client, &database, false).await?;
    for _ in 0..2 {
        client.run(enqueue).await?;
        child.line(BEGINS, BOUND).await?;
        client.run(cancel).await?;
        child.line(ENDS, BOUND).await?;
    }
    let failed = child.stderr().join("\n");
    assert!(failed.contains("could not be enqueued"), "{failed}");
    client.run(enqueue).await?;
    child.line(BEGINS, BOUND).await?;
    assert_eq!(number(&client, notified).await?, 0);
    let_write(&client, &database, true).await?;
    eventually(BOUND, "pending notifications are delivered", async || {
        Ok(number(&client, notified).await? >= 5)
    })
    .await?;
    // All connections are lost: no alert begins again.
    let_write(&client, &database, true).await?;
    client.run(cancel).await?;
    child.line(ENDS, BOUND).await?;
    eventually(BOUND, "its end is notified", async || {
        Ok(number(&client, notified).await? >= 6)
    })
    .await?;
    child.terminate()?;
    assert!(child.exit(BOUND).await?.success());

    let jobs = "SELECT kwargs ->> 'event' FROM posthaste.job
                 WHERE queue = 'alerts' AND kwargs ->> 'id' = 'queue.long' ORDER BY id";
    let jobs: Vec<String> = client.rows(jobs).await?;
    let lines: Result<Vec<Value>, _> = child
        .stdout()
        .iter()
        .map(|line| serde_json::from_str(line))
        .collect();
    let lines = lines?.into_iter().filter(|line| line["id"] == "queue.long");
    let lines: Vec<_> = lines.map(|line| line["event"].clone()).collect();
    let expected = ["begins", "ends", "begins", "ends", "begins", "ends"];
    assert_eq!(jobs, expected);
    assert_eq!(lines, expected);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_of_a_killed_process_are_resolved_by_its_successor() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let arguments = [
        "alerts",
        "--queue",
        "mail",
        "--length-above",
        "0",
        "--lasting",
        "1",
        "--notify",
        "alerts",
    ];
    let events = async || -> anyhow::Result<Vec<String>> {
        let jobs = "SELECT kwargs ->> 'event' FROM posthaste.job
                     WHERE queue = 'alerts' AND kwargs ->> 'id' = 'queue.long' ORDER BY id";
        let rows = client.query(jobs, &[]).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    };
    let until = async |expected: &[&str]| {
        eventually(BOUND, "it is notified", async || {
            Ok(events().await? == expected)
        })
        .await
    };
    client
        .run("SELECT posthaste.enqueue('slow', queue => 'mail')")
        .await?;
    // Standard output on a full disk does not block notification jobs.
    let full = std::fs::File::options().write(true).open("/dev/full")?;
    let mut first = stage.command(&arguments);
    first.env("DATABASE_URL", database.url());
    first
        .stdin(Stdio::null())
        .stdout(full)
        .stderr(Stdio::null());
    let mut first = tokio::process::Command::from(first)
        .kill_on_drop(true)
        .spawn()?;
    until(&["begins"]).await?;
    first.kill().await?;
    // The alert still fires and is not notified again.
    let mut second = stage.spawn_on(&database, &arguments)?;
    second.error_line("watching", BOUND).await?;
    client.run("SELECT pg_sleep(2.5)").await?;
    assert_eq!(events().await?, ["begins"]);
    second.terminate()?;
    assert!(second.exit(BOUND).await?.success());
    let cancel = "SELECT posthaste.cancel(id) FROM posthaste.job WHERE queue = 'mail'";
    client.run(cancel).await?;
    let third = stage.spawn_on(&database, &arguments)?;
    until(&["begins", "ends"]).await?;
    let left = "SELECT count(*) FROM posthaste.alert WHERE alert = 'queue.long'";
    assert_eq!(number(&client, left).await?, 0);
    drop(third);
    Ok(())
}
