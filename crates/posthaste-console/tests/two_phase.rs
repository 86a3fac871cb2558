//! Transactions over documents, which a search server stores.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use posthaste_console::Settings;
use posthaste_elastic::two_phase::{Coordinator, Effect, Record, State};
use posthaste_elastic::{Client, Operation};
use posthaste_testkit::elastic::FakeElastic;
use posthaste_testkit::receivers::{self, OpenSearch, Receiver};
use posthaste_testkit::{TestDb, eventually};
use serde_json::json;

use crate::support::{Console, SOON, console_with, database};

const HOUR: i64 = 3_600;

/// The clock of the fake server begins in the past: this sets it to the present.
fn catch_up(fake: &FakeElastic) {
    const BEGIN: i64 = 1_767_225_600_000;
    let ms = Timestamp::now().as_millisecond() - BEGIN;
    fake.advance_clock(Duration::from_millis(u64::try_from(ms).unwrap()));
}

pub async fn prepared() -> (FakeElastic, Arc<Coordinator>) {
    let fake = FakeElastic::start(1).await.unwrap();
    catch_up(&fake);
    let _ = rustls::crypto::ring::default_provider().install_default();
    // A password that no page may contain.
    let url = fake.url().replace("http://", "http://elastic:geheim@");
    (fake, opened(&url, "").await)
}

/// Creates two indexes with two documents, whose names begin with this prefix.
async fn opened(url: &str, prefix: &str) -> Arc<Coordinator> {
    let client = Client::new(reqwest::Client::builder().no_proxy(), url).unwrap();
    let [documents, transactions] =
        ["documents", "transactions"].map(|name| format!("{prefix}{name}"));
    let coordinator = Coordinator::new(client, &documents, &transactions);
    coordinator.prepare(0).await.unwrap();
    for document in ["alice", "bob"] {
        coordinator.open(document, 1_000).await.unwrap();
    }
    Arc::new(coordinator)
}

/// Starts a console, and returns it with its database.
async fn console(coordinator: &Arc<Coordinator>) -> (TestDb, Console) {
    let settings = Settings {
        two_phase: Some(Arc::clone(coordinator)),
        ..Settings::default()
    };
    let database = database().await;
    let console = console_with(&database, settings).await;
    (database, console)
}

/// Writes a transaction as a stopped process left it, which moved it this long ago.
pub async fn left(
    coordinator: &Coordinator,
    id: &str,
    state: State,
    effects: Vec<Effect>,
    ago: i64,
) {
    leave(coordinator, "transactions", id, state, effects, ago).await;
}

async fn leave(
    coordinator: &Coordinator,
    index: &str,
    id: &str,
    state: State,
    effects: Vec<Effect>,
    ago: i64,
) {
    let at = Timestamp::now() - SignedDuration::from_secs(ago);
    let record = Record {
        transaction_state: state,
        effects,
        attempts: Some(7),
        reason: None,
        creation_time: Some(at.to_string()),
        modification_time: Some(at.to_string()),
        next_attempt_at: Some(at.to_string()),
    };
    let put = Operation::index(index, id, &record).unwrap();
    coordinator.client().write(&put).await.unwrap();
}

pub fn transfer(from: &str, to: &str, amount: i64) -> Vec<Effect> {
    vec![Effect::add(from, -amount), Effect::add(to, amount)]
}

#[tokio::test]
async fn the_page_explains_a_missing_search_server_and_an_empty_list() {
    let database = database().await;
    let console = console_with(&database, Settings::default()).await;
    let page = console.page("/two-phase").await;
    assert!(page.contains("No search server is configured"), "{page}");
    assert!(page.contains("posthaste console --elastic"), "{page}");
    let (_fake, coordinator) = prepared().await;
    let (_database, console) = self::console(&coordinator).await;
    let page = console.page("/two-phase").await;
    assert!(page.contains("None is stuck."), "{page}");
    assert!(page.contains("No other transaction is open."), "{page}");
}

#[tokio::test]
async fn stuck_transactions_are_listed_first_with_a_remedy() {
    let (_fake, coordinator) = prepared().await;
    stuck(&coordinator, "transactions").await;
}

#[tokio::test]
async fn stuck_transactions_of_a_real_server_are_listed_first() {
    if !receivers::are_here("transactions on a server", &[Receiver::OpenSearch]) {
        return;
    }
    let server = OpenSearch::shared().unwrap();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let prefix = format!("{}-", posthaste_testkit::unique("console"));
    let coordinator = opened(&server.url(), &prefix).await;
    stuck(&coordinator, &format!("{prefix}transactions")).await;
}

