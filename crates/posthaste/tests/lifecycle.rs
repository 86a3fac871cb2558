//! The life of a job under a real worker: each outcome, each failure, and whether an attempt is
//! counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use posthaste::{JobArgs, NewJob, Outcome, enqueue};
use posthaste_testkit::{PgVersion, Sql as _, TestResult, eventually};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_postgres::Client;

use crate::support::{
    SOON, all_done, connected, count, hand, quick_queue as queue, unfinished, worker,
};

pub fn job(name: &str) -> NewJob {
    NewJob::new(name, &json!({})).unwrap()
}

pub async fn state(client: &Client, id: i64) -> Option<(String, i32, Option<String>)> {
    let row = client
        .query_opt(
            "SELECT state, attempt, last_error FROM posthaste.job WHERE id = $1",
            &[&id],
        )
        .await
        .unwrap();
    row.map(|row| (row.get(0), row.get(1), row.get(2)))
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_all_priorities_run_and_leave_no_rows() -> TestResult {
    for version in PgVersion::tried() {
        let (db, client) = connected(version).await?;
        client
            .run(
                "INSERT INTO posthaste.job (name, priority, kwargs) \
                 SELECT 'n', g % 7 - 3, jsonb_build_object('n', g) FROM generate_series(1, 2000) g",
            )
            .await?;
        let sum = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&sum);
        let worker = worker(&db.pool(4)?)
            .queue("default", 8)
            .handler("n", move |_, job| {
                let seen = Arc::clone(&seen);
                async move {
                    let n = job.kwargs::<serde_json::Value>()?["n"]
                        .as_u64()
                        .ok_or("no n")?;
                    seen.fetch_add(n, Ordering::SeqCst);
                    Ok(Outcome::Done)
                }
            })
            .start()
            .await?;
        all_done(&client).await;
        assert_eq!(sum.load(Ordering::SeqCst), 2000 * 2001 / 2, "each job once");
        worker.stop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_outcome_sets_the_documented_state_and_attempts() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let hour = || Timestamp::now() + SignedDuration::from_hours(1);
    let worker = worker(&db.pool(4)?)
        .queue_config(queue())
        .handler("retry", |_, _| async {
            Ok(Outcome::Retry {
                after: Some(Duration::from_secs(3600)),
            })
        })
        .handler("snooze", move |_, _| async move {
            Ok(Outcome::Snooze { until: hour() })
        })
        .handler("await", move |_, _| async move {
            Ok(Outcome::Await { until: hour() })
        })
        .handler("discard", |_, _| async {
            Ok(Outcome::Discard {
                reason: "not\nwanted".into(),
            })
        })
        .handler("fail", |_, _| async { Err("no\0 luck".into()) })
        .start()
        .await?;
    let mut ids = std::collections::HashMap::new();
    for name in ["retry", "snooze", "await", "discard", "unknown"] {
        ids.insert(name, enqueue(&client, &job(name)).await?.0);
    }
    ids.insert(
        "fail",
        enqueue(&client, &job("fail").max_attempts(Some(3)))
            .await?
            .0,
    );
    let expected = [
        ("retry", "retrying", 1, None),
        ("snooze", "scheduled", 0, None),
        ("await", "awaiting", 0, None),
        ("discard", "discarded", 1, Some("not wanted")),
        (
            "unknown",
            "scheduled",
            0,
            Some("no handler knows the job name unknown"),
        ),
        ("fail", "dead", 3, Some("no  luck")),
    ];
    for (name, state_name, attempt, error) in expected {
        let wanted = (state_name.to_owned(), attempt, error.map(str::to_owned));
        eventually(SOON, name, async || {
            Ok(state(&client, ids[name]).await == Some(wanted.clone()))
        })
        .await
        .unwrap_or_else(|late| panic!("{late}"));
    }
    let confirmed: bool = client
        .one_with(
            "SELECT posthaste.confirm(posthaste.delivery_id($1))",
            &[&ids["await"]],
        )
        .await?;
    assert!(confirmed);
    assert_eq!(
        state(&client, ids["await"]).await,
        None,
        "a confirmed job is done"
    );
    let foreign: bool = client
        .one("SELECT posthaste.confirm(gen_random_uuid())")
        .await?;
    assert!(!foreign, "an id of another database confirms nothing");
    worker.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_jobs_are_retried_until_they_succeed() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let tries = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&tries);
    let worker = worker(&db.pool(4)?)
        .queue_config(queue())
        .handler("third", move |_, job| {
            let seen = Arc::clone(&seen);
            async move {
                assert_eq!(
                    u64::try_from(job.attempt)?,
                    seen.fetch_add(1, Ordering::SeqCst) + 1,
                    "attempts count up, from 1"
                );
                if job.attempt < 3 {
                    Err("not yet".into())
                } else {
                    Ok(Outcome::Done)
                }
            }
        })
        .start()
        .await?;
    enqueue(&client, &job("third").max_attempts(None)).await?;
    all_done(&client).await;
    assert_eq!(tries.load(Ordering::SeqCst), 3);
    worker.stop().await?;
    Ok(())
}

#[derive(Deserialize, Serialize)]
struct Mail {
    to: Vec<Address>,
}

