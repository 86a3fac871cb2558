//! A long-running reconciler of the mail example: mails that stay in a state, and a database that
//! ends its connection.

use std::time::Duration;

use posthaste::Backoff;
use posthaste_testkit::{Sql as _, eventually};
use serde_json::json;
use tokio_postgres::Client;
use uuid::Uuid;

use super::reconcile::{POLL_INTERVAL, Provider, Reconciler};
use super::{Setup, UnqueryableProvider};
use crate::support::SOON;

/// Inserts mails that have been in this state for a day, and have no task.
async fn waiting(setup: &Setup, state: &str, count: i32) {
    let waiting = "INSERT INTO mail_deliveries
              (delivery_id, recipient, subject, body, state, changed_at)
       SELECT gen_random_uuid(), 'ada@example.com', 'Welcome', 'Hi.', $1, now() - interval '1 day'
         FROM generate_series(1, $2)";
    let client = &setup.client;
    client.execute(waiting, &[&state, &count]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stuck_mails_do_not_block_others() {
    let test = "stuck_mails_do_not_block_others";
    let Some(setup) = Setup::new(test).await else {
        return;
    };
    for state in ["failed", "unknown"] {
        waiting(&setup, state, 101).await;
    }
    // Its task is lost: the queue never had it.
    let id = setup.ordered().await;
    let reconciler = setup.reconciler(UnqueryableProvider);
    let mut moved = Vec::new();
    for _ in 0..3 {
        moved.push(reconciler.pass().await.unwrap());
    }
    assert_eq!(
        (moved.iter().sum::<usize>(), setup.task(id)),
        (1, "pending".into()),
        "{moved:?}"
    );
}

/// Returns the process that listens for mails now.
async fn listener(client: &Client) -> Option<i32> {
    let listener = "SELECT pid FROM pg_stat_activity
         WHERE datname = current_database() AND query = 'LISTEN mail_deliveries'";
    let row = client.query_opt(listener, &[]).await.unwrap();
    row.map(|row| row.get(0))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reconciler_survives_failed_passes_and_lost_connections() {
    let test = "the_reconciler_survives_failed_passes_and_lost_connections";
    let Some(setup) = Setup::new(test).await else {
        return;
    };
    let client = &setup.client;
    let reconciler = Reconciler {
        retries_failed: true,
        poll_interval: Duration::from_secs(3600),
        ..setup.reconciler(UnqueryableProvider)
    };
    let url = setup.db.url().to_owned();
    let reconciling = tokio::spawn(async move { reconciler.run(&url).await });
    let listens = async || Ok(listener(client).await.is_some());
    eventually(SOON, "it listens", listens).await.unwrap();
    let first = listener(client).await;
    let away = "ALTER TABLE mail_deliveries RENAME TO away";
    client.run(away).await.unwrap();
    let end = "SELECT pg_terminate_backend($1)";
    client.execute(end, &[&first]).await.unwrap();
    eventually(SOON, "it listens again", async || {
        let now = listener(client).await;
        Ok(now.is_some() && now != first)
    })
    .await
    .unwrap();
    let back = "ALTER TABLE away RENAME TO mail_deliveries";
    client.run(back).await.unwrap();
    let id = setup.order().await;
    setup.queue.take().await.unwrap().unwrap();
    let fails = "UPDATE mail_deliveries SET state = 'failed' WHERE delivery_id = $1";
    client.execute(fails, &[&id]).await.unwrap();
    // It is notified: it polls only every hour.
    let queued = async || Ok(setup.state(id).await == "queued");
    eventually(SOON, "it is notified", queued).await.unwrap();
    assert!(!reconciling.is_finished());
    reconciling.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reconciler_passes_drain_everything_and_run_every_ten_seconds() {
    let test = "reconciler_passes_drain_everything_and_run_every_ten_seconds";
    let Some(setup) = Setup::new(test).await else {
        return;
    };
    waiting(&setup, "queued", 250).await;
    assert_eq!(
        setup.reconciler(UnqueryableProvider).pass().await.unwrap(),
        250
    );
    let pending = ["LLEN", "asynq:{mail}:pending"];
    assert_eq!(setup.redis.ask(&pending).unwrap(), json!(250));
    assert_eq!(POLL_INTERVAL, Duration::from_secs(10));
    // No notification reports a mail whose task is lost.
    let (reconciler, url) = (
        setup.reconciler(UnqueryableProvider),
        setup.db.url().to_owned(),
    );
    let reconciling = tokio::spawn(async move { reconciler.run(&url).await });
    let listens = async || Ok(listener(&setup.client).await.is_some());
    eventually(SOON, "it listens", listens).await.unwrap();
    let id = setup.ordered().await;
    let queued = async || Ok(setup.task(id) == "pending");
    eventually(SOON, "it is queued", queued).await.unwrap();
    reconciling.abort();
}

/// A provider that has no mail.
struct Lacking;

impl Provider for Lacking {
    async fn has(&self, _id: Uuid) -> Option<bool> {
        Some(false)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mails_missing_at_the_provider_are_resent_with_backoff() {
    let test = "mails_missing_at_the_provider_are_resent_with_backoff";
    let Some(setup) = Setup::new(test).await else {
        return;
    };
    setup.server.set_behaviour(&json!({ "cut": true })).unwrap();
    let reconciler = Reconciler {
        resends: Backoff {
            base: Duration::from_secs(1000),
            cap: Duration::from_secs(1500),
        },
        ..setup.reconciler(Lacking)
    };
    let later = async |seconds: f64| {
        let later =
            "UPDATE mail_deliveries SET changed_at = changed_at - make_interval(secs => $1),
             looked_at = looked_at - make_interval(secs => $1)";
        setup.client.execute(later, &[&seconds]).await.unwrap();
    };
    let id = setup.order().await;
    for (attempt, pause) in [(1, 1000.0), (2, 1500.0), (3, 1500.0)] {
        setup.work_until(id, "unknown").await;
        assert_eq!(setup.mails(), attempt);
        assert_eq!(reconciler.pass().await.unwrap(), 0, "it has just been sent");
        later(pause - 100.0).await;
        assert_eq!(reconciler.pass().await.unwrap(), 0, "attempt {attempt}");
        later(100.0).await;
        assert_eq!(reconciler.pass().await.unwrap(), 1, "attempt {attempt}");
        assert_eq!(setup.state(id).await, "queued");
    }
}