async fn stuck(coordinator: &Arc<Coordinator>, index: &str) {
    let secret = json!({"iban": "geheim"}).as_object().cloned().unwrap();
    let mut both = transfer("alice", "bob", 5);
    both.push(Effect::set("carol", secret));
    for (id, state, effects, ago) in [
        (
            "poor",
            State::Pending,
            transfer("alice", "bob", 5_000),
            3 * HOUR,
        ),
        (
            "lost",
            State::Committed,
            transfer("alice", "gone", 1),
            30 * HOUR,
        ),
        (
            "idle",
            State::Terminating,
            transfer("alice", "bob", 1),
            2 * HOUR,
        ),
        ("fresh", State::Created, both, 60),
        (
            "done",
            State::Finished,
            transfer("alice", "bob", 1),
            9 * HOUR,
        ),
    ] {
        leave(coordinator, index, id, state, effects, ago).await;
    }
    coordinator.client().refresh(index).await.unwrap();
    let (_database, console) = console(coordinator).await;
    let asked = "it was asked, which is given two seconds";
    eventually(SOON, asked, async || {
        Ok(console
            .page("/two-phase")
            .await
            .contains("<strong>poor</strong>"))
    })
    .await
    .unwrap();
    let page = console.page("/two-phase").await;
    for part in [
        "the document gone does not exist",
        "<code>posthaste two-phase open gone=0</code>",
        "the document alice ",
        "<code>posthaste two-phase balance alice</code>",
        "recovery has not run yet",
        "<code>posthaste two-phase recover</code>",
        "alice -5,000, bob +5,000",
        "alice -5, bob +5, carol sets 1 field",
        "30 h",
        "not begun",
    ] {
        assert!(page.contains(part), "no {part} in {page}");
    }
    let at = |id: &str| page.find(&format!("<strong>{id}</strong>"));
    assert!(at("lost") < at("poor") && at("poor") < at("idle"), "{page}");
    assert!(at("idle") < at("fresh"), "{page}");
    assert_eq!(at("done"), None, "it has ended");
    assert_eq!(page.matches("<strong>idle</strong>").count(), 1, "{page}");
    assert!(!page.contains("geheim"), "{page}");
}

#[tokio::test]
async fn foreign_names_are_escaped() {
    let (_fake, coordinator) = prepared().await;
    let evil = "<script>alert(1)</script>";
    left(
        &coordinator,
        "evil",
        State::Pending,
        transfer(evil, "bob", 1),
        60,
    )
    .await;
    left(
        &coordinator,
        "old",
        State::Pending,
        transfer(evil, "bob", 1),
        2 * HOUR,
    )
    .await;
    let (_database, console) = console(&coordinator).await;
    let page = console.page("/two-phase").await;
    assert!(page.contains("&#60;script&#62;alert"), "{page}");
    assert!(!page.contains("<script>alert"), "{page}");
}

#[tokio::test]
async fn long_lists_of_transactions_are_truncated_with_a_notice() {
    let (fake, coordinator) = prepared().await;
    for at in 0..130 {
        let ago = if at < 25 { 2 * HOUR } else { 60 };
        let id = format!("t{at}");
        left(
            &coordinator,
            &id,
            State::Created,
            transfer("alice", "bob", 1),
            ago,
        )
        .await;
    }
    let before = fake.requests();
    let (_database, console) = console(&coordinator).await;
    let page = console.page("/two-phase").await;
    let rows = page.matches("data-row").count();
    assert!((100..=120).contains(&rows), "{rows}");
    assert!(page.contains("Only the oldest were read"), "{page}");
    assert!(page.contains("There are more"), "{page}");
    let asked = fake.requests() - before;
    for _ in 0..10 {
        console.page("/two-phase").await;
    }
    assert!(fake.requests() - before <= 2 * asked, "one read is shared");
    assert!(asked < 60, "{asked} requests for a page");
    assert_eq!(fake.held_moments(), 0, "nothing is left open there");
}

#[tokio::test]
async fn unresponsive_search_servers_delay_one_page_by_two_seconds() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    // It accepts connections and requests, and never answers.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://elastic:geheim@{}", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            held.push(connection);
        }
    });
    let client = Client::new(reqwest::Client::builder().no_proxy(), &url).unwrap();
    let coordinator = Arc::new(Coordinator::new(client, "documents", "transactions"));
    let (_database, console) = console(&coordinator).await;
    let started = Instant::now();
    let page = console.page("/two-phase").await;
    assert!(started.elapsed() < Duration::from_secs(30));
    assert!(page.contains("The search server did not answer."), "{page}");
    assert!(page.contains("no answer within two seconds"), "{page}");
    let before = asked.load(Ordering::SeqCst);
    assert!(before > 0);
    let page = console.page("/two-phase").await;
    assert!(page.contains("no answer within two seconds"), "{page}");
    assert_eq!(asked.load(Ordering::SeqCst), before, "not asked at once");
}

#[tokio::test]
async fn lost_search_servers_are_reported_without_the_password() {
    let (gone, coordinator) = prepared().await;
    drop(gone);
    let (_database, console) = console(&coordinator).await;
    let page = console.page("/two-phase").await;
    assert!(page.contains("The search server did not answer."), "{page}");
    assert!(!page.contains("geheim"), "{page}");
}
