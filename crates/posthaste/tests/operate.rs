//! Operations: pause and resume, cancel, redrive.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use posthaste::Outcome;
use posthaste_testkit::{PgVersion, Sql as _, TestResult, eventually};
use tokio::sync::Notify;
use tokio_postgres::Client;

use crate::support::{
    SOON, all_done, connected, count, count_reaches, counting, hand, number, quick_queue,
    unfinished_reaches, worker,
};

async fn cancel(client: &Client, id: i64) -> Option<String> {
    client
        .one_with("SELECT posthaste.cancel($1)", &[&id])
        .await
        .unwrap()
}

async fn state(client: &Client, id: i64) -> Option<String> {
    client
        .query_opt("SELECT state FROM posthaste.job WHERE id = $1", &[&id])
        .await
        .unwrap()
        .map(|row| row.get(0))
}

#[tokio::test]
async fn paused_queues_hand_out_no_jobs_until_resumed() -> TestResult {
    for version in PgVersion::tried() {
        let (db, client) = connected(version).await?;
        let ask = async |sql: &str| -> bool { client.one(sql).await.unwrap() };
        assert!(ask("SELECT posthaste.pause('default')").await);
        assert!(
            !ask("SELECT posthaste.pause('default')").await,
            "it is paused already"
        );
        client
            .run(
                "SELECT posthaste.enqueue('x') FROM generate_series(1, 10);
                 SELECT posthaste.enqueue('x', queue => 'other')",
            )
            .await?;
        let other = worker(&db.pool(4)?)
            .queue("other", 1)
            .queue("default", 4)
            .handler("x", async |_, _| Ok(Outcome::Done))
            .start()
            .await?;
        unfinished_reaches(&client, 10).await?;
        assert_eq!(count(&client, "available").await, 10);
        assert!(ask("SELECT posthaste.resume('default')").await);
        assert!(
            !ask("SELECT posthaste.resume('default')").await,
            "it is not paused"
        );
        all_done(&client).await;
        other.stop().await?;
    }
    Ok(())
}

#[tokio::test]
async fn waiting_jobs_can_be_cancelled_in_every_state() -> TestResult {
    for version in PgVersion::tried() {
        let (db, client) = connected(version).await?;
        let due = number(
            &client,
            "SELECT posthaste.enqueue('due', unique_key => 'k')",
        )
        .await;
        let later = number(
            &client,
            "SELECT posthaste.enqueue('later', scheduled_at => now() + interval '1 second')",
        )
        .await;
        let kept = number(&client, "SELECT posthaste.enqueue('kept')").await;
        for id in [due, later] {
            assert_eq!(cancel(&client, id).await.as_deref(), Some("cancelled"));
            assert_eq!(
                cancel(&client, id).await.as_deref(),
                Some("cancelled"),
                "again"
            );
            assert_eq!(state(&client, id).await.as_deref(), Some("cancelled"));
        }
        assert_eq!(
            cancel(&client, kept + 1000).await,
            None,
            "there is no such job"
        );
        let again = number(
            &client,
            "SELECT posthaste.enqueue('due', unique_key => 'k')",
        )
        .await;
        assert_ne!(again, due, "the key is free");

        let (worker, runs) = counting(&db).await;
        unfinished_reaches(&client, 2).await?;
        assert_eq!(cancel(&client, kept).await, None, "it is done");
        // A job that is due later than the cancelled one is promoted past it.
        client
            .run("SELECT posthaste.enqueue('probe', scheduled_at => now() + interval '2 seconds')")
            .await?;
        unfinished_reaches(&client, 2).await?;
        worker.stop().await?;
        assert_eq!(count(&client, "cancelled").await, 2);
        assert_eq!(
            runs.load(Ordering::SeqCst),
            3,
            "kept, the second due, the probe"
        );
    }
    Ok(())
}

#[tokio::test]
async fn cancelling_a_running_job_notifies_its_handler() -> TestResult {
    for version in PgVersion::tried() {
        let (db, client) = connected(version).await?;
        let (begun, notified) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
        let (begins, tells) = (Arc::clone(&begun), Arc::clone(&notified));
        let worker = worker(&db.pool(4)?)
            .queue_config(quick_queue())
            .handler("long", move |context, _| {
                let (begins, tells) = (Arc::clone(&begins), Arc::clone(&tells));
                async move {
                    begins.notify_one();
                    context.cancelled().await;
                    tells.fetch_add(1, Ordering::SeqCst);
                    Err("it was cancelled".into())
                }
            })
            .start()
            .await?;
        let long = number(&client, "SELECT posthaste.enqueue('long')").await;
        begun.notified().await;
        assert_eq!(cancel(&client, long).await.as_deref(), Some("running"));
        eventually(SOON, "it is kept as cancelled", async || {
            Ok(state(&client, long).await.as_deref() == Some("cancelled"))
        })
        .await?;
        assert_eq!(notified.load(Ordering::SeqCst), 1);
        eventually(SOON, "it is no longer polled", async || {
            Ok(number(&client, "SELECT count(*) FROM posthaste.cancelling").await == 0)
        })
        .await?;
        worker.stop().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_job_cancelled_during_its_run_does_not_run_again_after_a_snooze() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let (worker, runs) = counting(&db).await;
    eventually(SOON, "the worker is registered", async || {
        Ok(number(&client, "SELECT count(*) FROM posthaste.worker").await == 1)
    })
    .await?;
    let job = number(&client, "SELECT posthaste.enqueue('x', queue => 'other')").await;
    let claim = client
        .query_one(
            "SELECT c.slot, c.batch, t.token::text FROM (SELECT gen_random_uuid()
                    AS token OFFSET 0) t, posthaste.worker w,
                    LATERAL posthaste.claim('other', '{0}', w.id, t.token, 1, 1000) c",
            &[],
        )
        .await?;
    assert_eq!(cancel(&client, job).await.as_deref(), Some("running"));
    // An hour's snooze, from a worker that does not know that the job was cancelled.
    client
        .execute(
            "SELECT posthaste.settle($1, $2, $3::text::uuid, ARRAY[$4::bigint], \
             ARRAY[1::smallint], ARRAY[0], ARRAY[interval '1 hour'], NULL, NULL, NULL)",
            &[
                &claim.get::<_, i16>(0),
                &claim.get::<_, i64>(1),
                &claim.get::<_, String>(2),
                &job,
            ],
        )
        .await?;
    eventually(SOON, "the leader cancels it where it waits", async || {
        Ok(state(&client, job).await.as_deref() == Some("cancelled"))
    })
    .await?;
    worker.stop().await?;
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    Ok(())
}

