//! The mail example: its parts on a real Redis and a real mail server, with workers that are lost
//! at each step.

mod commands;
#[path = "../examples/mail/connection.rs"]
mod connection;
#[path = "../examples/mail/deliveries.rs"]
#[allow(dead_code, reason = "some of it only the commands need")]
mod deliveries;
mod inspected;
mod killed;
mod others;
#[path = "../examples/mail/queue.rs"]
#[allow(dead_code, reason = "the example itself says how long a lease is")]
mod queue;
#[path = "../examples/mail/reconcile.rs"]
#[allow(dead_code, reason = "the example itself says how long it waits")]
mod reconcile;
mod reconciled;
mod redis_lost;
mod routed;
mod server_down;
#[path = "../examples/mail/settings.rs"]
mod settings;
mod started;
#[path = "../examples/mail/task.rs"]
mod task;
#[path = "../examples/mail/worker.rs"]
#[allow(dead_code, reason = "a test goes step by step")]
mod worker;

use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use posthaste::Backoff;
use posthaste_relay::Smtp;
use posthaste_testkit::receivers::{Receiver, Redis, Smtp as Server, are_here};
use posthaste_testkit::{PgVersion, Sql as _, TestDb, eventually};
use serde_json::json;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::{SOON, database};
use deliveries::Deliveries;
use queue::{End, Queue};
use reconcile::{Provider, Reconciler, UnqueryableProvider, failed_mails};
use worker::{Step, Worker};

const LEASE: Duration = Duration::from_secs(1);
/// No delay between attempts.
const AT_ONCE: Backoff = Backoff {
    base: Duration::ZERO,
    cap: Duration::ZERO,
};
/// Settings with which Redis loses nothing in a crash.
const KEPT: [(&str, &str); 2] = [("appendonly", "yes"), ("appendfsync", "always")];

struct Setup {
    redis: Redis,
    // Not every test sends mail.
    server: LazyLock<Arc<Server>>,
    db: TestDb,
    client: Client,
    deliveries: Deliveries,
    queue: Queue,
}

/// A provider that reads the mail server's mails.
struct Maildir(Arc<Server>);

impl Provider for Maildir {
    async fn has(&self, id: Uuid) -> Option<bool> {
        let mails = self.0.effects().unwrap();
        Some(mails.iter().any(|mail| mail.id.contains(&id.to_string())))
    }
}

/// The log of this thread while its guard lives.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn begin() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// Returns how often this was logged.
    fn count(&self, text: &str) -> usize {
        let error = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        error.matches(text).count()
    }
}

impl Setup {
    async fn new(test: &str) -> Option<Self> {
        Self::with(test, &[]).await
    }

    /// Sets up the example with these settings of Redis.
    async fn with(test: &str, settings: &[(&str, &str)]) -> Option<Self> {
        if !are_here(test, &[Receiver::Redis, Receiver::Smtp]) {
            return None;
        }
        let redis = Redis::start(settings).unwrap();
        let server: LazyLock<Arc<Server>> = LazyLock::new(|| Arc::new(Server::start().unwrap()));
        let db = database(PgVersion::any()).await;
        let client = db.client().await.unwrap();
        let deliveries = Deliveries::open(db.pool(4).unwrap()).await.unwrap();
        let queue = Queue::open(&redis.url(), "mail", LEASE).unwrap();
        Some(Self {
            redis,
            server,
            db,
            client,
            deliveries,
            queue,
        })
    }

    fn worker(&self) -> Worker {
        let smtp = Smtp::new(&self.server.url()).unwrap();
        Worker {
            queue: self.queue.clone(),
            deliveries: self.deliveries.clone(),
            smtp: Arc::new(smtp.from("us@example.com")),
            time_limit: Duration::from_secs(60),
            retries: AT_ONCE,
            outage: AT_ONCE,
        }
    }

    /// Orders a mail and queues its task.
    async fn order(&self) -> Uuid {
        let id = self.ordered().await;
        assert_eq!(self.queue.again(id).await.unwrap(), "missing");
        id
    }

