//! Enqueue by COPY: it writes the same rows as enqueue, and may take long.

use jiff::{SignedDuration, Timestamp};
use posthaste::{NewJob, Outcome, enqueue_copy, enqueue_many};
use posthaste_testkit::{PgVersion, Sql as _};
use serde_json::json;
use tokio_postgres::{Client, IsolationLevel};

use crate::stress::store::Store;
use crate::support::{all_done, count, database, unfinished, worker};

fn every_kind() -> Vec<NewJob> {
    let job = |name: &str| {
        let kwargs =
            json!({"text": "\"quoted\", \\ and \u{1F680}", "deep": [[1, 2.50]], "none": null});
        NewJob::new(name, &kwargs).unwrap()
    };
    let year = Timestamp::now() + SignedDuration::from_hours(24 * 365);
    vec![
        job("plain"),
        job("mail.x"),
        job("late").scheduled_at("2001-01-01T00:00:00Z".parse().unwrap()),
        job("scheduled").scheduled_at(year),
        job("mail.ordered").ordering_key("key").priority(3),
        job("ordered")
            .ordering_key("key")
            .scheduled_at(year)
            .queue("mine"),
        job("full")
            .queue("q'ueue")
            .priority(-7)
            .scheduled_at(year)
            .expires_at(year + SignedDuration::from_hours(1))
            .tag("t\u{e4}g")
            .max_attempts(None)
            .trace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 a=b"),
    ]
}

/// Returns the rows of the store, except for ids and times of enqueue.
async fn rows(client: &Client) -> Vec<String> {
    let sql = "SELECT concat_ws(' | ', slot, queue, name, priority, tag, coalesce(max_attempts, 0),
                      ordering_key, coalesce(own_queue, '-'), coalesce(own_priority, -1),
                      kwargs_bytes, kwargs, attempt, crashes,
                      CASE WHEN scheduled_at - enqueued_at BETWEEN interval '-1 minute'
                        AND interval '1 minute' THEN 'due' ELSE scheduled_at::text END,
                      CASE WHEN expires_at - greatest(scheduled_at, enqueued_at) BETWEEN interval
                        '30 days -1 minute' AND interval '30 days 1 minute'
                           THEN 'default' ELSE expires_at::text END,
                      unique_key, last_error, trace)
                 FROM posthaste.store ORDER BY id";
    client.rows(sql).await.unwrap()
}

