//! Writes events, and reads their arrivals in a Redis.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use super::captor::Receiver;
use super::ground::statements;
use crate::database::Database;

/// The number of connections that write.
const WRITERS: u64 = 4;
/// The number of connections that write a backlog.
const FILLERS: u64 = 8;

/// The name of an event: its writer, and its number among the events of this writer.
pub(crate) type Name = (u64, u64);

/// The written events: when COMMIT was answered, and how long the transaction took.
pub(crate) type Written = HashMap<Name, (Instant, Duration)>;

/// The bytes of a payload and a line break.
pub(crate) const LINE: u64 = 233;

/// The payload, approximately 290 bytes with the rest of its row; the name can be found in any
/// envelope.
fn payload((writer, number): Name) -> String {
    format!(
        "{{\"n\": \"#{writer}-{number:08}#\", \"pad\": \"{}\"}}",
        "x".repeat(200)
    )
}

/// Finds the name of an event in a message.
fn name(message: &[u8]) -> Result<Name> {
    let text = String::from_utf8_lossy(message);
    let name = text.split('#').nth(1).and_then(|name| {
        let (writer, number) = name.split_once('-')?;
        Some((writer.parse().ok()?, number.parse().ok()?))
    });
    name.context("a message without the name of an event arrived")
}

/// Commits this many events, each in a separate transaction, as fast as the server accepts them.
pub(crate) async fn fill(database: &Database, events: u64) -> Result<()> {
    let each = events / FILLERS;
    try_join_all((0..FILLERS).map(|writer| async move {
        let client = database.connect().await?;
        client.batch_execute("SET synchronous_commit = off").await?;
        let insert = client.prepare(statements().get("insert")?).await?;
        for number in 0..each {
            client
                .execute(&insert, &[&payload((writer, number))])
                .await?;
        }
        anyhow::Ok(())
    }))
    .await?;
    Ok(())
}

/// The number of events that [`fill`] commits.
pub(crate) fn filled(events: u64) -> u64 {
    events / FILLERS * FILLERS
}

/// A steady rate of events, one in each transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offer {
    /// The name of the statement.
    pub(crate) statement: &'static str,
    pub(crate) per_second: u64,
    pub(crate) seconds: u64,
    /// The number of the first writer.
    pub(crate) from: u64,
}

impl Offer {
    /// Commits the events; a writer that is late commits without a pause until it has caught up.
    pub(crate) async fn make(self, database: &Database) -> Result<Written> {
        let begin = Instant::now() + Duration::from_millis(50);
        let writers = (0..WRITERS).map(|writer| async move {
            let client = database.connect().await?;
            let insert = client.prepare(statements().get(self.statement)?).await?;
            let period = Duration::from_secs(1) * u32::try_from(WRITERS)?
                / u32::try_from(self.per_second.max(1))?;
            let shift = period * u32::try_from(writer)? / u32::try_from(WRITERS)?;
            let mut pace = interval_at(begin + shift, period);
            pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
            let mut written = Vec::new();
            for number in 0..self.per_second * self.seconds / WRITERS {
                pace.tick().await;
                let name = (self.from + writer, number);
                let began = Instant::now();
                client.execute(&insert, &[&payload(name)]).await?;
                written.push((name, (Instant::now(), began.elapsed())));
            }
            anyhow::Ok(written)
        });
        Ok(try_join_all(writers).await?.into_iter().flatten().collect())
    }
}

/// Reads arrivals.
pub(crate) struct Arrivals {
    connection: MultiplexedConnection,
    receiver: Receiver,
    last: String,
}

impl Arrivals {
    pub(crate) async fn at(url: &str, receiver: Receiver) -> Result<Self> {
        let client = redis::Client::open(url)?;
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        Ok(Self {
            connection: connection.await?,
            receiver,
            last: "0".into(),
        })
    }

    /// The number of messages at the receiver.
    pub(crate) async fn count(&mut self) -> Result<u64> {
        let (length, key) = match self.receiver {
            Receiver::List(key) => ("LLEN", key),
            Receiver::Stream(key) => ("XLEN", key),
        };
        let mut length = redis::cmd(length);
        Ok(length.arg(key).query_async(&mut self.connection).await?)
    }

    /// Takes the next events that have arrived, in their order.
    pub(crate) async fn take(&mut self) -> Result<Vec<Name>> {
        match self.receiver {
            Receiver::List(key) => {
                let mut pop = redis::cmd("RPOP");
                pop.arg(key).arg(1_000);
                let popped: Option<Vec<Vec<u8>>> = pop.query_async(&mut self.connection).await?;
                popped.iter().flatten().map(|one| name(one)).collect()
            }
            Receiver::Stream(key) => {
                let mut range = redis::cmd("XRANGE");
                range.arg(key).arg(format!("({}", self.last)).arg("+");
                let range = range.arg("COUNT").arg(1_000);
                let entries: Vec<(String, Vec<Vec<u8>>)> =
                    range.query_async(&mut self.connection).await?;
                let mut names = Vec::with_capacity(entries.len());
                for (id, fields) in entries {
                    names.push(name(&fields.concat())?);
                    self.last = id;
                }
                Ok(names)
            }
        }
    }

    /// Waits for this many events and returns when each arrived; fails if they do not arrive in
    /// time.
    pub(crate) async fn take_all(
        &mut self,
        wanted: u64,
        within: Duration,
    ) -> Result<Vec<(Name, Instant)>> {
        let deadline = Instant::now() + within;
        let mut all = Vec::new();
        while (all.len() as u64) < wanted {
            let taken = self.take().await?;
            let now = Instant::now();
            ensure!(now < deadline, "{} of {wanted} events arrived", all.len());
            if taken.is_empty() {
                sleep(Duration::from_millis(1)).await;
            }
            all.extend(taken.into_iter().map(|name| (name, now)));
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::{LINE, name, payload};

    #[test]
    fn finds_the_name_of_an_event_in_any_envelope() -> anyhow::Result<()> {
        let escaped = serde_json::to_string(&payload((3, 41)))?;
        assert_eq!(name(escaped.as_bytes())?, (3, 41));
        assert!(name(b"{}").is_err());
        assert_eq!(payload((3, 41)).len() as u64 + 1, LINE);
        Ok(())
    }
}
