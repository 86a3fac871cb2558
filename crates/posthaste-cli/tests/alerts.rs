//! The alert that fires when a producer, a worker or a job fails: the table of
//! docs/operate/monitor.md, tested with real producers and workers.

mod notify;

use std::collections::BTreeSet;
use std::time::Duration;

use posthaste_testkit::{Child, Sql as _, TestDb, eventually, number};
use serde_json::Value;

use crate::stage::{self, BOUND, Stage};

/// `--lasting` of these tests, in seconds.
const LASTING: &str = "4";
const BUSY: &str = "60";

/// A database with a client, and the processes that use it.
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
            "--exec",
            "fails=false",
        ];
        self.worker = Some(self.stage.spawn_on(&self.database, &work)?);
        Ok(())
    }

    /// Enqueues this many jobs of this name at once, repeatedly.
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

    /// Waits until jobs are completed, as in a healthy system.
    async fn until_busy(&self) -> anyhow::Result<()> {
        let completed = "SELECT coalesce(sum(completed_total), 0)::bigint FROM posthaste.counts()";
        eventually(BOUND, "jobs are completed", async || {
            Ok(number(&self.client, completed).await? > 5)
        })
        .await
    }

    /// Returns the ids of the alerts that fire at the end.
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
        let output = self.stage.run_on(&self.database, &arguments).await?;
        let firing: Vec<Value> = serde_json::from_str(&output.out)?;
        let names = firing.iter().filter_map(|one| one["id"].as_str());
        let firing: BTreeSet<String> = names.map(str::to_owned).collect();
        let code = if firing.is_empty() { 0 } else { 3 };
        assert_eq!(output.code, Some(code), "{output:?}");
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
async fn healthy_queues_raise_no_alert() -> anyhow::Result<()> {
    let mut played = Played::new().await?;
    played.work()?;
    played.produce("ok", 1, "").await?;
    played.until_busy().await?;
    assert_eq!(played.alerts(&[]).await?, only(&[]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_producers_and_workers_raise_the_completion_rate_alert() -> anyhow::Result<()> {
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
    let slow = only(&["queue.slow"]);
    assert_eq!(played.alerts(&[]).await?, slow, "the producer stopped");

    if let Some(mut worker) = played.worker.take() {
        worker.terminate()?;
        assert!(worker.exit(BOUND).await?.success());
    }
    assert_eq!(played.alerts(&[]).await?, slow, "both stopped");

    played.produce("ok", 1, "").await?;
    let unserved = only(&["queue.slow", "worker.none"]);
    assert_eq!(played.alerts(&[]).await?, unserved, "the worker stopped");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_growing_queue_raises_the_queue_length_alert() -> anyhow::Result<()> {
    let mut played = Played::new().await?;
    let crowd = "SELECT posthaste.enqueue('ok', queue => 'mail') FROM generate_series(1, 4000)";
    played.client.run(crowd).await?;
    played.work()?;
    played.until_busy().await?;
    assert_eq!(played.alerts(&[]).await?, only(&["queue.long"]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_job_raises_and_enqueues_an_alert_until_deleted() -> anyhow::Result<()> {
    let mut played = Played::new().await?;
    let expiring = "SELECT posthaste.enqueue('ok', queue => 'mail',
                           expires_at => now() + interval '50 ms')";
    played.client.run(expiring).await?;
    played.client.run("SELECT pg_sleep(0.1)").await?;
    played.work()?;
    played.produce("ok", 1, "").await?;
    let expired = "SELECT count(*) FROM posthaste.dead WHERE state = 'expired'";
    eventually(BOUND, "it is expired", async || {
        Ok(number(&played.client, expired).await? == 1)
    })
    .await?;
    played.until_busy().await?;
    let notify = ["--notify", "alerts"];
    assert_eq!(played.alerts(&notify).await?, only(&["jobs.expired"]));
    let notified = "SELECT count(*) FROM posthaste.job WHERE queue = 'alerts'
                   AND name = 'posthaste.alert' AND kwargs ->> 'id' = 'jobs.expired'
                   AND kwargs ->> 'event' = 'begins' AND kwargs ->> 'subject' = 'mail'";
    assert_eq!(number(&played.client, notified).await?, 1);
    played.client.run("DELETE FROM posthaste.dead").await?;
    assert_eq!(played.alerts(&[]).await?, only(&[]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tagged_bulk_reindex_raises_no_alert() -> anyhow::Result<()> {
    let mut played = Played::new().await?;
    played.work()?;
    played.produce("ok", 1, "").await?;
    let bulk = "INSERT INTO posthaste.job (name, queue, tag, priority)
                SELECT 'ok', 'mail', 'reindex_user', 100 FROM generate_series(1, 4000)";
    played.client.run(bulk).await?;
    played.until_busy().await?;
    let exempt = ["--exempt-tag", "reindex*"];
    assert_eq!(played.alerts(&exempt).await?, only(&[]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_jobs_raise_an_alert_by_default() -> anyhow::Result<()> {
    let mut played = Played::new().await?;
    played.work()?;
    played.produce("ok", 1, "").await?;
    let enqueue = "SELECT posthaste.enqueue('fails', queue => 'mail', max_attempts => 1)";
    played.client.run(enqueue).await?;
    let dead = "SELECT count(*) FROM posthaste.dead WHERE state = 'dead'";
    eventually(BOUND, "it is dead", async || {
        Ok(number(&played.client, dead).await? == 1)
    })
    .await?;
    let firing = ["alerts", "--lasting", LASTING, "--once"];
    let output = played.stage.run_on(&played.database, &firing).await?;
    assert!(
        output.out.contains("begins: jobs.dead: Queue mail"),
        "{output:?}"
    );
    assert_eq!(output.code, Some(3), "{output:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn always_failing_jobs_raise_an_alert_by_default_while_others_succeed() -> anyhow::Result<()>
{
    let mut played = Played::new().await?;
    played.work()?;
    played.produce("ok", 1, "").await?;
    let enqueue = "SELECT posthaste.enqueue('fails', queue => 'mail');
                   SELECT posthaste.enqueue('fails', queue => 'other') FROM generate_series(1, 12)";
    played.client.run(enqueue).await?;
    let work = ["work", "--queue", "other", "--exec", "fails=false"];
    let _other = played.stage.spawn_on(&played.database, &work)?;
    let alerts = ["alerts", "--lasting", "1"];
    let mut alerts = played.stage.spawn_on(&played.database, &alerts)?;
    // Eight attempts take approximately 90 seconds, and the shares are computed over whole minutes.
    let long = Duration::from_secs(240);
    alerts
        .line("begins: queue.failing: Queue other", long)
        .await?;
    let line = "begins: jobs.failing: Queue mail is retrying";
    alerts.line(line, long).await?;
    let printed = alerts.stdout().join("\n");
    assert!(!printed.contains("queue.failing: Queue mail"), "{printed}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_queues_raise_no_alert() -> anyhow::Result<()> {
    let mut played = Played::new().await?;
    played.work()?;
    played.produce("ok", 1, "").await?;
    played.until_busy().await?;
    let pause = "SELECT posthaste.pause('mail'); SELECT posthaste.enqueue('ok', queue => 'mail')
                   FROM generate_series(1, 300)";
    played.client.run(pause).await?;
    assert_eq!(played.alerts(&[]).await?, only(&[]));
    Ok(())
}
