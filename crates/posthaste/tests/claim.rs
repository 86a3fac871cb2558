//! Claims: their cost does not depend on earlier work, and a claim whose answer is lost loses no
//! jobs.

use posthaste_testkit::{PgVersion, Sql as _, TestResult, eventually};
use tokio_postgres::Client;

use crate::support::{SOON, connected, database, hand};

/// Takes the lock of the only lane, and reads whether a session waits for it.
const LOCK: &str = "SELECT pg_advisory_lock(1885893475, posthaste.lane_key('default', 0))";
const WAITS: &str = "
    SELECT EXISTS (
      SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND classid = 1885893475
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))";

async fn claim(client: &Client, worker: i64, limit: i32) -> Vec<i64> {
    client
        .rows_with(
            "SELECT id FROM posthaste.claim('default', '{0}', $1, gen_random_uuid(), $2, 16000000)",
            &[&worker, &limit],
        )
        .await
        .unwrap()
}

/// Returns the buffers that a claim of one job touches, a measure of work that does not depend on
/// the machine's speed.
async fn cost(client: &Client, worker: i64) -> i64 {
    let plan: serde_json::Value = client
        .one(
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT id FROM posthaste.claim('default', \
             '{0}', $$worker$$, gen_random_uuid(), 1, 16000000)"
                .replace("$$worker$$", &worker.to_string())
                .as_str(),
        )
        .await
        .unwrap();
    plan[0]["Plan"]["Shared Hit Blocks"].as_i64().unwrap()
        + plan[0]["Plan"]["Shared Read Blocks"].as_i64().unwrap()
}

/// A part of the rows was claimed before more rows came, in this segment and in the next.
#[tokio::test]
async fn rows_of_an_older_segment_are_claimed_first() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let worker = hand(&client).await;
    for step in [
        "INSERT INTO posthaste.job (name) SELECT 'n' FROM generate_series(1, 3)",
        "SELECT posthaste.claim('default', '{0}', max(id), gen_random_uuid(), 2, 1000000) \
         FROM posthaste.worker",
        "INSERT INTO posthaste.job (name) SELECT 'n' FROM generate_series(1, 2)",
        "SELECT posthaste.rotate(0)",
        "INSERT INTO posthaste.job (name) SELECT 'n' FROM generate_series(1, 2)",
    ] {
        client.run(step).await.unwrap();
    }
    // One of the first window, two later ones of the same segment, and the first of the next
    // segment.
    assert_eq!(claim(&client, worker, 4).await, [3, 4, 5, 6]);
    assert_eq!(claim(&client, worker, 4).await, [7]);
}

#[tokio::test]
async fn rows_of_the_same_segment_replace_expired_jobs_in_a_claim() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let worker = hand(&client).await;
    for step in [
        "SELECT posthaste.enqueue('n', expires_at => CASE n % 2 WHEN 0 THEN now() END) \
         FROM generate_series(1, 6) n ORDER BY n",
        "SELECT posthaste.rotate(0)",
        "SELECT posthaste.enqueue('n') FROM generate_series(7, 9) n",
    ] {
        client.run(step).await.unwrap();
    }
    assert_eq!(claim(&client, worker, 2).await, [1, 3]);
    assert_eq!(claim(&client, worker, 3).await, [5, 7, 8]);
}

/// Returns the jobs of a claim that waits for its lane until `holder` ends its transaction and
/// releases the lock.
async fn claim_behind(holder: &Client, client: Client, worker: i64) -> Vec<i64> {
    let waiting = tokio::spawn(async move { claim(&client, worker, 10).await });
    eventually(SOON, "the claim waits", async || holder.one(WAITS).await)
        .await
        .unwrap();
    holder
        .run("COMMIT; SELECT pg_advisory_unlock_all()")
        .await
        .unwrap();
    waiting.await.unwrap()
}

#[tokio::test]
async fn jobs_of_one_transaction_keep_order_across_segments() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let other = db.client().await?;
    let worker = hand(&client).await;
    other.run("BEGIN; SELECT posthaste.enqueue('a')").await?;
    for step in [
        "SELECT posthaste.rotate(0)",
        "SELECT posthaste.enqueue('seen')",
    ] {
        client.run(step).await?;
    }
    other
        .run(&format!("SELECT posthaste.enqueue('b'); {LOCK}"))
        .await?;
    // The claim has polled the first segment before its rows were visible, and found rows in the
    // second.
    assert_eq!(claim_behind(&other, client, worker).await, [1, 3, 2]);
    Ok(())
}

