//! Ordered relays take turns: one relay of a queue sends at a time, over all processes, and its
//! jobs come first when it is gone.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::BoxFuture;
use posthaste::WorkerHandle;
use posthaste_relay::{Answer, Destination, Message, Relay, RelayState, list_relays};
use posthaste_testkit::{
    LostAnswer, PgServer, PgVersion, Proxy, RequestMatcher, Sql as _, eventually,
};

use super::fake_destination::FakeDestination;
use super::{Setup, enqueue, setup};
use crate::support::{SOON, all_done, hand, number, quick, worker};

/// A destination that is slow to receive each batch and to answer.
struct Slow {
    fake: FakeDestination,
    answers_after: Duration,
}

impl Slow {
    fn to(fake: &FakeDestination) -> Self {
        Self {
            fake: fake.clone(),
            answers_after: Duration::ZERO,
        }
    }
}

impl Destination for Slow {
    fn label(&self) -> String {
        self.fake.label()
    }

    fn send<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Answer>> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(40)).await;
            let answers = self.fake.send(batch).await;
            tokio::time::sleep(self.answers_after).await;
            answers
        })
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        self.fake.probe()
    }
}

/// The batch size of a slow relay.
const BATCH: usize = 3;

/// Starts an ordered relay to a slow destination, and waits until some of these names were sent.
async fn slow_relay(setup: &Setup, names: &[String]) -> (FakeDestination, WorkerHandle) {
    let fake = FakeDestination::default();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    enqueue(&setup.client, &names).await;
    let relay = Relay::to(Slow::to(&fake)).ordered(true).batch(BATCH);
    let worker = setup.relay(relay).await;
    let some = async || Ok(fake.taken().len() > 20);
    eventually(SOON, "some are sent", some).await.unwrap();
    (fake, worker)
}

