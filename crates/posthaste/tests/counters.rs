//! The counters: at every moment they equal the view, however far each process has counted, and
//! reading them stays cheap.

pub mod agreement;
mod folded;
mod uncounted;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use posthaste::{Counter, Outcome};
use posthaste_testkit::{PgVersion, Sql as _, TestDb, TestResult, eventually};
use serde_json::Value;
use tokio_postgres::Client;

use crate::stress::{self, settings::Settings};
use crate::support::{SOON, connected, database, hand, jobs, migrated, quick_queue, worker};

async fn agree_under_stress(version: PgVersion) {
    let database = migrated(stress::server(version)).await;
    let compared = agreement::under_stress(database.url(), Settings::full())
        .await
        .unwrap_or_else(|finding| panic!("{}: {finding}", version.name()));
    println!("counters {}: {compared:?}", version.name());
    assert!(compared.times >= 5 && compared.marks >= 20, "{compared:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_always_match_the_view_on_15() {
    agree_under_stress(PgVersion::V15).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_always_match_the_view_on_18() {
    agree_under_stress(PgVersion::V18).await;
}

/// Returns the counter of the only kind with this name.
async fn of(client: &Client, name: &str) -> Counter {
    let found = jobs(client).counters().await.unwrap().jobs;
    let mut found = found.into_iter().filter(|counter| counter.name == name);
    let counter = found.next().unwrap_or_default();
    assert_eq!(found.next(), None, "{name} is counted once");
    counter
}

/// Waits until a counter has the right value.
async fn becomes(client: &Client, name: &str, is_right: impl Fn(&Counter) -> bool) {
    let waited = eventually(SOON, "the counter is right", async || {
        Ok(is_right(&of(client, name).await))
    });
    if waited.await.is_err() {
        panic!("{name}: {:?}", of(client, name).await);
    }
}

#[tokio::test]
async fn jobs_are_counted_by_state_and_totals_grow() -> TestResult {
    for version in PgVersion::tried() {
        let (db, client) = connected(version).await?;
        client
            .run(
                "SELECT posthaste.enqueue('good', priority => 7, tag => 't')
                 FROM generate_series(1, 30);
                 SELECT posthaste.enqueue('once', max_attempts => 2) FROM generate_series(1, 3);
                 SELECT posthaste.enqueue('never', max_attempts => 1) FROM generate_series(1, 4);
                 SELECT posthaste.enqueue('unwanted');
                 SELECT posthaste.enqueue('handed on');
                 SELECT posthaste.enqueue('slow', max_attempts => 5);
                 SELECT posthaste.enqueue('later', scheduled_at => now() + interval '1 hour')
                   FROM generate_series(1, 2);
                 SELECT posthaste.enqueue('stale', queue => 'nobody',
                   expires_at => clock_timestamp() + interval '50 ms');
                 SELECT posthaste.cancel(posthaste.enqueue('called off', scheduled_at => now() +
                   interval '1 hour'));
                 SELECT posthaste.enqueue('in turn', queue => 'nobody', ordering_key => 'k')
                   FROM generate_series(1, 3);
                 SELECT posthaste.enqueue('idle', queue => 'nobody') FROM generate_series(1, 300)",
            )
            .await?;
        assert_eq!(of(&client, "good").await.available, 30);
        let worker = worker(&db.pool(4)?)
            .queue_config(quick_queue())
            .handler("*", async |_, job| match (&*job.name, job.attempt) {
                ("once", 1) | ("never" | "slow", _) => Err("not yet".into()),
                ("unwanted", _) => Ok(Outcome::Discard {
                    reason: "no".into(),
                }),
                ("handed on", _) => Ok(Outcome::Await {
                    until: Timestamp::now() + Duration::from_secs(3600),
                }),
                _ => Ok(Outcome::Done),
            })
            .start()
            .await?;
        becomes(&client, "good", |good| {
            (good.available, good.running, good.completed_total) == (0, 0, 30)
        })
        .await;
        let good = of(&client, "good").await;
        assert_eq!(
            (&*good.queue, good.priority, &*good.tag),
            ("default", 7, "t")
        );
        becomes(&client, "once", |once| {
            (once.completed_total, once.failed_total, once.retried_total) == (3, 3, 3)
        })
        .await;
        becomes(&client, "never", |never| {
            (
                never.dead,
                never.dead_total,
                never.failed_total,
                never.retried_total,
            ) == (4, 4, 4, 0)
        })
        .await;
        becomes(&client, "unwanted", |one| {
            (one.discarded, one.discarded_total, one.failed_total) == (1, 1, 1)
        })
        .await;
        becomes(&client, "later", |later| later.scheduled == 2).await;
        becomes(&client, "stale", |stale| {
            (stale.available, stale.expired, stale.expired_total) == (0, 1, 1)
        })
        .await;
        becomes(&client, "in turn", |one| {
            (one.available, one.blocked) == (1, 2)
        })
        .await;
        becomes(&client, "called off", |one| {
            (one.scheduled, one.cancelled, one.cancelled_total) == (0, 1, 1)
        })
        .await;
        becomes(&client, "slow", |slow| {
            (slow.dead, slow.failed_total, slow.retried_total) == (1, 5, 4)
        })
        .await;
        becomes(&client, "handed on", |one| {
            (one.running, one.awaiting, one.completed_total) == (0, 1, 0)
        })
        .await;
        client
            .run(
                "SELECT posthaste.confirm(posthaste.delivery_id(h.id)) FROM posthaste.in_flight h; \
                 SELECT posthaste.redrive(name => 'never', at_most => 3)",
            )
            .await?;
        becomes(&client, "handed on", |one| {
            (one.awaiting, one.completed_total) == (0, 1)
        })
        .await;
        becomes(&client, "never", |never| {
            (
                never.available + never.running,
                never.dead,
                never.dead_total,
            ) == (0, 4, 7)
        })
        .await;
        eventually(SOON, "the leader has counted the backlog", async || {
            let marks = "SELECT EXISTS (SELECT FROM posthaste.counted_0)";
            client.one(marks).await
        })
        .await?;
        worker.stop().await?;
        assert_eq!(of(&client, "idle").await.available, 300);
        let oldest = jobs(&client).counters().await?.oldest;
        assert_eq!(oldest.len(), 1, "{oldest:?}");
        assert_eq!((&*oldest[0].queue, oldest[0].priority), ("nobody", 0));
        assert!(
            oldest[0].seconds > 0.0 && oldest[0].seconds < 600.0,
            "{oldest:?}"
        );

        let before = jobs(&client).counters().await?.jobs;
        client.run("SELECT posthaste.recount()").await?;
        assert_eq!(jobs(&client).counters().await?.jobs, before, "counted anew");
    }
    Ok(())
}

/// Makes this many claims of this many jobs each, and closes them at once.
async fn claim_and_close(client: &Client, worker: i64, claims: i32, jobs: i32) {
    let closed = client
        .one_with::<i64>(
            "SELECT count(posthaste.close_batches(ARRAY[c.slot], ARRAY[c.batch], ARRAY[c.token],
               ARRAY[c.n])) FROM (
               SELECT slot, batch, token, count(*)::integer AS n
                 FROM (SELECT gen_random_uuid() AS token FROM generate_series(1,
                   $2::integer) OFFSET 0) t,
                      LATERAL posthaste.claim('default', '{0}', $1, t.token, $3::integer, 1 << 30)
                   GROUP BY 1, 2, 3) c",
            &[&worker, &claims, &jobs],
        )
        .await
        .unwrap();
    assert_eq!(closed, i64::from(claims));
}

