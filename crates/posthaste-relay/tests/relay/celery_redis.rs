//! Celery over Redis: the suite on a real Redis, the keys that its own client writes, and a real
//! Celery that runs the tasks.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use posthaste_relay::{Celery, Destination};
use posthaste_testkit::Proxy;
use posthaste_testkit::receivers::{Receiver, Redis, Worker, are_here};
use serde_json::{Map, Value, json};

use super::conformance::{Received, Subject, conformance};
use super::redis::{Again, KEEPS, ProxiedRedis, Route, captured, keys};
use super::wrong_type::{
    a_conflicting_queue_spares_the_rest_of_its_batch, a_key_of_the_wrong_type_loses_nothing,
};
use crate::support::SOON;

struct Tasks(ProxiedRedis);

impl Subject for Tasks {
    const DEDUPLICATES: bool = false;

    async fn start() -> Option<Self> {
        ProxiedRedis::start("celery on redis").await.map(Self)
    }

    async fn destination(&self) -> Arc<dyn Destination> {
        Arc::new(Celery::redis(&self.0.url()).unwrap())
    }

    fn proxy(&self) -> &Proxy {
        &self.0.proxy
    }

    async fn received(&self) -> Vec<Received> {
        let tasks = self.0.list("celery").into_iter();
        tasks
            .map(|task| {
                let task: Value = serde_json::from_str(&task).unwrap();
                let body = STANDARD.decode(task["body"].as_str().unwrap()).unwrap();
                let mut body: Value = serde_json::from_slice(&body).unwrap();
                assert_eq!(body[0], json!([]));
                Received {
                    id: task["headers"]["id"].as_str().unwrap().to_owned(),
                    payload: body[1].take(),
                }
            })
            .collect()
    }

    async fn refuse_for_now(&self, refuse: bool) -> bool {
        self.0.is_full(refuse);
        true
    }
}

conformance!(Tasks, and:
    temporary_rejections_lose_nothing,
    messages_of_an_ordered_relay_arrive_in_order,
    jobs_of_one_key_arrive_in_order,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_survive_a_key_of_the_wrong_type() {
    let Some(tasks) = Tasks::start().await else {
        return;
    };
    a_key_of_the_wrong_type_loses_nothing(&tasks, &tasks.0.redis, "celery").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_the_wrong_type_affects_one_queue_only() {
    let Some(tasks) = Tasks::start().await else {
        return;
    };
    let celery = tasks.destination().await;
    a_conflicting_queue_spares_the_rest_of_its_batch(celery, &tasks.0, "").await;
}

/// Returns the comparable content of the keys: the lengths of lists, the members of sets.
fn comparable(keys: Map<String, Value>) -> BTreeMap<String, Value> {
    let shown = |(key, value): (String, Value)| {
        let value = match key.starts_with("_kombu") {
            true => value[0].clone(),
            false => json!(value.as_array().unwrap().len()),
        };
        let value = match value["base64"].as_str() {
            Some(bytes) => String::from_utf8(STANDARD.decode(bytes).unwrap())
                .unwrap()
                .into(),
            None => value,
        };
        (key, value)
    };
    keys.into_iter().map(shown).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_state_matches_the_celery_client() {
    let Some(proxied) =
        ProxiedRedis::start("redis holds what Celery's own client leaves there").await
    else {
        return;
    };
    let celery = Celery::redis(&proxied.url()).unwrap().queue("mail");
    let route = Route::to(Arc::new(celery)).await;
    for (case, more) in [("immediate", ""), ("options", ", priority => 3")] {
        proxied.redis.ask(&["FLUSHALL"]).unwrap();
        route.enqueue("mail.send", "{}", more).await;
        route.all_done().await;
        let theirs = captured(include_str!("golden/celery_redis.json"), case);
        assert_eq!(
            comparable(keys(&proxied.redis)),
            comparable(theirs),
            "{case}"
        );
    }
    route.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_celery_on_redis_runs_each_task() {
    if !are_here(
        "a_real_celery_on_redis_runs_each_task",
        &[Receiver::Redis, Receiver::Celery],
    ) {
        return;
    }
    let redis = Redis::start(KEEPS).unwrap();
    let celery = Arc::new(Worker::celery(&redis.url(), &["mail"]).unwrap());
    let destination = Celery::redis(&redis.url()).unwrap().queue("mail").expires();
    let have_run = {
        let celery = Arc::clone(&celery);
        // Each has arrived twice when the next is sent, except the last.
        move |count| celery.effects().unwrap().len() >= 2 * count - 1
    };
    let route = Route::to(Again::new(destination, have_run)).await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let kwargs = json!({ "to": "ü", "n": u64::MAX, "traceparent": trace });
    let first = route.enqueue("mail.send", &kwargs.to_string(), "").await;
    route.all_done().await;
    celery.wait_for(2, SOON).await.unwrap();
    let list = r#"{"args": [1, "two"]}"#;
    let last = route.enqueue("mail.last", list, ", priority => 9").await;
    route.all_done().await;
    // Celery detects no duplicates: both have the id, by which `posthaste.inbox` detects them.
    let effects = celery.wait_for(4, SOON).await.unwrap();
    let ids: Vec<&str> = effects.iter().map(|effect| effect.id.as_str()).collect();
    assert_eq!(ids, [&first, &first, &last, &last]);
    assert_eq!(effects[0].name, "mail.send");
    assert_eq!(
        (&effects[0].args, &effects[0].all["kwargs"]),
        (&json!([]), &kwargs)
    );
    assert_eq!(effects[0].all["headers"]["traceparent"], trace);
    assert_eq!(effects[0].all["root_id"], json!(first));
    assert_eq!(
        (&effects[2].args, &effects[2].all["kwargs"]),
        (&json!([1, "two"]), &json!({}))
    );
    route.stop().await;
}
