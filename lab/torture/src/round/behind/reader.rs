//! Readers of receivers' queues. They remove nothing, so that each message is in the queue once for
//! each time that it arrived.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;

use crate::history::log::Log;
use crate::history::{Arrived, now};
use crate::relay::TEXT;
use crate::round::progress::Progress;

/// The limit for reading after the last message was sent.
const ENOUGH: Duration = Duration::from_secs(60);

/// A receiver's queue.
pub(super) trait Source: Send + 'static {
    /// Time between two reads.
    const PAUSE: Duration;

    /// Returns the messages since the last read, in their order; `None` if its server does not
    /// answer and must be asked again. Fails if the content of the queue is impossible. The last
    /// read is the one that finds nothing after all senders have stopped.
    fn look(
        &mut self,
        is_last: bool,
    ) -> impl Future<Output = anyhow::Result<Option<Vec<Arrived>>>> + Send;
}

/// The running readers.
pub(super) struct Readers {
    progress: Arc<Progress>,
    stop: CancellationToken,
    tasks: JoinSet<anyhow::Result<()>>,
}

impl Readers {
    pub(super) fn new(progress: Arc<Progress>) -> Self {
        Self {
            progress,
            stop: CancellationToken::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Reads this source from now on, and confirms what was read if there is a client.
    pub(super) fn read(&mut self, source: impl Source, log: Log, confirms: Option<Client>) {
        let (progress, stop) = (Arc::clone(&self.progress), self.stop.clone());
        self.tasks
            .spawn(async move { read(source, &log, confirms.as_ref(), &progress, &stop).await });
    }

    /// Ends all readers at the ends of their queues.
    pub(super) async fn finish(&mut self) -> anyhow::Result<()> {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.context("a reader")??;
        }
        Ok(())
    }
}

async fn read<S: Source>(
    mut source: S,
    log: &Log,
    confirms: Option<&Client>,
    progress: &Progress,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let mut last: Option<Instant> = None;
    loop {
        // Before the read, which therefore includes everything that was sent before the stop.
        let is_last = stop.is_cancelled();
        let since = is_last.then(|| *last.get_or_insert_with(Instant::now));
        match source.look(is_last).await? {
            Some(arrived) if is_last && arrived.is_empty() => return Ok(()),
            Some(arrived) => {
                for one in arrived {
                    log.append(&one)?;
                    progress.ended_with(one.key);
                    if let Some(client) = confirms {
                        let confirm = "SELECT posthaste.confirm($1::text::uuid)";
                        client.execute(confirm, &[&one.delivery]).await?;
                    }
                }
            }
            None => {
                let is_enough = since.is_some_and(|since| since.elapsed() > ENOUGH);
                ensure!(!is_enough, "a receiver's queue is not to be read");
            }
        }
        tokio::select! { () = sleep(S::PAUSE) => {}, () = stop.cancelled(), if !is_last => {} }
    }
}

/// A payload as it arrived: JSON, or otherwise text.
pub(super) fn payload(bytes: &[u8]) -> Value {
    let text = || String::from_utf8_lossy(bytes).into_owned().into();
    serde_json::from_slice(bytes).unwrap_or_else(|_| text())
}

/// The arguments; those of a payload that is not JSON follow the prefix that makes it invalid.
pub(super) fn unpacked(payload: Value) -> anyhow::Result<Value> {
    let Value::String(text) = payload else {
        return Ok(payload);
    };
    let args = text.strip_prefix(TEXT).context("a text of somebody else")?;
    Ok(serde_json::from_str(args)?)
}

/// Creates an arrival from the values that its relay wrote with its arguments.
pub(super) fn arrived(
    args: Value,
    delivery: &str,
    relay: &str,
    job: &str,
    life: &str,
) -> anyhow::Result<Arrived> {
    Ok(Arrived {
        key: args["key"].as_i64().context("a message without a key")?,
        id: job.parse().context("a job's number")?,
        delivery: delivery.to_owned(),
        relay: relay.to_owned(),
        life: life.to_owned(),
        args,
        at: now(),
    })
}
