//! Events that are sent without jobs, and become jobs while the destination accepts nothing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use posthaste::WorkerHandle;
use posthaste_capture::{
    Capture, Direct, PauseOutcome, Running, State, Until, list_captures, pause, resume,
};
use posthaste_relay::Route;
use posthaste_testkit::receivers::Redis;
use posthaste_testkit::{PgVersion, eventually};
use serde_json::{Value, json};

use super::faults::inserted;
use super::world::{OUTBOX, SOON, World, outbox};
use crate::support;

const KEEPS: &[(&str, &str)] = &[("appendonly", "yes"), ("appendfsync", "always")];

/// A world whose outbox is sent to a Redis.
pub(super) struct Sent {
    pub(super) world: World,
    pub(super) redis: Redis,
    pub(super) capture: Capture,
}

pub(super) fn route(port: u16, more: &Value) -> Route {
    let to = format!("sidekiq://127.0.0.1:{port}/0");
    let mut settings = json!({
        "to": to, "ordered": true, "queue": "captured", "batch": 100, "time_limit": "2s",
    });
    let all = settings.as_object_mut().unwrap();
    all.extend(more.as_object().unwrap().clone());
    Route::read("r", &*all).unwrap()
}

pub(super) fn direct(port: u16, more: &Value) -> Direct {
    Direct::new(route(port, more).sender().unwrap())
}

impl Sent {
    pub(super) async fn new(change: impl Fn(&mut Direct)) -> Self {
        let world = World::new(PgVersion::any(), &[]).await;
        world.sql(OUTBOX).await;
        let redis = Redis::start(KEEPS).unwrap();
        let mut capture = outbox();
        let mut direct = direct(redis.port(), &json!({}));
        change(&mut direct);
        capture.direct = Some(direct);
        world.install(&capture).await;
        let other = "SELECT pg_create_logical_replication_slot('other', 'test_decoding')";
        world.sql(other).await;
        Self {
            world,
            redis,
            capture,
        }
    }

    pub(super) fn start(&self) -> Running {
        self.world.start(&self.capture)
    }

    /// Starts a relay for the jobs of the route.
    pub(super) async fn relay(&self) -> WorkerHandle {
        relay(&self.world, &self.redis).await
    }

    /// Returns the number of events in the newest mark.
    async fn events(&self) -> i64 {
        let all = list_captures(&self.world.client).await.unwrap();
        all.first().unwrap().events
    }

    pub(super) async fn state(&self) -> &'static str {
        let all = list_captures(&self.world.client).await.unwrap();
        all.first().unwrap().state()
    }

    /// Waits until the store shows this state, which is recorded beside the sending.
    pub(super) async fn until_shown(&self, state: &str) {
        let is_shown = async || Ok(self.state().await == state);
        let what = format!("{state} is shown");
        eventually(SOON, &what, is_shown).await.unwrap();
    }

    /// Returns the events in the order in which they arrived.
    pub(super) fn arrived(&self) -> Vec<Value> {
        arrived(&self.redis)
    }

    pub(super) async fn until_arrived(&self, count: usize) {
        let all = async || Ok(first_arrivals(&self.arrived()).len() >= count);
        eventually(SOON, "all has arrived", all).await.unwrap();
    }

    /// Checks that all committed events have arrived in their order, and that repeated ones have
    /// the same ids.
    pub(super) async fn require_all(&self) {
        let expected = inserted(&self.world).await;
        self.until_arrived(expected.len()).await;
        let arrived = first_arrivals(&self.arrived());
        assert_eq!(arrived, expected, "in the order of commits");
    }

    pub(super) async fn insert(&self, name: &str, count: usize) {
        let sql = format!(
            "INSERT INTO outbox (payload) SELECT '{name}-' || i FROM generate_series(1, {count}) i"
        );
        self.world.sql(&sql).await;
    }

    pub(super) async fn jobs(&self) -> usize {
        self.world.jobs().await.len()
    }
}

async fn relay(world: &World, redis: &Redis) -> WorkerHandle {
    let relay = route(redis.port(), &json!({})).relay();
    let pool = world.db.pool(4).unwrap();
    let worker = support::worker(&pool).consumer("captured", relay.start().await.unwrap());
    worker.start().await.unwrap()
}

fn arrived(redis: &Redis) -> Vec<Value> {
    let list = redis.ask(&["LRANGE", "queue:default", "0", "-1"]).unwrap();
    let list = list.as_array().unwrap().iter().rev();
    list.map(|job| serde_json::from_str(job.as_str().unwrap()).unwrap())
        .collect()
}

