//! Claims commit asynchronously: a crash may lose them, and the batch numbers with them. A worker
//! that survives the crash must not close jobs that another worker has claimed since.

use posthaste_testkit::{PgServer, PgVersion};

use crate::stress::store::Store;
use crate::support;

async fn stale_workers_change_nothing(version: PgVersion) {
    // Only the crash may decide what reaches the disk: a full page of log would wake its writer.
    let server = PgServer::start(
        version,
        &[
            ("wal_writer_delay", "10s"),
            ("autovacuum", "off"),
            ("full_page_writes", "off"),
        ],
    )
    .expect("a server");
    let database = support::migrated(&server).await;
    let mut came_again = false;
    for _ in 0..5 {
        let store = Store::new(database.url()).await.unwrap();
        store.enqueue_many("contested", 5).await.unwrap();
        let forgotten = store.claim(5).await.unwrap();
        assert_eq!(forgotten.len(), 5);
        tokio::task::block_in_place(|| {
            server.stop_immediate().expect("a crash");
            server.restart().expect("a restart");
        });
        let (late, other) = (
            Store::new(database.url()).await.unwrap(),
            Store::new(database.url()).await.unwrap(),
        );
        let jobs = other.claim(5).await.unwrap();
        if jobs.is_empty() {
            // This claim had reached the disk; its owner still has it.
            late.finish(&forgotten).await.unwrap();
            continue;
        }
        came_again |= jobs[0].batch == forgotten[0].batch;
        assert!(
            late.done(&forgotten).await.is_err(),
            "it does not learn that its batch is lost"
        );
        for job in forgotten {
            assert!(
                !late.settle(job, 0, 0).await.unwrap(),
                "it closed another's job"
            );
        }
        other.done(&jobs).await.unwrap();
        assert_eq!(other.unfinished().await.unwrap(), 0);
        if came_again {
            posthaste_testkit::ran::count("forgotten", 1);
            return;
        }
    }
    panic!("in five crashes no batch number came again: the hazard was never met");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_claim_a_crash_lost_cannot_finish_jobs_claimed_again_on_15() {
    stale_workers_change_nothing(PgVersion::V15).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_claim_a_crash_lost_cannot_finish_jobs_claimed_again_on_18() {
    stale_workers_change_nothing(PgVersion::V18).await;
}
