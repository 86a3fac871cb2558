//! History: failed attempts and completed jobs are retained for a while, and removed without making
//! any client wait.

use std::time::Duration;

use posthaste::{Outcome, enqueue};
use posthaste_testkit::{PgVersion, Sql as _, TestResult, eventually};
use tokio_postgres::Client;

use crate::find::hands::{Hands, id_of};
use crate::lifecycle::job;
use crate::support::{
    SOON, all_done, connected, count, count_reaches, database, jobs, number, quick_queue, worker,
};

#[tokio::test]
async fn failed_attempts_record_error_time_and_worker() -> TestResult {
    for version in PgVersion::tried() {
        let (db, client) = connected(version).await?;
        let worker = worker(&db.pool(4)?)
            .queue_config(quick_queue())
            .handler("*", async |_, job| match (&*job.name, job.attempt) {
                ("bad", _) => Ok(Outcome::Discard {
                    reason: "never".into(),
                }),
                ("again", 1 | 2) | ("hopeless", _) => Err(format!("no {}", job.attempt).into()),
                _ => Ok(Outcome::Done),
            })
            .start()
            .await?;
        let again = enqueue(&client, &job("again")).await?;
        let hopeless = enqueue(&client, &job("hopeless").max_attempts(Some(2))).await?;
        let bad = enqueue(&client, &job("bad")).await?;
        eventually(SOON, "all have ended", async || {
            let waiting =
                "SELECT count(*) FROM posthaste.job WHERE state NOT IN ('dead', 'discarded')";
            Ok(number(&client, waiting).await == 0)
        })
        .await?;
        let attempts_of = async |id| -> Vec<(i32, String, Option<String>)> {
            let failures = jobs(&client).failures(id).await.unwrap();
            assert!(failures.iter().all(|one| one.worker == Some(1)));
            assert!(failures.iter().all(|one| one.worker_name.is_some()));
            let times: Vec<_> = failures.iter().map(|one| one.at).collect();
            assert!(times.is_sorted());
            failures
                .into_iter()
                .map(|one| (one.attempt, one.outcome, one.error))
                .collect()
        };
        let of = |attempt, outcome: &str, error: &str| {
            (attempt, outcome.to_owned(), Some(error.to_owned()))
        };
        assert_eq!(
            attempts_of(again).await,
            [of(1, "retried", "no 1"), of(2, "retried", "no 2")]
        );
        assert_eq!(
            attempts_of(hopeless).await,
            [of(1, "retried", "no 1"), of(2, "dead", "no 2")]
        );
        assert_eq!(attempts_of(bad).await, [of(1, "discarded", "never")]);
        worker.stop().await?;
    }
    Ok(())
}

#[tokio::test]
async fn uncounted_attempts_are_not_failures() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let hands = Hands::new(&client).await;
    let id = id_of(&client, "SELECT posthaste.enqueue('x')").await;
    let fence = hands.claim(&client, 1).await;
    // A snooze with a reason.
    let snooze =
        "ARRAY[1::smallint], ARRAY[0], ARRAY[interval '1 hour'], NULL, NULL, ARRAY['not now']";
    fence.settle(&client, id, snooze).await;
    assert_eq!(count(&client, "scheduled").await, 1);
    assert_eq!(
        number(&client, "SELECT count(*) FROM posthaste.attempt").await,
        0
    );
}

#[tokio::test]
async fn worker_deaths_and_missing_confirmations_are_recorded() -> TestResult {
    for version in PgVersion::tried() {
        let (_db, client) = connected(version).await?;
        let outcomes = async |id: i64| -> Vec<(String, Option<i64>)> {
            client
                .rows_with(
                    "SELECT outcome, worker FROM posthaste.attempt WHERE job = $1 ORDER BY at",
                    &[&id],
                )
                .await
                .unwrap()
        };
        let crashed = |worker| ("crashed".to_owned(), Some(worker));
        let first = Hands::new(&client).await;
        let id = id_of(&client, "SELECT posthaste.enqueue('x')").await;
        first.claim(&client, 1).await;
        first.die(&client).await;
        assert_eq!(outcomes(id).await, [crashed(first.id)]);
        // The second worker runs it alone.
        let second = Hands::new(&client).await;
        client
            .execute(
                "SELECT posthaste.claim_quarantined('default', $1, gen_random_uuid())",
                &[&second.id],
            )
            .await?;
        second.die(&client).await;
        assert_eq!(outcomes(id).await, [crashed(first.id), crashed(second.id)]);

        let third = Hands::new(&client).await;
        let id = id_of(&client, "SELECT posthaste.enqueue('y')").await;
        let fence = third.claim(&client, 1).await;
        let awaits = "ARRAY[4::smallint], NULL, NULL, ARRAY[clock_timestamp()], NULL, NULL";
        fence.settle(&client, id, awaits).await;
        client.run("SELECT posthaste.retry_overdue(10)").await?;
        assert_eq!(outcomes(id).await, [("retried".to_owned(), None)]);
    }
    Ok(())
}

