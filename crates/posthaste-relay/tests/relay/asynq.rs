//! asynq: the suite on a real Redis, the keys that its own client writes, and a real asynq that
//! runs each task once.

use std::collections::HashMap;
use std::sync::Arc;

use posthaste::NewJob;
use posthaste_relay::{Asynq, Destination};
use posthaste_testkit::Proxy;
use posthaste_testkit::receivers::{Receiver, Redis, Worker, are_here};
use serde_json::{Value, json};

use super::conformance::{Received, Subject, conformance};
use super::redis::{Again, KEEPS, ProxiedRedis, Route, captured, keys};
use super::wrong_type::a_key_of_the_wrong_type_loses_nothing;
use crate::support::SOON;

struct Tasks(ProxiedRedis);

/// Returns the fields of a task that are texts or bytes, by their numbers.
pub(super) fn fields(redis: &Redis, key: &str) -> HashMap<u64, Vec<u8>> {
    // Lua returns hexadecimal digits, because bytes are not text.
    let script = "return (string.gsub(redis.call('HGET', KEYS[1], 'msg'), '.', function(sign) \
                  return string.format('%02x', string.byte(sign)) end))";
    let digits = redis.ask(&["EVAL", script, "1", key]).unwrap();
    let digits = digits.as_str().unwrap().as_bytes().chunks(2);
    let digit = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
    let mut bytes = digits.map(digit);
    let number = |bytes: &mut dyn Iterator<Item = u8>| {
        let mut number = 0;
        for (place, byte) in bytes.enumerate() {
            number |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    };
    let mut fields = HashMap::new();
    while let Some(key) = number(&mut bytes) {
        let value = number(&mut bytes).unwrap();
        if key & 7 == 2 {
            let length = usize::try_from(value).unwrap();
            fields.insert(key >> 3, bytes.by_ref().take(length).collect());
        }
    }
    fields
}

impl Subject for Tasks {
    const DEDUPLICATES: bool = true;

    async fn start() -> Option<Self> {
        ProxiedRedis::start("asynq").await.map(Self)
    }

    async fn destination(&self) -> Arc<dyn Destination> {
        Arc::new(Asynq::new(&self.0.url()).unwrap())
    }

    fn proxy(&self) -> &Proxy {
        &self.0.proxy
    }

    async fn received(&self) -> Vec<Received> {
        let ids = self.0.list("asynq:{default}:pending");
        ids.into_iter()
            .map(|id| {
                let task = fields(&self.0.redis, &format!("asynq:{{default}}:t:{id}"));
                assert_eq!(task[&3], id.as_bytes());
                let payload = serde_json::from_slice(&task[&2]).unwrap();
                Received { id, payload }
            })
            .collect()
    }

    fn unacceptable(&self) -> Option<NewJob> {
        // The type of a task must not be blank.
        Some(NewJob::new(" ", &json!({})).unwrap())
    }

    async fn refuse_for_now(&self, refuse: bool) -> bool {
        self.0.is_full(refuse);
        true
    }
}

conformance!(Tasks, and:
    a_permanently_rejected_message_does_not_affect_others,
    temporary_rejections_lose_nothing,
    messages_of_an_ordered_relay_arrive_in_order,
    jobs_of_one_key_arrive_in_order,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_survive_a_key_of_the_wrong_type() {
    let Some(tasks) = Tasks::start().await else {
        return;
    };
    let pending = "asynq:{default}:pending";
    a_key_of_the_wrong_type_loses_nothing(&tasks, &tasks.0.redis, pending).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_state_matches_the_asynq_client() {
    let Some(proxied) =
        ProxiedRedis::start("redis holds what asynq's own client leaves there").await
    else {
        return;
    };
    const ID: &str = "018f3c9e-7b1a-7c2d-9e3f-4a5b6c7d8e9f";
    let asynq = Asynq::new(&proxied.url()).unwrap().queue("mail");
    let route = Route::to(Arc::new(asynq)).await;
    let id = route.enqueue("mail:send", "{}", "").await;
    route.all_done().await;
    let comparable = |keys: serde_json::Map<String, Value>| {
        let mut keys: Value =
            serde_json::from_str(&Value::from(keys).to_string().replace(&id, ID)).unwrap();
        let task = keys[format!("asynq:{{mail}}:t:{ID}")]
            .as_object_mut()
            .unwrap();
        // The bytes are compared elsewhere.
        assert!(task.remove("msg").is_some());
        let since = task.remove("pending_since").unwrap();
        assert_eq!(since.as_str().unwrap().len(), "1795279451645518161".len());
        keys
    };
    let theirs = captured(include_str!("golden/asynq.json"), "queue");
    assert_eq!(comparable(keys(&proxied.redis)), comparable(theirs));
    route.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_asynq_runs_each_task_once() {
    if !are_here(
        "a_real_asynq_runs_each_task_once",
        &[Receiver::Redis, Receiver::Asynq],
    ) {
        return;
    }
    let redis = Arc::new(Redis::start(KEEPS).unwrap());
    let asynq = Worker::asynq(&redis.url(), &["mail"]).unwrap();
    let destination = Asynq::new(&redis.url()).unwrap().queue("mail").max_retry(3);
    let have_run = {
        let redis = Arc::clone(&redis);
        move |count| redis.ask(&["ZCARD", "asynq:{mail}:completed"]).unwrap() == json!(count)
    };
    let route = Route::to(Again::new(destination, have_run)).await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let kwargs = json!({ "to": "ü", "n": u64::MAX });
    let more = format!(", trace => '{trace}'");
    let first = route.enqueue("mail:send", &kwargs.to_string(), &more).await;
    route.all_done().await;
    let last = route.enqueue("mail:last", "{}", "").await;
    route.all_done().await;
    let effects = asynq.wait_for(2, SOON).await.unwrap();
    let ids: Vec<&str> = effects.iter().map(|effect| effect.id.as_str()).collect();
    assert_eq!(ids, [&first, &last]);
    assert_eq!(effects[0].name, "mail:send");
    assert_eq!(effects[0].args, kwargs);
    assert_eq!(effects[0].all["headers"], json!({ "traceparent": trace }));
    assert_eq!(effects[0].all["max_retry"], 3);
    route.stop().await;
}
