//! Tags and names that differ by job.

use posthaste::Counter;
use posthaste_testkit::{PgVersion, Sql as _, TestResult};
use tokio_postgres::Client;

use super::account;
use crate::support::{connected, database, hand, jobs};

/// Kinds of each queue and state that are counted separately, and the bucket of all others.
const MOST: usize = 1_001;

/// Returns the available, scheduled and running jobs of the view.
async fn shown(client: &Client) -> (i64, i64, i64) {
    let sql = "SELECT count(*) FILTER (WHERE state = 'available'),
                      count(*) FILTER (WHERE state = 'scheduled'),
                      count(*) FILTER (WHERE state = 'running') FROM posthaste.job";
    let row = client.query_one(sql, &[]).await.unwrap();
    (row.get(0), row.get(1), row.get(2))
}

/// Reads the counters, which must agree with the view and be few.
async fn counted(client: &Client) -> Vec<Counter> {
    let found = jobs(client).counters().await.unwrap().jobs;
    let sum = |of: fn(&Counter) -> i64| found.iter().map(of).sum::<i64>();
    let counted = (
        sum(|of| of.available),
        sum(|of| of.scheduled),
        sum(|of| of.running),
    );
    assert_eq!(counted, shown(client).await);
    for of in [
        |of: &Counter| of.available,
        |of: &Counter| of.scheduled,
        |of: &Counter| of.running,
        |of: &Counter| of.completed_total,
    ] {
        assert!(found.iter().all(|counter| of(counter) >= 0), "{found:?}");
        let kinds = found.iter().filter(|counter| of(counter) > 0).count();
        assert!(kinds <= MOST, "{kinds} kinds");
    }
    found
}

/// Returns the length of the longest of these arrays.
async fn longest(client: &Client, table: &str) -> usize {
    let sql = format!("SELECT coalesce(max(cardinality(jobs)), 0) FROM posthaste.{table}");
    let most: i32 = client.one(&sql).await.unwrap();
    usize::try_from(most).unwrap()
}

/// Reports completed jobs, each of its own kind, numbered from `from`.
async fn done(client: &Client, from: i64, name: &str, tag: &str) {
    let sql = format!(
        "SELECT posthaste.flush_stats(array_agg('default'::text), array_agg(0),
           array_agg(({name})::text), array_agg(({tag})::text), array_agg('completed_total'::text),
           array_agg(1::bigint)) FROM generate_series($1::bigint, $1 + 2999) i"
    );
    client.query_one(&sql, &[&from]).await.unwrap();
}

#[tokio::test]
async fn unique_tags_are_counted_exactly_under_a_bounded_number_of_names() {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let client = db.client().await.unwrap();
        let worker = hand(&client).await;
        for round in 0..3 {
            let enqueue = format!(
                "SELECT posthaste.enqueue('n', tag => 'user:' || {round} * 3000 + i)
                   FROM generate_series(1, 3000) i;
                 SELECT posthaste.enqueue('later', tag => 'user:' || {round} * 3000 + i,
                   scheduled_at => now() + interval '1 hour') FROM generate_series(1, 3000) i"
            );
            client.run(&enqueue).await.unwrap();
            done(&client, round * 3_000, "'n'", "'user:' || i").await;
            counted(&client).await;
            account(&client).await;
            counted(&client).await;
            let close = "SELECT posthaste.close_batches(ARRAY[c.slot], ARRAY[c.batch],
                ARRAY[c.token], ARRAY[c.n]) FROM (
                  SELECT slot, batch, token, count(*)::integer AS n
                    FROM (SELECT gen_random_uuid() AS token OFFSET 0) t,
                      LATERAL posthaste.claim('default', '{0}', $1, t.token, 2100, 1 << 30)
                   GROUP BY 1, 2, 3) c";
            assert!(!client.query(close, &[&worker]).await.unwrap().is_empty());
            let some =
                "SELECT posthaste.claim('default', '{0}', $1, gen_random_uuid(), 50, 1 << 30)";
            client.query(some, &[&worker]).await.unwrap();
            let cancel = "SELECT posthaste.cancel_many(ARRAY(
                SELECT id FROM posthaste.job WHERE state = 'scheduled' ORDER BY id LIMIT 2500))";
            client.run(cancel).await.unwrap();
            counted(&client).await;
            account(&client).await;
            let found = counted(&client).await;
            let completed: i64 = found.iter().map(|of| of.completed_total).sum();
            assert_eq!(completed, (round + 1) * 3_000);
        }
        let counted = counted(&client).await;
        let other = counted
            .iter()
            .find(|of| of.name == "n" && of.tag == "other");
        assert!(other.unwrap().completed_total >= 6_000);
        for table in ["counted_0", "counted_6", "stats_sum"] {
            let longest = longest(&client, table).await;
            assert!((1_000..=5 * MOST).contains(&longest), "{table}: {longest}");
        }
    }
}

#[tokio::test]
async fn the_first_counted_tags_stay_and_totals_never_fall() -> TestResult {
    let (_db, client) = connected(PgVersion::any()).await?;
    done(&client, 0, "'n'", "'user:' || i").await;
    let mut before: Vec<Counter> = Vec::new();
    for round in 0..4 {
        done(&client, round * 3_000, "'n'", "'user:' || i").await;
        done(&client, 0, "'of few tags'", "'t' || i % 7").await;
        for is_summed in [false, true] {
            if is_summed {
                client
                    .query_one("SELECT posthaste.sum_stats(0)", &[])
                    .await?;
            }
            let now = jobs(&client).counters().await?.jobs;
            for of in &before {
                let same = |other: &&Counter| (&other.name, &other.tag) == (&of.name, &of.tag);
                let sum = now.iter().find(same).map_or(0, |of| of.completed_total);
                assert!(sum >= of.completed_total, "{of:?}: {sum}");
            }
            before = now;
        }
    }
    assert!(before.iter().any(|of| of.tag == "user:7"));
    Ok(())
}

#[tokio::test]
async fn per_job_names_are_counted_under_one_name() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    for round in 0..3 {
        done(&client, round * 3_000, "'n' || i", "'t' || i").await;
    }
    let found = jobs(&client).counters().await.unwrap().jobs;
    assert!(found.len() <= 2 * MOST, "{}", found.len());
    let all: i64 = found.iter().map(|of| of.completed_total).sum();
    assert_eq!(all, 9_000);
    let rest = found.iter().find(|of| of.name == "other").unwrap();
    assert_eq!((&*rest.tag, rest.completed_total), ("other", 7_000));
}

#[tokio::test]
async fn totals_are_folded_without_blocking_readers() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    done(&client, 0, "'n'", "'user:' || i").await;
    let rotate = "SELECT posthaste.rotate_stats(0)";
    let mut client = client;
    let mut steps = Vec::new();
    for _ in 0..3 {
        let transaction = client.transaction().await.unwrap();
        let row = transaction.query_one(rotate, &[]).await.unwrap();
        let what: Option<String> = row.get(0);
        let exclusive = "SELECT count(*) FROM pg_locks
            WHERE pid = pg_backend_pid() AND mode = 'AccessExclusiveLock' AND relation IS NOT NULL";
        let locks: i64 = transaction.one(exclusive).await.unwrap();
        assert_eq!(locks > 0, what.as_deref() == Some("truncated"), "{what:?}");
        transaction.commit().await.unwrap();
        steps.push(what.unwrap());
    }
    assert_eq!(steps, ["rotated", "summed", "truncated"]);
}
