//! Shared parts of the tests of Redis destinations, and claims that hold for each of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use posthaste::{Backoff, WorkerHandle};
use posthaste_relay::{
    Answer, Asynq, BullMq, Celery, Destination, Mapping, Message, Relay, Sidekiq,
};
use posthaste_testkit::receivers::{Receiver, Redis, are_here};
use posthaste_testkit::{PgVersion, Proxy, Sql as _, TestDb, eventually};
use serde_json::{Map, Value, json};
use tokio_postgres::Client;

use crate::support::{SOON, all_done, database, worker};

/// Settings with which Redis keeps accepted messages.
pub(super) const KEEPS: &[(&str, &str)] = &[("appendonly", "yes")];

/// A Redis server that is reached through a proxy.
pub(super) struct ProxiedRedis {
    pub(super) redis: Redis,
    pub(super) proxy: Proxy,
}

impl ProxiedRedis {
    /// Starts it; `None` if this machine has no Redis, which is recorded for this test.
    pub(super) async fn start(test: &str) -> Option<Self> {
        if !are_here(test, &[Receiver::Redis]) {
            return None;
        }
        let redis = Redis::start(KEEPS).unwrap();
        let target = ([127, 0, 0, 1], redis.port()).into();
        let proxy = Proxy::start_raw(target).await.unwrap();
        Some(Self { redis, proxy })
    }

    /// Returns its URL through the proxy.
    pub(super) fn url(&self) -> String {
        format!("redis://{}/0", self.proxy.address())
    }

    /// Returns the elements of a list, the oldest first: workers take the last.
    pub(super) fn list(&self, key: &str) -> Vec<String> {
        let list = self.redis.ask(&["LRANGE", key, "0", "-1"]).unwrap();
        let mut list: Vec<String> = serde_json::from_value(list).unwrap();
        list.reverse();
        list
    }

    /// Leaves it no room for anything, or lifts the limit.
    pub(super) fn is_full(&self, is_full: bool) {
        let most = if is_full { "1" } else { "0" };
        let set = ["CONFIG", "SET", "maxmemory", most];
        self.redis.ask(&set).unwrap();
    }
}

/// Returns all keys of a Redis and their content, in the form of the captures.
pub(super) fn keys(redis: &Redis) -> Map<String, Value> {
    let ask = |command: &[&str]| redis.ask(command).unwrap();
    let names: Vec<String> = serde_json::from_value(ask(&["KEYS", "*"])).unwrap();
    let of = |key: &str| match ask(&["TYPE", key]).as_str().unwrap() {
        "string" => ask(&["GET", key]),
        "hash" => ask(&["HGETALL", key]),
        "list" => ask(&["LRANGE", key, "0", "-1"]),
        "set" => ask(&["SMEMBERS", key]),
        "zset" => {
            let members: Vec<(String, f64)> =
                serde_json::from_value(ask(&["ZRANGE", key, "0", "-1", "WITHSCORES"])).unwrap();
            json!(members)
        }
        "stream" => {
            let entries: Vec<(String, Vec<String>)> =
                serde_json::from_value(ask(&["XRANGE", key, "-", "+"])).unwrap();
            let entry = |(_, fields): (String, Vec<String>)| {
                let pairs = fields.chunks(2);
                let pairs = pairs.map(|pair| (pair[0].clone(), pair[1].clone().into()));
                Value::Object(pairs.collect())
            };
            entries.into_iter().map(entry).collect()
        }
        kind => panic!("{key} is a {kind}"),
    };
    names.iter().map(|key| (key.clone(), of(key))).collect()
}

/// Returns the keys after a case of a capture.
pub(super) fn captured(capture: &str, case: &str) -> Map<String, Value> {
    let mut capture: Value = serde_json::from_str(capture).unwrap();
    let cases = capture["cases"].as_array_mut().unwrap();
    let found = cases.iter_mut().find(|one| one["case"] == case).unwrap();
    let Value::Object(keys) = found["keys"].take() else {
        panic!("no keys")
    };
    let values = keys.into_iter();
    values
        .map(|(key, mut one)| (key, one["value"].take()))
        .collect()
}

/// A database with a relay for the queue `m`.
pub(super) struct Route {
    pub(super) client: Client,
    pub(super) relay: Relay,
    worker: WorkerHandle,
    _db: TestDb,
}

