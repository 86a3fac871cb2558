//! Starts the workers. Their programs are in the folder `receivers` of this crate.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::worker::Worker;
use super::{Receiver, installed, sources};
use crate::{PgVersion, ports};

pub(super) fn sidekiq(redis: &str, queues: &[&str]) -> anyhow::Result<Worker> {
    let (program, redis) = (Receiver::Sidekiq.find()?, redis.to_owned());
    let queues: Vec<String> = queues
        .iter()
        .map(|queue| format!("--queue={queue}"))
        .collect();
    Worker::start(Receiver::Sidekiq, "Sidekiq", "Running in", move || {
        let mut command = Command::new(&program);
        command
            .env("REDIS_URL", &redis)
            .args(["--concurrency", "4", "--timeout", "1", "--require"])
            .arg(sources("sidekiq").join("worker.rb"))
            .args(&queues);
        command
    })
}

pub(super) fn asynq(redis: &str, queues: &[&str]) -> anyhow::Result<Worker> {
    let (program, redis) = (Receiver::Asynq.find()?, redis.to_owned());
    let queues = queues.join(",");
    Worker::start(Receiver::Asynq, "asynq", "Starting processing", move || {
        let mut command = Command::new(&program);
        command
            .env("REDIS_URL", &redis)
            .env("POSTHASTE_QUEUES", &queues);
        command
    })
}

pub(super) fn celery(
    broker: &str,
    queues: &[&str],
    database: Option<&str>,
) -> anyhow::Result<Worker> {
    let (broker, queues) = (broker.to_owned(), queues.join(","));
    let python = Receiver::Celery.find()?;
    let psql = PgVersion::V15.bin()?.join("psql");
    let database = database.map(|url| [("DATABASE_URL", url.into()), ("PSQL", psql)]);
    Worker::start(Receiver::Celery, "Celery", " ready.", move || {
        let mut command = python_command(&python);
        command
            .env("BROKER_URL", &broker)
            .env_remove("DATABASE_URL")
            .envs(database.iter().flatten().cloned())
            .args(["-m", "celery", "--app", "celery_worker", "worker"])
            .args([
                "--pool",
                "threads",
                "--concurrency",
                "4",
                "--loglevel",
                "INFO",
            ])
            .args([
                "--without-gossip",
                "--without-mingle",
                "--without-heartbeat",
            ])
            .args(["--queues", &queues]);
        command
    })
}

pub(super) fn bullmq(redis: &str, queues: &[&str]) -> anyhow::Result<Worker> {
    let (node, redis) = (Receiver::BullMq.find()?, redis.to_owned());
    let (packages, queues) = (installed("bullmq", "node_modules")?, queues.join(","));
    Worker::start(Receiver::BullMq, "BullMQ", "ready", move || {
        let mut command = Command::new(&node);
        command
            .env("NODE_PATH", &packages)
            .env("REDIS_URL", &redis)
            .env("POSTHASTE_QUEUES", &queues)
            .arg(sources("bullmq").join("worker.cjs"));
        command
    })
}

pub(super) fn rabbitmq(broker: &str, queues: &[&str]) -> anyhow::Result<Worker> {
    let settings = [
        ("BROKER_URL", broker),
        ("POSTHASTE_QUEUES", &queues.join(",")),
    ];
    consumer("RabbitMQ's consumer", "rabbitmq_consumer.py", settings)
}

pub(super) fn nats(server: &str, stream: &str, window: Duration) -> anyhow::Result<Worker> {
    let settings = [
        ("NATS_URL", server),
        ("POSTHASTE_STREAM", stream),
        ("POSTHASTE_WINDOW", &window.as_secs_f64().to_string()),
    ];
    consumer("NATS' consumer", "nats_consumer.py", settings)
}

pub(super) fn kafka(bootstrap: &str, topic: &str) -> anyhow::Result<Worker> {
    let settings = [("KAFKA_BOOTSTRAP", bootstrap), ("POSTHASTE_TOPIC", topic)];
    consumer("Kafka's consumer", "kafka_consumer.py", settings)
}