#[tokio::test]
async fn overflowed_rows_are_claimed_before_a_newer_segment() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let other = db.client().await?;
    let worker = hand(&client).await;
    for step in [
        "SELECT posthaste.enqueue('n') FROM generate_series(1, 3)",
        "SELECT posthaste.rotate(0)",
        "SELECT posthaste.enqueue('n') FROM generate_series(4, 5)",
    ] {
        client.run(step).await?;
    }
    other
        .run("BEGIN; SELECT posthaste.move_to_overflow(0, 1000)")
        .await?;
    assert_eq!(claim_behind(&other, client, worker).await, [1, 2, 3, 4, 5]);
    Ok(())
}

/// The job expires while its claim waits for the lane.
#[tokio::test]
async fn jobs_that_expire_while_their_claim_waits_are_skipped() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let other = db.client().await?;
    let worker = hand(&client).await;
    let enqueue =
        "SELECT posthaste.enqueue('n', expires_at => clock_timestamp() + interval '500 ms')";
    client.run(enqueue).await?;
    other.run(LOCK).await?;
    let waiting = tokio::spawn(async move { claim(&client, worker, 10).await });
    eventually(SOON, "the claim waits while its job expires", async || {
        let expired = "bool_and(expires_at < clock_timestamp()) FROM posthaste.ready_0";
        other.one(&format!("{WAITS} AND {expired}")).await
    })
    .await?;
    other.run("SELECT pg_advisory_unlock_all()").await?;
    assert_eq!(waiting.await?, Vec::<i64>::new());
    let kept = "SELECT count(*) FROM posthaste.dead WHERE state = 'expired'";
    let kept: i64 = other.one(kept).await?;
    assert_eq!(kept, 1);
    Ok(())
}

/// A job that expired unclaimed prevents the closing in one row only of its own batch, not of other
/// batches of its slot.
#[tokio::test]
async fn an_expired_unclaimed_job_leaves_other_batches_closed_in_one_row() -> TestResult {
    let (_db, client) = connected(PgVersion::any()).await?;
    let worker = hand(&client).await;
    client
        .run(
            "SELECT posthaste.enqueue('n', queue => 'nobody', expires_at => now() - interval '1 s');
             SELECT posthaste.expire(0, 100);
             INSERT INTO posthaste.job (name) SELECT 'n' FROM generate_series(1, 10)",
        )
        .await?;
    assert_eq!(claim(&client, worker, 10).await.len(), 10);
    let whole = "SELECT posthaste.close_batches(ARRAY[0::smallint], ARRAY[batch], ARRAY[token], \
                 ARRAY[n]) FROM posthaste.claim_0 WHERE n > 0";
    let left: Vec<i32> = client.one(whole).await?;
    assert!(left.is_empty(), "the batch was closed by one row");
    Ok(())
}

#[tokio::test]
async fn claim_cost_is_constant_after_many_finished_jobs_under_a_pinned_snapshot() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let worker = hand(&client).await;
    let pin = db.client().await?;
    pin.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM pg_class LIMIT 1")
        .await?;
    client
        .run("INSERT INTO posthaste.job (name) SELECT 'n' FROM generate_series(1, 50000)")
        .await?;
    claim(&client, worker, 10).await;
    cost(&client, worker).await;
    let fresh = cost(&client, worker).await;
    let mut spent = 0;
    while spent < 45_000 {
        spent += claim(&client, worker, 5000).await.len();
    }
    let late = cost(&client, worker).await;
    assert!(
        late <= fresh * 2,
        "a claim touched {fresh} buffers at first and {late} after {spent} spent jobs"
    );
    Ok(())
}

#[tokio::test]
async fn rows_of_uncommitted_bulk_inserts_are_scanned_at_most_once() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let worker = hand(&client).await;
    let bulk = db.client().await?;
    for end in ["ROLLBACK", "COMMIT"] {
        bulk.run(
            "BEGIN; INSERT INTO posthaste.job (name) SELECT 'bulk' FROM generate_series(1, 100000)",
        )
        .await?;
        // A later commit of another transaction puts the open rows inside the next window.
        client
            .run("CREATE TABLE IF NOT EXISTS other (n integer); INSERT INTO other VALUES (1)")
            .await?;
        assert!(claim(&client, worker, 1).await.is_empty());
        let open = cost(&client, worker).await;
        assert!(
            open < 500,
            "a poll beside an open bulk insert touched {open} buffers"
        );
        bulk.run(end).await?;
        if end == "ROLLBACK" {
            claim(&client, worker, 1).await;
            let after = cost(&client, worker).await;
            assert!(
                after < 500,
                "a poll after a rolled-back bulk insert touched {after} buffers"
            );
        }
    }
    assert_eq!(
        claim(&client, worker, 5000).await.len(),
        5000,
        "what was committed late is there at once"
    );
    Ok(())
}

