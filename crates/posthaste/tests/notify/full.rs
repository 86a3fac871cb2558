//! Postgres' queue of notifications fills up, because a session listens and stays in a transaction.
//! A transaction that notifies would fail at COMMIT.

use std::time::Duration;

use posthaste_testkit::{PgServer, PgVersion, Sql as _, eventually};

use super::{ENQUEUE, all_asleep, listener, notified, sleeper, starts};
use crate::support::{SOON, all_done, migrated};

/// A few of these notifications fill a page.
const NOTIFY: &str =
    "SELECT pg_notify('noise', repeat('x', 7000) || g) FROM generate_series(1, 8) g";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_notification_queue_fails_no_enqueue() {
    // Older servers always have room for 8 GB.
    let server = PgServer::start(PgVersion::V18, &[("max_notify_queue_pages", "64")]).unwrap();
    let db = migrated(&server).await;
    let other = migrated(&server).await;
    let (client, noise) = (db.client().await.unwrap(), other.client().await.unwrap());
    let (worker, mut jobs) = sleeper(&db, Duration::from_millis(20)).await;
    all_asleep(&client).await;
    let (holder, _heard) = listener(&other).await;
    holder.run("BEGIN; SELECT 1").await.unwrap();
    let usage = async || -> f64 {
        let row = client.query_one("SELECT pg_notification_queue_usage()", &[]);
        row.await.unwrap().get(0)
    };
    while usage().await <= 0.5 {
        noise.run(NOTIFY).await.unwrap();
    }
    eventually(SOON, "nobody is notified", async || {
        Ok(notified(&client).await == 0)
    })
    .await
    .unwrap();
    // The queue fills up.
    let refused = loop {
        if let Err(refused) = noise.batch_execute(NOTIFY).await {
            break refused;
        }
    };
    assert_eq!(refused.code().map(|code| code.code()), Some("54000"));
    for way in [
        ENQUEUE,
        "INSERT INTO posthaste.job (name) VALUES ('a')",
        "SELECT posthaste.enqueue('a', scheduled_at => clock_timestamp() + interval '50 ms')",
        "SELECT posthaste.enqueue('a', ordering_key => 'k')",
        "SELECT posthaste.enqueue('a', priority => 9)",
        "SELECT posthaste.pause('default'); SELECT posthaste.enqueue('a');
         SELECT posthaste.resume('default')",
        "SELECT posthaste.limit_rate('default', 1000), posthaste.enqueue('a')",
        "SELECT posthaste.limit_rate('default', NULL), posthaste.enqueue('a')",
    ] {
        starts(&client, way, &mut jobs).await;
    }
    all_done(&client).await;
    holder.run("COMMIT").await.unwrap();
    all_asleep(&client).await;
    starts(&client, ENQUEUE, &mut jobs).await;
    worker.stop().await.unwrap();
}
