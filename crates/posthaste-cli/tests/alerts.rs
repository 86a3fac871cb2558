//! What fails in a queue, and which alert says so: the table of docs/operate/monitor.md, played
//! against real producers and workers.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use posthaste_testkit::{Child, TestDb, eventually, number};
use serde_json::Value;
use tokio_postgres::Client;

use crate::stage::{self, BOUND, Stage};

/// For how long something must last in these tests.
const LASTING: &str = "4";
const BUSY: &str = "60";

/// Everything that a queue needs, and the one that looks at it.
struct Played {
    stage: Stage,
    database: TestDb,
    client: tokio_postgres::Client,
    worker: Option<Child>,
    producer: Option<tokio::task::JoinHandle<()>>,
}

impl Played {
    async fn new() -> anyhow::Result<Self> {
        let (stage, database) = (Stage::new()?, stage::database().await?);
        let client = database.client().await?;
        Ok(Self {
            stage,
            database,
            client,
            worker: None,
            producer: None,
        })
    }

    fn work(&mut self) -> anyhow::Result<()> {
        let work = [
            "work",
            "--queue",
            "mail=4",
            "--exec",
            "ok=sleep 0.05",
            "--exec",
            "slow=sleep 30",
        ];
        self.worker = Some(self.stage.spawn_on(&self.database, &work)?);
        Ok(())
    }

    /// This many jobs of this name at once, again and again.
    async fn produce(
        &mut self,
        name: &'static str,
        jobs: u32,
        tag: &'static str,
    ) -> anyhow::Result<()> {
        let client = self.database.client().await?;
        let enqueue = format!(
            "SELECT posthaste.enqueue('{name}', queue => 'mail', tag => '{tag}')
               FROM generate_series(1, {jobs})"
        );
        self.producer = Some(tokio::spawn(async move {
            while client.batch_execute(&enqueue).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }));
        Ok(())
    }

    fn stop_producing(&mut self) {
        if let Some(producer) = self.producer.take() {
            producer.abort();
        }
    }

    /// Until jobs are completed, as in a system that works.
    async fn until_busy(&self) -> anyhow::Result<()> {
        let completed = "SELECT coalesce(sum(completed_total), 0)::bigint FROM posthaste.counts()";
        eventually(BOUND, "jobs are completed", async || {
            Ok(number(&self.client, completed).await? > 5)
        })
        .await
    }

    /// What fires at the end of a look, by name; nothing where nothing does.
    async fn alerts(&self, more: &[&str]) -> anyhow::Result<BTreeSet<String>> {
        let mut arguments = vec![
            "--json",
            "alerts",
            "--queue",
            "mail",
            "--completed-below",
            BUSY,
            "--length-above",
            "200",
            "--lasting",
            LASTING,
            "--once",
        ];
        arguments.extend(more);
        let said = self.stage.run_on(&self.database, &arguments).await?;
        let firing: Vec<Value> = serde_json::from_str(&said.out)?;
        let names = firing.iter().filter_map(|one| one["alert"].as_str());
        let firing: BTreeSet<String> = names.map(str::to_owned).collect();
        let code = if firing.is_empty() { 0 } else { 3 };
        assert_eq!(said.code, Some(code), "{said:?}");
        Ok(firing)
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        self.stop_producing();
    }
}

