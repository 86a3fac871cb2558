//! A worker that records what it does.

use std::io;
use std::ops::Deref;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;

use super::service::Service;
use super::{Receiver, workers};
use crate::account::Account;
use crate::{eventually, ran};

/// A worker that runs jobs of any name, and writes one line for each before it acknowledges the
/// job.
#[derive(Debug)]
pub struct Worker(Service);

/// An effect of a worker.
#[derive(Clone, Debug)]
pub struct Effect {
    /// The worker's ID of the job: jid, task id, job id or message id.
    pub id: String,
    /// Its class, type, task, name or subject.
    pub name: String,
    /// Its arguments or payload, if they are JSON.
    pub args: Value,
    /// The whole line of the worker, which contains more and differs by worker.
    pub all: Value,
}

impl Worker {
    /// Sidekiq on these queues.
    pub fn sidekiq(redis: &str, queues: &[&str]) -> anyhow::Result<Self> {
        workers::sidekiq(redis, queues)
    }

    /// asynq on these queues.
    pub fn asynq(redis: &str, queues: &[&str]) -> anyhow::Result<Self> {
        workers::asynq(redis, queues)
    }

    /// Celery on these queues; the broker is a Redis or a RabbitMQ.
    pub fn celery(broker: &str, queues: &[&str]) -> anyhow::Result<Self> {
        workers::celery(broker, queues, None)
    }

    /// As [`celery`](Self::celery), with effects as rows of a table `effect (delivery_id)` in this
    /// database, one for each delivery: it calls `posthaste.receive` in their transactions.
    pub fn celery_once(broker: &str, queues: &[&str], database: &str) -> anyhow::Result<Self> {
        workers::celery(broker, queues, Some(database))
    }

    /// BullMQ on these queues.
    pub fn bullmq(redis: &str, queues: &[&str]) -> anyhow::Result<Self> {
        workers::bullmq(redis, queues)
    }

    /// A consumer of these queues of a RabbitMQ, which must be declared elsewhere.
    pub fn rabbitmq(broker: &str, queues: &[&str]) -> anyhow::Result<Self> {
        workers::rabbitmq(broker, queues)
    }

    /// A consumer of this JetStream stream, which it creates for all subjects that begin with its
    /// name and a dot.
    pub fn nats(server: &str, stream: &str, duplicate_window: Duration) -> anyhow::Result<Self> {
        workers::nats(server, stream, duplicate_window)
    }

    /// A consumer of this Kafka topic, from its beginning.
    pub fn kafka(bootstrap: &str, topic: &str) -> anyhow::Result<Self> {
        workers::kafka(bootstrap, topic)
    }

    pub(super) fn start(
        receiver: Receiver,
        name: &'static str,
        ready: &'static str,
        command: impl Fn() -> Command + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        // Under our account: the account of the servers may not be able to read the program.
        let folder = Service::folder(Account::Ourselves)?;
        let place = folder.path().to_owned();
        let service = Service::start(name, folder, ready, move || {
            let mut command = command();
            command
                .env("POSTHASTE_EFFECTS", place.join("effects"))
                .current_dir(&place);
            command
        })?;
        ran::note(receiver.name());
        Ok(Self(service))
    }

    /// Its effects until now, including those of earlier starts.
    pub fn effects(&self) -> anyhow::Result<Vec<Effect>> {
        let text = match std::fs::read_to_string(self.path().join("effects")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            text => text?,
        };
        // The last line may be incomplete.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(Effect::read).collect()
    }

    /// Waits until it has this many effects, and returns all of them.
    pub async fn wait_for(&self, count: usize, within: Duration) -> anyhow::Result<Vec<Effect>> {
        let enough = async || Ok(self.effects()?.len() >= count);
        let outcome = eventually(within, &format!("{count} effects"), enough).await;
        outcome.with_context(|| format!("{:?} said {:?}", self.0, self.output_lines()))?;
        self.effects()
    }
}

impl Effect {
    fn read(line: &str) -> anyhow::Result<Self> {
        let all: Value = serde_json::from_str(line).with_context(|| format!("{line:?}"))?;
        let text = |key: &str| all[key].as_str().unwrap_or_default().to_owned();
        Ok(Self {
            id: text("id"),
            name: text("name"),
            args: all["args"].clone(),
            all,
        })
    }
}

impl Deref for Worker {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.0
    }
}