/// Counts all jobs, as the leader does.
async fn account(client: &Client) {
    let sql = "SELECT posthaste.count_new_jobs(5000, 250, 65536) IS NULL";
    while client.one::<bool>(sql).await.unwrap() {}
}

/// Returns the pages that reading the counters touches, once its plans are cached.
async fn pages(client: &Client) -> i64 {
    const READ: &str =
        "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) SELECT * FROM posthaste.counts()";
    client.query(READ, &[]).await.unwrap();
    let plan: Value = client.one(READ).await.unwrap();
    let plan = &plan[0]["Plan"];
    plan["Shared Hit Blocks"].as_i64().unwrap() + plan["Shared Read Blocks"].as_i64().unwrap()
}

#[tokio::test]
async fn a_backlog_is_counted_once_and_not_by_counter_readers() -> TestResult {
    for version in PgVersion::tried() {
        let (_db, client) = connected(version).await?;
        client
            .run(
                "SELECT posthaste.enqueue('n' || i % 10, tag => 't' || i % 2) \
                 FROM generate_series(1, 20000) i",
            )
            .await?;
        let uncounted = pages(&client).await;
        account(&client).await;
        let counted = pages(&client).await;
        assert!(counted * 5 < uncounted, "{counted} of {uncounted} pages");
        let worker = hand(&client).await;
        // All open jobs are read; there are 33.
        claim_and_close(&client, worker, 7, 1_111).await;
        let open = "SELECT count(*) FROM posthaste.claim('default', '{0}', $1, gen_random_uuid(), \
                    33, 1 << 30)";
        client.query_one(open, &[&worker]).await?;
        let drained = pages(&client).await;
        assert!(drained * 2 < uncounted, "{drained} of {uncounted} pages");
        let found = jobs(&client).counters().await?.jobs;
        let waiting: i64 = found.iter().map(|of| of.available).sum();
        let running: i64 = found.iter().map(|of| of.running).sum();
        assert_eq!((waiting, running), (20_000 - 7_777 - 33, 33));
    }
    Ok(())
}

