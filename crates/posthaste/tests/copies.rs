//! Copies of a database: they run none of the original's jobs, and the original continues.

mod branches;
mod decision;
mod no_copies;
mod same_site;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use deadpool_postgres::Pool;
use posthaste::{Backoff, NewJob, Outcome, Periodic, QueueConfig, WorkerHandle, adopt};
use posthaste_testkit::{
    PgServer, PgVersion, Sql as _, TestDb, TestResult, connect, eventually, ran,
};
use tokio_postgres::Client;

use crate::support::{self, SOON, number};

/// The methods of copying, all of them with the data of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    BaseBackup,
    /// A base backup with recovery.signal.
    PointInTime,
    PromotedReplica,
    /// The files of a server that was shut down cleanly.
    ColdFiles,
    Snapshot,
    /// A base backup of a replica, as it is made to spare the primary.
    BackupOfReplica,
}

impl Way {
    async fn copy(self, original: &PgServer, database: &str) -> anyhow::Result<PgServer> {
        let copy = tokio::task::block_in_place(|| match self {
            Self::BaseBackup => original.start_backup(&[]),
            Self::PointInTime => original.start_recovered(),
            Self::PromotedReplica => original.start_replica(&[]),
            Self::Snapshot => original.start_of_files(&[]),
            Self::BackupOfReplica => original.start_replica(&[])?.start_backup(&[]),
            Self::ColdFiles => {
                original.stop_fast()?;
                let copy = original.start_of_files(&[]);
                original.restart()?;
                copy
            }
        })?;
        if matches!(self, Self::PromotedReplica | Self::BackupOfReplica) {
            let client = connect(&copy.url(database)).await?;
            client.run("SELECT pg_promote()").await?;
        }
        if self == Self::PointInTime {
            let client = connect(&copy.url(database)).await?;
            eventually(SOON, "it is recovered", async || {
                let recovered = "SELECT NOT pg_is_in_recovery()";
                client.one(recovered).await
            })
            .await?;
        }
        Ok(copy)
    }
}

/// The number of runs of handlers, by job name.
type Runs = Arc<Mutex<BTreeMap<String, usize>>>;

fn all(runs: &Runs) -> usize {
    runs.lock().expect("a list").values().sum()
}

fn of(runs: &Runs, name: &str) -> usize {
    runs.lock().expect("a list").get(name).copied().unwrap_or(0)
}

/// Starts a worker of a site: it fails jobs named `failing` and completes others; if it works on
/// one queue only, it holds those named `held`.
async fn start(
    pool: &Pool,
    site: Option<&str>,
    queues: &[&str],
) -> anyhow::Result<(WorkerHandle, Runs)> {
    let runs = Runs::default();
    let noted = Arc::clone(&runs);
    let config = posthaste::Config {
        site: site.map(str::to_owned),
        ..support::quick()
    };
    let mut builder = posthaste::Worker::builder(pool.clone()).config(config);
    let (later, holds) = (Duration::from_secs(3), queues.len() == 1);
    for queue in queues {
        builder = builder.queue_config(QueueConfig {
            backoff: Backoff {
                base: later,
                cap: later,
            },
            ..QueueConfig::new(*queue, 8)
        });
    }
    let builder = builder.handler("*", move |_, job| {
        *noted
            .lock()
            .expect("a list")
            .entry(job.name.to_string())
            .or_default() += 1;
        let name = job.name.clone();
        async move {
            match &*name {
                "held" if holds => std::future::pending().await,
                "failing" => Err("it fails".into()),
                _ => Ok(Outcome::Done),
            }
        }
    });
    let tick = NewJob::new("tick", &serde_json::json!({}))?.queue("left");
    let tick = Periodic::new("tick", "* * * * *", tick)?;
    let worker = builder.periodic(tick).start().await?;
    Ok((worker, runs))
}

/// Enqueues jobs of every kind: one runs and one has failed; the others are in the queue `left`,
/// which the original's worker does not serve.
async fn fill(client: &Client, runs: &Runs) -> anyhow::Result<()> {
    client
        .run(
            "SELECT posthaste.enqueue('held'), posthaste.enqueue('failing');
             SELECT posthaste.enqueue('waiting', queue => 'left') FROM generate_series(1, 9);
             SELECT posthaste.enqueue('ordered', queue => 'left', ordering_key => 'o')
               FROM generate_series(1, 3);
             SELECT posthaste.enqueue('unique', queue => 'left', unique_key => 'u');
             SELECT posthaste.enqueue('scheduled', queue => 'left',
               scheduled_at => clock_timestamp() + interval '2 s')",
        )
        .await?;
    eventually(SOON, "one runs and one has failed", async || {
        Ok(of(runs, "held") == 1 && of(runs, "failing") >= 1)
    })
    .await
}

/// Reads what a copy must not change: jobs, claims, workers and ticks.
async fn state(client: &Client) -> anyhow::Result<String> {
    let state = "SELECT concat_ws(' ', (SELECT count(*) FROM posthaste.store),
        (SELECT count(*) FROM posthaste.in_flight), (SELECT count(*) FROM posthaste.worker),
        (SELECT count(*) FROM posthaste.dead), (SELECT max(worker) FROM posthaste.leader),
        (SELECT max(until) FROM posthaste.leader), (SELECT max(next_at) FROM posthaste.periodic),
        (SELECT count(*) FROM posthaste.claim_0), (SELECT count(*) FROM posthaste.claim_1),
        (SELECT count(*) FROM posthaste.epoch), posthaste.segments()::text)";
    client.one(state).await
}

