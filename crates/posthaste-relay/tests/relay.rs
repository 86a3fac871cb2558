//! The relay from outside, with a destination whose answers the test sets: the outcome of jobs for
//! each behaviour of a destination. The conformance suite shows that real destinations behave like
//! this one.

mod ahead;
mod asynq;
mod backpressure;
mod bullmq;
#[cfg(feature = "celery-rabbitmq")]
mod celery_rabbitmq;
mod celery_redis;
mod conformance;
mod denied;
mod effect_once;
mod failover;
mod fake_destination;
mod full;
mod held;
#[cfg(feature = "kafka")]
mod kafka;
mod lines;
#[cfg(feature = "nats")]
mod nats;
mod ordered;
mod payloads;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
mod readers;
mod redis;
mod reference;
mod sidekiq;
#[cfg(feature = "rabbitmq")]
mod silent_server;
mod smtp;
mod tables_and_status;
mod webhook;
mod wrong_type;

use std::time::Duration;

use posthaste_relay::{
    Ack, Lines, Mapping, OnAmbiguous, Relay, RelayBuilder, Template, UnsafeSetting,
};
use posthaste_testkit::{PgVersion, Sql as _, TestDb, TestResult, eventually};
use tokio_postgres::Client;

use fake_destination::{Does, FakeDestination};

use crate::support::{SOON, all_done, count, database, worker};

async fn enqueue(client: &Client, names: &[&str]) {
    let enqueue = "INSERT INTO posthaste.job (name, queue) SELECT n, 'mail' \
                   FROM unnest($1::text[]) WITH ORDINALITY u(n, i) ORDER BY i";
    client.execute(enqueue, &[&names]).await.unwrap();
}

/// Returns the state, counted attempts and error of the job of this name.
async fn outcome_of(client: &Client, name: &str) -> Option<(String, i32, Option<String>)> {
    let outcome = "SELECT state, attempt, last_error FROM posthaste.job WHERE name = $1";
    let row = client.query_opt(outcome, &[&name]).await.unwrap();
    row.map(|row| (row.get(0), row.get(1), row.get(2)))
}

struct Setup {
    db: TestDb,
    client: Client,
}

async fn setup() -> Setup {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    Setup { db, client }
}

impl Setup {
    async fn relay(&self, relay: RelayBuilder) -> posthaste::WorkerHandle {
        let relay = relay.start().await.unwrap();
        self.consumer(relay).await
    }