#[tokio::test]
async fn dead_and_cancelled_jobs_are_redriven() -> TestResult {
    for version in PgVersion::tried() {
        let (db, client) = connected(version).await?;
        let failing = worker(&db.pool(4)?)
            .queue_config(quick_queue())
            .handler("*", async |_, job| Err(format!("no {}", job.name).into()))
            .start()
            .await?;
        client
            .run(
                "SELECT posthaste.enqueue('a', max_attempts => 2, tag => 't')
                 FROM generate_series(1, 5);
                 SELECT posthaste.enqueue('b', max_attempts => 1) FROM generate_series(1, 3);
                 SELECT posthaste.enqueue('keyed', max_attempts => 1, unique_key => 'k')",
            )
            .await?;
        count_reaches(&client, "dead", 9).await?;
        failing.stop().await?;
        let holder = number(
            &client,
            "SELECT posthaste.enqueue('holder', unique_key => 'k')",
        )
        .await;

        // A redrive that rolls back redrives nothing.
        client
            .run("BEGIN; SELECT posthaste.redrive(); ROLLBACK")
            .await?;
        assert_eq!(count(&client, "dead").await, 9);
        assert_eq!(
            number(
                &client,
                "SELECT count(*) FROM posthaste.redrive(name => 'a', tag => 'x')"
            )
            .await,
            0
        );
        assert_eq!(
            number(
                &client,
                "SELECT count(*) FROM posthaste.redrive(name => 'a', tag => 't', at_most => 2)"
            )
            .await,
            2
        );
        assert_eq!(
            number(
                &client,
                "SELECT count(*) FROM posthaste.redrive(error => '%no b%')"
            )
            .await,
            3
        );
        assert_eq!(
            number(&client, "SELECT count(*) FROM posthaste.redrive()").await,
            3,
            "the one whose key another holds stays"
        );
        assert_eq!(count(&client, "dead").await, 1);
        assert_eq!(
            number(
                &client,
                "SELECT count(*) FROM posthaste.job WHERE state = 'available' AND attempt = 0"
            )
            .await,
            9
        );
        let (worker, runs) = counting(&db).await;
        unfinished_reaches(&client, 1).await?;
        assert_eq!(runs.load(Ordering::SeqCst), 9);
        // Its key is free now.
        assert_eq!(state(&client, holder).await, None);
        assert_eq!(
            number(&client, "SELECT count(*) FROM posthaste.redrive()").await,
            1
        );
        all_done(&client).await;
        worker.stop().await?;
    }
    Ok(())
}

/// There are more running ones than the leader handles at once. A job that was rescheduled does not
/// wait for them.
#[tokio::test]
async fn cancelled_jobs_are_found_among_many_running_ones() -> TestResult {
    let (_db, client) = connected(PgVersion::any()).await?;
    let hand = hand(&client).await;
    let jobs = "INSERT INTO posthaste.job (name) SELECT 'x' FROM generate_series(1, 1200)";
    client.run(jobs).await?;
    let claimed =
        "SELECT slot, batch, id FROM posthaste.claim('default', '{0}', $1, $2, 1200, 16000000)";
    let token = uuid::Uuid::new_v4();
    let claimed = client.query(claimed, &[&hand, &token]).await?;
    assert_eq!(claimed.len(), 1200);
    let ids: Vec<i64> = claimed.iter().map(|row| row.get(2)).collect();
    for id in [&ids[..1199], &ids[1199..]] {
        let cancel = "SELECT count(*) FROM posthaste.cancel_many($1) c WHERE c.state = 'running'";
        client.query_one(cancel, &[&id]).await?;
    }
    let (slot, batch): (i16, i64) = (claimed[0].get(0), claimed[0].get(1));
    let give_back = "SELECT posthaste.settle($1, $2, $3, ARRAY[$4::bigint], '{8}',
        NULL, NULL, NULL, NULL, NULL)";
    client
        .execute(give_back, &[&slot, &batch, &token, &ids[1199]])
        .await?;
    assert_eq!(
        state(&client, ids[1199]).await.as_deref(),
        Some("available")
    );
    assert_eq!(number(&client, "SELECT posthaste.cancel_again()").await, 1);
    assert_eq!(
        state(&client, ids[1199]).await.as_deref(),
        Some("cancelled")
    );
    assert_eq!(count(&client, "running").await, 1199);
    Ok(())
}
