//! A worker of a server with a separate clock: it reads the server's time, and runs the ticks of a
//! periodic job.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use posthaste::{HandlerResult, Job, Missed, NewJob, Outcome, Periodic, WorkerBuilder};

use super::WorkerOptions;
use crate::history::log::Log;
use crate::history::{Moment, Tick, now};
use crate::load::{QUEUES, TICK};

/// Each minute, and the newest thousand that a step has skipped.
const EACH_MINUTE: &str = "* * * * *";

/// The time by the server's clock. A change of the clock during this call is equivalent to one
/// shortly afterwards.
pub(super) fn time_there(clock: Option<&Path>) -> anyhow::Result<Moment> {
    let Some(clock) = clock else {
        return Ok(now());
    };
    let ahead = std::fs::read_to_string(clock)?;
    Ok(now() + ahead.parse::<Moment>().context("a clock")?)
}

/// The ticks of a worker.
pub(super) struct Ticks {
    log: Log,
    worker: String,
    periodic: Periodic,
}

impl Ticks {
    pub(super) fn of(options: &WorkerOptions) -> anyhow::Result<Option<Arc<Self>>> {
        let Some(clock) = &options.clock else {
            return Ok(None);
        };
        let name = options.sink.file_stem().and_then(|stem| stem.to_str());
        let worker = name.context("a name")?.to_owned();
        let job = NewJob::new(TICK, &serde_json::json!({}))?.queue(QUEUES[0]);
        Ok(Some(Arc::new(Self {
            log: Log::open(&log_of(clock, &worker))?,
            worker,
            periodic: Periodic::new(TICK, EACH_MINUTE, job)?.missed(Missed::All),
        })))
    }

    pub(super) fn join(self: Arc<Self>, builder: WorkerBuilder) -> WorkerBuilder {
        let builder = builder.periodic(self.periodic.clone());
        builder.handler(TICK, move |_, job| {
            let ran = self.ran(&job);
            async { ran }
        })
    }

    fn ran(&self, job: &Job) -> HandlerResult {
        self.log.append(&Tick {
            tick: job.scheduled_at.as_microsecond(),
            id: job.id.0,
            worker: self.worker.clone(),
            began: now(),
        })?;
        Ok(Outcome::Done)
    }
}

/// The log is in the folder of the clock's file.
fn log_of(clock: &Path, worker: &str) -> PathBuf {
    clock.with_file_name(format!("t-{worker}.log"))
}