/// Jobs complete by each method, with and without a queue that retains them.
#[tokio::test]
async fn completed_jobs_are_retained_once_if_their_queue_is_configured() -> TestResult {
    for version in PgVersion::tried() {
        let (db, client) = connected(version).await?;
        client
            .run("SELECT posthaste.keep('default', '24h')")
            .await?;
        let pool = db.pool(4)?;
        let own = pool.clone();
        let worker = worker(&pool)
            .queue_config(quick_queue())
            .queue("other", 4)
            .handler("*", move |context, job| {
                let own = own.clone();
                async move {
                    let done = "SELECT posthaste.confirm(posthaste.delivery_id($1))";
                    let awaits = Outcome::Await {
                        until: jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1),
                    };
                    match &*job.name {
                        "in" => {
                            let mut client = own.get().await?;
                            let tx = client.transaction().await?;
                            context.complete_in(&tx).await?;
                            tx.commit().await?;
                        }
                        "confirmed" => {
                            own.get().await?.execute(done, &[&job.id.0]).await?;
                            return Ok(awaits);
                        }
                        "awaited" => return Ok(awaits),
                        _ => {}
                    }
                    Ok(Outcome::Done)
                }
            })
            .start()
            .await?;
        client
            .run(
                "SELECT posthaste.enqueue('plain', jsonb_build_object('n', n))
                 FROM generate_series(1, 500) n;
                 SELECT posthaste.enqueue('keyed', unique_key => 'k' || n)
                   FROM generate_series(1, 20) n;
                 SELECT posthaste.enqueue('in') FROM generate_series(1, 5);
                 SELECT posthaste.enqueue('confirmed') FROM generate_series(1, 5);
                 SELECT posthaste.enqueue('awaited') FROM generate_series(1, 5);
                 SELECT posthaste.enqueue('plain', queue => 'other') FROM generate_series(1, 5)",
            )
            .await?;
        count_reaches(&client, "awaiting", 5).await?;
        client
            .run(
                "SELECT posthaste.confirm(posthaste.delivery_id(id)) FROM posthaste.in_flight \
                 WHERE name = 'awaited'",
            )
            .await?;
        all_done(&client).await;
        let kept = "SELECT count(*) FROM posthaste.finished";
        assert_eq!(number(&client, kept).await, 535, "{}", version.name());
        let kept = "SELECT count(DISTINCT id) FROM posthaste.finished WHERE queue = 'default' \
                    AND worker_name IS NOT NULL OR name IN ('confirmed', 'awaited')";
        assert_eq!(number(&client, kept).await, 535);
        assert_eq!(
            number(
                &client,
                "SELECT count(DISTINCT kwargs) FROM posthaste.finished WHERE name = 'plain'"
            )
            .await,
            500
        );
        worker.stop().await?;

        // The transaction of the confirmation did not see that the job is held.
        let hands = Hands::new(&client).await;
        let id = id_of(&client, "SELECT posthaste.enqueue('late')").await;
        let fence = hands.claim(&client, 1).await;
        let receiver = db.client().await?;
        receiver
            .run(&format!(
                "BEGIN; SELECT posthaste.confirm(posthaste.delivery_id({id}))"
            ))
            .await?;
        let awaits = "ARRAY[4::smallint], NULL, NULL, ARRAY[now() + interval '1 hour'], NULL, NULL";
        fence.settle(&client, id, awaits).await;
        receiver.run("COMMIT").await?;
        client
            .run("SELECT posthaste.confirm_in_flight('infinity', 10)")
            .await?;
        let kept = "SELECT count(*) FROM posthaste.finished WHERE name = 'late'";
        assert_eq!(number(&client, kept).await, 1);
    }
    Ok(())
}

/// Simulates that this much time has passed.
async fn pass(client: &Client, time: &str) {
    let pass = format!("UPDATE posthaste.volume SET began_at = began_at - interval '{time}'");
    client.run(&pass).await.unwrap();
}

/// Returns the retained rows of attempts and of completed jobs.
async fn kept(client: &Client) -> (i64, i64) {
    (
        number(client, "SELECT count(*) FROM posthaste.attempt").await,
        number(client, "SELECT count(*) FROM posthaste.finished").await,
    )
}

