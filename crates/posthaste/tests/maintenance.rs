//! Maintenance: a slow duty does not delay others, a session that blocks space is named, and no
//! table is read repeatedly because of it.

use std::time::Duration;

use posthaste::{Config, NewJob, Outcome, enqueue};
use posthaste_testkit::{PgVersion, Sql as _, TestResult, eventually};
use serde_json::json;

use crate::stress::store::Store;
use crate::support::{SOON, all_done, connected, database, quick, unfinished, worker};

/// A duty that runs until the test releases it, like one that reads whole slots.
const SLOW_DUTY: &str = "CREATE OR REPLACE FUNCTION posthaste.retry_overdue(p_limit integer)
RETURNS bigint LANGUAGE plpgsql AS $f$
BEGIN
  WHILE NOT pg_try_advisory_xact_lock(7, 1) LOOP PERFORM pg_sleep(0.01); END LOOP;
  RETURN 0;
END $f$";

#[tokio::test(flavor = "multi_thread")]
async fn scheduled_jobs_are_promoted_during_other_duties() -> TestResult {
    let db = database(PgVersion::any()).await;
    let (client, holder) = (db.client().await?, db.client().await?);
    client.run(SLOW_DUTY).await?;
    holder.run("SELECT pg_advisory_lock(7, 1)").await?;
    let worker = worker(&db.pool(2)?)
        .queue("default", 1)
        .handler("n", |_, _| async { Ok(Outcome::Done) })
        .start()
        .await?;
    // The start of the transaction identifies the run of the duty.
    let under_way = "SELECT max(xact_start)::text FROM pg_stat_activity
                      WHERE datname = current_database() AND state = 'active'
                        AND query LIKE '%posthaste.retry_overdue(%' AND pid <> pg_backend_pid()";
    let mut began = None;
    eventually(SOON, "the slow duty is under way", async || {
        began = client.one::<Option<String>>(under_way).await?;
        Ok(began.is_some())
    })
    .await?;
    let due = jiff::Timestamp::now() + jiff::SignedDuration::from_millis(100);
    let job = NewJob::new("n", &json!({}))?.scheduled_at(due);
    enqueue(&client, &job).await?;
    // A statement without an answer for 30 s would time out, and others would continue.
    eventually(Duration::from_secs(20), "the job is worked", async || {
        Ok(unfinished(&client).await == 0)
    })
    .await?;
    let goes_on: Option<String> = client.one(under_way).await?;
    assert_eq!(goes_on, began, "the job was worked while the duty went on");
    holder.run("SELECT pg_advisory_unlock(7, 1)").await?;
    worker.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cleanly_stopped_workers_are_not_rescued() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let config = Config {
        maintenance: false,
        ..quick()
    };
    let stopped = worker(&db.pool(2)?)
        .config(config)
        .queue("default", 1)
        .handler("n", |_, _| async { Ok(Outcome::Done) })
        .start()
        .await?;
    enqueue(&client, &NewJob::new("n", &json!({}))?).await?;
    all_done(&client).await;
    stopped.stop().await?;
    client
        .run("INSERT INTO posthaste.worker (name, stopped_at) VALUES ('declared dead', now())")
        .await?;
    let left = "SELECT name, clean FROM posthaste.worker ORDER BY id";
    let left: Vec<(String, bool)> = client.rows(left).await?;
    assert!(left[0].1 && !left[1].1, "{left:?}");
    let watched: Vec<(i64, bool)> = client
        .query(include_str!("../src/store/beats.sql"), &[])
        .await?
        .iter()
        .map(|row| (row.get("id"), row.get("stopped")))
        .collect();
    assert!(
        matches!(watched[..], [(_, true)]),
        "only the other one is maintained: {watched:?}"
    );
    Ok(())
}

/// A scheduled slot is spent, but a session reads it: the session is named, and the slot's rows are
/// not read again at every poll.
#[tokio::test]
async fn sessions_blocking_truncation_of_a_scheduled_slot_are_named() -> TestResult {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let (store, reader) = (Store::new(db.url()).await?, Store::new(db.url()).await?);
        store
            .say(
                "INSERT INTO posthaste.job (name, scheduled_at) \
                 SELECT 'n', clock_timestamp() + interval '500 ms' FROM generate_series(1, 20000)",
            )
            .await?;
        reader
            .say("BEGIN; SELECT count(*) FROM posthaste.scheduled_6")
            .await?;
        store.until(&store.clock(1600).await?).await?;
        while store.promote(5_000).await? > 0 {}
        assert_eq!(store.tidy_scheduled(1_000).await?, "rotated");
        let pid: i32 = reader.value("SELECT pg_backend_pid()", &[]).await?;
        let tidy = "SELECT o_state || ' by ' || o_blocker FROM posthaste.tidy_scheduled(1000)";
        let locked: String = store.value(tidy, &[]).await?;
        assert_eq!(locked, format!("locked by session {pid}"));
        let plan: serde_json::Value = store
            .value(
                &format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {tidy}"),
                &[],
            )
            .await?;
        let pages = plan[0]["Plan"]["Shared Hit Blocks"].as_i64().unwrap()
            + plan[0]["Plan"]["Shared Read Blocks"].as_i64().unwrap();
        let slot: i64 = store
            .value(
                "SELECT pg_relation_size('posthaste.scheduled_6') / \
                 current_setting('block_size')::bigint",
                &[],
            )
            .await?;
        assert!(
            pages < slot / 2,
            "a poll touched {pages} pages, the slot has {slot}"
        );
        reader.say("COMMIT").await?;
        assert_eq!(store.tidy_scheduled(1_000).await?, "truncated");
    }
    Ok(())
}