fn consumer<const N: usize>(
    name: &'static str,
    program: &'static str,
    settings: [(&'static str, &str); N],
) -> anyhow::Result<Worker> {
    let settings = settings.map(|(key, value)| (key, value.to_owned()));
    let python = Receiver::Celery.find()?;
    Worker::start(Receiver::Celery, name, "ready", move || {
        let mut command = python_command(&python);
        command
            .arg(sources("python").join(program))
            .envs(settings.clone());
        command
    })
}

fn python_command(python: &Path) -> Command {
    let mut command = Command::new(python);
    command
        .env("PYTHONPATH", sources("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONUNBUFFERED", "1");
    command
}

/// A mail server that stores mails in a maildir, or behaves as ordered.
#[derive(Debug)]
pub struct Smtp {
    port: u16,
    worker: Worker,
}

/// A mail server that requires a user name and a password.
#[derive(Clone, Debug)]
pub struct Guarded {
    /// When it encrypts.
    pub encrypts: Encrypts,
    /// Its certificate, in PEM.
    pub certificate: PathBuf,
    /// The certificate's key, in PEM.
    pub key: PathBuf,
    /// The accepted user.
    pub user: &'static str,
    /// The user's password.
    pub password: &'static str,
}

/// The time at which a mail server encrypts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encrypts {
    /// After STARTTLS, which it requires.
    AfterStarttls,
    /// From the start.
    FromTheStart,
    /// Never, as if an attacker had removed its offer.
    Never,
}

impl Guarded {
    fn arguments(&self) -> [String; 5] {
        let mode = match self.encrypts {
            Encrypts::AfterStarttls => "starttls",
            Encrypts::FromTheStart => "tls",
            Encrypts::Never => "open",
        };
        let path = |path: &Path| path.display().to_string();
        let (user, password) = (self.user.into(), self.password.into());
        let (certificate, key) = (path(&self.certificate), path(&self.key));
        [mode.into(), certificate, key, user, password]
    }
}

impl Smtp {
    /// Starts a mail server; its effects are the accepted mails.
    pub fn start() -> anyhow::Result<Self> {
        Self::start_with(&[])
    }

    /// Starts a mail server that requires a password. Its effects have `encrypted` and `user`.
    pub fn start_guarded(guarded: &Guarded) -> anyhow::Result<Self> {
        Self::start_with(&guarded.arguments())
    }

    fn start_with(arguments: &[String]) -> anyhow::Result<Self> {
        super::service::retry_on_free_ports(|| {
            let port = ports::free()?;
            let python = Receiver::Smtp.find()?;
            let arguments = arguments.to_owned();
            let worker = Worker::start(Receiver::Smtp, "aiosmtpd", "ready", move || {
                let mut command = python_command(&python);
                command
                    .arg(sources("python").join("smtp_server.py"))
                    .args([&port.to_string(), "."])
                    .args(&arguments);
                command
            })?;
            Ok(Self { port, worker })
        })
    }

    /// The login attempts, with method and user: `PLAIN ada`.
    pub fn logins(&self) -> Vec<String> {
        let said = std::fs::read_to_string(self.path().join("logins"));
        said.unwrap_or_default().lines().map(Into::into).collect()
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("smtp://127.0.0.1:{}", self.port)
    }

    /// The port where it listens, also while it is stopped.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sets its behaviour from the next mail on, in the format of its program:
    /// `{"rcpt": "550 no"}`, `{"data": "451 later"}`, `{"delay": 1.5}`, `{"cut": true}`, or `{}`
    /// for none of these.
    pub fn set_behaviour(&self, orders: &Value) -> anyhow::Result<()> {
        let file = self.path().join("orders.json");
        // A rename, because it reads at any time and must not read an incomplete file.
        std::fs::write(file.with_extension("new"), orders.to_string())?;
        Ok(std::fs::rename(file.with_extension("new"), file)?)
    }
}

impl Deref for Smtp {
    type Target = Worker;

    fn deref(&self) -> &Worker {
        &self.worker
    }
}
