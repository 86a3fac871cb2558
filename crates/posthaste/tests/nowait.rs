//! Unique keys without waiting: a conflict with an open transaction is reported at once.

use posthaste::{JobId, NewJob, enqueue, enqueue_nowait};
use posthaste_testkit::{PgVersion, Sql as _, TestResult, eventually};
use serde_json::json;
use tokio_postgres::{Client, IsolationLevel, Transaction};

use crate::support::{SOON, database, unfinished};

fn keyed(key: &str) -> NewJob {
    NewJob::new("n", &json!({})).unwrap().unique_key(key)
}

/// Enqueues without waiting, while the other transaction stays open: a statement that waited for it
/// would wait forever.
async fn at_once(tx: &Transaction<'_>, key: &str) -> Result<Option<JobId>, posthaste::Error> {
    let job = keyed(key);
    let answer = tokio::time::timeout(SOON, enqueue_nowait(tx, &job));
    answer.await.expect("it waits")
}

async fn begin(client: &mut Client, level: IsolationLevel) -> Transaction<'_> {
    let tx = client.build_transaction().isolation_level(level);
    let tx = tx.start().await.unwrap();
    tx.run("SELECT FROM posthaste.job").await.unwrap();
    tx
}

#[tokio::test]
async fn concurrently_taken_unique_keys_fail_at_once_in_every_isolation_level() {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let (mut caller, mut other) = (db.client().await.unwrap(), db.client().await.unwrap());
        for level in [
            IsolationLevel::ReadCommitted,
            IsolationLevel::RepeatableRead,
            IsolationLevel::Serializable,
        ] {
            let key = format!("{level:?}");
            let taking = other.transaction().await.unwrap();
            let holder = enqueue(&taking, &keyed(&key)).await.unwrap();
            let tx = begin(&mut caller, level).await;
            assert_eq!(at_once(&tx, &key).await.unwrap(), None, "{level:?}");
            // The transaction continues, and waits for others as it did before.
            let free = at_once(&tx, &format!("free {key}")).await.unwrap();
            assert_ne!(free, None, "{level:?}");
            let timeout = tx.query_one("SHOW lock_timeout", &[]).await.unwrap();
            assert_eq!(timeout.get::<_, &str>(0), "0", "{level:?}");
            taking.commit().await.unwrap();
            let answer = at_once(&tx, &key).await;
            match level {
                IsolationLevel::ReadCommitted => assert_eq!(answer.unwrap(), Some(holder)),
                _ => {
                    let refused = answer.unwrap_err();
                    let code = refused.sqlstate().map(|state| state.code());
                    assert_eq!(code, Some("40001"), "{level:?}");
                }
            }
            tx.rollback().await.unwrap();
            let tx = begin(&mut caller, level).await;
            assert_eq!(at_once(&tx, &key).await.unwrap(), Some(holder), "{level:?}");
            tx.commit().await.unwrap();
        }
        assert_eq!(unfinished(&caller).await, 3, "one job for each key");
    }
}

#[tokio::test]
async fn unique_keys_stay_taken_while_their_job_is_ending() {
    let db = database(PgVersion::any()).await;
    let (mut caller, mut other) = (db.client().await.unwrap(), db.client().await.unwrap());
    let holder = enqueue(&other, &keyed("k")).await.unwrap();
    let ending = other.transaction().await.unwrap();
    let cancel = "SELECT posthaste.cancel($1)";
    ending.query(cancel, &[&holder.0]).await.unwrap();
    let tx = caller.transaction().await.unwrap();
    assert_eq!(at_once(&tx, "k").await.unwrap(), Some(holder));
    ending.commit().await.unwrap();
    let next = at_once(&tx, "k").await.unwrap();
    assert!(next.is_some() && next != Some(holder), "{next:?}");
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn nowait_does_not_affect_jobs_without_a_key() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let plain = NewJob::new("n", &json!({})).unwrap();
    assert!(enqueue_nowait(&client, &plain).await.unwrap().is_some());
    let sql = "SELECT posthaste.enqueue_nowait('n', queue => 'q', unique_key => 'k')";
    let id: Option<i64> = client.one(sql).await.unwrap();
    assert_eq!((id.is_some(), unfinished(&client).await), (true, 2));
}

#[tokio::test]
async fn nowait_enqueues_still_wait_for_a_segment_lock() -> TestResult {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let (mut caller, other) = (db.client().await?, db.client().await?);
        let watch = db.client().await?;
        let segment = "SELECT pg_advisory_lock(1885893473, \
                       posthaste.position('posthaste.ready_current')::integer)";
        for key in [None, Some("k")] {
            other.run(segment).await?;
            let tx = caller.transaction().await?;
            let mut job = NewJob::new("n", &json!({}))?;
            if let Some(key) = key {
                job = job.unique_key(key);
            }
            let enqueues = enqueue_nowait(&tx, &job);
            let lets_go = async {
                eventually(SOON, "the enqueue waits", async || {
                    let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' \
                                   AND NOT granted AND classid = 1885893473 AND database = \
                                     (SELECT oid FROM pg_database \
                                       WHERE datname = current_database())";
                    Ok(watch.one::<i64>(waiting).await? == 1)
                })
                .await
                .unwrap();
                other.run("SELECT pg_advisory_unlock_all()").await.unwrap();
            };
            let (id, ()) = tokio::join!(enqueues, lets_go);
            assert!(id.unwrap().is_some(), "{key:?}");
            tx.commit().await?;
        }
        assert_eq!(unfinished(&watch).await, 2);
    }
    Ok(())
}