fn only(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_works_fires_no_alert() -> anyhow::Result<()> {
    let mut played = Played::new().await?;
    played.work()?;
    played.produce("ok", 1, "").await?;
    played.until_busy().await?;
    assert_eq!(played.alerts(&[]).await?, only(&[]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_that_stops_a_worker_that_stops_and_both_fire_the_completion_rate()
-> anyhow::Result<()> {
    let mut played = Played::new().await?;
    played.work()?;
    played.produce("ok", 1, "").await?;
    played.until_busy().await?;

    played.stop_producing();
    let idle = "SELECT count(*) FROM posthaste.job";
    eventually(BOUND, "all is done", async || {
        Ok(number(&played.client, idle).await? == 0)
    })
    .await?;
    let rate = only(&["completion_rate"]);
    assert_eq!(played.alerts(&[]).await?, rate, "the producer stopped");

    if let Some(mut worker) = played.worker.take() {
        worker.terminate()?;
        assert!(worker.exit(BOUND).await?.success());
    }
    assert_eq!(played.alerts(&[]).await?, rate, "both stopped");

    played.produce("ok", 1, "").await?;
    assert_eq!(played.alerts(&[]).await?, rate, "the worker stopped");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_that_is_faster_than_its_workers_fires_the_queue_length() -> anyhow::Result<()> {
    let mut played = Played::new().await?;
    let crowd = "SELECT posthaste.enqueue('ok', queue => 'mail') FROM generate_series(1, 4000)";
    played.client.batch_execute(crowd).await?;
    played.work()?;
    played.until_busy().await?;
    assert_eq!(played.alerts(&[]).await?, only(&["queue_length"]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_job_fires_until_it_is_deleted_and_is_said_by_a_job_too() -> anyhow::Result<()> {
    let mut played = Played::new().await?;
    let expiring = "SELECT posthaste.enqueue('ok', queue => 'mail',
                           expires_at => now() + interval '50 ms')";
    played.client.batch_execute(expiring).await?;
    played.client.batch_execute("SELECT pg_sleep(0.1)").await?;
    played.work()?;
    played.produce("ok", 1, "").await?;
    let expired = "SELECT count(*) FROM posthaste.dead WHERE state = 'expired'";
    eventually(BOUND, "it is expired", async || {
        Ok(number(&played.client, expired).await? == 1)
    })
    .await?;
    played.until_busy().await?;
    let notify = ["--notify", "alerts"];
    assert_eq!(played.alerts(&notify).await?, only(&["expired"]));
    let told = "SELECT count(*) FROM posthaste.job WHERE queue = 'alerts'
                   AND name = 'posthaste.alert' AND kwargs ->> 'alert' = 'expired'
                   AND kwargs ->> 'event' = 'begins' AND kwargs ->> 'queue' = 'mail'";
    assert_eq!(number(&played.client, told).await?, 1);
    played
        .client
        .batch_execute("DELETE FROM posthaste.dead")
        .await?;
    assert_eq!(played.alerts(&[]).await?, only(&[]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_reindex_with_its_own_tag_fires_no_alert() -> anyhow::Result<()> {
    let mut played = Played::new().await?;
    played.work()?;
    played.produce("ok", 1, "").await?;
    let bulk = "INSERT INTO posthaste.job (name, queue, tag, priority)
                SELECT 'ok', 'mail', 'reindex_user', 100 FROM generate_series(1, 4000)";
    played.client.batch_execute(bulk).await?;
    played.until_busy().await?;
    let exempt = ["--exempt-tag", "reindex*"];
    assert_eq!(played.alerts(&exempt).await?, only(&[]));
    Ok(())
}

/// New sessions may write or not, and old ones are ended: as when a replica answers for a while.
async fn let_write(client: &Client, database: &TestDb, may: bool) -> anyhow::Result<()> {
    let name: String = client
        .query_one("SELECT current_database()::text", &[])
        .await?
        .try_get(0)?;
    let value = if may { "off" } else { "on" };
    let set = format!("ALTER DATABASE \"{name}\" SET default_transaction_read_only = {value}");
    // This session writes in any case.
    let own = "SET default_transaction_read_only = off";
    client.batch_execute(&format!("{own}; {set}")).await?;
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE datname = current_database() AND pid <> pg_backend_pid()";
    client.batch_execute(end).await?;
    drop(database.client().await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_that_could_not_be_told_is_told_once_and_so_is_its_end() -> anyhow::Result<()> {
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
    child.error_line("looking", BOUND).await?;
    let told = "SELECT count(*) FROM posthaste.job WHERE queue = 'alerts'";
    let enqueue = "SELECT posthaste.enqueue('slow', queue => 'mail')";
    let cancel = "SELECT posthaste.cancel(id) FROM posthaste.job WHERE queue = 'mail'";

    // Three alerts: what could not be told meanwhile is told afterwards, in its order.
    let_write(&client, &database, false).await?;
    for _ in 0..2 {
        client.batch_execute(enqueue).await?;
        child.line("\"event\":\"begins\"", BOUND).await?;
        client.batch_execute(cancel).await?;
        child.line("\"event\":\"ends\"", BOUND).await?;
    }
    let failed = child.stderr().join("\n");
    assert!(failed.contains("could not be enqueued"), "{failed}");
    client.batch_execute(enqueue).await?;
    child.line("\"event\":\"begins\"", BOUND).await?;
    assert_eq!(number(&client, told).await?, 0);
    let_write(&client, &database, true).await?;
    eventually(BOUND, "what was owed is told", async || {
        Ok(number(&client, told).await? >= 5)
    })
    .await?;
    // The database is lost, and nothing begins again.
    let_write(&client, &database, true).await?;
    client.batch_execute(cancel).await?;
    child.line("\"event\":\"ends\"", BOUND).await?;
    eventually(BOUND, "its end is told", async || {
        Ok(number(&client, told).await? >= 6)
    })
    .await?;
    child.terminate()?;
    assert!(child.exit(BOUND).await?.success());

    let jobs = "SELECT kwargs ->> 'event' FROM posthaste.job WHERE queue = 'alerts' ORDER BY id";
    let rows = client.query(jobs, &[]).await?;
    let jobs: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let lines: Result<Vec<Value>, _> = child
        .stdout()
        .iter()
        .map(|line| serde_json::from_str(line))
        .collect();
    let lines = lines?.into_iter().map(|line| line["event"].clone());
    let is_told = |event: &Value| event == "begins" || event == "ends";
    let lines: Vec<_> = lines.filter(is_told).collect();
    let expected = ["begins", "ends", "begins", "ends", "begins", "ends"];
    assert_eq!(jobs, expected);
    assert_eq!(lines, expected);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_goes_on_for_a_process_that_stopped_tells_the_end_of_what_it_told()
-> anyhow::Result<()> {
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
    let told = async || -> anyhow::Result<Vec<String>> {
        let jobs = "SELECT kwargs ->> 'event' FROM posthaste.job WHERE queue = 'alerts'
                     ORDER BY id";
        let rows = client.query(jobs, &[]).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    };
    let until = async |expected: &[&str]| {
        eventually(BOUND, "it is told", async || Ok(told().await? == expected)).await
    };
    client
        .batch_execute("SELECT posthaste.enqueue('slow', queue => 'mail')")
        .await?;
    // A full disk under what it prints holds up no job.
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
    // It fires still, and is not told again.
    let mut second = stage.spawn_on(&database, &arguments)?;
    second.error_line("looking", BOUND).await?;
    client.batch_execute("SELECT pg_sleep(2.5)").await?;
    assert_eq!(told().await?, ["begins"]);
    second.terminate()?;
    assert!(second.exit(BOUND).await?.success());
    let cancel = "SELECT posthaste.cancel(id) FROM posthaste.job WHERE queue = 'mail'";
    client.batch_execute(cancel).await?;
    let third = stage.spawn_on(&database, &arguments)?;
    until(&["begins", "ends"]).await?;
    let left = "SELECT count(*) FROM posthaste.alert";
    assert_eq!(number(&client, left).await?, 0);
    drop(third);
    Ok(())
}
