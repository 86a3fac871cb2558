//! The rate of a queue: at most this many jobs per time, by all workers together.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use posthaste::{NewJob, Outcome, enqueue_many};
use posthaste_testkit::{PgVersion, Sql as _, TestResult};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::{all_done, connected, database, hand, number, quick_queue, worker};

async fn jobs(client: &Client, count: usize) {
    let jobs = vec![NewJob::new("x", &serde_json::json!({})).unwrap(); count];
    enqueue_many(client, &jobs).await.unwrap();
}

#[tokio::test]
async fn all_workers_together_respect_a_queues_rate_limit() -> TestResult {
    for version in PgVersion::tried() {
        let (db, client) = connected(version).await?;
        client
            .run("SELECT posthaste.limit_rate('default', 50, '1 second', burst => 10)")
            .await?;
        jobs(&client, 60).await;
        let starts = Arc::new(Mutex::new(Vec::new()));
        let mut workers = Vec::new();
        for _ in 0..2 {
            let starts = Arc::clone(&starts);
            let started = worker(&db.pool(4)?)
                .queue_config(quick_queue())
                .handler("x", move |_, _| {
                    starts.lock().unwrap().push(Instant::now());
                    async { Ok(Outcome::Done) }
                })
                .start()
                .await?;
            workers.push(started);
        }
        all_done(&client).await;
        let starts = starts.lock().unwrap().clone();
        assert_eq!(starts.len(), 60);
        let (first, last) = (starts.iter().min().unwrap(), starts.iter().max().unwrap());
        // Ten at once, then one every 20 ms. A start may be reported late, so that the first counts
        // from a little later.
        let took = last.duration_since(*first);
        assert!(took >= Duration::from_millis(900), "{took:?}");
        for worker in workers {
            worker.stop().await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn rate_limits_count_claimed_jobs_and_return_the_wait() -> TestResult {
    for version in PgVersion::tried() {
        let (_db, client) = connected(version).await?;
        let worker = hand(&client).await;
        jobs(&client, 30).await;
        // Returns the number of claimed jobs, and the milliseconds until the next claim.
        let claim = async |limit: i32| -> (usize, Option<i64>) {
            let token = Uuid::new_v4();
            let rows = client
                .query(
                    "SELECT id, batch FROM posthaste.claim('default', '{0}', $1, $2, $3, 1000000)",
                    &[&worker, &token, &limit],
                )
                .await
                .unwrap();
            let again = rows
                .last()
                .filter(|row| row.get::<_, Option<i64>>(0).is_none());
            let wait = again.map(|row| row.get(1));
            (rows.len() - usize::from(wait.is_some()), wait)
        };
        let limit = async |sql: &str| client.batch_execute(sql).await;
        limit("SELECT posthaste.limit_rate('default', 10, '1 hour')").await?;
        assert_eq!(claim(4).await, (4, None));
        assert_eq!(claim(100).await, (6, Some(0)), "there may be more");
        let (none, wait) = claim(1).await;
        assert_eq!(none, 0);
        let wait = wait.expect("a time");
        assert!((300_000..=360_000).contains(&wait), "{wait}");
        // Another queue is not limited, and the limit can be removed and set again.
        limit("SELECT posthaste.limit_rate('default', NULL)").await?;
        assert_eq!(claim(5).await, (5, None));
        limit("SELECT posthaste.limit_rate('default', 1000000)").await?;
        assert_eq!(claim(100).await.0, 15);
        let refused = [
            "0",
            "-1",
            "1, '0 seconds'",
            "1, '2 years'",
            "1, NULL",
            "1, '1 second', 0",
        ];
        for arguments in refused {
            let sql = format!("SELECT posthaste.limit_rate('default', {arguments})");
            let error = limit(&sql).await.unwrap_err();
            assert_eq!(error.code().unwrap().code(), "22023", "{arguments}");
        }
    }
    Ok(())
}

/// A sequence that the call created would be missing in a logical replica of the store.
#[tokio::test]
async fn rate_limits_create_no_object_and_have_a_maximum_number() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let objects = "SELECT count(*) FROM pg_class";
    let before = number(&client, objects).await;
    let limit = "SELECT posthaste.limit_rate('q' || n, 5) FROM generate_series(1, 64) n";
    client.run(limit).await.unwrap();
    assert_eq!(number(&client, objects).await, before);
    let cells = "SELECT count(DISTINCT pace) FROM posthaste.queue";
    assert_eq!(number(&client, cells).await, 64);
    let again = "SELECT posthaste.limit_rate('q64', 6)";
    client.run(again).await.unwrap();
    let more = "SELECT posthaste.limit_rate('more', 5)";
    let refused = client.batch_execute(more).await.unwrap_err();
    let refused = refused.as_db_error().unwrap();
    assert_eq!(refused.code().code(), "54000", "{refused}");
    assert!(refused.hint().unwrap().contains("limit_rate"), "{refused}");
    let free = "SELECT posthaste.limit_rate('q1', NULL)";
    client.run(free).await.unwrap();
    client.run(more).await.unwrap();
    assert_eq!(number(&client, cells).await, 64);
}