/// A job of an old scheduled segment that was not promoted keeps the segment, however it was
/// missed.
#[tokio::test]
async fn scheduled_slots_with_waiting_jobs_are_not_truncated() {
    let db = database(PgVersion::any()).await;
    let (store, late) = (
        Store::new(db.url()).await.unwrap(),
        Store::new(db.url()).await.unwrap(),
    );
    late.say("BEGIN").await.unwrap();
    late.enqueue("late", 200).await.unwrap();
    store.enqueue("far", 3_600_000).await.unwrap();
    store.enqueue("soon", 200).await.unwrap();
    store.until(&store.clock(250).await.unwrap()).await.unwrap();
    store.promote(10).await.unwrap();
    assert_eq!(store.tidy_scheduled(1).await.unwrap(), "rotated");
    assert_eq!(
        store.tidy_scheduled(1).await.unwrap(),
        "draining",
        "one waits, one is open"
    );
    for _ in 0..3 {
        store.promote(10).await.unwrap();
    }
    assert_eq!(
        store.tidy_scheduled(1).await.unwrap(),
        "draining",
        "one is open"
    );
    late.say("COMMIT").await.unwrap();
    assert_eq!(
        store.tidy_scheduled(1).await.unwrap(),
        "draining",
        "one came late"
    );
    store.promote(10).await.unwrap();
    assert_eq!(store.tidy_scheduled(1).await.unwrap(), "truncated");
    assert_eq!(store.claim_all().await.unwrap().len(), 2, "late and soon");
    assert_eq!(store.unfinished().await.unwrap(), 3, "and far");
}

/// A transaction with jobs in the oldest segment keeps it from being sealed: a session is named by
/// its pid, a prepared transaction by its gid.
#[tokio::test]
async fn holders_of_an_unsealed_segment_are_named() -> TestResult {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let (store, writer) = (Store::new(db.url()).await?, Store::new(db.url()).await?);
        let pid: i32 = writer.value("SELECT pg_backend_pid()", &[]).await?;
        for insert in [
            "INSERT INTO posthaste.job (name) VALUES ('by the view')",
            "SELECT posthaste.enqueue('by the function')",
        ] {
            writer.say("BEGIN").await?;
            writer.say(insert).await?;
            store.rotate().await?;
            let seal = "SELECT coalesce(o_blocker, '') FROM posthaste.seal()";
            store.until(&store.clock(1100).await?).await?;
            let blocker: String = store.value(seal, &[]).await?;
            assert_eq!(blocker, format!("session {pid}"), "{insert}");
            writer.say("PREPARE TRANSACTION 'slow'").await?;
            store.until(&store.clock(1100).await?).await?;
            let blocker: String = store.value(seal, &[]).await?;
            assert_eq!(blocker, "the prepared transaction slow", "{insert}");
            writer.say("COMMIT PREPARED 'slow'").await?;
            let jobs = store.claim_all().await?;
            store.finish(&jobs).await?;
            while store.seal().await? {}
            while store.reclaim().await? == "truncated" {}
        }
    }
    Ok(())
}

