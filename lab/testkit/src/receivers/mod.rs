//! The systems around posthaste: servers for the relay, the index sync and the metrics, workers of
//! popular job libraries on them, and a browser for the console.
//!
//! `scripts/setup.sh receivers` installs them. Tests on a machine that lacks one are skipped: a
//! test calls [`are_here`] with those that it needs, and `make test` ends by naming the tests that
//! did not run.
//!
//! Every [`Worker`] runs jobs of any name and writes one line for each before it acknowledges the
//! job: its [`effects`](Worker::effects).
//!
//! ```no_run
//! use std::time::Duration;
//! use posthaste_testkit::receivers::{self, Receiver, Redis, Worker};
//!
//! # async fn example() -> anyhow::Result<()> {
//! if !receivers::are_here("a job reaches Sidekiq", &[Receiver::Redis, Receiver::Sidekiq]) {
//!     return Ok(());
//! }
//! let redis = Redis::start(&[])?;
//! let sidekiq = Worker::sidekiq(&redis.url(), &["default"])?;
//! let job = r#"{"class":"MailJob","args":[1],"jid":"b4a577edbccf1d805744efa9"}"#;
//! redis.ask(&["LPUSH", "queue:default", job])?;
//! let effects = sidekiq.wait_for(1, Duration::from_secs(10)).await?;
//! assert_eq!(effects[0].name, "MailJob");
//! # Ok(()) }
//! ```

mod browser;
mod kafka;
mod nats;
mod opensearch;
mod prometheus;
mod rabbitmq;
mod redis;
mod service;
mod worker;
mod workers;

use std::path::{Path, PathBuf};

use crate::ran;

pub use browser::Browser;
pub use kafka::Kafka;
pub use nats::Nats;
pub use opensearch::OpenSearch;
pub use prometheus::{Alertmanager, Prometheus};
pub use rabbitmq::RabbitMq;
pub use redis::Redis;
pub use service::Service;
pub use worker::{Effect, Worker};
pub use workers::{Encrypts, Guarded, Smtp};

/// A server that the relay, the index sync or the metrics use, or a worker of such a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// Debian's Redis.
    Redis,
    /// Debian's RabbitMQ.
    RabbitMq,
    /// Debian's NATS server, with JetStream.
    Nats,
    /// A Kafka broker, from Maven Central.
    Kafka,
    /// OpenSearch, from Maven Central.
    OpenSearch,
    /// Debian's Sidekiq.
    Sidekiq,
    /// A worker with the asynq module.
    Asynq,
    /// Celery, with the consumers of RabbitMQ, NATS and Kafka that are written in Python.
    Celery,
    /// BullMQ.
    BullMq,
    /// aiosmtpd.
    Smtp,
    /// Debian's Prometheus, with promtool.
    Prometheus,
    /// Debian's Alertmanager.
    Alertmanager,
    /// Debian's Chromium and ChromeDriver, and axe-core.
    Browser,
}

impl Receiver {
    /// All receivers.
    pub const ALL: [Self; 13] = [
        Self::Redis,
        Self::RabbitMq,
        Self::Nats,
        Self::Kafka,
        Self::OpenSearch,
        Self::Sidekiq,
        Self::Asynq,
        Self::Celery,
        Self::BullMq,
        Self::Smtp,
        Self::Prometheus,
        Self::Alertmanager,
        Self::Browser,
    ];

    /// The name in the ledger of what ran.
    pub fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::RabbitMq => "rabbitmq",
            Self::Nats => "nats",
            Self::Kafka => "kafka",
            Self::OpenSearch => "opensearch",
            Self::Sidekiq => "sidekiq",
            Self::Asynq => "asynq",
            Self::Celery => "celery",
            Self::BullMq => "bullmq",
            Self::Smtp => "smtp",
            Self::Prometheus => "prometheus",
            Self::Alertmanager => "alertmanager",
            Self::Browser => "browser",
        }
    }

    /// Finds its program, or fails with what is missing.
    pub fn find(self) -> anyhow::Result<PathBuf> {
        match self {
            Self::Redis => program("redis-server"),
            Self::RabbitMq => program("epmd").and_then(|_| rabbitmq::program("rabbitmq-server")),
            Self::Nats => program("nats-server"),
            Self::Kafka => installed("kafka", "lib").and_then(|_| program("java")),
            Self::OpenSearch => installed("opensearch", "lib").and_then(|_| program("java")),
            Self::Sidekiq => program("sidekiq"),
            Self::Asynq => installed("asynq", "worker"),
            Self::Celery | Self::Smtp => installed("python", "bin/python"),
            Self::BullMq => installed("bullmq", "node_modules").and_then(|_| program("node")),
            Self::Prometheus => program("promtool").and_then(|_| program("prometheus")),
            // The names of Debian and of its developers.
            Self::Alertmanager => {
                program("prometheus-alertmanager").or_else(|_| program("alertmanager"))
            }
            Self::Browser => browser::find(),
        }
    }
}

/// Returns whether this machine has all of them; if not, the ledger records that the test did not
/// run, and why.
pub fn are_here(test: &str, needed: &[Receiver]) -> bool {
    let missing = needed.iter().find_map(|one| one.find().err());
    if let Some(why) = &missing {
        ran::not_run(test, &format!("{why:#}"));
    }
    missing.is_none()
}

/// Finds a program of the system.
fn program(name: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
        .ok_or_else(|| anyhow::anyhow!("there is no {name}: scripts/setup.sh receivers says why"))
}

/// Finds a part of a complete installation by `scripts/setup.sh receivers`.
fn installed(name: &str, part: &str) -> anyhow::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/receivers");
    let folder = folder.join(name);
    anyhow::ensure!(
        folder.join("installed").is_file() && folder.join(part).exists(),
        "there is nothing in .tools/receivers/{name}: scripts/setup.sh receivers says why"
    );
    // The link of a virtual environment must not be resolved, so only the folder's name is.
    Ok(folder.canonicalize()?.join(part))
}

/// The folder with the programs of the workers.
fn sources(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("receivers")
        .join(name)
}
