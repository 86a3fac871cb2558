//! Requirements of every destination, on the real receiver through a proxy: tests of a [`Subject`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use posthaste::{Backoff, NewJob, WorkerHandle, enqueue_many};
use posthaste_relay::{Answer, Destination, Message, Relay, RelayBuilder};
use posthaste_testkit::{PgVersion, Proxy, Sql as _, TestDb, eventually};
use serde_json::{Value, json};
use tokio_postgres::Client;

use super::held::Held;
use crate::support::{SOON, all_done, count, database, unfinished, worker};

/// A message at the receiver.
#[derive(Clone, Debug, PartialEq)]
pub struct Received {
    /// The delivery id, as the receiver can read it.
    pub id: String,
    /// The payload, as the receiver's worker would read it.
    pub payload: Value,
}

/// A real receiver with a namespace for the test, through a proxy.
pub trait Subject: Send + Sync + Sized + 'static {
    /// Whether the receiver itself drops duplicates.
    const DEDUPLICATES: bool;
    /// The largest payload of the tests, in bytes.
    const LARGEST: usize = 1 << 20;
    /// The longest time of a small batch when each direction takes 100 ms.
    const TIME_LIMIT: Duration = Duration::from_secs(1);

    /// Starts it; `None` if this machine lacks the receiver, which is recorded.
    fn start() -> impl Future<Output = Option<Self>> + Send;
    /// Returns a new destination that sends through the proxy.
    fn destination(&self) -> impl Future<Output = Arc<dyn Destination>> + Send;
    fn proxy(&self) -> &Proxy;
    /// Delays everything that it receives.
    fn delay(&self, by: Duration) {
        self.proxy().delay(by);
    }
    /// Returns all messages that it received and still has, in their order.
    fn received(&self) -> impl Future<Output = Vec<Received>> + Send;
    /// Returns a job that it rejects permanently, if there is one.
    fn unacceptable(&self) -> Option<NewJob> {
        None
    }
    /// Makes it refuse everything for now, or accept messages again; false if it cannot.
    fn refuse_for_now(&self, _refuse: bool) -> impl Future<Output = bool> + Send {
        async { false }
    }
}

/// Defines the tests of a destination; `and` adds claims that not every receiver can show.
macro_rules! conformance {
    ($subject:ty: $($claim:ident),* $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $claim() {
            $crate::relay::conformance::$claim::<$subject>().await;
        }
    )*};
    ($subject:ty, and: $($claim:ident),* $(,)?) => {
        $crate::relay::conformance::conformance!($subject);
        $crate::relay::conformance::conformance!($subject: $($claim),*);
    };
    ($subject:ty) => {
        $crate::relay::conformance::conformance!($subject:
            messages_arrive_as_they_were_enqueued,
            duplicates_have_the_same_id_and_are_accepted,
            an_unreachable_destination_counts_no_attempt,
            slow_or_silent_destinations_lose_nothing,
            answers_lost_after_acceptance_lose_nothing,
            stopping_amid_a_batch_loses_nothing,
        );
    };
}
pub(crate) use conformance;

/// A subject and a database.
struct Setup<S> {
    subject: S,
    db: TestDb,
    client: Client,
}

impl<S: Subject> Setup<S> {
    async fn new() -> Option<Self> {
        let subject = S::start().await?;
        let db = database(PgVersion::any()).await;
        let client = db.client().await.unwrap();
        Some(Self {
            subject,
            db,
            client,
        })
    }

    async fn relay(&self) -> RelayBuilder {
        let quick = Duration::from_millis(50);
        Relay::to_any(self.subject.destination().await)
            .time_limit(Duration::from_secs(5))
            .backoff(Backoff {
                base: quick,
                cap: quick,
            })
    }

    async fn work(&self, relay: RelayBuilder) -> WorkerHandle {
        self.watched(relay).await.1
    }

