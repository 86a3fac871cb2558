//! A replica that lagged is promoted under a living worker: ids of jobs step back with the data,
//! delivery ids do not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use posthaste::Outcome;
use posthaste_testkit::{PgServer, PgVersion, Sql as _, TestResult, connect, eventually};

use crate::stress::store::Store;
use crate::support::{self, SOON};

type Sink = Arc<Mutex<BTreeMap<i64, String>>>;

fn taken(sink: &Sink) -> BTreeMap<i64, String> {
    std::mem::take(&mut sink.lock().expect("a sink"))
}

async fn delivery_ids_are_not_reused(version: PgVersion) -> anyhow::Result<()> {
    let primary = PgServer::start(version, &[])?;
    let db = support::migrated(&primary).await;
    let replica = primary.start_replica(&[])?;
    // Connects to whichever server accepts writes.
    let anywhere = format!(
        "host=127.0.0.1,127.0.0.1 port={},{} user=postgres dbname={} \
         target_session_attrs=read-write",
        primary.address().port(),
        replica.address().port(),
        db.name()
    );
    let manager = deadpool_postgres::Manager::new(anywhere.parse()?, tokio_postgres::NoTls);
    let pool = deadpool_postgres::Pool::builder(manager)
        .max_size(2)
        .build()?;
    let sink = Sink::default();
    let sink_of_handler = Arc::clone(&sink);
    let worker = support::worker(&pool)
        .queue("default", 4)
        .handler("open", move |context, job| {
            let delivery = context.delivery_id().to_string();
            sink_of_handler
                .lock()
                .expect("a sink")
                .insert(job.id.0, delivery);
            async { Ok(Outcome::Done) }
        })
        .start()
        .await?;
    let enqueue = |jobs| {
        format!("INSERT INTO posthaste.job (name) SELECT 'open' FROM generate_series(1, {jobs})")
    };
    let old = db.client().await?;
    old.run(&enqueue(3)).await?;
    support::all_done(&old).await;
    let arrived = taken(&sink);
    let new = connect(&replica.url(db.name())).await?;
    eventually(SOON, "the replica has all of it", async || {
        let known = "SELECT last_value >= 3 AND NOT EXISTS (SELECT FROM posthaste.job) \
                     FROM posthaste.known_id";
        new.one(known).await
    })
    .await?;
    new.run("ALTER SYSTEM SET primary_conninfo = ''").await?;
    new.run("SELECT pg_reload_conf()").await?;
    eventually(SOON, "nothing arrives any more", async || {
        let receiver = "SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)";
        new.one(receiver).await
    })
    .await?;
    old.run(&enqueue(100)).await?;
    support::all_done(&old).await;
    let lost = taken(&sink);
    assert_eq!(lost.len(), 100);
    tokio::task::block_in_place(|| primary.stop_immediate())?;
    new.run("SELECT pg_promote()").await?;
    // The lag of a replica has no bound: this plays more than the ids that are skipped.
    new.run("SELECT posthaste.recover(), setval('posthaste.job_id', 3)")
        .await?;
    new.run(&enqueue(100)).await?;
    support::all_done(&new).await;
    let after = taken(&sink);
    assert_eq!(after.len(), 100);
    let again = after.keys().filter(|id| lost.contains_key(id)).count();
    assert!(again > 0, "the hazard was not met: {:?}", after.keys());
    for delivery in after.values() {
        assert!(
            !lost.values().any(|one| one == delivery),
            "{delivery} came twice"
        );
    }
    for (id, delivery) in arrived {
        let now = "SELECT posthaste.delivery_id($1)::text";
        let now: String = new.one_with(now, &[&id]).await?;
        assert_eq!(now, delivery, "a job that arrived keeps its id");
    }
    worker.stop().await?;
    posthaste_testkit::ran::count("promoted replicas", 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn delivery_ids_lost_in_a_failover_are_not_reused_on_15() {
    delivery_ids_are_not_reused(PgVersion::V15).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn delivery_ids_lost_in_a_failover_are_not_reused_on_18() {
    delivery_ids_are_not_reused(PgVersion::V18).await.unwrap();
}

/// The promoted server has received a claim and not its acknowledgement: its worker takes the job
/// for done, and is alive.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_failover_repeats_only_jobs_with_lost_acknowledgements() -> TestResult {
    let db = support::database(PgVersion::any()).await;
    let store = Store::new(db.url()).await?;
    let (release, released) = tokio::sync::watch::channel(false);
    let ran = Arc::new(Mutex::new(Vec::new()));
    let sink_of_handler = Arc::clone(&ran);
    let worker = support::worker(&db.pool(2)?)
        .queue("default", 4)
        .handler("long", {
            let ran = Arc::clone(&ran);
            move |_, _| {
                let mut released = released.clone();
                ran.lock().expect("a list").push("long");
                async move {
                    released.wait_for(|over| *over).await?;
                    Ok(Outcome::Done)
                }
            }
        })
        .handler("short", move |_, _| {
            sink_of_handler.lock().expect("a list").push("short");
            async { Ok(Outcome::Done) }
        })
        .start()
        .await?;
    store.enqueue("long", 0).await?;
    let began = async |what: &'static str| {
        let has = || ran.lock().expect("a list").contains(&what);
        eventually(SOON, what, async || Ok(has())).await.unwrap();
    };
    began("long").await;
    // A claim that the worker has forgotten, in a lane that it does not poll.
    let lost = "WITH j AS (SELECT posthaste.enqueue('short', queue => 'other'))
        UPDATE posthaste.worker SET name = name FROM j WHERE name <> 'by hand' RETURNING id";
    let first: i64 = store.value(lost, &[]).await?;
    let claim = "SELECT count(*) FROM posthaste.claim('other', '{0}', $1, gen_random_uuid(), 1, 1)";
    assert_eq!(store.value::<i64>(claim, &[&first]).await?, 1);
    store
        .say("UPDATE posthaste.worker SET identity = 'another timeline' WHERE name <> 'by hand'")
        .await?;
    store.enqueue("short", 0).await?;
    began("short").await;
    let second =
        "SELECT count(*) FROM posthaste.worker WHERE name <> 'by hand' AND stopped_at IS NULL";
    assert_eq!(
        store.value::<i64>(second, &[]).await?,
        2,
        "it goes on under a new id, and beats for both"
    );
    // Twice the time after which a silent worker is declared dead.
    store.until(&store.clock(3000).await?).await?;
    assert_eq!(
        support::count(&store.client, "running").await,
        2,
        "nothing was rescued while it works"
    );
    release.send_replace(true);
    eventually(SOON, "the lost one is rescued", async || {
        Ok(support::count(&store.client, "quarantined").await == 1)
    })
    .await?;
    assert_eq!(*ran.lock().unwrap(), ["long", "short"]);
    worker.stop().await?;
    Ok(())
}
