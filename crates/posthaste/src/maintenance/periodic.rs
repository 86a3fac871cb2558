//! The leader's part in periodic jobs: finds out which ticks are due and enqueues them.

use std::collections::HashSet;

use crate::periodic::{Missed, due, schedule::Schedule};
use crate::store::link::Link;
use crate::store::periodic::{self as store, Due};

/// What this leader has told already.
#[derive(Default)]
pub(super) struct Periodic {
    told: HashSet<String>,
}

impl Periodic {
    /// Enqueues what is due. One that cannot be read or enqueued holds up no other.
    pub(super) async fn tick(&mut self, link: &Link) {
        let Some(jobs) = super::logged("periodic", store::periodic_due(link).await) else {
            return;
        };
        for job in jobs {
            if let Err(problem) = one(link, &job).await
                && self.told.insert(format!("{} {}", job.name, job.schedule))
            {
                tracing::error!(name = job.name, problem, "a periodic job is not enqueued");
            }
        }
    }
}

async fn one(link: &Link, job: &Due) -> Result<(), String> {
    let schedule = Schedule::parse(&job.schedule, &job.time_zone)?;
    let missed = match job.missed.as_str() {
        "all" => Missed::All,
        "none" => Missed::None,
        _ => Missed::Last,
    };
    let (ticks, next) = due(&schedule, missed, job.next_at, job.now);
    store::tick(link, job, &ticks, next)
        .await
        .map(drop)
        .map_err(|error| error.to_string())
}