    /// Starts a worker and returns the relay too, to read its status.
    async fn watched(&self, relay: RelayBuilder) -> (Relay, WorkerHandle) {
        let relay = relay.start().await.unwrap();
        let worker = worker(&self.db.pool(2).unwrap()).consumer("sent", relay.clone());
        (relay, worker.start().await.unwrap())
    }

    async fn enqueue(&self, jobs: &[NewJob]) -> Vec<String> {
        let ids = enqueue_many(&self.client, jobs).await.unwrap();
        let ids: Vec<i64> = ids.into_iter().map(|id| id.0).collect();
        let delivery = "SELECT posthaste.delivery_id(i)::text \
                        FROM unnest($1::bigint[]) WITH ORDINALITY u(i, n) ORDER BY n";
        self.client.rows_with(delivery, &[&ids]).await.unwrap()
    }

    async fn counted(&self) -> i64 {
        let counted = "SELECT coalesce(sum(attempt), 0)::bigint FROM posthaste.job";
        self.client.one(counted).await.unwrap()
    }

    /// Returns how often each id has arrived.
    async fn arrivals(&self) -> HashMap<String, usize> {
        let mut arrivals = HashMap::new();
        for one in self.subject.received().await {
            *arrivals.entry(one.id).or_default() += 1;
        }
        arrivals
    }

    /// Asserts that each has arrived: once if the receiver drops duplicates, else at least once.
    async fn all_arrived(&self, ids: &[String]) {
        let arrivals = self.arrivals().await;
        for id in ids {
            let times = arrivals.get(id).copied().unwrap_or(0);
            assert!(times > 0, "{id} never arrived");
            assert!(times == 1 || !S::DEDUPLICATES, "{id} arrived {times} times");
        }
        assert_eq!(arrivals.len(), ids.len(), "something that nobody sent");
    }
}

fn job(kwargs: &Value) -> NewJob {
    NewJob::new("mail", kwargs).unwrap().queue("sent")
}

fn jobs(count: usize) -> Vec<NewJob> {
    (0..count).map(|n| job(&json!({ "n": n }))).collect()
}

pub async fn messages_arrive_as_they_were_enqueued<S: Subject>() {
    let Some(setup) = Setup::<S>::new().await else {
        return;
    };
    let payloads = [
        json!({}),
        json!({ "text": "\u{0}é😀\u{2028}\"\\\n</script>".replace('\u{0}', "") }),
        json!({ "n": u64::MAX, "m": i64::MIN, "f": 0.1, "nil": null, "deep": [[[{ "a": [] }]]] }),
        json!({ "args": [1, "two", { "three": 3 }], "and": "more" }),
        json!({ "text": "x".repeat(S::LARGEST - 100) }),
    ];
    let ids = setup.enqueue(&payloads.each_ref().map(job)).await;
    let worker = setup.work(setup.relay().await).await;
    all_done(&setup.client).await;
    let received = setup.subject.received().await;
    let sent: HashMap<&String, &Value> = ids.iter().zip(&payloads).collect();
    assert_eq!(received.len(), payloads.len());
    for one in received {
        assert_eq!(Some(&&one.payload), sent.get(&one.id), "{}", one.id);
    }
    worker.stop().await.unwrap();
}

/// Sends everything twice, as after a lost answer.
struct Twice(Arc<dyn Destination>);

impl Destination for Twice {
    fn label(&self) -> String {
        self.0.label()
    }

    fn send<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Answer>> {
        Box::pin(async move {
            let first = self.0.send(batch).await;
            assert_eq!(first, vec![Answer::Accepted; batch.len()]);
            self.0.send(batch).await
        })
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        self.0.probe()
    }
}

pub async fn duplicates_have_the_same_id_and_are_accepted<S: Subject>() {
    let Some(setup) = Setup::<S>::new().await else {
        return;
    };
    let ids = setup.enqueue(&jobs(3)).await;
    let relay = Relay::to(Twice(setup.subject.destination().await));
    let worker = setup.work(relay).await;
    all_done(&setup.client).await;
    let arrivals = setup.arrivals().await;
    let times = if S::DEDUPLICATES { 1 } else { 2 };
    assert_eq!(arrivals, ids.into_iter().map(|id| (id, times)).collect());
    worker.stop().await.unwrap();
}

