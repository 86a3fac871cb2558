//! The connections of a worker: what waits or is lost on one of them delays nothing on the others.

use std::time::Duration;

use posthaste::{Outcome, QueueConfig};
use posthaste_testkit::{Answer, PgServer, PgVersion, Proxy, eventually};

use crate::crash::{Worked, remembering};
use crate::support::{
    SOON, all_done, completed_when, count, database, migrated, unfinished, worker,
};

/// Each of them makes an acknowledgement wait for a second.
const LOCKED: i64 = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn completions_in_open_transactions_delay_no_discovery() {
    let db = database(PgVersion::V15).await;
    let client = db.client().await.unwrap();
    let pool = db.pool(24).unwrap();
    let inner = pool.clone();
    let (release, released) = tokio::sync::watch::channel(false);
    let worker = worker(&pool)
        .queue_config(QueueConfig {
            timeout: Duration::from_millis(300),
            ..QueueConfig::new("default", 32)
        })
        .handler("quick", |_, _| async { Ok(Outcome::Done) })
        .handler("slow", move |context, _| {
            completed_when(released.clone(), inner.clone(), context)
        })
        .start()
        .await
        .unwrap();
    client
        .execute(
            "INSERT INTO posthaste.job (name) SELECT 'slow' FROM generate_series(1, $1::bigint)",
            &[&LOCKED],
        )
        .await
        .unwrap();
    eventually(SOON, "their acknowledgements wait", async || {
        let waiting = client
            .query_one(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%settle%'",
                &[],
            )
            .await?;
        Ok(count(&client, "running").await == LOCKED && waiting.get::<_, i64>(0) > 0)
    })
    .await
    .unwrap();
    // The first wait is with the batch, the next ones are one by one: twenty of them, again and again.
    let bound = Duration::from_secs(10);
    for priority in [31, 32] {
        client
            .execute(
                "INSERT INTO posthaste.job (name, priority) VALUES ('quick', $1)",
                &[&priority],
            )
            .await
            .unwrap();
        eventually(bound, "a job of a new priority is found", async || {
            Ok(unfinished(&client).await == LOCKED)
        })
        .await
        .unwrap();
    }
    release.send(true).unwrap();
    all_done(&client).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspect_whose_claim_has_no_answer_is_given_back() {
    let server = PgServer::shared(PgVersion::V15).expect("a server");
    let db = migrated(server).await;
    let client = db.client().await.unwrap();
    // Each a transaction of its own: a claim sees what others have committed.
    for step in [
        "INSERT INTO posthaste.job (name, kwargs) SELECT 'crash', jsonb_build_object('key', i) FROM generate_series(1, 3) i",
        "INSERT INTO posthaste.worker (name) VALUES ('dying')",
        "SELECT posthaste.claim('default', '{0}', max(id), gen_random_uuid(), 10, 1000000) FROM posthaste.worker",
        "SELECT posthaste.rescue(max(id), 0) FROM posthaste.worker",
    ] {
        client.batch_execute(step).await.unwrap();
    }
    assert_eq!(count(&client, "suspect").await, 3);
    let proxy = Proxy::start(server.address()).await.expect("a proxy");
    let lost = proxy.drop_answer_to(Answer::to_statement("FROM posthaste.claim_suspect("));
    let worked = Worked::default();
    let worker = remembering(&proxy.url(db.name()), &worked).await;
    lost.wait(SOON).await.expect("the answer is lost");
    all_done(&client).await;
    worker.stop().await.expect("a clean stop");
    let times = worked.all();
    assert!(
        times.len() == 3 && times.values().all(|times| *times == 1),
        "{times:?}"
    );
}