#[tokio::test]
async fn copy_matches_enqueue_many_in_every_isolation_level() {
    for version in PgVersion::tried() {
        let routes = "INSERT INTO posthaste.route VALUES ('mail.*', 'mail')";
        let jobs = every_kind();
        let db = database(version).await;
        let client = db.client().await.unwrap();
        client.run(routes).await.unwrap();
        enqueue_many(&client, &jobs).await.unwrap();
        let expected = rows(&client).await;
        assert_eq!(expected.len(), jobs.len());
        for level in [
            IsolationLevel::ReadCommitted,
            IsolationLevel::RepeatableRead,
            IsolationLevel::Serializable,
        ] {
            let db = database(version).await;
            let mut client = db.client().await.unwrap();
            client.run(routes).await.unwrap();
            let tx = client.build_transaction().isolation_level(level);
            let tx = tx.start().await.unwrap();
            assert_eq!(enqueue_copy(&tx, &jobs).await.unwrap(), 7);
            tx.rollback().await.unwrap();
            assert_eq!(unfinished(&client).await, 0, "rolled back");
            let tx = client.build_transaction().isolation_level(level);
            let tx = tx.start().await.unwrap();
            assert_eq!(enqueue_copy(&tx, jobs.clone()).await.unwrap(), 7);
            tx.commit().await.unwrap();
            assert_eq!(rows(&client).await, expected, "{level:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copied_jobs_run_when_they_are_due() {
    let db = database(PgVersion::any()).await;
    let mut client = db.client().await.unwrap();
    let worker = worker(&db.pool(4).unwrap())
        .queue("default", 8)
        .handler("n", |_, _| async { Ok(Outcome::Done) })
        .start()
        .await
        .unwrap();
    let soon = Timestamp::now() + SignedDuration::from_secs(1);
    let jobs = (0..3000).map(|n| {
        let job = NewJob::new("n", &json!({ "n": n })).unwrap();
        if n % 2 == 0 {
            job.scheduled_at(soon)
        } else {
            job
        }
    });
    let tx = client.transaction().await.unwrap();
    assert_eq!(enqueue_copy(&tx, jobs).await.unwrap(), 3000);
    tx.commit().await.unwrap();
    all_done(&client).await;
    worker.stop().await.unwrap();
    assert_eq!(count(&client, "dead").await, 0);
}

#[tokio::test]
async fn copy_names_the_invalid_job_and_inserts_nothing() {
    let db = database(PgVersion::any()).await;
    let mut client = db.client().await.unwrap();
    let good = || NewJob::new("n", &json!({})).unwrap();
    for (bad, field) in [
        (good().unique_key("k"), "unique_key"),
        (good().queue(""), "queue"),
        (good().max_attempts(Some(0)), "max_attempts"),
    ] {
        let tx = client.transaction().await.unwrap();
        let jobs = std::iter::repeat_n(good(), 1000).chain([bad]);
        let refused = enqueue_copy(&tx, jobs).await.unwrap_err();
        assert!(refused.to_string().starts_with(field), "{refused}");
        // The transaction has failed, whatever its owner does next.
        assert!(tx.batch_execute("SELECT 1").await.is_err());
        let _ = tx.commit().await;
        assert_eq!(unfinished(&client).await, 0);
    }
    let sql = "SET ROLE posthaste_producer";
    posthaste::grant_roles(&mut client).await.unwrap();
    client.run(sql).await.unwrap();
    let tx = client.transaction().await.unwrap();
    enqueue_copy(&tx, every_kind()).await.unwrap();
    tx.commit().await.unwrap();
}

/// Segments are rotated and sealed where possible during a COPY.
#[tokio::test(flavor = "multi_thread")]
async fn segments_stay_unsealed_during_a_copy() {
    let db = database(PgVersion::any()).await;
    let mut client = db.client().await.unwrap();
    let store = Store::new(db.url()).await.unwrap();
    let turn = async || {
        store
            .say("SELECT posthaste.enqueue('other')")
            .await
            .unwrap();
        store.say("SELECT posthaste.rotate(0)").await.unwrap();
        let other = store.claim_all().await.unwrap();
        assert_eq!(other.len(), 1, "what COPY has not committed is not seen");
        store.finish(&other).await.unwrap();
        store.say("SELECT posthaste.seal()").await.unwrap();
    };
    let tx = client.transaction().await.unwrap();
    let jobs = (0..2000).map(|n| {
        if n == 1000 {
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(turn()));
        }
        NewJob::new("n", &json!({ "n": n })).unwrap()
    });
    assert_eq!(enqueue_copy(&tx, jobs).await.unwrap(), 2000);
    turn().await;
    let scan = "SELECT ready_scan FROM posthaste.segments()";
    assert_eq!(store.value::<i64>(scan, &[]).await.unwrap(), 0, "sealed");
    tx.commit().await.unwrap();
    let mut come = store.claim_all().await.unwrap();
    assert_eq!(come.len(), 2000);
    for batch in come.chunk_by(|one, other| one.batch == other.batch) {
        store.done(batch).await.unwrap();
    }
    store.say("SELECT posthaste.seal()").await.unwrap();
    come = store.claim_all().await.unwrap();
    assert_eq!((come.len(), store.unfinished().await.unwrap()), (0, 0));
    assert_eq!(
        store.value::<i64>(scan, &[]).await.unwrap(),
        1,
        "sealed now"
    );
}