#[tokio::test]
async fn a_claim_is_bounded_by_the_bytes_of_its_arguments() -> TestResult {
    let (_db, client) = connected(PgVersion::any()).await?;
    let worker = hand(&client).await;
    client
        .run(
            "INSERT INTO posthaste.job (name, kwargs)
             SELECT 'n', jsonb_build_object('a', repeat('x', 100000)) FROM generate_series(1, 50)",
        )
        .await?;
    let claimed = async |bytes: i64| {
        let claim =
            "SELECT id FROM posthaste.claim('default', '{0}', $1, gen_random_uuid(), 50, $2)";
        let ids: Vec<Option<i64>> = client.rows_with(claim, &[&worker, &bytes]).await.unwrap();
        // The last row indicates that there may be more.
        assert_eq!(ids.iter().position(Option::is_none), Some(ids.len() - 1));
        ids.len() - 1
    };
    let few = claimed(1_000_000).await;
    assert!(
        (10..=11).contains(&few),
        "{few} jobs of 100 kB in a claim of 1 MB"
    );
    assert_eq!(claimed(1).await, 1, "one job at least, however large");
    Ok(())
}

#[tokio::test]
async fn lower_priority_numbers_are_claimed_first_and_claims_span_lanes() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let worker = hand(&client).await;
    let thirty = "INSERT INTO posthaste.job (name, priority)
                  SELECT 'n', g % 3 FROM generate_series(0, 29) g";
    client.run(thirty).await.unwrap();
    let of_all = "SELECT priority FROM posthaste.claim('default', '{0,1,2}', $1, \
                  gen_random_uuid(), 25, 16000000)";
    let got: Vec<i32> = client.rows_with(of_all, &[&worker]).await.unwrap();
    let want: Vec<i32> = [0; 10].into_iter().chain([1; 10]).chain([2; 5]).collect();
    assert_eq!(got, want);
}

#[tokio::test]
async fn claims_reject_other_isolation_levels_and_unknown_workers() -> TestResult {
    let (_db, client) = connected(PgVersion::any()).await?;
    let worker = hand(&client).await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        client
            .run(&format!("BEGIN ISOLATION LEVEL {level}"))
            .await?;
        let refused = client
            .query(
                "SELECT id FROM posthaste.claim('default', '{0}', $1, gen_random_uuid(), 1, 1)",
                &[&worker],
            )
            .await;
        assert!(
            refused
                .unwrap_err()
                .as_db_error()
                .unwrap()
                .message()
                .contains("READ COMMITTED")
        );
        client.run("ROLLBACK").await?;
    }
    client
        .run("UPDATE posthaste.worker SET stopped_at = now()")
        .await?;
    let refused = client
        .query(
            "SELECT id FROM posthaste.claim('default', '{0}', $1, gen_random_uuid(), 1, 1)",
            &[&worker],
        )
        .await;
    assert_eq!(refused.unwrap_err().code().unwrap().code(), "55000");
    Ok(())
}

#[tokio::test]
async fn late_acknowledgements_are_rejected_and_change_nothing() -> TestResult {
    let (_db, client) = connected(PgVersion::any()).await?;
    let slow = hand(&client).await;
    client
        .run("INSERT INTO posthaste.job (name, max_attempts) VALUES ('n', 5)")
        .await?;
    let token = "0bad0bad-0000-4000-8000-000000000000";
    let one = format!(
        "SELECT slot, batch, id FROM posthaste.claim('default', '{{0}}', $1, '{token}', 1, 1)"
    );
    let (slot, batch, id): (i16, i64, i64) = client.one_with(&one, &[&slow]).await?;
    let settle = |token: &str| {
        format!(
            "SELECT posthaste.settle({slot}::smallint, {batch}, '{token}', ARRAY[{id}], \
             ARRAY[0::smallint], NULL, NULL, NULL, NULL, NULL)"
        )
    };
    let closed: Vec<i64> = client
        .one(&settle("11111111-0000-4000-8000-000000000000"))
        .await?;
    assert!(closed.is_empty(), "a foreign token closes nothing");
    let rescued: i64 = client
        .one_with("SELECT posthaste.rescue($1, 0)", &[&slow])
        .await?;
    assert_eq!(rescued, 1);
    let closed: Vec<i64> = client.one(&settle(token)).await?;
    assert!(closed.is_empty(), "the old owner lost it");
    let state: String = client.one("SELECT state FROM posthaste.job").await?;
    assert_eq!(state, "quarantined");
    Ok(())
}