    async fn ordered(&self) -> Uuid {
        let client = self.db.pool(1).unwrap().get().await.unwrap();
        let id = Deliveries::order(&client, "ada@example.com", "Welcome", "Hi.\n");
        id.await.unwrap()
    }

    /// Runs a worker until the mail is in this state.
    async fn work_until(&self, id: Uuid, state: &str) {
        let worker = self.worker();
        eventually(SOON, state, async || {
            worker
                .step()
                .await
                .map_err(|error| anyhow::anyhow!(error))?;
            Ok(self.state(id).await == state)
        })
        .await
        .unwrap();
    }

    async fn state(&self, id: Uuid) -> String {
        let state = "SELECT state FROM mail_deliveries WHERE delivery_id = $1";
        self.client.one_with(state, &[&id]).await.unwrap()
    }

    fn mails(&self) -> usize {
        self.server.effects().unwrap().len()
    }

    fn reconciler<P: Provider>(&self, provider: P) -> Reconciler<P> {
        Reconciler {
            deliveries: self.deliveries.clone(),
            queue: self.queue.clone(),
            provider,
            poll_interval: Duration::from_millis(100),
            patience: 0.0,
            resends: AT_ONCE,
            resends_unknown: false,
            retries_failed: false,
        }
    }

    fn task(&self, id: Uuid) -> String {
        let key = format!("asynq:{{mail}}:t:{id}");
        let state = self.redis.ask(&["HGET", &key, "state"]).unwrap();
        state.as_str().unwrap_or("gone").to_owned()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mails_are_sent_once_and_their_ids_stored_for_a_day() {
    let Some(setup) = Setup::new("mails_are_sent_once_and_their_ids_stored_for_a_day").await else {
        return;
    };
    let id = setup.order().await;
    setup.work_until(id, "sent").await;
    let mail = setup.server.effects().unwrap().remove(0);
    assert_eq!(mail.id, format!("<{id}@example.com>"));
    assert_eq!(
        (mail.args, setup.task(id)),
        (json!(["ada@example.com"]), "completed".into())
    );
    assert_eq!(setup.queue.again(id).await.unwrap(), "completed");
    assert_eq!(setup.worker().step().await.unwrap(), Step::Idle);
    let score = setup
        .redis
        .ask(&["ZSCORE", "asynq:{mail}:completed", &id.to_string()])
        .unwrap();
    let now = setup.redis.ask(&["TIME"]).unwrap();
    let seconds =
        |value: &serde_json::Value| value.to_string().replace('"', "").parse::<f64>().unwrap();
    let known_for = seconds(&score) - seconds(&now[0]);
    assert!((86_000.0..86_401.0).contains(&known_for), "{known_for}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_a_lost_worker_return_and_its_late_result_is_ignored() {
    let Some(setup) = Setup::new("a_task_whose_worker_is_lost_comes_back").await else {
        return;
    };
    let id = setup.order().await;
    let mut lost = setup.queue.take().await.unwrap().unwrap();
    assert_eq!(setup.queue.take().await.unwrap(), None);
    setup.work_until(id, "sent").await;
    assert!(!setup.queue.renew(&mut lost).await.unwrap());
    let end = End::Archived("late".into());
    assert!(!setup.queue.end(&lost, end).await.unwrap());
    assert_eq!((setup.mails(), setup.task(id)), (1, "completed".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mails_interrupted_by_a_crash_are_unknown_until_the_provider_is_asked() {
    let Some(setup) =
        Setup::new("mails_interrupted_by_a_crash_are_unknown_until_the_provider_is_asked").await
    else {
        return;
    };
    let (_client, mut failed) = failed_mails(setup.db.url()).await.unwrap();
    setup
        .server
        .set_behaviour(&json!({ "delay": 3600 }))
        .unwrap();
    let id = setup.order().await;
    let lost = setup.worker();
    let lost = tokio::spawn(async move { lost.step().await.map_err(|error| error.to_string()) });
    let taken = async || Ok(setup.mails() == 1);
    eventually(SOON, "the server has it", taken).await.unwrap();
    assert_eq!(setup.state(id).await, "sending");
    lost.abort();
    let _ = lost.await;
    setup.work_until(id, "unknown").await;
    // The listener is notified, and a provider that cannot tell changes nothing.
    let heard = tokio::time::timeout(SOON, failed.recv()).await.unwrap();
    assert_eq!(heard, Some(id));
    assert_eq!(
        setup.reconciler(UnqueryableProvider).pass().await.unwrap(),
        0
    );
    assert_eq!(setup.state(id).await, "unknown");
    let provider = Maildir(Arc::clone(&setup.server));
    assert_eq!(setup.reconciler(provider).pass().await.unwrap(), 1);
    assert_eq!((setup.state(id).await.as_str(), setup.mails()), ("sent", 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_mails_missing_at_the_provider_are_resent() {
    let Some(setup) = Setup::new("an_unknown_mail_that_the_provider_does_not_have").await else {
        return;
    };
    let id = setup.order().await;
    // A worker that recorded the beginning, and died before it connected.
    setup.queue.take().await.unwrap().unwrap();
    let begun = setup.deliveries.begin(id, Uuid::new_v4()).await.unwrap();
    assert!(matches!(begun, deliveries::Begun::Mail { .. }));
    setup.work_until(id, "unknown").await;
    assert_eq!(setup.mails(), 0);
    let provider = Maildir(Arc::clone(&setup.server));
    assert_eq!(setup.reconciler(provider).pass().await.unwrap(), 1);
    setup.work_until(id, "sent").await;
    assert_eq!(setup.mails(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_are_renewed_while_the_mail_server_is_slow() {
    let Some(setup) = Setup::new("leases_are_renewed_while_the_mail_server_is_slow").await else {
        return;
    };
    setup
        .server
        .set_behaviour(&json!({ "delay": 3.5 }))
        .unwrap();
    let id = setup.order().await;
    let slow = setup.worker();
    let slow = tokio::spawn(async move { slow.step().await.map_err(|error| error.to_string()) });
    let taken = async || Ok(setup.mails() == 1);
    eventually(SOON, "the server has it", taken).await.unwrap();
    // Another worker polls continuously, for far longer than a lease.
    setup.work_until(id, "sent").await;
    slow.await.unwrap().unwrap();
    assert_eq!((setup.mails(), setup.task(id)), (1, "completed".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mails_without_a_recorded_result_take_it_from_the_queue() {
    let Some(setup) = Setup::new("a_mail_whose_row_could_not_be_written").await else {
        return;
    };
    let forbid = "ALTER TABLE mail_deliveries ADD CONSTRAINT no_end CHECK (state <> 'sent')";
    setup.client.run(forbid).await.unwrap();
    let id = setup.order().await;
    assert!(setup.worker().step().await.is_err());
    assert_eq!(
        (setup.state(id).await.as_str(), setup.task(id)),
        ("sending", "completed".into())
    );
    let allow = "ALTER TABLE mail_deliveries DROP CONSTRAINT no_end";
    setup.client.run(allow).await.unwrap();
    assert_eq!(
        setup.reconciler(UnqueryableProvider).pass().await.unwrap(),
        1
    );
    assert_eq!((setup.state(id).await.as_str(), setup.mails()), ("sent", 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_mails_fail_and_are_retried_only_if_configured() {
    let Some(setup) = Setup::new("a_refused_mail_has_failed").await else {
        return;
    };
    setup
        .server
        .set_behaviour(&json!({ "rcpt": "550 nobody" }))
        .unwrap();
    let id = setup.order().await;
    setup.work_until(id, "failed").await;
    assert_eq!(
        setup.reconciler(UnqueryableProvider).pass().await.unwrap(),
        0
    );
    setup.server.set_behaviour(&json!({})).unwrap();
    let mut reconciler = setup.reconciler(UnqueryableProvider);
    reconciler.retries_failed = true;
    assert_eq!(reconciler.pass().await.unwrap(), 1);
    setup.work_until(id, "sent").await;
    assert_eq!(setup.mails(), 1);
}