async fn delivery(client: &Client, job: i64) -> anyhow::Result<String> {
    let id = "SELECT posthaste.delivery_id($1)::text";
    client.one_with(id, &[&job]).await
}

async fn waits_until_it_is_adopted(way: Way) -> anyhow::Result<()> {
    let original = PgServer::start(PgVersion::any(), &[])?;
    let db = support::migrated(&original).await;
    let (worker, runs) = start(&db.pool(2)?, None, &["default"]).await?;
    let client = db.client().await?;
    fill(&client, &runs).await?;
    let server = way.copy(&original, db.name()).await?;
    let copy = TestDb::of(&server, db.name());
    let there = connect(&server.url(db.name())).await?;
    there
        .run("UPDATE posthaste.periodic SET next_at = clock_timestamp()")
        .await?;
    let before = state(&there).await?;
    let (copied, done_there) = start(&copy.pool(2)?, None, &["default", "left"]).await?;
    eventually(SOON, "the copy's worker says why it waits", async || {
        Ok(copied.refused().is_some())
    })
    .await?;
    let why = copied.refused().unwrap_or_default();
    assert!(why.contains("owns this store, not the site at"), "{why}");
    assert!(why.contains("posthaste adopt"), "{why}");
    // The original is not affected, and scheduled jobs and retries are due in the copy too.
    let client = db.client().await?;
    client
        .run("SELECT posthaste.enqueue('new') FROM generate_series(1, 20)")
        .await?;
    eventually(SOON, "the original goes on", async || {
        Ok(of(&runs, "new") == 20 && of(&runs, "failing") >= 3)
    })
    .await?;
    assert_eq!(all(&done_there), 0, "{way:?}");
    assert_eq!(state(&there).await?, before);
    let noted = "SELECT refused FROM posthaste.site";
    let noted: Vec<String> = there.one(noted).await?;
    let [noted] = &noted[..] else {
        panic!("{noted:?}")
    };
    assert!(why.contains(&format!("not {noted}")), "{why}");
    if way == Way::ColdFiles {
        // The original's worker was alive recently, since the same start of the server.
        let refused = adopt(&copy.pool(1)?, None, false, false).await.unwrap_err();
        assert!(refused.to_string().contains("is running"), "{refused}");
    }
    let force = way == Way::ColdFiles;
    let before = adopt(&copy.pool(1)?, None, force, false).await?.from;
    let port = original.address().port().to_string();
    assert!(before.is_some_and(|site| site.contains(&port)));
    eventually(SOON, "the copy's worker runs what waits", async || {
        let names = ["waiting", "ordered", "unique", "scheduled", "tick", "held"];
        let ran = names.iter().all(|name| of(&done_there, name) > 0);
        Ok(ran && copied.refused().is_none())
    })
    .await?;
    let enqueue = "SELECT posthaste.enqueue('new')";
    let newest = number(&there, enqueue).await;
    assert_ne!(
        delivery(&there, newest).await?,
        delivery(&client, newest).await?
    );
    drop((worker, copied));
    ran::count("copies", 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_base_backup_is_idle_until_adopted() {
    waits_until_it_is_adopted(Way::BaseBackup).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_point_in_time_recovery_is_idle_until_adopted() {
    waits_until_it_is_adopted(Way::PointInTime).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_replica_promoted_beside_its_primary_is_idle_until_adopted() {
    waits_until_it_is_adopted(Way::PromotedReplica)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_cold_file_copy_is_idle_until_adopted() {
    waits_until_it_is_adopted(Way::ColdFiles).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_copy_from_a_disk_snapshot_is_idle_until_adopted() {
    waits_until_it_is_adopted(Way::Snapshot).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_backup_of_a_replica_is_idle_until_adopted() {
    waits_until_it_is_adopted(Way::BackupOfReplica)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_copy_adopted_without_pending_jobs_runs_only_new_ones() -> TestResult {
    let original = PgServer::start(PgVersion::any(), &[])?;
    let db = support::migrated(&original).await;
    let (worker, runs) = start(&db.pool(2)?, None, &["default"]).await?;
    let client = db.client().await?;
    fill(&client, &runs).await?;
    let server = Way::BaseBackup.copy(&original, db.name()).await?;
    let copy = TestDb::of(&server, db.name());
    let adopted = adopt(&copy.pool(1)?, Some("staging"), false, true).await?;
    // One runs, one has failed, nine wait, three are ordered, one is unique and one is scheduled;
    // there may be a tick too.
    let discarded = adopted.discarded.unwrap();
    assert!((16..=17).contains(&discarded), "{discarded}");
    let there = connect(&server.url(db.name())).await?;
    there.run("DELETE FROM posthaste.periodic").await?;
    let (copied, done_there) = start(&copy.pool(2)?, Some("staging"), &["default", "left"]).await?;
    there
        .run(
            "SELECT posthaste.enqueue('new', queue => 'left', ordering_key => 'o');
             SELECT posthaste.enqueue('new', queue => 'left', unique_key => 'u')",
        )
        .await?;
    eventually(SOON, "the new jobs ran", async || {
        Ok(of(&done_there, "new") == 2)
    })
    .await?;
    assert_eq!(all(&done_there), 2, "{done_there:?}");
    let left = "SELECT count(*) FROM posthaste.job";
    eventually(SOON, "they are done", async || {
        Ok(number(&there, left).await == 0)
    })
    .await?;
    assert!(number(&client, left).await >= 14);
    drop((worker, copied));
    Ok(())
}
