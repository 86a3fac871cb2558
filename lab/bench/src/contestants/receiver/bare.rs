//! The bare clients of the receivers, which send the same messages as the relay, with the same
//! concurrency.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use futures_util::{StreamExt, TryStreamExt, stream};
use lapin::options::BasicPublishOptions;
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel};
use redis::Pipeline;
use redis::aio::MultiplexedConnection;

use super::{BATCHES, BENCH, Receiver};
use crate::contestants::JOB_NAME;

/// Sidekiq's queue.
pub(super) const LIST: &str = "queue:default";
/// asynq's pending list.
pub(super) const PENDING: &str = "asynq:{default}:pending";
/// The relay's script.
const ASYNQ: &str = include_str!("../../../../../crates/posthaste-relay/src/destination/asynq.lua");

fn id(n: u64) -> String {
    format!("018f3c9e-7b1a-7c2d-9e3f-{n:012x}")
}

fn payload(n: u64) -> String {
    format!("{{\"n\": {}}}", 1_000_000 + n)
}

/// Sends batches concurrently, and returns how long all took.
async fn send<M>(
    receiver: Receiver,
    messages: &[M],
    one: impl AsyncFn(&[M]) -> Result<()>,
) -> Result<Duration> {
    let begun = Instant::now();
    let batches = stream::iter(messages.chunks(receiver.batch())).map(|batch| one(batch));
    let sent = batches.buffer_unordered(BATCHES).try_collect::<()>();
    sent.await?;
    Ok(begun.elapsed())
}

async fn ask(connection: &MultiplexedConnection, commands: Pipeline) -> Result<()> {
    Ok(commands.exec_async(&mut connection.clone()).await?)
}

pub(super) async fn sidekiq(connection: &MultiplexedConnection, jobs: u64) -> Result<Duration> {
    let message = |n: u64| {
        let (id, payload) = (id(n), payload(n));
        let jid = &id.replace('-', "")[8..];
        format!(
            "{{\"retry\":true,\"queue\":\"default\",\"class\":\"{JOB_NAME}\",\
             \"args\":[{payload}],\"jid\":\"{jid}\",\"created_at\":1700000000.123456,\
             \"enqueued_at\":1700000000.123456,\"delivery_id\":\"{id}\"}}"
        )
    };
    let messages: Vec<String> = (0..jobs).map(message).collect();
    let push = async |batch: &[String]| {
        let mut commands = redis::pipe();
        commands.cmd("SADD").arg("queues").arg("default");
        commands.cmd("LPUSH").arg(LIST).arg(batch);
        ask(connection, commands).await
    };
    send(Receiver::Sidekiq, &messages, push).await
}

pub(super) async fn asynq(connection: &MultiplexedConnection, jobs: u64) -> Result<Duration> {
    let mut load = redis::cmd("SCRIPT");
    load.arg("LOAD").arg(ASYNQ);
    let script: String = load.query_async(&mut connection.clone()).await?;
    let messages: Vec<(String, Vec<u8>)> = (0..jobs).map(|n| (id(n), task(n))).collect();
    let push = async |batch: &[(String, Vec<u8>)]| {
        let mut commands = redis::pipe();
        commands.cmd("SADD").arg("asynq:queues").arg("default");
        for (id, task) in batch {
            let call = commands.cmd("EVALSHA").arg(&script).arg(2);
            call.arg(format!("asynq:{{default}}:t:{id}")).arg(PENDING);
            // Not scheduled.
            call.arg(task).arg(id).arg("1700000000000000000").arg("");
        }
        ask(connection, commands).await
    };
    send(Receiver::Asynq, &messages, push).await
}

/// A task in asynq's format: type, payload, ID, queue, retries, timeout and retention.
fn task(n: u64) -> Vec<u8> {
    let mut task = Vec::new();
    let texts = [JOB_NAME, &payload(n), &id(n), "default"];
    for (tag, text) in (1..).zip(texts) {
        task.extend([tag << 3 | 2, u8::try_from(text.len()).unwrap_or(u8::MAX)]);
        task.extend(text.as_bytes());
    }
    task.extend([5 << 3, 25, 8 << 3, 0x88, 0x0e, 12 << 3, 0x80, 0xa3, 0x05]);
    task
}

pub(super) async fn rabbitmq(channel: &Channel, jobs: u64) -> Result<Duration> {
    let messages: Vec<(String, String)> = (0..jobs).map(|n| (id(n), payload(n))).collect();
    let push = async |batch: &[(String, String)]| -> Result<()> {
        let publish = batch
            .iter()
            .map(|(id, payload)| publish(channel, id, payload));
        try_join_all(publish).await.map(drop)
    };
    send(Receiver::RabbitMq, &messages, push).await
}

async fn publish(channel: &Channel, id: &str, payload: &str) -> Result<()> {
    let options = BasicPublishOptions {
        mandatory: true,
        ..BasicPublishOptions::default()
    };
    let properties = BasicProperties::default()
        .with_content_type("application/json".into())
        .with_content_encoding("utf-8".into())
        .with_headers(FieldTable::default())
        .with_delivery_mode(2)
        .with_priority(0)
        .with_message_id(id.into())
        .with_timestamp(1_700_000_000)
        .with_type(JOB_NAME.into());
    let (exchange, body) = ("".into(), payload.as_bytes());
    let sent = channel.basic_publish(exchange, BENCH.into(), options, body, properties);
    sent.await?.await.context("not confirmed").map(drop)
}
