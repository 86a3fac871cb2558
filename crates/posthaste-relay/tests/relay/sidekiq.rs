//! Sidekiq: its wire format byte for byte, the suite on a real Redis, and a real Sidekiq that runs
//! the jobs.

use std::sync::Arc;

use posthaste_relay::{Destination, Relay, Sidekiq};
use posthaste_testkit::receivers::{Receiver, Redis, Worker, are_here};
use posthaste_testkit::{PgVersion, Proxy, Sql as _, eventually};
use serde_json::{Value, json};

use super::conformance::{Received, Subject, conformance};
use super::redis::{KEEPS, ProxiedRedis, Route};
use super::wrong_type::{
    a_conflicting_queue_spares_the_rest_of_its_batch, a_key_of_the_wrong_type_loses_nothing,
};
use crate::support::{SOON, all_done, database, worker};

struct Queues(ProxiedRedis);

impl Subject for Queues {
    const DEDUPLICATES: bool = false;

    async fn start() -> Option<Self> {
        ProxiedRedis::start("sidekiq").await.map(Self)
    }

    async fn destination(&self) -> Arc<dyn Destination> {
        Arc::new(Sidekiq::new(&self.0.url()).unwrap())
    }

    fn proxy(&self) -> &Proxy {
        &self.0.proxy
    }

    async fn received(&self) -> Vec<Received> {
        let jobs = self.0.list("queue:default").into_iter();
        jobs.map(|job| {
            let mut job: Value = serde_json::from_str(&job).unwrap();
            let id = job["delivery_id"].as_str().unwrap().to_owned();
            assert_eq!(job["jid"], id.replace('-', "")[8..]);
            // A job without arguments is a call without arguments.
            let payload = match job["args"].as_array().map(Vec::len) {
                Some(0) => json!({}),
                _ => job["args"][0].take(),
            };
            Received { payload, id }
        })
        .collect()
    }

    async fn refuse_for_now(&self, refuse: bool) -> bool {
        self.0.is_full(refuse);
        true
    }
}

conformance!(Queues, and:
    temporary_rejections_lose_nothing,
    messages_of_an_ordered_relay_arrive_in_order,
    jobs_of_one_key_arrive_in_order,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_survive_a_key_of_the_wrong_type() {
    let Some(queues) = Queues::start().await else {
        return;
    };
    let queue = "queue:default";
    a_key_of_the_wrong_type_loses_nothing(&queues, &queues.0.redis, queue).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_the_wrong_type_affects_one_queue_only() {
    let Some(queues) = Queues::start().await else {
        return;
    };
    let sidekiq = queues.destination().await;
    a_conflicting_queue_spares_the_rest_of_its_batch(sidekiq, &queues.0, "queue:").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_sidekiq_runs_each_job() {
    if !are_here(
        "a_real_sidekiq_runs_each_job",
        &[Receiver::Redis, Receiver::Sidekiq],
    ) {
        return;
    }
    let redis = Redis::start(KEEPS).unwrap();
    let sidekiq = Worker::sidekiq(&redis.url(), &["mail"]).unwrap();
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let enqueue = r#"SELECT posthaste.enqueue('MailJob', '{"args": [1, "ü"]}', queue => 'm',
                            trace => '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 a=b'),
                          posthaste.enqueue('MailJob', '{"to": "ada"}', queue => 'm')"#;
    client.run(enqueue).await.unwrap();
    let destination = Sidekiq::new(&redis.url()).unwrap().queue("mail");
    let relay = Relay::to(destination).start().await.unwrap();
    let worker = worker(&db.pool(2).unwrap()).consumer("m", relay);
    let worker = worker.start().await.unwrap();
    all_done(&client).await;
    let mut effects = sidekiq.wait_for(2, SOON).await.unwrap();
    effects.sort_by_key(|effect| effect.args.to_string());
    assert_eq!(effects[0].name, "MailJob");
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let job = &effects[0].all["job"];
    assert_eq!(
        (&job["traceparent"], &job["tracestate"]),
        (&parent.into(), &"a=b".into())
    );
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
async fn a_real_sidekiq_class_controls_its_own_retries() {
    if !are_here(
        "a_real_sidekiq_class_controls_its_own_retries",
        &[Receiver::Redis, Receiver::Sidekiq],
    ) {
        return;
    }
    let redis = Redis::start(KEEPS).unwrap();
    let _sidekiq = Worker::sidekiq(&redis.url(), &["mail"]).unwrap();
    let ask = |command: &[&str]| redis.ask(command).unwrap();
    // The class disables retries; then the route enables them.
    let mut ids = Vec::new();
    for destination in [
        Sidekiq::new(&redis.url()).unwrap(),
        Sidekiq::new(&redis.url()).unwrap().retry(true),
    ] {
        let route = Route::to(Arc::new(destination.queue("mail"))).await;
        ids.push(route.enqueue("ChargeJob", "{}", "").await);
        route.all_done().await;
        route.stop().await;
    }
    let raised = async || Ok(ask(&["GET", "stat:failed"]) == "2");
    eventually(SOON, "both have raised", raised).await.unwrap();
    let again = ask(&["ZRANGE", "retry", "0", "-1"]).to_string();
    assert!(again.contains(&ids[1]), "{again}");
    assert!(!again.contains(&ids[0]), "{again}");
}
