//! A claim is committed and its answer is lost while the worker runs: the worker owns the jobs
//! without knowing it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use posthaste::Outcome;
use posthaste::consumer::{Consumer, Delivery};
use posthaste_testkit::{
    PgServer, PgVersion, Proxy, RequestMatcher, Sql as _, TestResult, eventually,
};

use super::{Worked, remembering};
use crate::support;
use crate::support::connected;

async fn a_lost_answer_counts_as_no_attempt(version: PgVersion) {
    let server = PgServer::shared(version).expect("a server");
    let database = support::migrated(server).await;
    let client = database.client().await.expect("a connection");
    client
        .run(
            "INSERT INTO posthaste.job (name, kwargs) SELECT 'crash', jsonb_build_object('key', i) \
             FROM generate_series(1, 10) i",
        )
        .await
        .expect("ten jobs");
    let proxy = Proxy::start(server.address()).await.expect("a proxy");
    let lost = proxy.drop_answer_to(RequestMatcher::statement("FROM posthaste.claim("));
    let worked = Worked::default();
    let worker = remembering(&proxy.url(database.name()), &worked).await;
    lost.wait(support::SOON)
        .await
        .expect("the first claim's answer is lost");
    support::all_done(&client).await;
    worker.stop().await.expect("a clean stop");
    let times = worked.all();
    assert_eq!(times.len(), 10);
    assert!(
        times.values().all(|times| *times == 1),
        "no job was handed out before: {times:?}"
    );
    // The claim was really committed: its jobs were given back, which the store has recorded.
    let given_back: i64 = client
        .one("SELECT count(*) FROM posthaste.job_done_0 WHERE outcome = 8")
        .await
        .expect("a count");
    assert_eq!(given_back, 10);
    posthaste_testkit::ran::count("unanswered", 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_with_a_lost_answer_are_released_without_an_attempt_on_15() {
    a_lost_answer_counts_as_no_attempt(PgVersion::V15).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_with_a_lost_answer_are_released_without_an_attempt_on_18() {
    a_lost_answer_counts_as_no_attempt(PgVersion::V18).await;
}

/// Takes every job and completes it at once.
#[derive(Default)]
struct Greedy {
    done: AtomicUsize,
}

impl Consumer for Greedy {
    fn capacity(&self) -> usize {
        20_000
    }
    fn consume(&self, claim: Vec<Delivery>) {
        self.done.fetch_add(claim.len(), Ordering::SeqCst);
        let claim = claim.into_iter();
        claim.for_each(|one| one.ticket.settle(Outcome::Done));
    }
    fn give_back(&self) {}
    fn abort(&self) {}
}

/// Breaks the next claim whose jobs are read: it cannot be delivered.
const BREAK_ONE: &str = "
    ALTER FUNCTION posthaste.claimed_jobs(bigint, uuid, smallint[], bigint[], bigint[])
      RENAME TO whole_claim;
    CREATE SEQUENCE public.claims;
    CREATE FUNCTION posthaste.claimed_jobs(p_worker bigint, p_token uuid, p_slots smallint[],
                                           p_batches bigint[], p_ids bigint[])
    RETURNS SETOF posthaste.claimed LANGUAGE plpgsql AS $f$
    DECLARE
      c posthaste.claimed;
      is_first boolean;
    BEGIN
      FOR c IN SELECT * FROM posthaste.whole_claim(
        p_worker, p_token, p_slots, p_batches, p_ids) LOOP
        is_first := coalesce(is_first, nextval('public.claims') = 1);
        IF is_first THEN
          c.batch := NULL;
        END IF;
        RETURN NEXT c;
      END LOOP;
    END $f$";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undeliverable_claims_are_released_and_the_next_one_runs() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    client.run(BREAK_ONE).await?;
    // More than one claim takes: the second one is in flight while the first is delivered.
    let jobs = "INSERT INTO posthaste.job (name, queue)
        SELECT 'n', 'audit' FROM generate_series(1, 7000)";
    client.run(jobs).await?;
    let consumer = Arc::new(Greedy::default());
    let worker = support::worker(&db.pool(2)?)
        .consumer("audit", Arc::clone(&consumer))
        .start()
        .await?;
    eventually(support::SOON, "each job comes", async || {
        Ok(consumer.done.load(Ordering::SeqCst) >= 7_000)
    })
    .await?;
    worker.stop().await?;
    let done = consumer.done.load(Ordering::SeqCst);
    assert_eq!(done, 7_000, "and comes once");
    let open = "SELECT count(*) FROM posthaste.worker w, posthaste.open_jobs(w.id, NULL)";
    assert_eq!(support::number(&client, open).await, 0, "it left nothing");
    Ok(())
}
