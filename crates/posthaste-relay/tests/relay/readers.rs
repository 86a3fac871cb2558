//! Readers of the receivers' queues, as the receivers report them.

use std::sync::Arc;

use posthaste_relay::{Asynq, BullMq, Destination, Sidekiq};
use posthaste_testkit::eventually;
use posthaste_testkit::receivers::{Receiver, Redis, Worker, are_here};

use super::redis::KEEPS;
use crate::support::SOON;

/// A queue counts as unread until it has a worker, whatever other queues have.
async fn is_told_of(destination: impl Destination, start: impl Fn(&[&str]) -> Worker) {
    let queues = ["idle", "mail"].map(String::from);
    let unread = async || destination.queues_without_workers(&queues).await;
    assert_eq!(unread().await.unwrap(), queues);
    let _worker = start(&["mail"]);
    eventually(SOON, "its worker is known", async || {
        Ok(unread().await.map_err(anyhow::Error::msg)? == ["idle"])
    })
    .await
    .unwrap();
}

fn redis(test: &str, receiver: Receiver) -> Option<Arc<Redis>> {
    let here = are_here(test, &[Receiver::Redis, receiver]);
    here.then(|| Arc::new(Redis::start(KEEPS).unwrap()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sidekiq_queues_without_a_worker_are_reported() {
    let test = "sidekiq_queues_without_a_worker_are_reported";
    if let Some(redis) = redis(test, Receiver::Sidekiq) {
        let destination = Sidekiq::new(&redis.url()).unwrap();
        is_told_of(destination, |queues| {
            Worker::sidekiq(&redis.url(), queues).unwrap()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asynq_queues_without_a_worker_are_reported() {
    let test = "asynq_queues_without_a_worker_are_reported";
    if let Some(redis) = redis(test, Receiver::Asynq) {
        let destination = Asynq::new(&redis.url()).unwrap();
        is_told_of(destination, |queues| {
            Worker::asynq(&redis.url(), queues).unwrap()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bullmq_queues_without_a_worker_are_reported() {
    let test = "bullmq_queues_without_a_worker_are_reported";
    if let Some(redis) = redis(test, Receiver::BullMq) {
        let destination = BullMq::new(&redis.url(), "mail").unwrap();
        is_told_of(destination, |queues| {
            Worker::bullmq(&redis.url(), queues).unwrap()
        })
        .await;
    }
}

#[cfg(feature = "rabbitmq")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rabbitmq_queues_without_a_consumer_are_reported() {
    use posthaste_testkit::unique;

    use super::rabbitmq::{Hands, shared};

    let test = "rabbitmq_queues_without_a_consumer_are_reported";
    if !are_here(test, &[Receiver::RabbitMq]) {
        return;
    }
    let hands = Hands::on(shared()).await;
    let queues = ["idle", "mail"].map(unique);
    for queue in &queues {
        hands.queue(queue, &[]).await;
    }
    let destination = posthaste_relay::RabbitMq::new(shared()).unwrap();
    // A queue that does not exist must not affect the report of the others.
    let asked = [&queues[..], &["absent".to_owned()]].concat();
    assert_eq!(
        destination.queues_without_workers(&asked).await.unwrap(),
        queues
    );
    let _consumer = Worker::rabbitmq(shared(), &[&queues[1]]).unwrap();
    eventually(SOON, "its consumer is known", async || {
        let unread = destination.queues_without_workers(&asked).await;
        Ok(unread.map_err(anyhow::Error::msg)? == [queues[0].clone()])
    })
    .await
    .unwrap();
    for queue in &queues {
        hands.delete(queue).await;
    }
}
