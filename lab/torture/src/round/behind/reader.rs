//! Readers of receivers' queues: they take nothing out, so that each message that ever came is
//! there once for each time that it came.

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

/// How long is read after the last message was sent.
const ENOUGH: Duration = Duration::from_secs(60);

/// A receiver's queue.
pub(super) trait Source: Send + 'static {
    /// How long to wait between two looks.
    const PAUSE: Duration;

    /// What came since the last look, in its order; nothing: its server does not answer, and is
    /// asked again. An error: what is there cannot be. The last look is the one at which nobody
    /// sends any more and nothing has come.
    fn look(
        &mut self,
        is_last: bool,
    ) -> impl Future<Output = anyhow::Result<Option<Vec<Arrived>>>> + Send;
}

/// Readers at work.
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

    /// Reads this one from now on, and confirms what was read where there is a client.
    pub(super) fn read(&mut self, source: impl Source, log: Log, confirms: Option<Client>) {
        let (progress, stop) = (Arc::clone(&self.progress), self.stop.clone());
        self.tasks
            .spawn(async move { read(source, &log, confirms.as_ref(), &progress, &stop).await });
    }

    /// Ends them all at the ends of their queues.
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
        // Before the look: what was sent before the stop is seen by it.
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

/// A payload as it arrived: JSON, or else a text.
pub(super) fn payload(bytes: &[u8]) -> Value {
    let text = || String::from_utf8_lossy(bytes).into_owned().into();
    serde_json::from_slice(bytes).unwrap_or_else(|_| text())
}

/// The arguments: those of a payload that is no JSON stand behind the text that makes it none.
pub(super) fn unpacked(payload: Value) -> anyhow::Result<Value> {
    let Value::String(text) = payload else {
        return Ok(payload);
    };
    let args = text.strip_prefix(TEXT).context("a text of somebody else")?;
    Ok(serde_json::from_str(args)?)
}

/// A message, by what its relay wrote beside its arguments.
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