/// Removes repeated names.
fn order_of_first_occurrence(taken: Vec<String>) -> Vec<String> {
    let mut seen = HashSet::new();
    taken
        .into_iter()
        .filter(|name| seen.insert(name.clone()))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordered_relay_keeps_its_order_after_a_lapsed_lease() {
    let setup = setup().await;
    let all = names(0, 400);
    let (fake, worker) = slow_relay(&setup, &all).await;
    // A transaction locks the row for longer than the lease.
    let mut other = setup.db.client().await.unwrap();
    let tx = other.transaction().await.unwrap();
    let lock = "SELECT FROM posthaste.ordered_relay FOR UPDATE";
    tx.run(lock).await.unwrap();
    let lapsed = async || {
        let relays = list_relays(&setup.client).await?;
        Ok(relays[0].state == RelayState::Standby)
    };
    eventually(SOON, "its lease is over", lapsed).await.unwrap();
    let before = fake.taken().len();
    assert!(before < all.len(), "all were sent before that");
    tx.rollback().await.unwrap();
    all_done(&setup.client).await;
    let taken = fake.taken();
    assert_eq!(order_of_first_occurrence(taken.clone()), all);
    // The batch that was unanswered when the lease ended is sent twice. If the machine stalls for a
    // second, the relay is also declared dead, and more may be repeated.
    let ended = "SELECT count(*) FROM posthaste.worker WHERE stopped_at IS NOT NULL";
    if number(&setup.client, ended).await == 0 {
        assert!(taken.len() <= all.len() + BATCH, "{taken:?}");
    }
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_answers_are_awaited_while_the_lease_is_renewed() {
    let setup = setup().await;
    let all = names(0, 2);
    let names: Vec<&str> = all.iter().map(String::as_str).collect();
    enqueue(&setup.client, &names).await;
    let fake = FakeDestination::default();
    let slow = Slow {
        answers_after: 2 * quick().rescue_after,
        ..Slow::to(&fake)
    };
    let worker = setup.relay(Relay::to(slow).ordered(true).batch(1)).await;
    all_done(&setup.client).await;
    assert_eq!(fake.taken(), all);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordered_relay_declared_dead_keeps_its_order() {
    let setup = setup().await;
    let all = names(0, 200);
    let (fake, worker) = slow_relay(&setup, &all).await;
    let first = "SELECT id FROM posthaste.worker WHERE stopped_at IS NULL";
    let first = number(&setup.client, first).await;
    // Declares only this worker dead: the relay continues under a new number.
    let rescue = format!(
        "SELECT posthaste.rescue(w.id, w.beat) FROM posthaste.worker w WHERE w.id = {first}"
    );
    let living =
        format!("SELECT count(*) FROM posthaste.worker WHERE id = {first} AND stopped_at IS NULL");
    let declared = async || {
        setup.client.run(&rescue).await?;
        Ok(number(&setup.client, &living).await == 0)
    };
    eventually(SOON, "it is declared dead", declared)
        .await
        .unwrap();
    all_done(&setup.client).await;
    let taken = fake.taken();
    assert_eq!(order_of_first_occurrence(taken.clone()), all, "{taken:?}");
    worker.stop().await.unwrap();
}

/// Enqueues in two concurrent transactions: their rows are stored in another order than they must
/// be sent in, and the planner knows how few they are.
async fn enqueue_interleaved(setup: &Setup, first: &[String], second: &[String]) {
    let (mut one, mut other) = (
        setup.db.client().await.unwrap(),
        setup.db.client().await.unwrap(),
    );
    let (one, other) = (
        one.transaction().await.unwrap(),
        other.transaction().await.unwrap(),
    );
    let statement = "SELECT posthaste.enqueue($1, queue => 'mail')";
    for (a, b) in first.iter().zip(second) {
        one.execute(statement, &[a]).await.unwrap();
        other.execute(statement, &[b]).await.unwrap();
    }
    one.commit().await.unwrap();
    other.commit().await.unwrap();
    setup.client.run("ANALYZE").await.unwrap();
}

/// The answer is lost with its connection, or the connection falls silent: claimed jobs stay before
/// the jobs that came after them.
async fn lost_claim_answers_keep_the_order(lose: fn(&Proxy, RequestMatcher) -> LostAnswer) {
    let setup = setup().await;
    let server = PgServer::shared(PgVersion::any()).unwrap();
    let proxy = Proxy::start(server.address()).await.unwrap();
    let lost = lose(&proxy, RequestMatcher::statement("FROM posthaste.claim("));
    let all = names(0, 40);
    enqueue_interleaved(&setup, &all[..20], &all[20..]).await;
    let fake = FakeDestination::default();
    let relay = Relay::to(Slow::to(&fake)).ordered(true).batch(3);
    let url = proxy.url(setup.db.name());
    let manager = deadpool_postgres::Manager::new(url.parse().unwrap(), tokio_postgres::NoTls);
    let pool = deadpool_postgres::Pool::builder(manager).build().unwrap();
    let worker = worker(&pool).consumer("mail", relay.start().await.unwrap());
    let worker = worker.start().await.unwrap();
    lost.wait(SOON)
        .await
        .expect("the answer of a claim is lost");
    let later = names(40, 80);
    enqueue(
        &setup.client,
        &later.iter().map(String::as_str).collect::<Vec<_>>(),
    )
    .await;
    all_done(&setup.client).await;
    assert_eq!(fake.taken(), [all, later].concat());
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordered_relay_keeps_its_order_after_a_lost_claim_answer() {
    lost_claim_answers_keep_the_order(Proxy::drop_answer_to).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordered_relay_keeps_its_order_after_an_unanswered_claim() {
    lost_claim_answers_keep_the_order(Proxy::lose_answer_to).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_for_a_held_lease_wait_for_no_row_lock() {
    let setup = setup().await;
    let fake = FakeDestination::default();
    let worker = setup.relay(fake.relay().ordered(true)).await;
    let held = "SELECT count(*) FROM posthaste.ordered_relay";
    let is_held = async || Ok(number(&setup.client, held).await == 1);
    eventually(SOON, "it is held", is_held).await.unwrap();
    let mut other = setup.db.client().await.unwrap();
    let tx = other.transaction().await.unwrap();
    let lock = "SELECT FROM posthaste.ordered_relay FOR UPDATE";
    tx.run(lock).await.unwrap();
    let stranger = hand(&setup.client).await;
    let ask = include_str!("../../src/store/ordered_relay.sql");
    let at_once = "SET lock_timeout = '100ms'";
    setup.client.run(at_once).await.unwrap();
    let lease = 60_000_i64;
    let asked = setup
        .client
        .query_one(ask, &[&"mail", &stranger, &lease])
        .await;
    let holder: i64 = asked.unwrap().get(0);
    assert_ne!(holder, stranger);
    tx.rollback().await.unwrap();
    worker.stop().await.unwrap();
}

fn names(from: usize, to: usize) -> Vec<String> {
    (from..to).map(|n| format!("m{n:03}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopping_ordered_relay_drains_and_hands_over_at_once() {
    let setup = setup().await;
    let client = &setup.client;
    let (first, second) = (FakeDestination::default(), FakeDestination::default());
    // Slow enough to be stopped in the middle.
    let limit = "SELECT posthaste.limit_rate('mail', 500, burst => 20)";
    client.run(limit).await.unwrap();
    let one = setup.relay(first.relay().ordered(true).batch(3)).await;
    let all = names(0, 300);
    enqueue(client, &all.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let some = async || Ok(first.taken().len() > 30);
    eventually(SOON, "some are sent", some).await.unwrap();
    let two = setup.relay(second.relay().ordered(true).batch(3)).await;
    let waits = async || {
        let relays = list_relays(client).await?;
        Ok(relays.iter().any(|one| one.state == RelayState::Standby))
    };
    eventually(SOON, "the second waits", waits).await.unwrap();
    assert_eq!(second.taken().len(), 0);
    one.stop().await.unwrap();
    let before = first.taken().len();
    all_done(client).await;
    assert!((31..300).contains(&before), "{before}");
    assert_eq!([first.taken(), second.taken()].concat(), all);
    two.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_renewed_and_lost_to_another_live_worker() {
    let setup = setup().await;
    let client = &setup.client;
    let fake = FakeDestination::default();
    let worker = setup.relay(fake.relay().ordered(true)).await;
    let held = async || {
        let held = "SELECT count(*) FROM posthaste.ordered_relay WHERE queue = 'mail' \
                    AND until > clock_timestamp()";
        Ok(number(client, held).await == 1)
    };
    eventually(SOON, "it is held", held).await.unwrap();
    let until = "SELECT extract(epoch FROM until)::bigint * 1000 FROM posthaste.ordered_relay";
    let first = number(client, until).await;
    let renewed = async || Ok(number(client, until).await > first);
    eventually(SOON, "it is renewed", renewed).await.unwrap();
    // Another live worker holds the lease: nothing is sent.
    let stranger = "UPDATE posthaste.ordered_relay SET until = clock_timestamp() + \
                    interval '1 hour', worker = (SELECT w.id FROM other w)";
    let other = "CREATE TABLE other AS SELECT 0::bigint AS id; WITH w \
                 AS (INSERT INTO posthaste.worker (name) VALUES ('other') \
                 RETURNING id) UPDATE other SET id = w.id FROM w";
    client.run(other).await.unwrap();
    client.run(stranger).await.unwrap();
    let waits = async || {
        let relays = list_relays(client).await?;
        Ok(relays[0].state == RelayState::Standby)
    };
    eventually(SOON, "it is lost", waits).await.unwrap();
    enqueue(client, &["a", "b"]).await;
    // The relay polls once or twice in this time.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(fake.taken().len(), 0);
    // The other worker stops cleanly: its lease no longer counts.
    let ends = "UPDATE posthaste.worker SET stopped_at = clock_timestamp(), clean = true \
                WHERE name = 'other'";
    client.run(ends).await.unwrap();
    all_done(client).await;
    assert_eq!(fake.taken(), ["a", "b"]);
    worker.stop().await.unwrap();
}