/// Makes one failed attempt and one completed job of the queue.
async fn make_history(client: &Client, queue: &str) {
    let hands = Hands::new(client).await;
    for kind in ["2::smallint", "0::smallint"] {
        let enqueue = format!("SELECT posthaste.enqueue('x', queue => '{queue}')");
        let id = id_of(client, &enqueue).await;
        let fence = hands.claim_from(client, queue, 1).await;
        let ends = format!("ARRAY[{kind}], ARRAY[1], NULL, NULL, ARRAY['discarded'], ARRAY['no']");
        fence.settle(client, id, &ends).await;
    }
}

async fn tidy(client: &Client) -> Option<String> {
    client
        .one("SELECT o_blocker FROM posthaste.tidy_history()")
        .await
        .unwrap()
}

#[tokio::test]
async fn history_is_deleted_after_its_retention() -> TestResult {
    for version in PgVersion::tried() {
        let (_db, client) = connected(version).await?;
        client
            .run("SELECT posthaste.keep('short', '1 hour'), posthaste.keep('long', '30 days')")
            .await?;
        make_history(&client, "short").await;
        make_history(&client, "long").await;
        assert_eq!(kept(&client).await, (2, 2));
        // A few hours at a time; a leader polls more often.
        let mut gone = Vec::new();
        let mut seen = (2, 2);
        for hours in (4..=45 * 24).step_by(4) {
            pass(&client, "4 hours").await;
            tidy(&client).await;
            let now = kept(&client).await;
            if now != seen {
                gone.push((hours, now));
                seen = now;
            }
        }
        let [(day, (2, 1)), (week, (0, 1)), (month, (0, 0))] = gone[..] else {
            panic!("{gone:?}");
        };
        assert!((24..=36).contains(&day), "{gone:?}");
        assert!((7 * 24..=10 * 24).contains(&week), "{gone:?}");
        assert!((30 * 24..=41 * 24).contains(&month), "{gone:?}");
    }
    Ok(())
}

#[tokio::test]
async fn history_writes_block_nobody_and_need_no_leader() -> TestResult {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let (client, reader) = (db.client().await?, db.client().await?);
        client
            .run("SELECT posthaste.keep('q', '1 hour'); SET lock_timeout = '1s'")
            .await?;
        make_history(&client, "q").await;
        pass(&client, "1 day").await;
        tidy(&client).await;
        pass(&client, "20 days").await;
        // A dump that has read all rows and stays open.
        reader
            .run(
                "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM posthaste.attempt, \
                 posthaste.finished",
            )
            .await?;
        assert_eq!(tidy(&client).await, None, "it is there in passing only");
        assert_eq!(kept(&client).await, (1, 1));
        eventually(SOON, "the one that stays is named", async || {
            Ok(tidy(&client)
                .await
                .is_some_and(|by| by.starts_with("session ")))
        })
        .await?;
        assert_eq!(kept(&client).await, (1, 1));
        // No leader for a year, then a clock that steps back by ten years: history is still
        // written.
        for step in ["1 year", "-10 years"] {
            pass(&client, step).await;
            make_history(&client, "q").await;
        }
        assert_eq!(kept(&client).await, (3, 3));
        reader.run("COMMIT").await?;
        // The clock is corrected, and then time passes.
        for _ in 0..12 {
            tidy(&client).await;
            pass(&client, "4 days").await;
        }
        assert_eq!(kept(&client).await, (0, 0));
        make_history(&client, "q").await;
        assert_eq!(kept(&client).await, (1, 1));
    }
    Ok(())
}

#[tokio::test]
async fn completed_jobs_are_found_after_their_segment_is_truncated() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    client
        .run("SELECT posthaste.keep('default', '1 day')")
        .await?;
    let worker = worker(&db.pool(4)?)
        .config(posthaste::Config {
            segment_bytes: 16 * 1024,
            maintenance_interval: Duration::from_millis(20),
            ..crate::support::quick()
        })
        .queue_config(quick_queue())
        .handler("*", async |_, _| Ok(Outcome::Done))
        .start()
        .await?;
    let id = enqueue(&client, &job("x").tag("mine")).await?;
    eventually(SOON, "the ready log has rotated", async || {
        client
            .run("SELECT posthaste.enqueue('y', queue => 'default') FROM generate_series(1, 500)")
            .await?;
        let low = "SELECT pg_sequence_last_value('posthaste.ready_low')";
        Ok(client.one::<i64>(low).await? > 0)
    })
    .await?;
    let found = jobs(&client).find(id).await?.unwrap();
    assert_eq!(found.state, posthaste::State::Completed);
    assert_eq!((&*found.tag, found.worker), ("mine", Some(1)));
    assert!(found.ended_at.is_some());
    worker.stop().await?;
    Ok(())
}
