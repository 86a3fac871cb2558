//! The worker of `up` and `work`, with the handlers that this program ships.

use std::time::Duration;

use anyhow::Context as _;
use posthaste::{Outcome, Worker};

use crate::commands::up;
use crate::connect::Address;

/// Which queues, how wide, and how patient at the end.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) queues: Vec<(String, u16)>,
    pub(crate) grace: Duration,
}

impl Settings {
    /// What `up` works on: its own run, and what people enqueue beside it.
    pub(crate) fn up(concurrency: u16) -> Self {
        Self {
            queues: vec![
                ("file".to_owned(), concurrency),
                ("default".to_owned(), concurrency),
            ],
            grace: Duration::from_secs(30),
        }
    }
}

/// A worker at work.
pub(crate) struct Running {
    handle: posthaste::WorkerHandle,
    queues: String,
}

impl Running {
    /// The queues it works on, for a person.
    pub(crate) fn queues(&self) -> &str {
        &self.queues
    }

    /// Stops claiming, waits for what runs, gives back what does not end in time.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.handle
            .stop()
            .await
            .context("the worker did not stop in good order")
    }
}

pub(crate) async fn start(address: &Address, settings: Settings) -> anyhow::Result<Running> {
    let engine = address.pool(8)?;
    let handlers = address.pool(24)?;
    let mut builder = Worker::builder(engine)
        .shutdown_grace(settings.grace)
        .handler("posthaste.noop", |_context, _job| async {
            Ok(Outcome::Done)
        })
        .handler("file.digest", move |context, job| {
            up::handler::file_digest(handlers.clone(), context, job)
        });
    for (queue, concurrency) in &settings.queues {
        builder = builder.queue(queue, usize::from(*concurrency));
    }
    let names: Vec<&str> = settings
        .queues
        .iter()
        .map(|(queue, _)| queue.as_str())
        .collect();
    let handle = builder.build()?.start().await?;
    Ok(Running {
        handle,
        queues: format!("queues {}", names.join(", ")),
    })
}
