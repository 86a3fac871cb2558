//! Generates random jobs.

use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::Context;
use jiff::Timestamp;
use posthaste::NewJob;
use serde_json::json;

use super::{JOB, PRIORITIES, QUEUES};
use crate::history::{Intent, JobBehavior, Moment, now};
use crate::plan::Processes;
use crate::relay::ORDERED;

/// Keys are never reused within a process.
static KEYS: AtomicI64 = AtomicI64::new(1);

const DAY: Moment = 24 * 3600 * 1_000_000;

/// Texts that would end something early if a program pasted them.
const PADS: [&str; 5] = ["{\"key\": 0", "\\\"}],", "null", "[\\u0041 'π', 1e400]", ""];

/// Generates a job for these processes; `ahead` is how far the server's clock is ahead of the
/// machine's.
pub(super) fn job(
    processes: Processes,
    ahead: Option<Moment>,
    chance: &mut fastrand::Rng,
) -> Intent {
    let mut job = any_job(now() + ahead.unwrap_or(0), chance);
    if job.behavior == JobBehavior::Expire {
        // In the past of any clock.
        job.expires = now() - DAY;
    } else if ahead.is_some() {
        // A clock that jumps by a year would expire it.
        job.expires = now() + 3650 * DAY;
    }
    match processes {
        Processes::Workers => job,
        Processes::Relays => message(job, chance),
    }
}

/// Turns a job into a message: it is sent, or breaks its relay's connection each time, or has
/// expired. Jobs of the ordered relay are due at once, and have no order but that of the lane.
fn message(job: Intent, chance: &mut fastrand::Rng) -> Intent {
    let behavior = match job.behavior {
        JobBehavior::Expire => JobBehavior::Expire,
        _ if chance.u32(0..100) == 0 => JobBehavior::Exhaust,
        _ => JobBehavior::Finish,
    };
    let mut message = Intent { behavior, ..job };
    message.args["behavior"] = json!(behavior);
    if message.queue == ORDERED {
        (message.priority, message.due, message.ordering_key) = (0, 0, None);
    }
    message
}

fn any_job(time: Moment, chance: &mut fastrand::Rng) -> Intent {
    let key = KEYS.fetch_add(1, Ordering::Relaxed);
    let soon = time + chance.i64(50_000..800_000);
    let behavior = match chance.u32(0..100) {
        0..10 => JobBehavior::Retry(chance.i32(1..3)),
        10..18 => JobBehavior::Fail(chance.i32(1..3)),
        18..24 => JobBehavior::Snooze(soon + chance.i64(0..300_000)),
        24..30 => JobBehavior::Await {
            confirmed: chance.u32(0..4) > 0,
        },
        30..34 => JobBehavior::Discard,
        34..37 => JobBehavior::Exhaust,
        37..40 => JobBehavior::Expire,
        40..50 => JobBehavior::Complete,
        _ => JobBehavior::Finish,
    };
    let is_scheduled = behavior != JobBehavior::Expire && chance.u32(0..5) == 0;
    // Few enough keys that many are held.
    let unique = (behavior != JobBehavior::Expire && chance.u32(0..8) == 0)
        .then(|| format!("unique {}", chance.u32(0..12)));
    // Few enough ordering keys that jobs wait for one another.
    let ordering_key = (behavior != JobBehavior::Expire && !is_scheduled && chance.u32(0..8) == 0)
        .then(|| format!("key {}", chance.u32(0..5)));
    let pad = "x".repeat(chance.usize(0..80)) + chance.choice(PADS).unwrap_or_default();
    Intent {
        key,
        behavior,
        queue: chance.choice(QUEUES).unwrap_or("a").to_owned(),
        priority: chance.choice(PRIORITIES).unwrap_or(0),
        due: if is_scheduled { soon } else { 0 },
        expires: 0,
        unique,
        ordering_key,
        undone: chance.u32(0..20) == 0,
        args: json!({"key": key, "behavior": behavior, "pad": pad,
            "deep": [{"π": chance.i32(..)}, null, 0.5]}),
    }
}

impl Intent {
    /// The job for the library.
    pub(super) fn new_job(&self) -> anyhow::Result<NewJob> {
        let mut job = NewJob::new(JOB, &self.args)?
            .queue(&*self.queue)
            .priority(self.priority);
        if self.due > 0 {
            job = job.scheduled_at(Timestamp::from_microsecond(self.due).context("a time")?);
        }
        if self.expires != 0 {
            job = job.expires_at(Timestamp::from_microsecond(self.expires).context("a time")?);
        }
        if let Some(unique) = &self.unique {
            job = job.unique_key(&**unique);
        }
        if let Some(key) = &self.ordering_key {
            job = job.ordering_key(&**key);
        }
        Ok(match self.behavior {
            JobBehavior::Exhaust => job.max_attempts(Some(2)),
            _ => job,
        })
    }
}