pub async fn a_permanently_rejected_message_does_not_affect_others<S: Subject>() {
    let Some(setup) = Setup::<S>::new().await else {
        return;
    };
    let bad = setup.subject.unacceptable();
    let bad = bad.expect("a job that it refuses for good");
    let mut batch = jobs(6);
    batch.insert(3, bad.queue("sent"));
    let mut ids = setup.enqueue(&batch).await;
    ids.remove(3);
    let worker = setup.work(setup.relay().await).await;
    eventually(SOON, "one is left", async || {
        let left = unfinished(&setup.client).await;
        Ok(left == 1 && count(&setup.client, "discarded").await == 1)
    })
    .await
    .unwrap();
    setup.all_arrived(&ids).await;
    worker.stop().await.unwrap();
}

pub async fn temporary_rejections_lose_nothing<S: Subject>() {
    let Some(setup) = Setup::<S>::new().await else {
        return;
    };
    let (relay, worker) = setup.watched(setup.relay().await).await;
    assert!(setup.subject.refuse_for_now(true).await);
    let ids = setup.enqueue(&jobs(20)).await;
    eventually(SOON, "it has refused", async || {
        let status = relay.status();
        Ok(status.retried + status.unavailable > 0 || status.down_since.is_some())
    })
    .await
    .unwrap();
    assert_eq!(unfinished(&setup.client).await, 20);
    assert!(setup.subject.refuse_for_now(false).await);
    all_done(&setup.client).await;
    setup.all_arrived(&ids).await;
    worker.stop().await.unwrap();
}

pub async fn an_unreachable_destination_counts_no_attempt<S: Subject>() {
    let Some(setup) = Setup::<S>::new().await else {
        return;
    };
    let proxy = setup.subject.proxy();
    let (relay, worker) = setup.watched(setup.relay().await).await;
    proxy.cut().await;
    let ids = setup.enqueue(&jobs(25)).await;
    let noticed = async || Ok(relay.status().down_since.is_some());
    eventually(SOON, "it is noticed", noticed).await.unwrap();
    assert_eq!(
        (unfinished(&setup.client).await, setup.counted().await),
        (25, 0)
    );
    proxy.restore().await.unwrap();
    all_done(&setup.client).await;
    setup.all_arrived(&ids).await;
    worker.stop().await.unwrap();
}

pub async fn slow_or_silent_destinations_lose_nothing<S: Subject>() {
    let Some(setup) = Setup::<S>::new().await else {
        return;
    };
    let proxy = setup.subject.proxy();
    let limit = S::TIME_LIMIT;
    let (relay, worker) = setup.watched(setup.relay().await.time_limit(limit)).await;
    let mut ids = setup.enqueue(&jobs(3)).await;
    all_done(&setup.client).await;
    proxy.delay(Duration::from_millis(100));
    ids.extend(setup.enqueue(&jobs(3)).await);
    all_done(&setup.client).await;
    proxy.half_open();
    ids.extend(setup.enqueue(&jobs(3)).await);
    let noticed = async || Ok(relay.status().down_since.is_some());
    eventually(SOON, "it is noticed", noticed).await.unwrap();
    proxy.restore().await.unwrap();
    all_done(&setup.client).await;
    setup.all_arrived(&ids).await;
    worker.stop().await.unwrap();
}