impl Route {
    pub(super) async fn to(destination: Arc<dyn Destination>) -> Self {
        Self::with(destination, Mapping::default()).await
    }

    pub(super) async fn with(destination: Arc<dyn Destination>, mapping: Mapping) -> Self {
        let db = database(PgVersion::any()).await;
        let client = db.client().await.unwrap();
        let quick = Duration::from_millis(50);
        let backoff = Backoff {
            base: quick,
            cap: quick,
        };
        let relay = Relay::to_any(destination).mapping(mapping).backoff(backoff);
        let relay = relay.start().await.unwrap();
        let worker = worker(&db.pool(2).unwrap()).consumer("m", relay.clone());
        Self {
            worker: worker.start().await.unwrap(),
            client,
            relay,
            _db: db,
        }
    }

    /// Enqueues a job with more columns in SQL; returns its delivery id.
    pub(super) async fn enqueue(&self, name: &str, kwargs: &str, more: &str) -> String {
        let enqueue = format!(
            "SELECT posthaste.delivery_id(posthaste.enqueue($1, $2::text::jsonb, \
             queue => 'm'{more}))::text"
        );
        let row = self.client.query_one(&enqueue, &[&name, &kwargs]).await;
        row.unwrap().get(0)
    }

    pub(super) async fn all_done(&self) {
        all_done(&self.client).await;
    }

    pub(super) async fn stop(self) {
        self.worker.stop().await.unwrap();
    }
}

/// Sends everything twice, the second time after it was run.
pub(super) struct Again {
    destination: Arc<dyn Destination>,
    sent: AtomicUsize,
    have_run: Box<dyn Fn(usize) -> bool + Send + Sync>,
}

impl Again {
    /// `have_run` returns whether this many have.
    pub(super) fn new(
        destination: impl Destination,
        have_run: impl Fn(usize) -> bool + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            destination: Arc::new(destination),
            sent: AtomicUsize::new(0),
            have_run: Box::new(have_run),
        })
    }
}

impl Destination for Again {
    fn label(&self) -> String {
        self.destination.label()
    }

