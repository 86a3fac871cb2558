//! Periodic jobs: each tick is enqueued once, under any leader.

mod refused;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use posthaste::{Missed, NewJob, Outcome, Periodic, Worker, WorkerBuilder};
use posthaste_testkit::{PgVersion, Sql as _, TestResult, eventually};
use serde_json::json;
use tokio_postgres::Client;

use crate::support::{SOON, connected, database, number, quick, quick_queue, unfinished};

type Seen = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

/// Returns a builder whose handler records the tick of each job by the job's name.
fn noting(pool: &deadpool_postgres::Pool, seen: &Seen) -> WorkerBuilder {
    let seen = Arc::clone(seen);
    Worker::builder(pool.clone())
        .config(quick())
        .queue_config(quick_queue())
        .handler("*", move |_, job| {
            let mut seen = seen.lock().unwrap();
            let ticks = seen.entry(job.name.to_string()).or_default();
            ticks.push(job.scheduled_at.to_string());
            async { Ok(Outcome::Done) }
        })
}

fn every_minute(name: &str, missed: Missed) -> Periodic {
    let job = NewJob::new(name, &json!({})).unwrap();
    Periodic::new(name, "* * * * *", job)
        .unwrap()
        .missed(missed)
}

/// Sets the schedules as if there had been no leader for ten minutes.
async fn ten_minutes_ago(client: &Client) {
    client
        .run(
            "UPDATE posthaste.periodic SET next_at = date_trunc('minute', now()) - \
             interval '10 minutes'",
        )
        .await
        .unwrap();
}

async fn is_ahead(client: &Client) -> bool {
    let ahead = "SELECT coalesce(bool_and(coalesce(next_at > now(), false)), false) \
                 FROM posthaste.periodic";
    client.one(ahead).await.unwrap()
}

#[tokio::test]
async fn ticks_are_enqueued_once_across_leaders() -> TestResult {
    for version in PgVersion::tried() {
        let (db, client) = connected(version).await?;
        let pool = db.pool(12)?;
        let seen = Seen::default();
        let mut workers = Vec::new();
        for _ in 0..3 {
            let worker = noting(&pool, &seen)
                .periodic(every_minute("all", Missed::All))
                .periodic(every_minute("last", Missed::Last))
                .periodic(every_minute("none", Missed::None));
            workers.push(worker.start().await?);
        }
        eventually(SOON, "a leader has seen them", async || {
            Ok(is_ahead(&client).await)
        })
        .await?;
        assert_eq!(unfinished(&client).await, 0, "nothing before its time");
        ten_minutes_ago(&client).await;
        // The leader stops, and another takes over.
        workers.remove(0).stop().await?;
        eventually(SOON, "all are made up for", async || {
            Ok(is_ahead(&client).await && unfinished(&client).await == 0)
        })
        .await?;
        for worker in workers {
            worker.stop().await?;
        }
        let seen = seen.lock().unwrap();
        let all = &seen["all"];
        assert!((11..=13).contains(&all.len()), "{all:?}");
        let mut ticks = all.clone();
        ticks.sort();
        ticks.dedup();
        assert_eq!(ticks.len(), all.len(), "each tick once");
        assert!((1..=3).contains(&seen["last"].len()), "{seen:?}");
        assert!(seen["last"].len() < all.len() - 8);
        // A tick that was on time when the clock was read is not missed.
        assert!(
            seen.get("none").is_none_or(|ticks| ticks.len() <= 3),
            "{seen:?}"
        );
    }
    Ok(())
}

/// Returns the statement that a leader sends for the tick of this year.
fn new_year(year: i32) -> String {
    let next = year + 1;
    format!(
        "SELECT posthaste.tick('p', '0 0 1 1 *', 'UTC', '{year}-01-01Z', \
         ARRAY['{year}-01-01Z']::timestamptz[], '{next}-01-01Z')"
    )
}

#[tokio::test]
async fn concurrent_leaders_enqueue_a_tick_once() {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let (one, other) = (db.client().await.unwrap(), db.client().await.unwrap());
        let row = "INSERT INTO posthaste.periodic (name, schedule, job, next_at) \
                   VALUES ('p', '0 0 1 1 *', 'yearly', '2100-01-01Z')";
        one.run(row).await.unwrap();
        // One after the other.
        assert_eq!(number(&one, &new_year(2100)).await, 1);
        assert_eq!(number(&other, &new_year(2100)).await, 0);
        assert_eq!(unfinished(&one).await, 1);
        // In two open transactions; neither waits.
        one.run("BEGIN").await.unwrap();
        other.run("BEGIN").await.unwrap();
        assert_eq!(number(&one, &new_year(2101)).await, 1);
        assert_eq!(number(&other, &new_year(2101)).await, 0);
        one.run("COMMIT").await.unwrap();
        assert_eq!(number(&other, &new_year(2101)).await, 0);
        other.run("COMMIT").await.unwrap();
        assert_eq!(unfinished(&one).await, 2);
        // A tick that was rolled back is still due.
        one.run("BEGIN").await.unwrap();
        assert_eq!(number(&one, &new_year(2102)).await, 1);
        one.run("ROLLBACK").await.unwrap();
        assert_eq!(number(&other, &new_year(2102)).await, 1);
        assert_eq!(unfinished(&one).await, 3);
    }
}

