//! Single jobs: found by id in every state, and retried.

pub mod hands;

use std::sync::atomic::Ordering;

use posthaste::{JobId, State};
use posthaste_testkit::{PgVersion, Sql as _, TestResult, eventually};
use tokio_postgres::Client;

use self::hands::{Hands, id_of};
use crate::support::{SOON, all_done, connected, count, counting, jobs};

const HOUR: &str =
    "ARRAY[1::smallint], ARRAY[1], ARRAY[interval '1 hour'], NULL, NULL, ARRAY['no']";

async fn state(client: &Client, id: i64) -> Option<State> {
    let found = jobs(client).find(JobId(id)).await.unwrap();
    found.map(|job| job.state)
}

#[tokio::test]
async fn jobs_are_found_by_id_in_every_state() -> TestResult {
    for version in PgVersion::tried() {
        let (_db, client) = connected(version).await?;
        let hands = Hands::new(&client).await;
        let plain =
            "SELECT posthaste.enqueue('x', '{\"n\": 1}', unique_key => gen_random_uuid()::text)";
        let mut expected = Vec::new();
        // One after the other, so that each is alone in the lane.
        for (end, state) in [
            (
                "ARRAY[0::smallint], NULL, NULL, NULL, NULL, NULL",
                State::Completed,
            ),
            (HOUR, State::Retrying),
            (
                "ARRAY[1::smallint], ARRAY[0], ARRAY[interval '1 hour'], NULL, NULL, NULL",
                State::Scheduled,
            ),
            (
                "ARRAY[2::smallint], ARRAY[1], NULL, NULL, ARRAY['dead'], ARRAY['no']",
                State::Dead,
            ),
            (
                "ARRAY[2::smallint], ARRAY[1], NULL, NULL, ARRAY['discarded'], ARRAY['no']",
                State::Discarded,
            ),
            (
                "ARRAY[4::smallint], NULL, NULL, ARRAY[now() + interval '1 hour'], NULL, NULL",
                State::Awaiting,
            ),
        ] {
            let id = id_of(&client, plain).await;
            let fence = hands.claim(&client, 1).await;
            assert_eq!(self::state(&client, id).await, Some(State::Running));
            let found = jobs(&client).find(JobId(id)).await?.unwrap();
            assert_eq!(found.worker, Some(hands.id));
            assert_eq!(found.worker_name.as_deref(), Some("hand"));
            assert!(found.claimed_at.is_some());
            assert_eq!(found.kwargs_json(), "{\"n\": 1}");
            fence.settle(&client, id, end).await;
            expected.push((id, state));
        }
        let whole = id_of(&client, "SELECT posthaste.enqueue('x')").await;
        let fence = hands.claim(&client, 1).await;
        client
            .execute(
                "SELECT posthaste.close_batches(ARRAY[$1::smallint], ARRAY[$2::bigint], \
                 ARRAY[$3::uuid], ARRAY[1])",
                &[&fence.slot, &fence.batch, &fence.token],
            )
            .await?;
        expected.push((whole, State::Completed));
        let awaited = id_of(&client, "SELECT posthaste.enqueue('x')").await;
        let fence = hands.claim(&client, 1).await;
        let awaits = "ARRAY[4::smallint], NULL, NULL, ARRAY[now() + interval '1 hour'], NULL, NULL";
        fence.settle(&client, awaited, awaits).await;
        client
            .execute(
                "SELECT posthaste.confirm(posthaste.delivery_id($1))",
                &[&awaited],
            )
            .await?;
        expected.push((awaited, State::Completed));
        let cancelled = id_of(&client, "SELECT posthaste.enqueue('x')").await;
        client
            .execute("SELECT posthaste.cancel($1)", &[&cancelled])
            .await?;
        expected.push((cancelled, State::Cancelled));
        let mortal = Hands::new(&client).await;
        let quarantined = id_of(&client, "SELECT posthaste.enqueue('x')").await;
        mortal.claim(&client, 1).await;
        mortal.die(&client).await;
        expected.push((quarantined, State::Quarantined));
        // Due in the overflow.
        let overflow = id_of(&client, "SELECT posthaste.enqueue('x', queue => 'nobody')").await;
        client
            .run("SELECT posthaste.move_to_overflow(0, 10)")
            .await?;
        expected.push((overflow, State::Available));
        let keyed = "SELECT posthaste.enqueue('x', ordering_key => 'o')";
        let (first, second) = (id_of(&client, keyed).await, id_of(&client, keyed).await);
        assert_eq!(self::state(&client, first).await, Some(State::Blocked));
        client.run("SELECT posthaste.advance_ordering(10)").await?;
        let third = id_of(&client, keyed).await;
        let ends = format!("SELECT posthaste.cancel({first})");
        client.run(&ends).await?;
        client.run("SELECT posthaste.advance_ordering(10)").await?;
        expected.extend([
            (first, State::Cancelled),
            (second, State::Available),
            (third, State::Blocked),
        ]);
        let end = "SELECT id FROM posthaste.store WHERE name = 'end of turn'";
        let end = id_of(&client, end).await;
        assert_eq!(self::state(&client, end).await, None, "that is not a job");
        for (sql, state) in [
            ("SELECT posthaste.enqueue('x')", State::Available),
            (
                "SELECT posthaste.enqueue('x', scheduled_at => now() + interval '1 hour')",
                State::Scheduled,
            ),
            (
                "SELECT posthaste.enqueue('x', expires_at => now() - interval '1 hour')",
                State::Expired,
            ),
        ] {
            expected.push((id_of(&client, sql).await, state));
        }
        for (id, state) in &expected {
            assert_eq!(self::state(&client, *id).await, Some(*state), "job {id}");
        }
        // All in one call, and as the view shows them.
        let differs = "SELECT count(*) FROM posthaste.find_many(ARRAY(SELECT generate_series(1,
                         100))) f
                         FULL JOIN posthaste.job j ON j.id = f.id
                        WHERE f.state IS DISTINCT FROM coalesce(j.state, 'completed')
                          OR f.kwargs <> j.kwargs";
        assert_eq!(id_of(&client, differs).await, 0);
        assert_eq!(state(&client, 4711).await, None);
        // Ended without completing and deleted: not completed.
        let deleted = id_of(
            &client,
            "DELETE FROM posthaste.dead WHERE state = 'dead' RETURNING id",
        )
        .await;
        assert_eq!(state(&client, deleted).await, None);
    }
    Ok(())
}

