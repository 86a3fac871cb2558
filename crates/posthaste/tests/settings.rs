//! Invalid settings are rejected at the start, before the database is queried, by an error that
//! names the setting.

use std::time::Duration;

use deadpool_postgres::{Manager, Pool};
use posthaste::consumer::{Consumer, Delivery};
use posthaste::{Backoff, Config, Outcome, QueueConfig, Worker, WorkerBuilder};

struct Nothing;

impl Consumer for Nothing {
    fn capacity(&self) -> usize {
        0
    }
    fn consume(&self, _claim: Vec<Delivery>) {}
    fn give_back(&self) {}
    fn abort(&self) {}
}

/// Creates a worker without a database.
fn builder() -> WorkerBuilder {
    let manager = Manager::new(tokio_postgres::Config::new(), tokio_postgres::NoTls);
    Worker::builder(Pool::builder(manager).build().unwrap())
}

fn handled(builder: WorkerBuilder, name: &str) -> WorkerBuilder {
    builder.handler(name, |_, _| async { Ok(Outcome::Done) })
}

async fn refusal(builder: WorkerBuilder) -> String {
    let refused = builder.start().await;
    refused.err().expect("it did not start").to_string()
}

const CONNECTS: &str = "cannot connect to Postgres";

#[tokio::test]
async fn rejects_workers_without_handled_queues() {
    let long = "x".repeat(256);
    let name = "a queue's name must have 1 to 255 bytes";
    let neither =
        "a worker needs at least one handler for its queues, and a queue for its handlers";
    for (builder, expected) in [
        (builder(), "a worker needs at least one queue"),
        (builder().queue("a", 1), neither),
        (handled(builder().consumer("a", Nothing), "n"), neither),
        (handled(builder().queue("", 1), "n"), name),
        (builder().consumer(long.clone(), Nothing), name),
        (
            builder().consumer("a\0", Nothing),
            "a queue's name must not contain NUL",
        ),
        (
            handled(builder().queue("a", 1).queue("a", 2), "n"),
            "the queue \"a\" is named twice",
        ),
        (
            handled(builder().queue("a", 1).consumer("a", Nothing), "n"),
            "the queue \"a\" is named twice",
        ),
        (
            handled(builder().queue("a", 1), ""),
            "a handler's name must have 1 to 255 bytes",
        ),
        (
            handled(builder().queue("a", 1), &long),
            "a handler's name must have 1 to 255 bytes",
        ),
        (
            handled(builder().queue("a", 1), &format!("{long}*")),
            "a handler's name must have 0 to 255 bytes",
        ),
    ] {
        assert_eq!(refusal(builder).await, expected);
    }
    for good in [
        handled(builder().queue("a", 1), "*"),
        builder().consumer("a", Nothing),
        handled(builder().queue("a", 1).consumer("b", Nothing), "n"),
    ] {
        let expected = refusal(good).await;
        assert!(expected.starts_with(CONNECTS), "{expected}");
    }
}

#[tokio::test]
async fn rejects_queues_without_slots_timeout_or_back_off() {
    let zero = Duration::ZERO;
    let hour = Duration::from_secs(3_600);
    let queue = || QueueConfig::new("a", 1);
    for (queue, expected) in [
        (QueueConfig::new("a", 0), "concurrency must be at least 1"),
        (
            QueueConfig {
                timeout: zero,
                ..queue()
            },
            "timeout must be longer than 0",
        ),
        (
            QueueConfig {
                backoff: Backoff {
                    base: zero,
                    cap: hour,
                },
                ..queue()
            },
            "backoff.base must be longer than 0",
        ),
        (
            QueueConfig {
                backoff: Backoff {
                    base: hour,
                    cap: zero,
                },
                ..queue()
            },
            "backoff.cap must be longer than 0",
        ),
    ] {
        let refused = refusal(handled(builder().queue_config(queue), "n")).await;
        assert_eq!(refused, format!("queue \"a\": {expected}"));
    }
}

#[tokio::test]
async fn rejects_zero_intervals_and_sizes() {
    type Spoil = fn(&mut Config);
    let spoilt: [(&str, Spoil); 9] = [
        ("poll_interval must be longer than 0", |c| {
            c.poll_interval = Duration::ZERO
        }),
        ("heartbeat_interval must be longer than 0", |c| {
            c.heartbeat_interval = Duration::ZERO
        }),
        ("promote_interval must be longer than 0", |c| {
            c.promote_interval = Duration::ZERO
        }),
        ("maintenance_interval must be longer than 0", |c| {
            c.maintenance_interval = Duration::ZERO
        }),
        ("expire_interval must be longer than 0", |c| {
            c.expire_interval = Duration::ZERO
        }),
        ("segment_bytes must be more than 0", |c| c.segment_bytes = 0),
        ("claim_bytes must be more than 0", |c| c.claim_bytes = -1),
        (
            "rescue_after must be at least three times heartbeat_interval",
            |c| c.rescue_after = c.heartbeat_interval * 2,
        ),
        ("the worker's name must not contain NUL", |c| {
            c.name = "\0".into()
        }),
    ];
    for (expected, spoil) in spoilt {
        let mut config = Config::default();
        spoil(&mut config);
        let worker = handled(builder().queue("a", 1), "n").config(config);
        assert_eq!(refusal(worker).await, expected);
    }
}