    fn send<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Answer>> {
        Box::pin(async move {
            let first = self.destination.send(batch).await;
            assert_eq!(first, vec![Answer::Accepted; batch.len()]);
            let sent = self.sent.fetch_add(batch.len(), Ordering::Relaxed) + batch.len();
            let deadline = Instant::now() + SOON;
            while !(self.have_run)(sent) {
                assert!(Instant::now() < deadline, "they have not run");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            self.destination.send(batch).await
        })
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        self.destination.probe()
    }
}

pub(super) fn all(url: &str) -> [Arc<dyn Destination>; 4] {
    [
        Arc::new(Asynq::new(url).unwrap()),
        Arc::new(BullMq::new(url, "mail").unwrap()),
        Arc::new(Celery::redis(url).unwrap()),
        Arc::new(Sidekiq::new(url).unwrap()),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsafe_redis_settings_are_refused_by_name() {
    if !are_here(
        "unsafe_redis_settings_are_refused_by_name",
        &[Receiver::Redis],
    ) {
        return;
    }
    for (settings, name) in [
        (&[("appendonly", "no")][..], "appendonly"),
        (
            &[("appendonly", "yes"), ("maxmemory-policy", "allkeys-lru")],
            "maxmemory-policy",
        ),
    ] {
        let redis = Redis::start(settings).unwrap();
        for destination in all(&redis.url()) {
            let relay = || Relay::to_any(Arc::clone(&destination));
            let refused = relay().start().await.err().unwrap().to_string();
            assert!(refused.contains(&format!("{name}: is ")), "{refused}");
            assert!(relay().allow_unsafe(name).start().await.is_ok());
            // A relay that waits for confirmed effects loses nothing with it.
            let lease = Duration::from_secs(60);
            let done = relay().ack(posthaste_relay::Ack::Confirmed { lease });
            assert!(done.start().await.is_ok());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejects_duplicate_windows_shorter_than_the_longest_outage() {
    let Some(proxied) =
        ProxiedRedis::start("a duplicate window shorter than an outage is refused").await
    else {
        return;
    };
    let minute = Duration::from_secs(60);
    let asynq = Asynq::new(&proxied.url()).unwrap().retention(minute);
    let bullmq = BullMq::new(&proxied.url(), "mail").unwrap();
    let bullmq = bullmq.remove_on_complete(minute);
    let failed = BullMq::new(&proxied.url(), "mail").unwrap();
    let failed = failed.remove_on_fail(minute);
    let destinations: [(Arc<dyn Destination>, &str); 3] = [
        (Arc::new(asynq), "retention"),
        (Arc::new(bullmq), "removeOnComplete"),
        (Arc::new(failed), "removeOnFail"),
    ];
    for (destination, name) in destinations {
        let relay = || Relay::to_any(Arc::clone(&destination));
        let refused = relay().start().await.err().unwrap().to_string();
        assert!(refused.contains(&format!("{name}: is 60 s")), "{refused}");
        assert!(relay().allow_unsafe(name).start().await.is_ok());
    }
    for destination in all(&proxied.url()) {
        assert!(Relay::to_any(destination).start().await.is_ok());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_redis_counts_as_down() {
    let Some(proxied) =
        ProxiedRedis::start("Redis that would take nothing is not thought to be there").await
    else {
        return;
    };
    let all = all(&proxied.url());
    let probe = async |reason: Option<&str>| {
        for destination in &all {
            match (destination.probe().await, reason) {
                (Err(error), Some(reason)) => assert!(error.contains(reason), "{error}"),
                (error, reason) => assert_eq!((error, reason), (Ok(()), None)),
            }
        }
    };
    probe(None).await;
    proxied.is_full(true);
    probe(Some("OOM")).await;
    proxied.is_full(false);
    probe(None).await;
    proxied.redis.ask(&["REPLICAOF", "127.0.0.1", "1"]).unwrap();
    probe(Some("READONLY")).await;
    proxied.redis.ask(&["REPLICAOF", "NO", "ONE"]).unwrap();
    probe(None).await;
    // The check leaves no key.
    assert_eq!(proxied.redis.ask(&["DBSIZE"]).unwrap(), json!(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_redis_counts_no_attempt() {
    let Some(proxied) = ProxiedRedis::start("a full Redis counts as no attempt").await else {
        return;
    };
    for destination in all(&proxied.url()) {
        let route = Route::to(destination).await;
        proxied.is_full(true);
        route.enqueue("mail", "{}", "").await;
        eventually(SOON, "the error is reported", async || {
            let error = route.relay.status().last_error.unwrap_or_default();
            Ok(error.contains("OOM") && route.relay.status().down_since.is_some())
        })
        .await
        .unwrap();
        let counted = "SELECT coalesce(sum(attempt), 0)::bigint FROM posthaste.job";
        let counted: i64 = route.client.one(counted).await.unwrap();
        assert_eq!(counted, 0);
        proxied.is_full(false);
        route.all_done().await;
        assert_eq!(route.relay.status().retried, 0);
        route.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_in_addresses_never_leak() {
    let Some(proxied) = ProxiedRedis::start("secrets of an address are never shown").await else {
        return;
    };
    let url = format!("redis://ada:sesame@{}/3", proxied.proxy.address());
    let is_silent = |error: &str| {
        assert!(
            !error.contains("ada") && !error.contains("sesame"),
            "{error}"
        );
    };
    for destination in all(&url) {
        let label = destination.label();
        assert!(
            label.ends_with(&format!("{}/3", proxied.proxy.address())),
            "{label}"
        );
        is_silent(&label);
        // Redis has no such user.
        let refused = destination.probe().await.unwrap_err();
        assert!(refused.contains("authentication failed"), "{refused}");
        is_silent(&refused);
        is_silent(
            &destination
                .unsafe_settings(SOON)
                .await
                .unwrap_err()
                .to_string(),
        );
        let relay = Relay::to_any(destination).start().await.unwrap();
        is_silent(&format!("{:?}", relay.status()));
    }
    proxied.proxy.cut().await;
    for destination in all(&url) {
        is_silent(&destination.probe().await.unwrap_err());
    }
    let bad = "redis://ada:sesame@a host/";
    let refused = [
        Asynq::new(bad).err(),
        BullMq::new(bad, "mail").err(),
        Celery::redis(bad).err(),
        Sidekiq::new(bad).err(),
    ];
    for error in refused {
        is_silent(&format!("{:?}", error.unwrap()));
    }
}