/// Its server process does not notice, and commits the statement it received; another leader has
/// taken over by then.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_dying_during_a_tick_leaves_it_enqueued_once() -> TestResult {
    for version in PgVersion::tried() {
        let (db, client) = connected(version).await?;
        let seen = Seen::default();
        let process = tokio::runtime::Runtime::new().unwrap();
        let leader = noting(&db.pool(6)?, &seen).periodic(every_minute("all", Missed::All));
        let leader = process.spawn(leader.start()).await?.unwrap();
        eventually(SOON, "a leader has seen it", async || {
            Ok(is_ahead(&client).await)
        })
        .await?;
        let dead = number(&client, "SELECT worker FROM posthaste.leader").await;

        let mut gate = db.client().await?;
        let gate = gate.transaction().await?;
        let shut = "LOCK TABLE ONLY posthaste.store IN EXCLUSIVE MODE";
        gate.run(shut).await?;
        ten_minutes_ago(&client).await;
        let within = "SELECT count(*) FROM pg_stat_activity
                       WHERE datname = current_database() AND wait_event_type = 'Lock'
                         AND query LIKE '%posthaste.tick(%'";
        eventually(SOON, "the leader is within the tick", async || {
            Ok(number(&client, within).await > 0)
        })
        .await?;
        process.shutdown_background();
        drop(leader);
        let second = noting(&db.pool(6)?, &seen);
        let second = second.start().await?;
        let leads = format!("SELECT count(*) FROM posthaste.leader WHERE worker <> {dead}");
        eventually(SOON, "another leads", async || {
            Ok(number(&client, &leads).await == 1)
        })
        .await?;
        gate.commit().await?;
        eventually(SOON, "all are made up for", async || {
            Ok(is_ahead(&client).await && unfinished(&client).await == 0)
        })
        .await?;
        second.stop().await?;
        let mut ticks = seen.lock().unwrap()["all"].clone();
        assert!((11..=13).contains(&ticks.len()), "{ticks:?}");
        let all = ticks.len();
        ticks.sort();
        ticks.dedup();
        assert_eq!(ticks.len(), all, "each tick once");
    }
    Ok(())
}

#[tokio::test]
async fn a_schedule_replaces_the_previous_one_of_its_name() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let pool = db.pool(4)?;
    let seen = Seen::default();
    for schedule in ["0 0 1 1 *", "0 0 1 7 *"] {
        let job = NewJob::new("yearly", &json!({"of": schedule}))?;
        let yearly = Periodic::new("yearly", schedule, job).unwrap();
        let worker = noting(&pool, &seen).periodic(yearly).start().await?;
        eventually(SOON, "a leader has seen it", async || {
            Ok(is_ahead(&client).await)
        })
        .await?;
        worker.stop().await?;
    }
    let row = client
        .query_one(
            "SELECT count(*), min(to_char(next_at AT TIME ZONE 'UTC', 'MM-DD HH24:MI')), \
             min(kwargs->>'of') FROM posthaste.periodic",
            &[],
        )
        .await?;
    assert_eq!(row.get::<_, i64>(0), 1);
    assert_eq!(row.get::<_, &str>(1), "07-01 00:00");
    assert_eq!(row.get::<_, &str>(2), "0 0 1 7 *");
    Ok(())
}

#[tokio::test]
async fn workers_with_equal_schedules_start_concurrently() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let (seen, pool) = (Seen::default(), db.pool(4).unwrap());
    let start = || {
        noting(&pool, &seen)
            .periodic(every_minute("p", Missed::None))
            .start()
    };
    let first = start().await.unwrap();
    first.stop().await.unwrap();
    let isolation = format!(
        "ALTER DATABASE {} SET default_transaction_isolation = 'repeatable read'",
        db.name()
    );
    client.run(&isolation).await.unwrap();
    let holder = db.client().await.unwrap();
    let other = "BEGIN ISOLATION LEVEL READ COMMITTED;
                 UPDATE posthaste.periodic SET schedule = schedule";
    holder.run(other).await.unwrap();
    let pool = db.pool(4).unwrap();
    let start = noting(&pool, &seen)
        .periodic(every_minute("p", Missed::None))
        .start();
    let release = async {
        let waits = "SELECT count(*) FROM pg_stat_activity
                      WHERE datname = current_database() AND wait_event_type = 'Lock'";
        eventually(SOON, "it waits", async || {
            Ok(number(&client, waits).await > 0)
        })
        .await?;
        anyhow::Ok(holder.run("COMMIT").await?)
    };
    let (started, released) = tokio::join!(start, release);
    released.unwrap();
    started.expect("a worker").stop().await.unwrap();
}