/// Returns the first event of each id. Repeated ones must be equal.
pub(super) fn first_arrivals(all: &[Value]) -> Vec<String> {
    let mut known = HashMap::new();
    let mut first = Vec::new();
    for one in all {
        let (id, body) = (one["delivery_id"].to_string(), one["args"][0].to_string());
        match known.insert(id, body.clone()) {
            // A payload that is JSON arrives as its value.
            None => first.push(one["args"][0].as_str().map_or(body, str::to_owned)),
            Some(before) => assert_eq!(before, body, "another content under an id"),
        }
    }
    first
}

pub(super) async fn until(running: &Running, state: State) {
    let is = async || Ok(running.status().state == state);
    eventually(SOON, &format!("it is {state:?}"), is)
        .await
        .unwrap();
}

#[tokio::test]
async fn events_are_sent_without_jobs_and_once() {
    let sent = Sent::new(|_| ()).await;
    let mut running = sent.start();
    until(&running, State::Direct).await;
    // More than a batch in one transaction, and other transactions.
    sent.insert("large", 1_300).await;
    for n in 0..20 {
        sent.insert(&format!("small{n}"), 1).await;
    }
    sent.require_all().await;
    assert_eq!(running.status().spilled, 0);
    running.stop();
    running.ended().await.unwrap();
    // Everything is marked: the next run sends nothing again.
    sent.world.catch_up(&sent.capture).await.unwrap();
    assert_eq!(sent.arrived().len(), 1_320);
    assert_eq!(sent.jobs().await, 0);
    let behind = "SELECT (confirmed_flush_lsn >= (SELECT max(done) FROM (SELECT * FROM \
                  posthaste.capture_mark_0 UNION ALL SELECT * FROM posthaste.capture_mark_1) m) \
                  )::text FROM pg_replication_slots WHERE slot_name = 'posthaste_all'";
    assert_eq!(sent.world.text(behind).await, "true");
    assert_eq!(sent.events().await, 1_320);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_spill_while_the_destination_is_dead_and_drain_in_order() {
    let sent = Sent::new(|direct| direct.spill_after_time = Some(Duration::from_secs(1))).await;
    let _relay = sent.relay().await;
    let running = sent.start();
    let is_over = AtomicBool::new(false);
    let write = async {
        let mut n = 0;
        while !is_over.load(Ordering::Relaxed) {
            sent.insert(&format!("w{n}"), if n % 30 == 7 { 700 } else { 2 })
                .await;
            n += 1;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let outage = async {
        sent.until_arrived(50).await;
        sent.redis.kill9().unwrap();
        until(&running, State::Spilling).await;
        let writes = async || Ok(sent.jobs().await > 100);
        eventually(SOON, "jobs are written", writes).await.unwrap();
        sent.until_shown("spilling").await;
        // The connection breaks during the spill.
        let sql = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots \
                   WHERE slot_name = 'posthaste_all' AND active";
        sent.world.sql(sql).await;
        sent.redis.restart().unwrap();
        until(&running, State::Direct).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(write, outage);
    sent.require_all().await;
    assert!(running.status().spilled > 0);
    assert_eq!(sent.jobs().await, 0);
    sent.until_shown("direct").await;
    let expected = i64::try_from(inserted(&sent.world).await.len()).unwrap();
    let is_counted = async || Ok(sent.events().await >= expected);
    eventually(SOON, "all is counted", is_counted)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn unconfirmed_log_is_bounded_while_the_destination_is_frozen() {
    let sent = Sent::new(|direct| {
        (direct.spill_after, direct.spill_after_time) = (1 << 20, None);
    })
    .await;
    let running = sent.start();
    sent.insert("first", 10).await;
    sent.until_arrived(10).await;
    sent.redis.pause().unwrap();
    sent.insert("more", 10).await;
    // A small backlog does not spill.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(running.status().state, State::Waiting);
    for n in 0..10 {
        sent.insert(&format!("much{n}"), 2_000).await;
    }
    until(&running, State::Spilling).await;
    let writes = async || Ok(sent.jobs().await >= 20_010);
    eventually(SOON, "all became jobs", writes).await.unwrap();
    sent.redis.resume().unwrap();
    let _relay = sent.relay().await;
    sent.require_all().await;
    until(&running, State::Direct).await;
}

#[tokio::test]
async fn unmarked_events_are_sent_again_under_the_same_ids() {
    let mut sent = Sent::new(|_| ()).await;
    let running = sent.start();
    until(&running, State::Direct).await;
    let holder = sent.world.db.client().await.unwrap();
    let hold = "BEGIN; LOCK TABLE posthaste.capture_mark_0, posthaste.capture_mark_1 \
                IN SHARE MODE";
    holder.batch_execute(hold).await.unwrap();
    sent.insert("a", 700).await;
    sent.until_arrived(700).await;
    // Sending continues while marks cannot be written for several seconds.
    tokio::time::sleep(Duration::from_secs(7)).await;
    sent.insert("b", 10).await;
    sent.until_arrived(710).await;
    sent.world.server.stop_immediate().unwrap();
    drop(holder);
    sent.world.server.restart().unwrap();
    sent.world.reconnect().await;
    sent.insert("c", 10).await;
    sent.require_all().await;
    let count = sent.arrived().len();
    assert!(count > 720, "{count}");
    drop(running);
}

#[tokio::test]
async fn events_without_a_message_become_jobs_and_others_are_sent() {
    let mut sent = Sent::new(|_| ()).await;
    let more = json!({ "class": "{kwargs.kind}" });
    sent.capture.direct = Some(direct(sent.redis.port(), &more));
    let running = sent.start();
    until(&running, State::Direct).await;
    for payload in ["{\"kind\": \"A\"}", "{}", "{\"kind\": \"B\"}"] {
        let sql = format!("INSERT INTO outbox (payload) VALUES ('{payload}')");
        sent.world.sql(&sql).await;
    }
    let both = async || Ok(sent.arrived().len() == 2);
    eventually(SOON, "the others arrive", both).await.unwrap();
    let is_kept = async || Ok(sent.jobs().await == 1);
    eventually(SOON, "it became a job", is_kept).await.unwrap();
    let job = sent.world.jobs().await.remove(0);
    assert_eq!(job.body, "{}");
    assert_eq!(running.status().state, State::Direct);
    let kept = "SELECT kwargs -> 'posthaste.outbox' -> 'headers' ->> 'position' \
                FROM posthaste.job";
    assert_eq!(sent.world.text(kept).await.len(), 44);
}

#[tokio::test]
async fn paused_captures_mark_sent_events_and_send_nothing() {
    let sent = Sent::new(|_| ()).await;
    let running = sent.start();
    until(&running, State::Direct).await;
    sent.insert("a", 10).await;
    sent.until_arrived(10).await;
    assert_eq!(
        pause(&sent.world.client, "all").await.unwrap(),
        PauseOutcome::Changed
    );
    until(&running, State::Paused).await;
    assert_eq!(sent.events().await, 10);
    sent.insert("b", 10).await;
    let once = sent.world.catch_up(&sent.capture).await.unwrap_err();
    assert!(once.is_paused(), "{once}");
    assert_eq!(sent.arrived().len(), 10);
    assert_eq!(
        resume(&sent.world.client, "all").await.unwrap(),
        PauseOutcome::Changed
    );
    sent.require_all().await;
    assert_eq!(sent.arrived().len(), 20, "nothing comes again");
}

#[tokio::test(flavor = "multi_thread")]
async fn sent_and_spilled_events_have_the_same_bytes() {
    let sent = Sent::new(|_| ()).await;
    let spilled = Redis::start(KEEPS).unwrap();
    let mut other = outbox();
    (other.name, other.slot) = ("other".into(), "posthaste_other".into());
    let mut into_jobs = direct(spilled.port(), &json!({}));
    into_jobs.spill_after_time = Some(Duration::ZERO);
    other.direct = Some(into_jobs);
    sent.world.install(&other).await;
    sent.world
        .sql(
            "INSERT INTO outbox (type, payload, headers) VALUES
             ('a', '{\"x\": [1, \"ü\"]}', '{\"zebra\": \"1\", \"ant\": \"2\"}'),
             ('b', 'a \"text\" \\', NULL), ('c', '', NULL), ('d', '{\"args\": [1]}', NULL)",
        )
        .await;
    let _direct = sent.start();
    let all = async || Ok(sent.arrived().len() == 4);
    eventually(SOON, "all is sent", all).await.unwrap();
    spilled.kill9().unwrap();
    let mut once = other.start(sent.world.database(), Until::Caught).unwrap();
    once.ended().await.unwrap();
    assert_eq!((once.status().spilled, sent.jobs().await), (4, 4));
    spilled.restart().unwrap();
    let _relay = relay(&sent.world, &spilled).await;
    let all = async || Ok(arrived(&spilled).len() == 4);
    eventually(SOON, "the jobs arrive", all).await.unwrap();
    // The whole text except the time of sending.
    let texts = |redis: &Redis| -> Vec<String> {
        let list = redis.ask(&["LRANGE", "queue:default", "0", "-1"]).unwrap();
        let text = |job: &Value| {
            let job = job.as_str().unwrap();
            let (before, after) = job.split_once("\"enqueued_at\":").unwrap();
            format!("{before}{}", after.split_once(',').unwrap().1)
        };
        list.as_array().unwrap().iter().map(text).collect()
    };
    assert_eq!(texts(&sent.redis), texts(&spilled));
}
