//! BullMQ: the suite on a real Redis, the keys that its own client writes, and a real BullMQ that
//! is woken by each job and runs it once.

use std::process::Command;
use std::sync::Arc;

use posthaste_relay::{BullMq, Destination, Mapping, Template};
use posthaste_testkit::receivers::{Receiver, Redis, Worker, are_here};
use posthaste_testkit::{Proxy, Sql as _, TestResult, eventually};
use serde_json::{Map, Value, json};

use super::conformance::{Received, Subject, conformance};
use super::outcome_of;
use super::redis::{Again, KEEPS, ProxiedRedis, Route, captured, keys};
use super::wrong_type::a_key_of_the_wrong_type_loses_nothing;
use crate::support::SOON;

const CAPTURE: &str = include_str!("golden/bullmq.json");
const ID: &str = "018f3c9e-7b1a-7c2d-9e3f-4a5b6c7d8e9f";

struct Jobs(ProxiedRedis);

impl Subject for Jobs {
    const DEDUPLICATES: bool = true;

    async fn start() -> Option<Self> {
        ProxiedRedis::start("bullmq").await.map(Self)
    }

    async fn destination(&self) -> Arc<dyn Destination> {
        Arc::new(BullMq::new(&self.0.url(), "mail").unwrap())
    }

    fn proxy(&self) -> &Proxy {
        &self.0.proxy
    }

    async fn received(&self) -> Vec<Received> {
        let ids = self.0.list("bull:mail:wait").into_iter();
        ids.map(|id| {
            let data = ["HGET", &format!("bull:mail:{id}"), "data"];
            let data = self.0.redis.ask(&data).unwrap();
            let payload = serde_json::from_str(data.as_str().unwrap()).unwrap();
            Received { id, payload }
        })
        .collect()
    }

    async fn refuse_for_now(&self, refuse: bool) -> bool {
        self.0.is_full(refuse);
        true
    }
}