async fn tuples(client: &Client) -> BTreeMap<String, i64> {
    client
        .rows(
            "SELECT relname::text, pg_stat_get_dead_tuples(oid) + pg_stat_get_tuples_updated(oid) +
              pg_stat_get_tuples_deleted(oid) FROM pg_class
              WHERE relnamespace = 'posthaste'::regnamespace AND relkind = 'r'
                AND relname ~ '^(counted|opened|left|stats_delta|stats_sum)_'",
        )
        .await
        .unwrap()
        .into_iter()
        .collect()
}

#[tokio::test]
async fn counting_and_reading_stay_flat_while_a_snapshot_is_held() -> TestResult {
    for version in PgVersion::tried() {
        let db: TestDb = database(version).await;
        let client = db.client().await?;
        let pin = db.client().await?;
        pin.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class")
            .await?;
        let worker = hand(&client).await;
        let mut read = Vec::new();
        for round in 0..12 {
            client
                .run(
                    "SELECT posthaste.enqueue('n' || i % 3) FROM generate_series(1, 1000) i;
                     SELECT posthaste.enqueue('later', scheduled_at => now() + interval '1 hour')
                       FROM generate_series(1, 300);
                     SELECT posthaste.flush_stats(array_fill('default'::text, '{400}'),
                       array_fill(0, '{400}'), array_fill('n0'::text, '{400}'),
                                           array_fill(''::text, '{400}'),
                         array_fill('completed_total'::text, '{400}'),
                         array_fill(1::bigint, '{400}'))",
                )
                .await?;
            account(&client).await;
            claim_and_close(&client, worker, 45, 20).await;
            account(&client).await;
            if round >= 4 {
                read.push(pages(&client).await);
            }
        }
        let found = jobs(&client).counters().await?.jobs;
        assert_eq!(found.iter().map(|of| of.available).sum::<i64>(), 12 * 100);
        assert_eq!(found.iter().map(|of| of.scheduled).sum::<i64>(), 12 * 300);
        assert_eq!(
            found.iter().map(|of| of.completed_total).sum::<i64>(),
            12 * 400
        );
        let (least, most) = (read.iter().min().unwrap(), read.iter().max().unwrap());
        assert!(most < &(least * 2), "pages per read: {read:?}");
        assert_eq!(
            *tuples(&client).await.values().max().unwrap(),
            0,
            "nothing is changed or deleted"
        );
        let turned: i64 = client
            .one("SELECT pg_sequence_last_value('posthaste.stats_low')")
            .await?;
        assert!(turned > 0, "the deltas' space came back under the pin");
        pin.run("ROLLBACK").await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_leader_with_nothing_to_count_writes_nothing() -> TestResult {
    let (_db, client) = connected(PgVersion::any()).await?;
    client
        .run(
            "SELECT posthaste.enqueue('n', priority => i % 10, queue => 'q' || i % 100) \
             FROM generate_series(1, 2000) i",
        )
        .await?;
    account(&client).await;
    client
        .run("BEGIN; SELECT posthaste.count_new_jobs(5000, 250, 65536)")
        .await?;
    let sql = "SELECT pg_current_xact_id_if_assigned()::text";
    let wrote: Option<String> = client.one(sql).await?;
    client.run("COMMIT").await?;
    assert_eq!(wrote, None);
    assert_eq!(jobs(&client).counters().await?.oldest.len(), 100);
    Ok(())
}
