//! Servers whose timeline never changes, such as Neon's: a branch of a database, and a database
//! that was reset in place, have the original's system identifier and timeline.

use posthaste_testkit::{PgServer, PgVersion, TestDb, TestResult, connect, eventually};
use tokio_postgres::Client;

use super::{Runs, delivery, of, start};
use crate::support::{self, SOON, number};

const NEON: (&str, &str) = ("neon.timeline_id", "de0d91291a65604069eccc8a3e7bf81c");

async fn runs_job(client: &Client, runs: &Runs, name: &'static str) -> i64 {
    let job = format!("SELECT posthaste.enqueue('{name}')");
    let job = number(client, &job).await;
    eventually(SOON, name, async || Ok(of(runs, name) > 0))
        .await
        .unwrap();
    job
}

async fn timeline(client: &Client) -> i64 {
    let timeline = "SELECT timeline_id::bigint FROM pg_control_checkpoint()";
    number(client, timeline).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn branches_on_the_same_timeline_give_different_delivery_ids() -> TestResult {
    let original = PgServer::start(PgVersion::any(), &[NEON])?;
    let db = support::migrated(&original).await;
    let (worker, runs) = start(&db.pool(2)?, Some("production"), &["default"]).await?;
    let client = db.client().await?;
    let first = runs_job(&client, &runs, "first").await;
    eventually(SOON, "the leader has recorded its id", async || {
        let known = "SELECT last_value FROM posthaste.known_id";
        Ok(number(&client, known).await >= first)
    })
    .await?;
    let given = delivery(&client, first).await?;
    drop(client);

    // The original restarts too, so that both advance their sequences equally.
    let branch = tokio::task::block_in_place(|| {
        let branch = original.start_of_files(&[NEON])?;
        original.stop_immediate()?;
        original.restart()?;
        anyhow::Ok(branch)
    })
    .unwrap();
    let copy = TestDb::of(&branch, db.name());
    let client = db.client().await?;
    let there = connect(&branch.url(db.name())).await?;

    for site in [None, Some("preview")] {
        let (waiting, _) = start(&copy.pool(2)?, site, &["default"]).await?;
        eventually(SOON, "a branch of another site waits", async || {
            Ok(waiting.refused().is_some())
        })
        .await?;
        waiting.stop().await?;
    }
    // With the name of its site it is the original database, reset in place.
    let (working, runs_there) = start(&copy.pool(2)?, Some("production"), &["default"]).await?;
    let newest = runs_job(&client, &runs, "second")
        .await
        .max(runs_job(&there, &runs_there, "second").await);
    assert_eq!((timeline(&client).await, timeline(&there).await), (1, 1));
    assert_ne!(
        delivery(&client, newest).await?,
        delivery(&there, newest).await?
    );
    for client in [&client, &there] {
        let still = delivery(client, first).await?;
        assert_eq!(still, given, "an id that was given stays");
    }
    worker.stop().await?;
    working.stop().await?;
    Ok(())
}