conformance!(Jobs, and:
    temporary_rejections_lose_nothing,
    messages_of_an_ordered_relay_arrive_in_order,
    jobs_of_one_key_arrive_in_order,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_survive_a_key_of_the_wrong_type() {
    let Some(jobs) = Jobs::start().await else {
        return;
    };
    let wait = "bull:mail:wait";
    a_key_of_the_wrong_type_loses_nothing(&jobs, &jobs.0.redis, wait).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_bullmq_queue_names_are_rejected_alone() -> TestResult {
    let Some(jobs) = Jobs::start().await else {
        return Ok(());
    };
    let queue = Template::parse("{kwargs.to}").unwrap();
    let mapping = Mapping::default().queue(queue);
    let route = Route::with(jobs.destination().await, mapping).await;
    let enqueue = "SELECT posthaste.enqueue(t, jsonb_build_object('to', t), queue => 'm') \
                   FROM unnest('{mail,a:b,mail}'::text[]) t";
    route.client.run(enqueue).await?;
    eventually(SOON, "one is refused, two have arrived", async || {
        let status = route.relay.status();
        Ok((status.rejected, status.accepted) == (1, 2))
    })
    .await?;
    let outcome = || outcome_of(&route.client, "a:b");
    eventually(SOON, "the job is discarded", async || {
        Ok(outcome()
            .await
            .is_some_and(|(state, ..)| state == "discarded"))
    })
    .await?;
    let (_, _, reason) = outcome().await.unwrap();
    let why = "a BullMQ queue needs a name without a colon";
    assert_eq!(
        (reason.as_deref(), jobs.received().await.len()),
        (Some(why), 2)
    );
    route.stop().await;
    Ok(())
}

/// Removes values that differ by library and time, and parses JSON in strings.
fn comparable(keys: Map<String, Value>, id: &str) -> Value {
    let text = Value::from(keys).to_string().replace(id, ID);
    let mut keys: Value = serde_json::from_str(&text).unwrap();
    let meta = keys["bull:mail:meta"].as_object_mut().unwrap();
    // The client writes its own version.
    meta.remove("version");
    let job = &mut keys[format!("bull:mail:{ID}")];
    for field in ["data", "opts"] {
        job[field] = serde_json::from_str(job[field].as_str().unwrap()).unwrap();
    }
    let timestamp = job["timestamp"].take();
    assert_eq!(
        job["opts"]["timestamp"].to_string(),
        timestamp.as_str().unwrap()
    );
    let options = job["opts"].as_object_mut().unwrap();
    options.remove("timestamp");
    options.remove("removeOnComplete");
    keys
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_state_matches_the_bullmq_client() {
    let Some(proxied) =
        ProxiedRedis::start("redis holds what BullMQ's own client leaves there").await
    else {
        return;
    };
    let destination = || BullMq::new(&proxied.url(), "mail").unwrap();
    let immediate = json!({ "to": "a@example.com", "n": 1 }).to_string();
    for (case, data, more, times) in [
        ("immediate", immediate.as_str(), "", 1),
        ("priority", "[1]", ", priority => 5", 1),
        ("twice", "[1]", "", 2),
    ] {
        proxied.redis.ask(&["FLUSHALL"]).unwrap();
        let destination: Arc<dyn Destination> = match times {
            1 => Arc::new(destination()),
            _ => Again::new(destination(), |_| true),
        };
        let mapping = Mapping::default().payload(Template::text(data));
        let route = Route::with(destination, mapping).await;
        let id = route.enqueue("mail:send", "{}", more).await;
        route.all_done().await;
        let theirs = comparable(captured(CAPTURE, case), ID);
        assert_eq!(comparable(keys(&proxied.redis), &id), theirs, "{case}");
        route.stop().await;
    }
}

/// Returns the events that the worker received, with the ids of their jobs.
fn heard(worker: &Worker) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(worker.path().join("effects.events")).unwrap();
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_bullmq_is_woken_and_runs_each_job_once() -> TestResult {
    if !are_here(
        "a_real_bullmq_is_woken_and_runs_each_job_once",
        &[Receiver::Redis, Receiver::BullMq],
    ) {
        return Ok(());
    }
    let redis = Arc::new(Redis::start(KEEPS).unwrap());
    let bullmq = Worker::bullmq(&redis.url(), &["mail"]).unwrap();
    let destination = BullMq::new(&redis.url(), "mail").unwrap().attempts(2);
    let have_run = {
        let redis = Arc::clone(&redis);
        move |count| redis.ask(&["ZCARD", "bull:mail:completed"]).unwrap() == json!(count)
    };
    let route = Route::to(Again::new(destination, have_run)).await;
    // The worker sleeps for minutes unless it is woken.
    eventually(SOON, "it sleeps", async || {
        let clients = redis.ask(&["CLIENT", "LIST"])?;
        Ok(clients
            .as_str()
            .is_some_and(|all| all.contains("cmd=bzpopmin")))
    })
    .await?;
    let kwargs = json!({ "to": "ü", "n": 1 });
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let more = format!(", trace => '{trace}'");
    let first = route.enqueue("mail:send", &kwargs.to_string(), &more).await;
    route.all_done().await;
    let last = route.enqueue("mail:last", "{}", ", priority => 7").await;
    route.all_done().await;
    let effects = bullmq.wait_for(2, SOON).await?;
    let ids: Vec<&str> = effects.iter().map(|effect| effect.id.as_str()).collect();
    assert_eq!(ids, [&first, &last]);
    assert_eq!(
        (effects[0].name.as_str(), &effects[0].args),
        ("mail:send", &kwargs)
    );
    assert_eq!(effects[0].all["opts"]["attempts"], 2);
    let metadata = json!({ "traceparent": trace }).to_string();
    let options = &effects[0].all["opts"];
    assert_eq!(options["telemetry"]["metadata"], metadata, "{options}");
    assert_eq!(effects[1].all["opts"]["priority"], 7);
    eventually(SOON, "it has heard of all", async || {
        let heard = heard(&bullmq);
        let is_told = |event: &str, id: &str| heard.contains(&(event.into(), id.into()));
        let events = ["added", "waiting", "completed", "duplicated"];
        let all = events
            .iter()
            .flat_map(|event| [(event, &first), (event, &last)]);
        Ok(all.into_iter().all(|(event, id)| is_told(event, id)))
    })
    .await?;
    assert_eq!(bullmq.effects().unwrap().len(), 2);
    route.stop().await;
    Ok(())
}

/// Runs a program with a queue of BullMQ's own client.
fn client(redis: &Redis, program: &str) {
    let program = format!(
        "const {{ Queue }} = require('bullmq');
        const queue = new Queue('mail', {{ connection: {{ port: {} }} }});
        (async () => {{ {program}; await queue.close() }})()",
        redis.port()
    );
    let packages = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../.tools/receivers/bullmq/node_modules"
    );
    let mut node = Command::new(Receiver::BullMq.find().unwrap());
    let output = node
        .env("NODE_PATH", packages)
        .args(["-e", &program])
        .output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_sent_to_a_paused_queue_run_after_resuming() {
    if !are_here(
        "jobs_sent_to_a_paused_queue_run_after_resuming",
        &[Receiver::Redis, Receiver::BullMq],
    ) {
        return;
    }
    let redis = Redis::start(KEEPS).unwrap();
    let bullmq = Worker::bullmq(&redis.url(), &["mail"]).unwrap();
    let destination = BullMq::new(&redis.url(), "mail").unwrap();
    let route = Route::to(Arc::new(destination)).await;
    let length = |list: &str| redis.ask(&["LLEN", &format!("bull:mail:{list}")]).unwrap();
    // Version 5 uses another list for it, and records its version.
    for (version, list, other) in [
        (None, "wait", "paused"),
        (Some("bullmq:5.63.0"), "paused", "wait"),
    ] {
        client(&redis, "await queue.pause()");
        if let Some(version) = version {
            let set = ["HSET", "bull:mail:meta", "version", version];
            redis.ask(&set).unwrap();
        }
        let before = bullmq.effects().unwrap().len();
        let id = route.enqueue("mail:send", "{}", "").await;
        route.all_done().await;
        assert_eq!((length(list), length(other)), (json!(1), json!(0)));
        client(&redis, "await queue.resume()");
        let effects = bullmq.wait_for(before + 1, SOON).await.unwrap();
        assert_eq!(effects[before].id, id);
    }
    route.stop().await;
}
