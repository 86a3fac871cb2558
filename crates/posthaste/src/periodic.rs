//! Periodic jobs, and the calculation of due ticks. The leader enqueues them
//! (maintenance/periodic.rs).

pub(crate) mod schedule;

use jiff::Timestamp;

use crate::error::Error;
use crate::job::NewJob;
use schedule::Schedule;

/// What happens to ticks that were missed because no worker was running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missed {
    /// Each is enqueued, at most the newest thousand.
    All,
    /// One job is enqueued for all of them.
    #[default]
    Last,
    /// They are skipped.
    None,
}

impl Missed {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Last => "last",
            Self::None => "none",
        }
    }
}

/// A job that is enqueued repeatedly by a schedule.
///
/// ```
/// use posthaste::{NewJob, Periodic};
/// # fn main() -> Result<(), posthaste::Error> {
/// let report = NewJob::new("report", &serde_json::json!({"kind": "daily"}))?;
/// let nightly = Periodic::new("nightly report", "30 3 * * *", report)?
///     .time_zone("Europe/Berlin")?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Periodic {
    pub(crate) name: String,
    pub(crate) schedule: String,
    pub(crate) time_zone: String,
    pub(crate) missed: Missed,
    pub(crate) job: NewJob,
}

impl Periodic {
    /// Describes a periodic job: its name (a later definition of the same name replaces it), a
    /// schedule of five cron fields, and the job that each tick enqueues. The job's `scheduled_at`
    /// is the tick.
    pub fn new(
        name: impl Into<String>,
        schedule: impl Into<String>,
        job: NewJob,
    ) -> Result<Self, Error> {
        let periodic = Self {
            name: name.into(),
            schedule: schedule.into(),
            time_zone: "UTC".into(),
            missed: Missed::default(),
            job,
        };
        periodic.check()?;
        Ok(periodic)
    }

    /// Sets the time zone of the schedule, such as `Europe/Berlin`; the default is UTC.
    pub fn time_zone(mut self, name: impl Into<String>) -> Result<Self, Error> {
        self.time_zone = name.into();
        self.check()?;
        Ok(self)
    }

    /// Sets what happens to ticks that were missed because no worker was running.
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    fn check(&self) -> Result<(), Error> {
        let job = &self.job;
        if !(1..=255).contains(&self.name.len()) {
            return Err(Error::invalid("name", "must have 1 to 255 bytes"));
        }
        if job.unique_key.is_some() || job.has_times() {
            let refusal = "a periodic job has no unique key, and only the times of its schedule";
            return Err(Error::invalid("job", refusal));
        }
        if job.ordering_key.is_some() || job.trace.is_some() {
            let refusal = "a periodic job has no ordering key and no trace";
            return Err(Error::invalid("job", refusal));
        }
        job.check()?;
        Schedule::parse(&self.schedule, &self.time_zone)
            .map(drop)
            .map_err(|refusal| Error::invalid("schedule", refusal))
    }
}

/// The most missed ticks that are enqueued at once, even if the clock jumps by a year.
const MAX_MISSED_TICKS: usize = 1000;

/// Returns the ticks to enqueue now and the next tick. `at` is the next tick that a leader stored,
/// `None` for a new schedule; it is in the future if the clock was set back.
pub(crate) fn due_ticks(
    schedule: &Schedule,
    missed: Missed,
    at: Option<Timestamp>,
    now: Timestamp,
) -> (Vec<Timestamp>, Option<Timestamp>) {
    let next = schedule.next(now);
    let Some(at) = at.filter(|at| *at <= now) else {
        return (Vec::new(), next);
    };
    if missed == Missed::All {
        return (schedule.newest_ticks(at, now, MAX_MISSED_TICKS), next);
    }
    // Ticks less than a minute late are on time: schedules have no seconds.
    let wanted =
        |tick: &Timestamp| missed == Missed::Last || now.duration_since(*tick).as_secs() < 60;
    let last = schedule.newest_ticks(at, now, 1).into_iter().filter(wanted);
    (last.collect(), next)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;

    use super::{Missed, NewJob, Periodic, due_ticks, schedule::Schedule};

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn rejects_per_job_settings_on_a_schedule() {
        let job = || NewJob::new("sync", &serde_json::json!({})).expect("a job");
        let hourly = |job| Periodic::new("p", "@hourly", job);
        assert!(hourly(job().queue("q").priority(3).tag("t")).is_ok());
        for refused in [
            job().ordering_key("k"),
            job().unique_key("k"),
            job().delay(Duration::from_secs(1)),
            job().expires_at(at("2027-11-21T10:00:00Z")),
            job().trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
            job().max_attempts(Some(0)),
            job().queue(""),
        ] {
            assert!(hourly(refused.clone()).is_err(), "{refused:?}");
        }
    }

    #[test]
    fn missed_ticks_follow_the_catch_up_policy() {
        let hourly = Schedule::parse("@hourly", "UTC").expect("a schedule");
        let (first, now) = (at("2026-11-21T08:00:00Z"), at("2026-11-21T10:30:00Z"));
        let next = Some(at("2026-11-21T11:00:00Z"));
        let of = |missed| due_ticks(&hourly, missed, Some(first), now);
        let ten = at("2026-11-21T10:00:00Z");
        assert_eq!(
            of(Missed::All),
            (vec![first, at("2026-11-21T09:00:00Z"), ten], next)
        );
        assert_eq!(of(Missed::Last), (vec![ten], next));
        assert_eq!(of(Missed::None), (vec![], next));
    }

    #[test]
    fn ticks_on_time_are_enqueued_under_every_catch_up_policy() {
        let hourly = Schedule::parse("@hourly", "UTC").expect("a schedule");
        let (tick, now) = (at("2026-11-21T10:00:00Z"), at("2026-11-21T10:00:00.2Z"));
        for missed in [Missed::All, Missed::Last, Missed::None] {
            let (ticks, next) = due_ticks(&hourly, missed, Some(tick), now);
            assert_eq!(
                (ticks, next),
                (vec![tick], Some(at("2026-11-21T11:00:00Z")))
            );
        }
        assert_eq!(due_ticks(&hourly, Missed::Last, None, now).0, []);
    }

    #[test]
    fn catch_up_after_a_clock_jump_is_bounded() {
        let minutes = Schedule::parse("* * * * *", "Europe/Berlin").expect("a schedule");
        let (first, now) = (at("2026-11-21T10:00:00Z"), at("2027-11-21T10:00:30Z"));
        let (ticks, next) = due_ticks(&minutes, Missed::All, Some(first), now);
        let (oldest, newest) = (at("2027-11-20T17:21:00Z"), at("2027-11-21T10:00:00Z"));
        assert_eq!((ticks.len(), ticks[0], ticks[999]), (1000, oldest, newest));
        assert!(ticks.is_sorted());
        assert_eq!(next, Some(at("2027-11-21T10:01:00Z")));
        for missed in [Missed::All, Missed::Last, Missed::None] {
            let back = at("2026-11-21T10:02:30Z");
            let expected = (vec![], Some(at("2026-11-21T10:03:00Z")));
            assert_eq!(due_ticks(&minutes, missed, next, back), expected);
        }
    }
}
