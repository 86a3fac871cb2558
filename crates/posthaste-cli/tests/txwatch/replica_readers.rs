//! Effects on readers of a hot standby when a segment of the queue is truncated on the primary.

use posthaste_testkit::{PgServer, PgVersion, Sql as _, TestDb, eventually, number};
use tokio_postgres::Client;

use crate::stage::{BOUND, Stage};

const JOBS: &str = "SELECT count(*) FROM posthaste.job";
const ROWS: &str = "SELECT count(*) FROM own";
/// A snapshot that is held, as by a report.
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ";
const LOW: &str = "SELECT pg_sequence_last_value('posthaste.ready_low'::regclass)";

/// Starts a primary whose oldest segment is full of completed jobs.
async fn primary_with_a_full_segment(stage: &Stage) -> anyhow::Result<(PgServer, TestDb, Client)> {
    let server = PgServer::start(PgVersion::any(), &[])?;
    let db = TestDb::empty(&server).await?;
    stage.run_with_url(db.url(), &["migrate"]).await?.good()?;
    let owner = db.client().await?;
    owner
        .run(
            "CREATE TABLE own (id integer); INSERT INTO own VALUES (1);
             SELECT posthaste.enqueue('ok', queue => 'mail') FROM generate_series(1, 20)",
        )
        .await?;
    let work = ["work", "--queue", "mail", "--exec", "ok=true"];
    let mut worker = stage.spawn_at(db.url(), &work)?;
    eventually(BOUND, "all jobs are completed", async || {
        Ok(number(&owner, JOBS).await? == 0)
    })
    .await?;
    worker.terminate()?;
    assert!(worker.exit(BOUND).await?.success());
    Ok((server, db, owner))
}

/// Opens a session on the replica once it has replayed everything of the primary.
async fn reader(replica: &PgServer, db: &TestDb, owner: &Client) -> anyhow::Result<Client> {
    let replayed = posthaste_testkit::connect(&replica.url(db.name())).await?;
    let row = owner
        .query_one("SELECT pg_current_wal_lsn()::text", &[])
        .await?;
    let position: String = row.get(0);
    let is_there = format!("SELECT (pg_last_wal_replay_lsn() >= '{position}')::integer::bigint");
    eventually(BOUND, "the replica has caught up", async || {
        Ok(number(&replayed, &is_there).await? == 1)
    })
    .await?;
    Ok(replayed)
}

/// Makes a worker truncate the oldest segment.
async fn truncate(stage: &Stage, db: &TestDb, owner: &Client) -> anyhow::Result<()> {
    let low = number(owner, LOW).await?;
    let rotated = owner.query_one("SELECT posthaste.rotate(0)", &[]).await?;
    assert_eq!(rotated.get::<_, String>(0), "rotated");
    let work = ["work", "--queue", "mail", "--exec", "ok=true"];
    let mut worker = stage.spawn_at(db.url(), &work)?;
    eventually(BOUND, "the segment is truncated", async || {
        Ok(number(owner, LOW).await? > low)
    })
    .await?;
    worker.terminate()?;
    assert!(worker.exit(BOUND).await?.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn truncation_cancels_only_job_readers_on_a_replica() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let (server, db, owner) = primary_with_a_full_segment(&stage).await?;
    // Feedback retains row versions but not locks.
    let settings = [
        ("max_standby_streaming_delay", "1s"),
        ("hot_standby_feedback", "on"),
    ];
    let replica = server.start_replica(&settings)?;
    let of_jobs = reader(&replica, &db, &owner).await?;
    let other = reader(&replica, &db, &owner).await?;
    of_jobs.run(BEGIN).await?;
    assert_eq!(number(&of_jobs, JOBS).await?, 0);
    other.run(BEGIN).await?;
    assert_eq!(number(&other, ROWS).await?, 1);

    truncate(&stage, &db, &owner).await?;
    eventually(BOUND, "the reader of jobs is ended", async || {
        Ok(of_jobs.is_closed())
    })
    .await?;
    assert_eq!(number(&other, ROWS).await?, 1);
    other.run("COMMIT").await?;
    let after = reader(&replica, &db, &owner).await?;
    assert_eq!(number(&after, JOBS).await?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_waiting_for_job_readers_delays_replay_for_all() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let (server, db, owner) = primary_with_a_full_segment(&stage).await?;
    let replica = server.start_replica(&[("max_standby_streaming_delay", "-1")])?;
    let of_jobs = reader(&replica, &db, &owner).await?;
    let other = reader(&replica, &db, &owner).await?;
    of_jobs.run(BEGIN).await?;
    assert_eq!(number(&of_jobs, JOBS).await?, 0);

    // The primary does not wait.
    truncate(&stage, &db, &owner).await?;
    owner.run("INSERT INTO own VALUES (2)").await?;
    let waits = "SELECT count(*) FROM pg_stat_activity
                  WHERE backend_type = 'startup' AND wait_event_type = 'Lock'";
    eventually(BOUND, "replay waits for the reader", async || {
        Ok(number(&other, waits).await? == 1)
    })
    .await?;
    assert_eq!(number(&other, ROWS).await?, 1);
    of_jobs.run("COMMIT").await?;
    eventually(BOUND, "replay goes on", async || {
        Ok(number(&other, ROWS).await? == 2)
    })
    .await?;
    Ok(())
}
