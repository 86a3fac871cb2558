//! What a job is to do, by chance.

use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::Context;
use jiff::Timestamp;
use posthaste::NewJob;
use serde_json::json;

use super::{JOB, PRIORITIES, QUEUES};
use crate::history::{Deed, Intent, now};
use crate::plan::Cast;
use crate::relay::DRAIN;

/// Keys are never used twice in a process.
static KEYS: AtomicI64 = AtomicI64::new(1);

/// A job for these.
pub(super) fn job(cast: Cast, chance: &mut fastrand::Rng) -> Intent {
    match cast {
        Cast::Workers => any_job(chance),
        Cast::Relays => message(any_job(chance), chance),
    }
}

/// The job as one that is sent: it is sent, or costs its relay the connection each time, or has expired. What goes in order is due at once, and stands in no line but the lane.
fn message(job: Intent, chance: &mut fastrand::Rng) -> Intent {
    let deed = match job.deed {
        Deed::Expire => Deed::Expire,
        _ if chance.u32(0..100) == 0 => Deed::Exhaust,
        _ => Deed::Finish,
    };
    let mut message = Intent { deed, ..job };
    message.args["deed"] = json!(deed);
    if message.queue == DRAIN {
        (message.priority, message.due, message.line) = (0, 0, None);
    }
    message
}

fn any_job(chance: &mut fastrand::Rng) -> Intent {
    let key = KEYS.fetch_add(1, Ordering::Relaxed);
    let soon = now() + chance.i64(50_000..800_000);
    let deed = match chance.u32(0..100) {
        0..10 => Deed::Retry(chance.i32(1..3)),
        10..18 => Deed::Fail(chance.i32(1..3)),
        18..24 => Deed::Snooze(soon + chance.i64(0..300_000)),
        24..30 => Deed::Await {
            confirmed: chance.u32(0..4) > 0,
        },
        30..34 => Deed::Discard,
        34..37 => Deed::Exhaust,
        37..40 => Deed::Expire,
        40..50 => Deed::Complete,
        _ => Deed::Finish,
    };
    let is_scheduled = deed != Deed::Expire && chance.u32(0..5) == 0;
    // So few keys that many are taken.
    let unique = (deed != Deed::Expire && chance.u32(0..8) == 0)
        .then(|| format!("unique {}", chance.u32(0..12)));
    // So few lines that jobs wait in them.
    let line = (deed != Deed::Expire && !is_scheduled && chance.u32(0..8) == 0)
        .then(|| format!("line {}", chance.u32(0..5)));
    let pad = "x".repeat(chance.usize(0..80));
    Intent {
        key,
        deed,
        queue: chance.choice(QUEUES).unwrap_or("a").to_owned(),
        priority: chance.choice(PRIORITIES).unwrap_or(0),
        due: if is_scheduled { soon } else { 0 },
        unique,
        line,
        undone: chance.u32(0..20) == 0,
        args: json!({"key": key, "deed": deed, "pad": pad, "deep": [{"π": chance.i32(..)}, null, 0.5]}),
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
        if let Some(unique) = &self.unique {
            job = job.unique_key(&**unique);
        }
        if let Some(line) = &self.line {
            job = job.ordering_key(&**line);
        }
        Ok(match self.deed {
            Deed::Exhaust => job.max_attempts(Some(2)),
            Deed::Expire => job.expires_at(Timestamp::from_microsecond(now() - 1_000_000)?),
            _ => job,
        })
    }
}
