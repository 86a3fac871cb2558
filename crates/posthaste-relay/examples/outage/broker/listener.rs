//! The receiver of messages, which records when that of each annotation arrived.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use lapin::options::{BasicConsumeOptions, BasicPublishOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, Event};
use serde::Deserialize;

use super::verdict::Way;

struct Arrival {
    way: Way,
    annotation: i64,
    at: Instant,
}

pub struct Listener {
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    _connection: Connection,
}

#[derive(Deserialize)]
struct Saved {
    id: i64,
}

impl Listener {
    /// Declares both queues and consumes them.
    pub async fn at(broker: &str) -> Result<Self> {
        let connection = Connection::connect(broker, ConnectionProperties::default()).await?;
        let arrivals = Arc::default();
        for way in [Way::Old, Way::Posthaste] {
            let channel = connection.create_channel().await?;
            tokio::spawn(listen(channel, way, Arc::clone(&arrivals)).await?);
        }
        Ok(Self {
            arrivals,
            _connection: connection,
        })
    }

    /// Waits until nothing has arrived for this long.
    pub async fn until_quiet(&self, quiet: Duration) {
        let arrived = || self.all().len();
        let mut seen = usize::MAX;
        while std::mem::replace(&mut seen, arrived()) != seen {
            tokio::time::sleep(quiet).await;
        }
    }

    /// Returns how many of these saved annotations had no message.
    pub fn missed(&self, way: Way, saved: &[i64]) -> usize {
        let all = self.all();
        let of_way = all.iter().filter(|one| one.way == way);
        let heard: HashSet<i64> = of_way.map(|one| one.annotation).collect();
        saved.iter().filter(|id| !heard.contains(id)).count()
    }

    /// Returns when posthaste's first message of an annotation that was saved after this one
    /// arrived. Messages of older annotations may wait at the blocked broker, and arrive without
    /// the relay.
    pub fn first_beyond(&self, annotation: i64, since: Instant) -> Option<Duration> {
        let all = self.all();
        let beyond = all
            .iter()
            .filter(|one| one.way == Way::Posthaste && one.annotation > annotation);
        let first = beyond.map(|one| one.at).min();
        first.map(|at| at.saturating_duration_since(since))
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arrival>> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn listen(
    channel: Channel,
    way: Way,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
) -> Result<impl Future<Output = ()>> {
    let durable = QueueDeclareOptions {
        durable: true,
        ..QueueDeclareOptions::default()
    };
    let table = FieldTable::default;
    channel
        .queue_declare(way.queue().into(), durable, table())
        .await?;
    let options = BasicConsumeOptions {
        no_ack: true,
        ..BasicConsumeOptions::default()
    };
    let consumer = channel.basic_consume(way.queue().into(), "".into(), options, table());
    let mut messages = consumer.await?;
    Ok(async move {
        let _open = channel;
        while let Some(Ok(message)) = messages.next().await {
            if let Ok(Saved { id: annotation }) = serde_json::from_slice(&message.data) {
                let at = Instant::now();
                let arrival = Arrival {
                    way,
                    annotation,
                    at,
                };
                let mut arrivals = arrivals.lock().unwrap_or_else(PoisonError::into_inner);
                arrivals.push(arrival);
            }
        }
    })
}

/// Returns a publisher that is notified when the alarm is over: the tool that ends it takes a while
/// itself.
pub async fn witness(broker: &str) -> Result<impl Future<Output = Result<Instant>>> {
    let connection = Connection::connect(broker, ConnectionProperties::default()).await?;
    let mut events = connection.events_listener().boxed();
    let channel = connection.create_channel().await?;
    let publish = channel.basic_publish(
        "".into(),
        "nobody".into(),
        BasicPublishOptions::default(),
        &[],
        BasicProperties::default(),
    );
    publish.await?;
    hear(&mut events, |event| {
        matches!(event, Event::ConnectionBlocked(_))
    })
    .await?;
    Ok(async move {
        let _open = connection;
        hear(&mut events, |event| {
            matches!(event, Event::ConnectionUnblocked)
        })
        .await?;
        Ok(Instant::now())
    })
}

async fn hear(events: &mut BoxStream<'_, Event>, wanted: fn(&Event) -> bool) -> Result<()> {
    while !wanted(&events.next().await.context("the connection is gone")?) {}
    Ok(())
}