impl JobArgs for Mail {
    const NAME: &'static str = "mail";
}

#[derive(Deserialize, Serialize)]
struct Address {
    host: String,
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_arguments_fail_the_attempt_and_name_the_field() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let ran = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&ran);
    let worker = worker(&db.pool(4)?)
        .queue_config(queue())
        .job(move |context, mail: Mail| {
            let seen = Arc::clone(&seen);
            async move {
                assert_eq!(&*context.job().tag, mail.to[0].host);
                seen.fetch_add(1, Ordering::SeqCst);
            }
        })
        .start()
        .await?;
    let mut refused = Vec::new();
    for (kwargs, error) in [
        (json!({ "to": [{ "host": "a" }], "also": 1 }), None),
        (
            json!({ "to": [{ "host": "a" }, { "host": 7 }] }),
            Some("kwargs.to[1].host: invalid type: integer `7`, expected a string"),
        ),
        (
            json!({ "to": [{}] }),
            Some("kwargs.to[0]: missing field `host`"),
        ),
        (json!({}), Some("kwargs: missing field `to`")),
    ] {
        let mail = NewJob::new("mail", &kwargs)?.tag("a");
        let id = enqueue(&client, &mail.max_attempts(Some(2))).await?;
        refused.extend(error.map(|error| (id.0, error)));
    }
    for (id, error) in refused {
        eventually(SOON, "it is dead", async || {
            Ok(state(&client, id)
                .await
                .is_some_and(|(state, ..)| state == "dead"))
        })
        .await?;
        let (_, attempt, message) = state(&client, id).await.unwrap();
        let message = message.unwrap();
        assert_eq!(attempt, 2, "each reading counts as an attempt");
        assert!(message.starts_with(error), "{message}");
    }
    assert_eq!(unfinished(&client).await, 3);
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    worker.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_jobs_are_detected_without_a_consumer_and_never_run() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    client
        .run(
            "INSERT INTO posthaste.job (name, queue, expires_at)
             VALUES ('x', 'nobody', clock_timestamp() + interval '300 ms');
             INSERT INTO posthaste.job (name, queue, expires_at)
               VALUES ('x', 'default', clock_timestamp() - interval '1 s');
             INSERT INTO posthaste.job (name, queue, scheduled_at, expires_at)
             VALUES ('x', 'nobody', clock_timestamp() + interval '1 hour',
               clock_timestamp() + interval '300 ms');
             INSERT INTO posthaste.job (name, queue) VALUES ('x', 'nobody')",
        )
        .await?;
    let ran = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&ran);
    let worker = worker(&db.pool(4)?)
        .queue("default", 2)
        .handler("x", move |_, _| {
            seen.fetch_add(1, Ordering::SeqCst);
            async { Ok(Outcome::Done) }
        })
        .start()
        .await?;
    let kept = async || {
        Ok(client
            .one::<i64>("SELECT count(*) FROM posthaste.dead WHERE state = 'expired'")
            .await?
            == 3)
    };
    eventually(SOON, "three jobs are kept as expired", kept).await?;
    assert_eq!(
        (count(&client, "expired").await, unfinished(&client).await),
        (3, 4),
        "each is shown once"
    );
    worker.stop().await?;
    assert_eq!(ran.load(Ordering::SeqCst), 0, "an expired job never runs");
    // A later consumer of the queue finds only the job that has not expired.
    let late = hand(&client).await;
    let claimed = client
        .query(
            "SELECT id FROM posthaste.claim('nobody', '{0}', $1, gen_random_uuid(), 10, 1000000)",
            &[&late],
        )
        .await?;
    assert_eq!(claimed.len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn new_priorities_are_found_without_a_notification() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let worker = worker(&db.pool(4)?)
        .queue("default", 2)
        .handler("x", |_, _| async { Ok(Outcome::Done) })
        .start()
        .await?;
    for priority in [1000, -2_000_000_000, 2_147_483_647, -2_147_483_648, 5] {
        enqueue(&client, &job("x").priority(priority)).await?;
        all_done(&client).await;
    }
    let lanes: i64 = client
        .one("SELECT count(*) FROM posthaste.lane WHERE queue = 'default'")
        .await?;
    assert_eq!(lanes, 5);
    worker.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unique_keys_are_released_by_every_outcome() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let worker = worker(&db.pool(4)?)
        .queue_config(queue())
        .handler("done", |_, _| async { Ok(Outcome::Done) })
        .handler("discard", |_, _| async {
            Ok(Outcome::Discard {
                reason: "no".into(),
            })
        })
        .handler("dead", |_, _| async { Err("no".into()) })
        .start()
        .await?;
    for name in ["done", "discard", "dead"] {
        enqueue(&client, &job(name).unique_key(name).max_attempts(Some(1))).await?;
    }
    enqueue(
        &client,
        &job("done")
            .unique_key("expired")
            .expires_at(Timestamp::now() - SignedDuration::from_secs(1)),
    )
    .await?;
    let free = async || {
        Ok(client
            .one::<i64>("SELECT count(*) FROM posthaste.unique_key")
            .await?
            == 0)
    };
    eventually(SOON, "all keys are released", free).await?;
    worker.stop().await?;
    Ok(())
}
