//! Jobs whose route sets when the receiver runs them: sent ahead to a receiver with a schedule,
//! else waiting in Postgres.

use std::time::Duration;

use jiff::Timestamp;
use posthaste_relay::{Asynq, BullMq, Celery, Destination, Mapping, Relay, Sidekiq, Template};
use posthaste_testkit::receivers::{Receiver, Redis, Worker, are_here};
use posthaste_testkit::{PgVersion, TestDb, eventually, unique};
use tokio_postgres::Client;

use super::fake_destination::FakeDestination;
use super::rabbitmq::shared;
use super::redis::KEEPS;
use crate::support::{SOON, all_done, database, worker};

/// Enqueues a job that runs this much later; returns the time.
async fn enqueue(client: &Client, later: Duration) -> Timestamp {
    let at = Timestamp::now() + later;
    let enqueue =
        "SELECT posthaste.enqueue('later', jsonb_build_object('at', $1::text), queue => 'm')";
    let time = at.to_string();
    client.execute(enqueue, &[&time]).await.unwrap();
    at
}

async fn start(db: &TestDb, relay: posthaste_relay::RelayBuilder) -> posthaste::WorkerHandle {
    let at = Template::parse("{kwargs.at}").unwrap();
    let relay = relay.mapping(Mapping::default().at(at));
    let relay = relay.start().await.unwrap();
    let worker = worker(&db.pool(2).unwrap()).consumer("m", relay);
    worker.start().await.unwrap()
}

/// Asserts that the only job is rescheduled, with no attempt counted.
async fn waits_in_postgres(client: &Client) {
    let state = "SELECT state, attempt FROM posthaste.job";
    eventually(SOON, "it is rescheduled", async || {
        let rows = client.query(state, &[]).await?;
        Ok(rows
            .first()
            .is_some_and(|row| row.get::<_, &str>(0) == "scheduled"))
    })
    .await
    .unwrap();
    let row = client.query_one(state, &[]).await.unwrap();
    assert_eq!(row.get::<_, i32>(1), 0);
}

/// Asserts that the condition becomes true, and not before this time.
async fn is_sent_at(at: Timestamp, is_sent: impl AsyncFn() -> anyhow::Result<bool>) {
    eventually(SOON, "it is sent", async || {
        let is_sent = is_sent().await?;
        assert!(!is_sent || Timestamp::now() >= at, "too early");
        Ok(is_sent)
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_wait_in_postgres_for_receivers_without_a_schedule() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let fake = FakeDestination::default();
    let relay = start(&db, fake.relay()).await;
    let at = enqueue(&client, Duration::from_millis(1500)).await;
    waits_in_postgres(&client).await;
    is_sent_at(at, async || Ok(!fake.taken().is_empty())).await;
    all_done(&client).await;
    relay.stop().await.unwrap();
}

/// Asserts that the job is done here before its time, and runs at the receiver when it is due.
async fn runs_when_due(destination: impl Destination, receiver: &Worker) {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let relay = start(&db, Relay::to(destination)).await;
    // Long enough to be sent ahead, even on a slow machine.
    let at = enqueue(&client, Duration::from_secs(4)).await;
    all_done(&client).await;
    assert!(Timestamp::now() < at, "it was not handed over ahead");
    eventually(SOON, "it is run", async || {
        let is_run = !receiver.effects()?.is_empty();
        assert!(!is_run || Timestamp::now() >= at, "too early");
        Ok(is_run)
    })
    .await
    .unwrap();
    let effects = receiver.effects().unwrap();
    assert_eq!((effects.len(), effects[0].name.as_str()), (1, "later"));
    relay.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sidekiq_holds_scheduled_jobs_until_due() {
    let name = "sidekiq_holds_scheduled_jobs_until_due";
    if !are_here(name, &[Receiver::Redis, Receiver::Sidekiq]) {
        return;
    }
    let redis = Redis::start(KEEPS).unwrap();
    let sidekiq = Worker::sidekiq(&redis.url(), &["mail"]).unwrap();
    let destination = Sidekiq::new(&redis.url()).unwrap().queue("mail");
    runs_when_due(destination.retry(25), &sidekiq).await;
}

/// Sidekiq's schedule would set retries that the job's class may not want.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sidekiq_jobs_without_explicit_retries_wait_in_postgres() {
    let name = "sidekiq_jobs_without_explicit_retries_wait_in_postgres";
    if !are_here(name, &[Receiver::Redis]) {
        return;
    }
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let redis = Redis::start(KEEPS).unwrap();
    let destination = Sidekiq::new(&redis.url()).unwrap().queue("mail");
    let relay = start(&db, Relay::to(destination)).await;
    let at = enqueue(&client, Duration::from_millis(1500)).await;
    waits_in_postgres(&client).await;
    is_sent_at(at, async || {
        assert_eq!(redis.ask(&["ZCARD", "schedule"])?, 0);
        Ok(redis.ask(&["LLEN", "queue:mail"])? == 1)
    })
    .await;
    all_done(&client).await;
    relay.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asynq_holds_scheduled_jobs_until_due() {
    let name = "asynq_holds_scheduled_jobs_until_due";
    if !are_here(name, &[Receiver::Redis, Receiver::Asynq]) {
        return;
    }
    let redis = Redis::start(KEEPS).unwrap();
    let asynq = Worker::asynq(&redis.url(), &["mail"]).unwrap();
    let destination = Asynq::new(&redis.url()).unwrap().queue("mail");
    runs_when_due(destination, &asynq).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bullmq_holds_scheduled_jobs_until_due() {
    let name = "bullmq_holds_scheduled_jobs_until_due";
    if !are_here(name, &[Receiver::Redis, Receiver::BullMq]) {
        return;
    }
    let redis = Redis::start(KEEPS).unwrap();
    let bullmq = Worker::bullmq(&redis.url(), &["mail"]).unwrap();
    let destination = BullMq::new(&redis.url(), "mail").unwrap();
    runs_when_due(destination, &bullmq).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn celery_holds_scheduled_jobs_until_due() {
    let name = "celery_holds_scheduled_jobs_until_due";
    if !are_here(
        name,
        &[Receiver::Redis, Receiver::RabbitMq, Receiver::Celery],
    ) {
        return;
    }
    let redis = Redis::start(KEEPS).unwrap();
    let celery = Worker::celery(&redis.url(), &["mail"]).unwrap();
    let destination = Celery::redis(&redis.url()).unwrap().queue("mail");
    runs_when_due(destination, &celery).await;
    let queue = unique("later");
    let celery = Worker::celery(shared(), &[&queue]).unwrap();
    let destination = Celery::rabbitmq(shared()).unwrap().queue(&queue);
    runs_when_due(destination, &celery).await;
}
