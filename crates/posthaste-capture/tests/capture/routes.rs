//! Captures with a route: events that must wait for its jobs, and existing rows.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use posthaste::Outcome;
use posthaste_capture::{Capture, Running, State, TableName, list_captures, list_copies};
use posthaste_testkit::eventually;
use serde_json::{Value, json};

use super::direct::{Sent, direct, first_arrivals, until};
use super::world::{SOON, World, tables};
use crate::support;

#[tokio::test(flavor = "multi_thread")]
async fn claimed_jobs_are_finished_before_direct_sending() {
    let sent = Sent::new(|_| ()).await;
    let (begun, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
    let pool = sent.world.db.pool(4).unwrap();
    let holds = support::worker(&pool)
        .queue("captured", 1)
        .handler("held", move |_, _| {
            let begun = begun.clone();
            async move {
                let _ = begun.send(());
                std::future::pending::<()>().await;
                Ok(Outcome::Done)
            }
        });
    let holds = holds.start().await.unwrap();
    let job = "INSERT INTO posthaste.job (queue, name) VALUES ('captured', 'held')";
    sent.world.sql(job).await;
    has_begun.recv().await.unwrap();
    let running = sent.start();
    sent.insert("later", 3).await;
    let decides = async || {
        let state = running.status().state;
        Ok(!matches!(state, State::Connecting | State::Draining))
    };
    eventually(SOON, "it decides", decides).await.unwrap();
    assert_eq!(running.status().state, State::Spilling);
    assert!(sent.arrived().is_empty());
    drop((running, holds));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_keeps_its_log_once_spill_most_is_reached() {
    let sent = Sent::new(|direct| {
        direct.spill_after_time = Some(Duration::from_millis(200));
        direct.spill_most = 4 << 20;
    })
    .await;
    let running = sent.start();
    sent.insert("first", 10).await;
    sent.until_arrived(10).await;
    sent.redis.kill9().unwrap();
    for n in 0..10 {
        sent.insert(&format!("much{n}"), 2_000).await;
    }
    until(&running, State::Full).await;
    let spilled = sent.jobs().await;
    sent.until_shown("full").await;
    let since = list_captures(&sent.world.client).await.unwrap()[0].indirect_since;
    assert!(since.is_some());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(sent.jobs().await, spilled);
    assert!((10..15_000).contains(&spilled), "{spilled}");
    sent.redis.restart().unwrap();
    let _relay = sent.relay().await;
    until(&running, State::Direct).await;
    sent.require_all().await;
    sent.until_shown("direct").await;
    let since = list_captures(&sent.world.client).await.unwrap()[0].indirect_since;
    assert_eq!(since, None);
}

const ITEM: &str = "CREATE SEQUENCE version; \
     CREATE TABLE item (id bigint PRIMARY KEY, v bigint NOT NULL DEFAULT nextval('version')); \
     INSERT INTO item SELECT g FROM generate_series(1, 3000) g";

/// Creates a table and its capture, in addition to the outbox.
async fn items(sent: &Sent) -> Capture {
    sent.world.sql(ITEM).await;
    let mut capture = tables(&["public.item"]);
    (capture.name, capture.slot) = ("items".into(), "posthaste_items".into());
    let mut direct = direct(sent.redis.port(), &json!({}));
    direct.spill_after_time = Some(Duration::from_millis(300));
    capture.direct = Some(direct);
    sent.world.install(&capture).await;
    capture
}

async fn copy(world: &World, capture: &Capture) {
    let table = TableName::read("public.item").unwrap();
    let begun = capture.request_copy(&world.database(), &table, None).await;
    assert!(begun.unwrap(), "one goes on already");
}

async fn until_copied(world: &World) -> i64 {
    let newest = async || list_copies(&world.client, None).await.unwrap().remove(0);
    let has_ended = async || Ok(newest().await.ended_at.is_some());
    eventually(SOON, "the copy ends", has_ended).await.unwrap();
    newest().await.rows
}

/// Returns the rows of a receiver after all these events. No event may be older than the row it
/// replaces.
fn received(arrived: &[Value]) -> (HashMap<i64, i64>, usize) {
    let (mut rows, mut reads, mut known) = (HashMap::new(), 0, HashMap::new());
    for one in arrived {
        let change = &one["args"][0];
        // A repeated delivery changes nothing.
        if let Some(before) = known.insert(one["delivery_id"].as_str(), change) {
            assert_eq!(before, change, "two events share an id");
            continue;
        }
        reads += usize::from(change["operation"] == "read");
        let number = |field: &str| change["after"][field].as_i64().unwrap();
        let before = rows.insert(number("id"), number("v"));
        assert!(
            before.is_none_or(|before| before <= number("v")),
            "{change}"
        );
    }
    (rows, reads)
}

async fn there_are(world: &World) -> HashMap<i64, i64> {
    let rows = world.client.query("SELECT id, v FROM item", &[]).await;
    let rows = rows.unwrap().into_iter();
    rows.map(|row| (row.get(0), row.get(1))).collect()
}

async fn require_items(sent: &Sent, running: &Running) -> usize {
    let there_are = there_are(&sent.world).await;
    let has_all = async || Ok(received(&sent.arrived()).0 == there_are);
    eventually(SOON, "the receiver has all", has_all)
        .await
        .unwrap();
    // Jobs waiting for a retry arrive after events that are sent without jobs.
    let none_is_left = async || Ok(sent.jobs().await == 0);
    eventually(SOON, "no job is left", none_is_left)
        .await
        .unwrap();
    until(running, State::Direct).await;
    received(&sent.arrived()).1
}

#[tokio::test(flavor = "multi_thread")]
async fn copied_rows_keep_their_order_among_sent_and_spilled_changes() {
    let sent = Sent::new(|_| ()).await;
    let capture = items(&sent).await;
    let _relay = sent.relay().await;
    let running = sent.world.start(&capture);
    until(&running, State::Direct).await;
    let (is_over, writer) = (
        AtomicBool::new(false),
        sent.world.db.client().await.unwrap(),
    );
    let write = async {
        while !is_over.load(Ordering::Relaxed) {
            let id = fastrand::i64(1..=3000);
            let sql = "UPDATE item SET v = nextval('version') WHERE id = $1";
            writer.execute(sql, &[&id]).await.unwrap();
        }
    };
    let copied = async {
        copy(&sent.world, &capture).await;
        let mut rows = until_copied(&sent.world).await;
        // The destination goes down during the next copy.
        copy(&sent.world, &capture).await;
        sent.redis.kill9().unwrap();
        until(&running, State::Spilling).await;
        rows += until_copied(&sent.world).await;
        sent.redis.restart().unwrap();
        is_over.store(true, Ordering::Relaxed);
        rows
    };
    let ((), rows) = tokio::join!(write, copied);
    let reads = require_items(&sent, &running).await;
    assert!(
        rows > 3000 && i64::try_from(reads).unwrap() >= rows,
        "{reads} of {rows}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_with_a_route_continue_after_disconnects() {
    let sent = Sent::new(|_| ()).await;
    let capture = items(&sent).await;
    let _relay = sent.relay().await;
    let running = sent.world.start(&capture);
    copy(&sent.world, &capture).await;
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
               WHERE backend_type IN ('walsender', 'client backend') \
               AND application_name LIKE 'posthaste%' AND pid <> pg_backend_pid()";
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(fastrand::u64(50..400))).await;
        sent.world.sql(cut).await;
    }
    let rows = until_copied(&sent.world).await;
    assert_eq!(rows, 3000, "each row is counted once");
    let reads = require_items(&sent, &running).await;
    assert!(reads >= 3000, "{reads}");
}

#[tokio::test]
async fn unsendable_changes_stop_the_direct_path_until_they_are_skipped() {
    let sent = Sent::new(|_| ()).await;
    sent.world
        .sql(
            "BEGIN; INSERT INTO outbox (payload) VALUES ('a');
              INSERT INTO outbox (payload, headers) VALUES ('broken', '[]');
              INSERT INTO outbox (payload) VALUES ('b'); COMMIT",
        )
        .await;
    let stopped = sent.world.catch_up(&sent.capture).await.unwrap_err();
    assert!(stopped.is_stopped(), "{stopped}");
    let text = stopped.to_string();
    let position = text.split(' ').nth(3).unwrap().parse().unwrap();
    let database = sent.world.database();
    sent.capture.skip(&database, position).await.unwrap();
    sent.world.catch_up(&sent.capture).await.unwrap();
    assert_eq!(first_arrivals(&sent.arrived()), ["a", "b"]);
}
