//! The reconciler of the mail example, as it goes on for long: mails that stay where they are, and
//! a database that sends it away.

use std::time::Duration;

use posthaste_testkit::eventually;
use tokio_postgres::Client;

use super::reconcile::Reconciler;
use super::{Mute, Setup};
use crate::support::SOON;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mails_that_nobody_moves_on_stand_in_no_others_way() {
    let test = "mails_that_nobody_moves_on_stand_in_no_others_way";
    let Some(setup) = Setup::new(test).await else {
        return;
    };
    for state in ["failed", "unknown"] {
        let stuck = "INSERT INTO mail_deliveries (delivery_id, recipient, subject, body, state, changed_at)
            SELECT gen_random_uuid(), 'ada@example.com', 'Welcome', 'Hi.', $1, now() - interval '1 day' FROM generate_series(1, 101)";
        setup.client.execute(stuck, &[&state]).await.unwrap();
    }
    // Its task is lost: the queue has never heard of it.
    let id = setup.ordered().await;
    let reconciler = setup.reconciler(Mute);
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

/// Who listens for mails now.
async fn listener(client: &Client) -> Option<i32> {
    let listener = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query = 'LISTEN mail_deliveries'";
    let row = client.query_opt(listener, &[]).await.unwrap();
    row.map(|row| row.get(0))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reconciler_whose_listening_ends_or_whose_pass_fails_goes_on() {
    let test = "a_reconciler_whose_listening_ends_or_whose_pass_fails_goes_on";
    let Some(setup) = Setup::new(test).await else {
        return;
    };
    let client = &setup.client;
    let reconciler = Reconciler {
        retries_failed: true,
        ..setup.reconciler(Mute)
    };
    let url = setup.db.url().to_owned();
    let reconciling = tokio::spawn(async move { reconciler.run(&url).await });
    let listens = async || Ok(listener(client).await.is_some());
    eventually(SOON, "it listens", listens).await.unwrap();
    let first = listener(client).await;
    let away = "ALTER TABLE mail_deliveries RENAME TO away";
    client.batch_execute(away).await.unwrap();
    let end = "SELECT pg_terminate_backend($1)";
    client.execute(end, &[&first]).await.unwrap();
    eventually(SOON, "it listens again", async || {
        let now = listener(client).await;
        Ok(now.is_some() && now != first)
    })
    .await
    .unwrap();
    let back = "ALTER TABLE away RENAME TO mail_deliveries";
    client.batch_execute(back).await.unwrap();
    let id = setup.order().await;
    setup.queue.take().await.unwrap().unwrap();
    let fails = "UPDATE mail_deliveries SET state = 'failed' WHERE delivery_id = $1";
    client.execute(fails, &[&id]).await.unwrap();
    // It is told: by itself it looks every 30 s.
    let queued = async || Ok(setup.state(id).await == "queued");
    let before_it_looks = Duration::from_secs(15);
    eventually(before_it_looks, "it is told", queued)
        .await
        .unwrap();
    assert!(!reconciling.is_finished());
    reconciling.abort();
}
