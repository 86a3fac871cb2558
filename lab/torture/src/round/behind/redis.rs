//! Lists in Redis, in the formats of Sidekiq and asynq.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use prost::Message as _;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Script};
use serde_json::Value;

use super::reader::{Source, arrived, payload, unpacked};
use crate::history::Arrived;
use crate::relay::{JOB, RELAY};

/// The content of the list.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// Jobs, as JSON.
    Sidekiq,
    /// IDs of tasks, which are stored outside the list.
    Asynq,
}

/// A list that only grows, until Redis loses its data.
pub(super) struct List {
    shape: Shape,
    queue: &'static str,
    client: Client,
    connection: Option<MultiplexedConnection>,
    script: Script,
    /// The epoch that was read last.
    life: String,
    lives: u64,
    /// The number of elements that were read.
    read: usize,
}

/// The fields of an asynq task that are read.
#[derive(Clone, PartialEq, prost::Message)]
struct Task {
    #[prost(bytes = "vec", tag = "2")]
    payload: Vec<u8>,
    #[prost(string, tag = "3")]
    id: String,
    #[prost(btree_map = "string, string", tag = "15")]
    headers: BTreeMap<String, String>,
}

impl List {
    pub(super) fn of(shape: Shape, queue: &'static str, url: &str) -> anyhow::Result<Self> {
        Ok(Self {
            shape,
            queue,
            client: Client::open(url)?,
            connection: None,
            script: Script::new(include_str!("look.lua")),
            life: "0".into(),
            lives: 0,
            read: 0,
        })
    }

    async fn connection(&mut self) -> anyhow::Result<MultiplexedConnection> {
        if let Some(connection) = &self.connection {
            return Ok(connection.clone());
        }
        let patience = Some(Duration::from_secs(1));
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(patience)
            .set_response_timeout(patience);
        let client = &self.client;
        let connected = client.get_multiplexed_async_connection_with_config(&config);
        Ok(self.connection.insert(connected.await?).clone())
    }

    /// Returns the elements after those that were read. A list without the mark of its epoch is
    /// marked and read from the beginning: there is no other reader, so a lost answer does no harm.
    async fn beyond(&mut self) -> anyhow::Result<Vec<Vec<u8>>> {
        let mut connection = self.connection().await?;
        let (list, bodies) = match self.shape {
            Shape::Sidekiq => (format!("queue:{}", self.queue), String::new()),
            Shape::Asynq => {
                let queue = format!("asynq:{{{}}}", self.queue);
                (format!("{queue}:pending"), format!("{queue}:t:"))
            }
        };
        self.lives += 1;
        let new = self.lives.to_string();
        let mut look = self.script.key(list);
        look.key("torture:life").arg(&self.life).arg(&new);
        look.arg(self.read).arg(bodies);
        let looked = look.invoke_async(&mut connection).await;
        let (life, elements): (String, Vec<Vec<u8>>) = looked?;
        if life != self.life {
            self.life = life;
            self.read = 0;
        }
        self.read += elements.len();
        Ok(elements)
    }

    fn understand(&self, element: &[u8]) -> anyhow::Result<Arrived> {
        let life = format!("{} {}", self.queue, self.life);
        match self.shape {
            Shape::Sidekiq => {
                let job: Value = serde_json::from_slice(element)?;
                let text = |name: &str| job[name].as_str().unwrap_or_default();
                let (delivery, args) = (text("delivery_id"), job["args"][0].clone());
                arrived(unpacked(args)?, delivery, text(RELAY), text(JOB), &life)
            }
            Shape::Asynq => {
                let task = Task::decode(element)?;
                let header = |name: &str| task.headers.get(name).map_or("", String::as_str);
                let args = unpacked(payload(&task.payload))?;
                arrived(args, &task.id, header(RELAY), header(JOB), &life)
            }
        }
    }
}

impl Source for List {
    /// Long enough for Redis to lose messages that were not seen.
    const PAUSE: Duration = Duration::from_millis(100);

    async fn look(&mut self, _is_last: bool) -> anyhow::Result<Option<Vec<Arrived>>> {
        let Ok(elements) = self.beyond().await else {
            self.connection = None;
            return Ok(None);
        };
        let understood = elements.iter().map(|element| self.understand(element));
        let understood: anyhow::Result<Vec<Arrived>> = understood.collect();
        understood.context("what lies in Redis").map(Some)
    }
}