/// Returns the pages of the store that finding a job touches. Pages of the catalog do not count: a
/// session reads them again when others have changed much in the server's databases.
async fn pages(client: &Client, id: i64) -> i64 {
    let fetched = "SELECT sum(pg_stat_get_xact_blocks_fetched(oid))::bigint FROM pg_class
                    WHERE relnamespace = 'posthaste'::regnamespace";
    client.run("BEGIN").await.unwrap();
    let before = id_of(client, fetched).await;
    let find = format!("SELECT FROM posthaste.find({id})");
    client.run(&find).await.unwrap();
    let pages = id_of(client, fetched).await - before;
    client.run("COMMIT").await.unwrap();
    assert!(pages > 0, "it reads the store");
    pages
}

#[tokio::test]
async fn finding_a_job_reads_few_pages() -> TestResult {
    for version in PgVersion::tried() {
        let (_db, client) = connected(version).await?;
        let first = id_of(&client, "SELECT posthaste.enqueue('first')").await;
        client
            .run("INSERT INTO posthaste.job (name) SELECT 'x' FROM generate_series(1, 200000)")
            .await?;
        let size = "SELECT pg_relation_size('posthaste.ready_0') / 8192";
        let size = id_of(&client, size).await;
        for id in [first + 1, first + 100_000, first + 200_000] {
            assert_eq!(state(&client, id).await, Some(State::Available));
            let pages = pages(&client, id).await;
            assert!(pages * 8 < size, "{pages} of {size}");
        }
        assert_eq!(state(&client, first + 200_001).await, None);
    }
    Ok(())
}

#[tokio::test]
async fn a_job_whose_row_follows_larger_ids_is_found() -> TestResult {
    for version in PgVersion::tried() {
        let (_db, client) = connected(version).await?;
        let early = "SELECT posthaste.enqueue('early', scheduled_at => now() + interval '1 hour')";
        let early = id_of(&client, early).await;
        client
            .run("INSERT INTO posthaste.job (name) SELECT 'x' FROM generate_series(1, 200000)")
            .await?;
        assert_eq!(
            jobs(&client).retry(&[JobId(early)]).await?,
            [(JobId(early), State::Available)]
        );
        assert_eq!(state(&client, early).await, Some(State::Available));
    }
    Ok(())
}

/// Batches of many sizes, two workers: the claim of a job is found among the others.
#[tokio::test]
async fn the_claim_of_a_job_is_found_among_many() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let late = db.client().await?;
    let workers = [Hands::new(&client).await, Hands::new(&client).await];
    late.run("BEGIN; SELECT posthaste.enqueue('late') FROM generate_series(1, 20)")
        .await?;
    for round in 0..60_i32 {
        client
            .run("SELECT posthaste.enqueue('x') FROM generate_series(1, 10)")
            .await?;
        if round == 30 {
            late.run("COMMIT").await?;
        }
        let hands = &workers[(round % 2) as usize];
        hands.claim(&client, 1 + round % 13).await;
    }
    let differs = "WITH claimed AS MATERIALIZED (
                       SELECT c.worker, c.claimed_at, r.id
                         FROM posthaste.claim_0 c, posthaste.batch_rows_0(c.batch, c.token) r)
                     SELECT count(*) FILTER (WHERE f.worker IS DISTINCT FROM c.worker
                       OR f.claimed_at IS DISTINCT FROM c.claimed_at
                       OR f.state IS DISTINCT FROM 'running'), count(*)
                       FROM claimed c
                       LEFT JOIN posthaste.find_many(ARRAY(SELECT id FROM claimed)) f USING (id)";
    let differs = client.query_one(differs, &[]).await?;
    assert_eq!(differs.get::<_, i64>(0), 0);
    assert!(differs.get::<_, i64>(1) > 300);
    Ok(())
}