pub async fn answers_lost_after_acceptance_lose_nothing<S: Subject>() {
    let Some(setup) = Setup::<S>::new().await else {
        return;
    };
    let proxy = setup.subject.proxy();
    let worker = setup.work(setup.relay().await).await;
    // The connection must exist before its answers are lost.
    let mut ids = setup.enqueue(&jobs(1)).await;
    all_done(&setup.client).await;
    proxy.mute();
    ids.extend(setup.enqueue(&jobs(8)).await);
    let taken = async || Ok(setup.arrivals().await.len() > 1);
    eventually(SOON, "it has some", taken).await.unwrap();
    assert_eq!(unfinished(&setup.client).await, 8);
    proxy.restore().await.unwrap();
    proxy.reset();
    all_done(&setup.client).await;
    setup.all_arrived(&ids).await;
    worker.stop().await.unwrap();
}

pub async fn stopping_amid_a_batch_loses_nothing<S: Subject>() {
    let Some(setup) = Setup::<S>::new().await else {
        return;
    };
    let ids = setup.enqueue(&jobs(240)).await;
    setup.subject.delay(Duration::from_millis(20));
    for _ in 0..3 {
        // However late it is stopped, other messages are in flight.
        let held = Held::new(setup.subject.destination().await);
        let relay = Relay::to(held).time_limit(2 * SOON).start().await.unwrap();
        let worker = worker(&setup.db.pool(2).unwrap()).shutdown_grace(Duration::from_millis(1));
        let worker = worker.consumer("sent", relay).start().await.unwrap();
        let before = unfinished(&setup.client).await;
        let some = async || Ok(unfinished(&setup.client).await < before);
        eventually(SOON, "some are sent", some).await.unwrap();
        worker.stop().await.unwrap();
        assert!(unfinished(&setup.client).await > 0, "too late");
    }
    assert_eq!(setup.counted().await, 0);
    let worker = setup.work(setup.relay().await.batch(100)).await;
    all_done(&setup.client).await;
    setup.all_arrived(&ids).await;
    worker.stop().await.unwrap();
}

pub async fn messages_of_an_ordered_relay_arrive_in_order<S: Subject>() {
    let Some(setup) = Setup::<S>::new().await else {
        return;
    };
    let ids = setup.enqueue(&jobs(40)).await;
    let relay = setup.relay().await.ordered(true).batch(9);
    let worker = setup.work(relay).await;
    all_done(&setup.client).await;
    let received = setup.subject.received().await.into_iter();
    let received: Vec<String> = received.map(|one| one.id).collect();
    is_in_order_but_for_repeats(&received, &ids, if S::DEDUPLICATES { 0 } else { 9 });
    worker.stop().await.unwrap();
}

/// Late batches may repeat, whole or in parts, after no later one; else the order is the lane's.
fn is_in_order_but_for_repeats(received: &[String], ids: &[String], batch: usize) {
    let mut arrived = 0;
    for id in received {
        let place = ids.iter().position(|one| one == id).expect("its place");
        assert!(place <= arrived, "{id} came too early: {received:?}");
        assert!(
            place + batch >= arrived,
            "{id} came again late: {received:?}"
        );
        arrived = arrived.max(place + 1);
    }
    assert_eq!(arrived, ids.len(), "{received:?}");
}

pub async fn jobs_of_one_key_arrive_in_order<S: Subject>() {
    let Some(setup) = Setup::<S>::new().await else {
        return;
    };
    let keyed = |n: usize| {
        let job = NewJob::new("mail", &json!({ "n": n, "key": n % 3 })).unwrap();
        job.queue("sent").ordering_key(format!("key {}", n % 3))
    };
    let ids = setup.enqueue(&(0..15).map(keyed).collect::<Vec<_>>()).await;
    let worker = setup.work(setup.relay().await).await;
    all_done(&setup.client).await;
    setup.all_arrived(&ids).await;
    for key in 0..3 {
        let received = setup.subject.received().await.into_iter();
        let of_key = received.filter(|one| one.payload["key"] == key);
        let numbers: Vec<u64> = of_key.filter_map(|one| one.payload["n"].as_u64()).collect();
        let all: Vec<u64> = (key..15).step_by(3).collect();
        assert_eq!(numbers, all, "key {key}");
    }
    worker.stop().await.unwrap();
}