/// The batch that a compaction takes had expired as a whole: nothing was moved, and yet jobs are
/// left, which claims must still find.
#[tokio::test]
async fn compacting_only_expired_jobs_leaves_no_rows() -> TestResult {
    let db = database(PgVersion::any()).await;
    let store = Store::new(db.url()).await?;
    store
        .say(
            "INSERT INTO posthaste.job (name, queue, expires_at)
              SELECT 'n', CASE WHEN g % 2 = 0 THEN 'a brief' ELSE 'default' END,
                     now() + CASE WHEN g % 2 = 0 THEN interval '500 ms' ELSE interval '1 day' END
                  FROM generate_series(1, 40) g",
        )
        .await?;
    store.rotate().await?;
    for _ in 0..2 {
        store
            .value::<i64>("SELECT posthaste.move_to_overflow(0, 100)", &[])
            .await?;
    }
    // One is claimed, so that compaction can free space.
    let first = store.claim(1).await?;
    store.finish(&first).await?;
    store.until(&store.clock(600).await?).await?;
    store
        .say("SELECT setval('posthaste.overflow_current', 1)")
        .await?;
    let tidy = "SELECT o_state FROM posthaste.tidy_overflow(1000000, 5)";
    for _ in 0..3 {
        let did: String = store.value(tidy, &[]).await?;
        assert_eq!(did, "moved");
        assert_eq!(
            store.position("overflow_scan").await?,
            0,
            "claims read the old slot while jobs are in it"
        );
    }
    assert_eq!(store.claim_all().await?.len(), 19);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn old_inbox_rows_are_deleted_beyond_one_batch() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let old = "INSERT INTO posthaste.inbox SELECT gen_random_uuid(),
        clock_timestamp() - interval '31 days' FROM generate_series(1, 25000);
        SELECT posthaste.receive(gen_random_uuid())";
    client.run(old).await?;
    let worker = worker(&db.pool(2)?).queue("default", 1);
    let worker = worker.handler("n", |_, _| async { Ok(Outcome::Done) });
    let worker = worker.start().await?;
    eventually(SOON, "what is younger is left", async || {
        let left = client
            .one::<i64>("SELECT count(*) FROM posthaste.inbox")
            .await?;
        Ok(left == 1)
    })
    .await?;
    worker.stop().await?;
    Ok(())
}

/// Each known lane is probed at each poll. Each claim records how many lanes its worker knows.
#[tokio::test(flavor = "multi_thread")]
async fn unused_priorities_are_removed() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let noted = "
        ALTER FUNCTION posthaste.claim(text, integer[], bigint, uuid, integer, bigint, integer)
          RENAME TO claim_of;
        CREATE SEQUENCE public.lanes;
        CREATE SEQUENCE public.most;
        CREATE FUNCTION posthaste.claim(p_queue text, p_priorities integer[], p_worker bigint,
                                        p_token uuid, p_limit integer, p_bytes bigint,
                                        p_answer integer)
        RETURNS SETOF posthaste.claimed LANGUAGE sql AS $f$
          SELECT setval('public.lanes', cardinality(p_priorities));
          SELECT setval('public.most', greatest(last_value, cardinality(p_priorities)))
            FROM public.most;
          SELECT * FROM posthaste.claim_of(
            p_queue, p_priorities, p_worker, p_token, p_limit, p_bytes, p_answer)
        $f$";
    client.run(noted).await?;
    let many = "SELECT posthaste.enqueue('n', priority => g) FROM generate_series(1, 160) g";
    client.run(many).await?;
    let worker = worker(&db.pool(2)?).queue("default", 4);
    let worker = worker.handler("n", |_, _| async { Ok(Outcome::Done) });
    let worker = worker.start().await?;
    all_done(&client).await;
    let lanes = async |sql: &str| -> anyhow::Result<i64> { client.one(sql).await };
    let most = lanes("SELECT last_value FROM most").await?;
    assert!(most > 128, "it knew many: {most}");
    eventually(SOON, "few are known", async || {
        if lanes("SELECT count(*) FROM posthaste.lane").await? > 32 {
            return Ok(false);
        }
        // Enqueues a job so that a worker claims.
        client.run("SELECT posthaste.enqueue('n')").await?;
        Ok(lanes("SELECT last_value FROM lanes").await? <= 32)
    })
    .await?;
    // They are found again.
    let again = "SELECT posthaste.enqueue('n', priority => g) FROM generate_series(1, 160, 30) g";
    client.run(again).await?;
    all_done(&client).await;
    worker.stop().await?;
    Ok(())
}

/// Each of these leaves a dead row in pg_class, which a pinned horizon keeps.
#[tokio::test]
async fn truncation_recreates_only_written_tables() {
    let db = database(PgVersion::any()).await;
    let store = Store::new(db.url()).await.unwrap();
    let files = "SELECT string_agg(relname || ' ' || relfilenode, ',' ORDER BY oid) FROM pg_class
                  WHERE relnamespace IN ('posthaste'::regnamespace, 'pg_toast'::regnamespace)";
    store.enqueue("n", 0).await.unwrap();
    let jobs = store.claim_all().await.unwrap();
    store.finish(&jobs).await.unwrap();
    let before: String = store.value(files, &[]).await.unwrap();
    store.rotate().await.unwrap();
    while store.seal().await.unwrap() {}
    assert_eq!(store.reclaim().await.unwrap(), "truncated");
    let after: String = store.value(files, &[]).await.unwrap();
    let new = before.split(',').zip(after.split(','));
    let new: Vec<&str> = new
        .filter(|(old, new)| old != new)
        .map(|(old, _)| old)
        .collect();
    assert!(
        (1..=14).contains(&new.len()),
        "{} files: {new:?}",
        new.len()
    );
}
