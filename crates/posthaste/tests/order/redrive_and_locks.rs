//! Ordering keys across segments, redriven jobs, ends of turns, and locked lanes.

use posthaste::{JobId, State};
use posthaste_testkit::{PgVersion, Sql as _};

use super::without_workers::Store;
use crate::support::{database, jobs};

#[tokio::test]
async fn order_holds_across_segments_and_redrives() {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let store = Store::new(db.client().await.unwrap()).await;
        // More jobs than one step takes, then one of the key, then a new segment with the next.
        let others = "SELECT count(posthaste.enqueue('x', ordering_key => 'other' || g)) \
                      FROM generate_series(1, 1000) g";
        store.number(others).await;
        let first = store.enqueue(1).await;
        store
            .number("SELECT setval('posthaste.ready_current', 1)")
            .await;
        let second = store.enqueue(2).await;
        while store.turns().await > 0 {}
        let state = async |id: i64| -> String {
            let sql = "SELECT state FROM posthaste.job WHERE id = $1";
            let row = store.client.query_one(sql, &[&id]).await.unwrap();
            row.get(0)
        };
        assert_eq!(state(first).await, "available");
        assert_eq!(state(second).await, "blocked");
        // A redriven job goes to the end, even if it gets its turn together with younger ones.
        let cancel = "SELECT posthaste.cancel($1)";
        store.client.execute(cancel, &[&first]).await.unwrap();
        store.client.execute(cancel, &[&second]).await.unwrap();
        while store.turns().await > 0 {}
        let third = store.enqueue(3).await;
        let redrive = "SELECT posthaste.redrive(ARRAY[$1::bigint])";
        store.client.execute(redrive, &[&first]).await.unwrap();
        while store.turns().await > 0 {}
        assert_eq!(state(third).await, "available");
        assert_eq!(state(first).await, "blocked");
    }
}

#[tokio::test]
async fn internal_turn_end_rows_cannot_be_cancelled() {
    let db = database(PgVersion::any()).await;
    let store = Store::new(db.client().await.unwrap()).await;
    store.enqueue(1).await;
    store.turns().await;
    let job = store.claim().await.expect("the job");
    store.settle(&job, 0).await;
    let end = "SELECT max(id) FROM posthaste.store WHERE queue = '' AND priority = 1";
    let end = store.number(end).await;
    let cancelled = store
        .client
        .query(
            "SELECT * FROM posthaste.cancel_many(ARRAY[$1::bigint])",
            &[&end],
        )
        .await
        .unwrap();
    assert!(cancelled.is_empty());
    assert_eq!(store.number("SELECT count(*) FROM posthaste.dead").await, 0);
    let next = store.enqueue(2).await;
    assert_eq!(store.next().await, next);
}

#[tokio::test]
async fn a_locked_lane_delays_only_its_ordered_jobs() {
    let db = database(PgVersion::any()).await;
    let store = Store::new(db.client().await.unwrap()).await;
    let id = store.enqueue(1).await;
    let other = db.client().await.unwrap();
    let hold = "BEGIN; SELECT pg_advisory_xact_lock(1885893475, posthaste.lane_key('', 0))";
    other.run(hold).await.unwrap();
    assert_eq!(store.turns().await, 0);
    other.run("ROLLBACK").await.unwrap();
    assert_eq!(store.next().await, id);
}

#[tokio::test]
async fn cancelled_and_deleted_ordered_jobs_are_forgotten() {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let store = Store::new(db.client().await.unwrap()).await;
        let first = store.enqueue(1).await;
        let (second, third) = (store.enqueue(2).await, store.enqueue(3).await);
        store.turns().await;
        let state = async |id: i64| {
            let found = jobs(&store.client).find(JobId(id)).await.unwrap();
            found.map(|job| job.state)
        };
        assert_eq!(state(second).await, Some(State::Blocked));
        let cancel = "SELECT posthaste.cancel($1)";
        store.client.execute(cancel, &[&second]).await.unwrap();
        assert_eq!(state(second).await, Some(State::Cancelled));
        let delete = "DELETE FROM posthaste.dead WHERE id = $1";
        store.client.execute(delete, &[&second]).await.unwrap();
        assert_eq!(state(second).await, None);
        // A job that waited for its turn and is done is known to be done.
        let job = store.claim().await.expect("the first");
        store.settle(&job, 0).await;
        assert_eq!(store.next().await, third);
        assert_eq!(state(first).await, Some(State::Completed));
        assert_eq!(state(third).await, Some(State::Running));
    }
}