#[tokio::test]
async fn run_now_runs_a_waiting_job_once_and_keeps_its_attempts() -> TestResult {
    for version in PgVersion::tried() {
        let (db, client) = connected(version).await?;
        let hands = Hands::new(&client).await;
        let retrying = id_of(&client, "SELECT posthaste.enqueue('x', unique_key => 'k')").await;
        hands
            .claim(&client, 1)
            .await
            .settle(&client, retrying, HOUR)
            .await;
        let soon = "SELECT posthaste.enqueue('x', scheduled_at => now() + interval '2 seconds')";
        let soon = id_of(&client, soon).await;
        let ids = [JobId(retrying), JobId(soon)];
        let now = jobs(&client).retry(&ids).await?;
        assert_eq!(now.len(), 2);
        assert!(now.iter().all(|(_, state)| *state == State::Available));
        // A second call changes nothing.
        assert_eq!(jobs(&client).retry(&ids).await?.len(), 2);
        assert_eq!(count(&client, "available").await, 2);
        let found = jobs(&client).find(JobId(retrying)).await?.unwrap();
        assert_eq!(
            (found.attempts, found.last_error.as_deref()),
            (1, Some("no"))
        );
        assert_eq!(jobs(&client).failures(JobId(retrying)).await?.len(), 1);

        let (worker, runs) = counting(&db).await;
        all_done(&client).await;
        assert_eq!(runs.load(Ordering::SeqCst), 2);
        // A probe that is due later is promoted after it.
        client
            .run("SELECT posthaste.enqueue('probe', scheduled_at => now() + interval '3 seconds')")
            .await?;
        eventually(SOON, "the probe is done", async || {
            Ok(runs.load(Ordering::SeqCst) >= 3)
        })
        .await?;
        all_done(&client).await;
        assert_eq!(runs.load(Ordering::SeqCst), 3);
        assert_eq!(
            jobs(&client).retry(&ids).await?,
            ids.map(|id| (id, State::Completed))
        );
        worker.stop().await?;
    }
    Ok(())
}

#[tokio::test]
async fn run_now_selects_waiting_jobs_and_reports_the_others() -> TestResult {
    let (_db, client) = connected(PgVersion::any()).await?;
    let met = async |call: &str| -> i64 {
        let count = format!("SELECT count(*) FROM posthaste.retry({call})");
        id_of(&client, &count).await
    };
    client
        .run(
            "SELECT posthaste.enqueue('a', tag => 't', scheduled_at => now() + n * \
             interval '1 hour') FROM generate_series(1, 5) n;
             SELECT posthaste.enqueue('b', queue => 'q', scheduled_at => now() + interval '1 hour');
             SELECT posthaste.enqueue('b', scheduled_at => now() + interval '1 hour',
               expires_at => now() - interval '1 s')",
        )
        .await?;
    assert_eq!(met("name => 'a', tag => 'none'").await, 0);
    assert_eq!(met("state => 'retrying'").await, 0);
    assert_eq!(met("name => 'a', at_most => 2").await, 2);
    let left = "SELECT count(*) FROM posthaste.job WHERE name = 'a' \
                AND scheduled_at > now() + interval '150 minutes'";
    assert_eq!(id_of(&client, left).await, 3, "those that were due last");
    assert_eq!(met("queue => 'q'").await, 1);
    assert_eq!(met("").await, 3, "what has expired is no longer to be run");
    let rolled_back = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT posthaste.retry(); COMMIT";
    let refused = client.batch_execute(rolled_back).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "25000");
    client.run("ROLLBACK").await?;

    // The wait of a quarantined job ends; only its receiver ends the wait of an awaited job.
    let hands = Hands::new(&client).await;
    let lone = "SELECT posthaste.enqueue('x', queue => 'alone')";
    let awaited = id_of(&client, lone).await;
    let fence = hands.claim_from(&client, "alone", 1).await;
    let awaits = "ARRAY[4::smallint], NULL, NULL, ARRAY[now() + interval '1 hour'], NULL, NULL";
    fence.settle(&client, awaited, awaits).await;
    let quarantined = id_of(&client, lone).await;
    hands.claim_from(&client, "alone", 1).await;
    hands.die(&client).await;
    client
        .run(
            "UPDATE posthaste.in_flight SET until = now() + interval '1 hour' \
             WHERE state = 'quarantined'",
        )
        .await?;
    let mut now = jobs(&client)
        .retry(&[JobId(awaited), JobId(quarantined), JobId(4711)])
        .await?;
    now.sort_by_key(|(id, _)| *id);
    assert_eq!(
        now,
        [
            (JobId(awaited), State::Awaiting),
            (JobId(quarantined), State::Quarantined)
        ]
    );
    let ready = "SELECT count(*) FROM posthaste.in_flight WHERE state = 'quarantined' \
                 AND until <= clock_timestamp()";
    assert_eq!(id_of(&client, ready).await, 1);
    Ok(())
}
