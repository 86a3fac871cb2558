//! Sidekiq: its wire format byte for byte, the suite on a real Redis, and a real Sidekiq that runs what it is sent.

use std::sync::Arc;
use std::time::Duration;

use posthaste::relay::{Destination, Relay, Sidekiq};
use posthaste_testkit::receivers::{Receiver, Redis, Worker, are_here};
use posthaste_testkit::{PgVersion, Proxy};
use serde_json::Value;

use super::conformance::{Received, Subject, conformance};
use crate::support::{SOON, all_done, database, worker};

/// Redis with settings that keep what it takes.
pub(super) const KEEPS: &[(&str, &str)] = &[("appendonly", "yes")];

struct Queues {
    redis: Redis,
    proxy: Proxy,
}

impl Queues {
    fn jobs(&self) -> Vec<Value> {
        let list = self
            .redis
            .ask(&["LRANGE", "queue:default", "0", "-1"])
            .unwrap();
        let list: Vec<String> = serde_json::from_value(list).unwrap();
        // The newest is the first of the list; the worker takes the last.
        let jobs = list.iter().rev();
        jobs.map(|job| serde_json::from_str(job).unwrap()).collect()
    }
}

impl Subject for Queues {
    const DEDUPLICATES: bool = false;
    const IS_ORDERED: bool = true;

    async fn start() -> Option<Self> {
        if !are_here("sidekiq", &[Receiver::Redis]) {
            return None;
        }
        let redis = Redis::start(KEEPS).unwrap();
        let target = ([127, 0, 0, 1], redis.port()).into();
        let proxy = Proxy::start_raw(target).await.unwrap();
        Some(Self { redis, proxy })
    }

    async fn destination(&self) -> Arc<dyn Destination> {
        let url = format!("redis://{}/0", self.proxy.address());
        Arc::new(Sidekiq::new(&url).unwrap())
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    async fn received(&self) -> Vec<Received> {
        let jobs = self.jobs().into_iter();
        jobs.map(|mut job| {
            let id = job["delivery_id"].as_str().unwrap().to_owned();
            assert_eq!(job["jid"], id.replace('-', "")[8..]);
            Received {
                payload: job["args"][0].take(),
                id,
            }
        })
        .collect()
    }

    async fn refuse_for_now(&self, refuse: bool) -> bool {
        let most = if refuse { "1" } else { "0" };
        self.redis
            .ask(&["CONFIG", "SET", "maxmemory", most])
            .unwrap();
        true
    }
}

conformance!(Queues);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_sidekiq_runs_what_it_is_sent() {
    if !are_here(
        "a_real_sidekiq_runs_what_it_is_sent",
        &[Receiver::Redis, Receiver::Sidekiq],
    ) {
        return;
    }
    let redis = Redis::start(KEEPS).unwrap();
    let sidekiq = Worker::sidekiq(&redis.url(), &["mail"]).unwrap();
    let db = database(PgVersion::V15).await;
    let client = db.client().await.unwrap();
    let enqueue = r#"SELECT posthaste.enqueue('MailJob', '{"args": [1, "ü"]}', queue => 'm'), posthaste.enqueue('MailJob', '{"to": "ada"}', queue => 'm')"#;
    client.batch_execute(enqueue).await.unwrap();
    let destination = Sidekiq::new(&redis.url()).unwrap().queue("mail");
    let relay = Relay::to(destination).start().await.unwrap();
    let worker = worker(&db.pool(2).unwrap()).consumer("m", relay);
    let worker = worker.start().await.unwrap();
    all_done(&client).await;
    let mut effects = sidekiq.wait_for(2, SOON).await.unwrap();
    effects.sort_by_key(|effect| effect.args.to_string());
    assert_eq!(effects[0].name, "MailJob");
    let args: Vec<&Value> = effects.iter().map(|effect| &effect.args).collect();
    assert_eq!(
        args,
        [
            &serde_json::json!([1, "ü"]),
            &serde_json::json!([{ "to": "ada" }])
        ]
    );
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_that_forgets_is_refused_by_the_name_of_its_setting() {
    if !are_here(
        "redis_that_forgets_is_refused_by_the_name_of_its_setting",
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
        let relay = || Relay::to(Sidekiq::new(&redis.url()).unwrap());
        let refused = relay().start().await.err().unwrap().to_string();
        assert!(refused.contains(&format!("{name}: is ")), "{refused}");
        assert!(relay().allow(name).start().await.is_ok());
        // Whoever waits for effects loses nothing with it.
        let lease = Duration::from_secs(60);
        let done = relay().strength(posthaste::relay::Strength::Done { lease });
        assert!(done.start().await.is_ok());
    }
}