    async fn consumer(&self, relay: Relay) -> posthaste::WorkerHandle {
        let worker = worker(&self.db.pool(2).unwrap()).consumer("mail", relay);
        worker.start().await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_message_does_not_affect_its_batch() -> TestResult {
    let setup = setup().await;
    let (client, fake) = (&setup.client, FakeDestination::default());
    let fake = fake.does("bad", Does::Reject).does("busy", Does::Retry);
    enqueue(client, &["good", "bad", "busy", "fine"]).await;
    let worker = setup.relay(fake.relay()).await;
    let discarded = Some(("discarded".to_owned(), 1, Some("as configured".to_owned())));
    eventually(SOON, "each has its outcome", async || {
        let counted = outcome_of(client, "busy")
            .await
            .is_some_and(|(_, counted, _)| counted > 2);
        Ok(counted && outcome_of(client, "bad").await == discarded)
    })
    .await?;
    assert_eq!(fake.taken(), ["good", "fine"]);
    fake.with(|inner| inner.does.clear());
    eventually(SOON, "it is taken later", async || {
        Ok(fake.taken().len() == 3)
    })
    .await?;
    assert_eq!(fake.taken()[2], "busy");
    worker.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unavailable_destination_counts_no_attempt_and_is_retried_with_backoff() {
    let setup = setup().await;
    let (client, fake) = (&setup.client, FakeDestination::default());
    let relay = fake.relay().start().await.unwrap();
    let worker = setup.consumer(relay.clone()).await;
    fake.is_down(true);
    let names: Vec<String> = (0..100).map(|n| format!("m{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    enqueue(client, &names).await;
    eventually(SOON, "it is noticed", async || {
        Ok(fake.with(|inner| inner.probes > 4))
    })
    .await
    .unwrap();
    let status = relay.status();
    assert!(
        status.down_since.is_some() && status.last_error.is_some(),
        "{status:?}"
    );
    // Each batch that was in flight was tried, and nothing after that.
    let sent = fake.with(|inner| inner.batches.len());
    assert!((1..=4).contains(&sent), "{sent} batches");
    let largest = fake.with(|inner| inner.batches.iter().map(Vec::len).max());
    assert_eq!(largest, Some(10), "unless a route says otherwise");
    let counted = "SELECT count(*) FROM posthaste.job WHERE attempt > 0";
    let counted: i64 = client.one(counted).await.unwrap();
    assert_eq!((counted, fake.taken().len()), (0, 0));
    fake.is_down(false);
    all_done(client).await;
    assert_eq!(fake.taken().len(), 100);
    assert_eq!(relay.status().down_since, None);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_message_that_breaks_its_batch_counts_an_attempt() {
    let setup = setup().await;
    let (client, fake) = (
        &setup.client,
        FakeDestination::default().does("poison", Does::Break),
    );
    let mut names = vec!["good"; 40];
    names[17] = "poison";
    enqueue(client, &names).await;
    let worker = setup.relay(fake.relay().batch(40)).await;
    eventually(SOON, "all others are taken", async || {
        let counted = outcome_of(client, "poison")
            .await
            .is_some_and(|(_, counted, _)| counted > 0);
        Ok(counted && fake.taken().len() == 39)
    })
    .await
    .unwrap();
    assert_eq!(count(client, "dead").await, 0);
    // The batch is bisected, not sent message by message.
    let sent = fake.with(|inner| inner.batches.iter().filter(|batch| batch.len() > 1).count());
    assert!(sent < 20, "{sent} batches");
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unanswered_messages_time_out_and_others_pass() {
    let setup = setup().await;
    let (client, fake) = (
        &setup.client,
        FakeDestination::default().does("slow", Does::Hang),
    );
    enqueue(client, &["slow", "good"]).await;
    let relay = fake.relay().time_limit(Duration::from_millis(300));
    let worker = setup.relay(relay).await;
    eventually(SOON, "the other one is taken", async || {
        let slow = outcome_of(client, "slow").await;
        Ok(fake.taken() == ["good"] && slow.is_some_and(|(_, counted, _)| counted > 0))
    })
    .await
    .unwrap();
    let (_, _, error) = outcome_of(client, "slow").await.unwrap();
    assert_eq!(error.as_deref(), Some("no answer within 0.3 s"));
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ordered_relays_keep_lane_order_through_an_outage() {
    let setup = setup().await;
    let (client, fake) = (&setup.client, FakeDestination::default());
    let names: Vec<String> = (0..300).map(|n| format!("m{n:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    enqueue(client, &names).await;
    let relay = fake.relay().ordered(true).batch(7);
    let worker = setup.relay(relay).await;
    for _ in 0..3 {
        let before = fake.taken().len();
        let some = async || Ok(fake.taken().len() > before + 10 || fake.taken().len() == 300);
        eventually(SOON, "some are taken", some).await.unwrap();
        fake.is_down(true);
        let probes = fake.with(|inner| inner.probes);
        let asked =
            async || Ok(fake.with(|inner| inner.probes > probes) || fake.taken().len() == 300);
        eventually(SOON, "it is asked", asked).await.unwrap();
        fake.is_down(false);
    }
    all_done(client).await;
    assert_eq!(fake.taken(), names);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_relays_release_unanswered_messages() {
    let setup = setup().await;
    let (client, fake) = (
        &setup.client,
        FakeDestination::default().does("slow", Does::Hang),
    );
    enqueue(client, &["slow", "slow", "slow"]).await;
    let config = posthaste::Config {
        shutdown_grace: Duration::from_millis(100),
        ..crate::support::quick()
    };
    let relay = fake.relay().start().await.unwrap();
    let worker = worker(&setup.db.pool(2).unwrap())
        .config(config)
        .consumer("mail", relay);
    let worker = worker.start().await.unwrap();
    let sent = async || Ok(fake.with(|inner| !inner.batches.is_empty()));
    eventually(SOON, "it is sent", sent).await.unwrap();
    worker.stop().await.unwrap();
    let left = "SELECT count(*) FROM posthaste.job WHERE attempt = 0 AND state <> 'running'";
    let left: i64 = client.one(left).await.unwrap();
    assert_eq!(left, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsafe_destination_settings_are_refused_unless_allowed() {
    let setup = setup().await;
    let fake = FakeDestination::default();
    let unsafe_setting = UnsafeSetting {
        setting: "maxmemory-policy".into(),
        lost: "it may forget what it took".into(),
    };
    fake.with(|inner| inner.unsafe_settings.push(unsafe_setting));
    let refused = fake.relay().start().await.err().unwrap().to_string();
    assert!(
        refused.contains("maxmemory-policy: it may forget"),
        "{refused}"
    );
    // A destination that was down is checked when it is back, before anything is sent.
    fake.is_down(true);
    let relay = fake.relay().start().await.unwrap();
    enqueue(&setup.client, &["m"]).await;
    let worker = setup.consumer(relay.clone()).await;
    fake.is_down(false);
    let is_reported = async || {
        Ok(relay
            .status()
            .last_error
            .is_some_and(|error| error.contains("maxmemory")))
    };
    eventually(SOON, "the error is reported", is_reported)
        .await
        .unwrap();
    assert_eq!(fake.with(|inner| inner.batches.len()), 0);
    worker.stop().await.unwrap();
    let relay = fake.relay().allow_unsafe("maxmemory-policy");
    let worker = setup.relay(relay).await;
    all_done(&setup.client).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ack_confirmed_holds_a_job_until_its_effect_is_confirmed() {
    let setup = setup().await;
    let (client, fake) = (&setup.client, FakeDestination::default());
    enqueue(client, &["m"]).await;
    let lease = Duration::from_millis(300);
    let relay = fake.relay().ack(Ack::Confirmed { lease });
    let worker = setup.relay(relay).await;
    eventually(
        SOON,
        "it is sent twice",
        async || Ok(fake.taken().len() > 1),
    )
    .await
    .unwrap();
    let ids = fake.with(|inner| inner.ids.clone());
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let done = "SELECT posthaste.confirm($1)";
    client.execute(done, &[&ids[0]]).await.unwrap();
    all_done(client).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ambiguous_messages_are_resent_or_discarded_as_configured() {
    let setup = setup().await;
    let client = &setup.client;
    let fake = FakeDestination::default().does("lost", Does::Lose);
    enqueue(client, &["lost"]).await;
    let worker = setup.relay(fake.relay()).await;
    let again = async || Ok(fake.with(|inner| inner.batches.len() > 1));
    eventually(SOON, "it is sent again", again).await.unwrap();
    worker.stop().await.unwrap();
    let worker = setup
        .relay(fake.relay().on_ambiguous(OnAmbiguous::Discard))
        .await;
    let is_kept = async || Ok(count(client, "discarded").await == 1);
    eventually(SOON, "the job is discarded", is_kept)
        .await
        .unwrap();
    let (_, _, error) = outcome_of(client, "lost").await.unwrap();
    assert_eq!(error.as_deref(), Some("ambiguous: as configured"));
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_follow_the_routes_mapping() {
    let setup = setup().await;
    let client = &setup.client;
    let enqueue = r#"SELECT posthaste.enqueue('mail', '{"to": "ada", "n": 1}', queue => 'mail'),
                          posthaste.enqueue('mail', '{"n": 2}', queue => 'mail')"#;
    client.run(enqueue).await.unwrap();
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let mapping = Mapping::default()
        .kind(Template::parse("{name}.{kwargs.to}").unwrap())
        .header("n", Template::parse("{kwargs.n}").unwrap());
    let worker = setup
        .relay(Relay::to(Lines::new(ours)).mapping(mapping))
        .await;
    let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(theirs));
    let line = lines.next_line().await.unwrap().unwrap();
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["kind"], "mail.ada");
    assert_eq!(line["headers"]["n"], "1");
    assert_eq!(line["payload"], serde_json::json!({"to": "ada", "n": 1}));
    // The mapping names an argument that the job lacks: it can never be sent.
    let discarded = async || Ok(count(client, "discarded").await == 1);
    eventually(SOON, "the other one is discarded", discarded)
        .await
        .unwrap();
    worker.stop().await.unwrap();
}
