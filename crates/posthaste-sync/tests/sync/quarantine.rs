//! Jobs of a killed process return in batches if that is harmless, and alone if they may have
//! crashed it twice. They block no other job.

use std::time::Duration;

use posthaste_testkit::eventually;

use super::{Setup, setup};
use crate::support::{SOON, number, unfinished};

/// Creates this many rows, whose jobs a dead worker had claimed.
async fn killed(setup: &Setup, rows: u32) {
    setup
        .run(&format!(
            "INSERT INTO note SELECT n, 'note' FROM generate_series(1, {rows}) n"
        ))
        .await;
    // Separate transactions, because a claim sees only committed rows.
    for step in [
        "INSERT INTO posthaste.worker (name) VALUES ('dying')",
        "SELECT posthaste.claim('sync.note', '{0}', max(id), gen_random_uuid(), 10000, 100000000) \
         FROM posthaste.worker",
        "SELECT posthaste.rescue(max(id), 0) FROM posthaste.worker",
    ] {
        setup.run(step).await;
    }
    let quarantined = "SELECT count(*) FROM posthaste.job WHERE state = 'quarantined'";
    assert_eq!(number(&setup.client, quarantined).await, i64::from(rows));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_a_killed_sync_return_in_batches() {
    let setup = setup().await;
    killed(&setup, 300).await;
    // The period is so long that only the first poll counts.
    let sync = setup.sync().batch(100).period(Duration::from_secs(3600));
    let (worker, sync) = setup.start(sync).await;
    eventually(SOON, "all are written", async || {
        Ok(sync.status().total("written") == 300)
    })
    .await
    .unwrap();
    assert_eq!(sync.status().passes, 3);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_backlog_after_a_killed_sync_is_processed_at_once() {
    let setup = setup().await;
    killed(&setup, 20).await;
    // These jobs are delivered one by one, while the poll checks the others.
    setup
        .run("UPDATE posthaste.in_flight SET crashes = 2")
        .await;
    setup
        .run("INSERT INTO note SELECT n, 'note' FROM generate_series(21, 1000) n")
        .await;
    let sync = setup.sync().batch(20).period(Duration::from_secs(3600));
    let (worker, sync) = setup.start(sync).await;
    eventually(SOON, "all are written", async || {
        Ok(sync.status().total("written") == 1_000)
    })
    .await
    .unwrap();
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeatedly_crashed_jobs_are_processed_alone() {
    let setup = setup().await;
    killed(&setup, 100).await;
    setup
        .run(
            "UPDATE posthaste.in_flight SET crashes = 2 WHERE (kwargs ->> 'id')::integer <= 4;
             UPDATE posthaste.in_flight SET max_attempts = 3
               WHERE (kwargs ->> 'id')::integer BETWEEN 5 AND 7",
        )
        .await;
    let sync = setup.sync().period(Duration::from_secs(3600));
    let (worker, sync) = setup.start(sync).await;
    eventually(SOON, "all are written", async || {
        Ok(sync.status().total("written") == 100)
    })
    .await
    .unwrap();
    let written = setup.index.writes.lock().unwrap().clone();
    let alone = |id: &str| ["1", "2", "3", "4", "5", "6", "7"].contains(&id);
    assert_eq!(sync.status().passes, 8);
    let token = |id: &str| written.iter().find(|one| one.id == id).unwrap().token;
    // Each pass has a token of its own.
    for one in &written {
        let is_alone = written
            .iter()
            .filter(|other| other.token == one.token)
            .count()
            == 1;
        assert_eq!(is_alone, alone(&one.id), "{}", one.id);
    }
    assert_eq!(token("8"), token("100"));
    assert_eq!(unfinished(&setup.client).await, 100);
    worker.stop().await.unwrap();
}
