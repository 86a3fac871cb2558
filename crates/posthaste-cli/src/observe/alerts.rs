//! The three alerts that catch every way a queue can fail: too few jobs are completed, too many
//! wait, one has expired. Readings in, findings out: no IO and no clock.
//!
//! docs/operate/prometheus/posthaste.rules.yml says the same to Prometheus.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use posthaste::{Counter, Counters};
use serde::{Deserialize, Serialize};

use crate::options::between;

/// What is too few, too many, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Completed jobs of a queue, a minute.
    pub(crate) completed_below: Option<f64>,
    /// Jobs of a queue that are due and not completed.
    pub(crate) length_above: Option<u64>,
    /// For how long one of both before it is an alert.
    pub(crate) lasting: Duration,
}

impl Limits {
    /// Whether this is what they ask for.
    pub(crate) fn judge(&self, finding: &Finding) -> bool {
        let limit = match finding.alert {
            Alert::CompletionRate => self.completed_below,
            Alert::QueueLength => self.length_above.map(|most| most as f64),
            Alert::Expired => Some(0.0),
        };
        limit == Some(finding.limit)
    }
}

/// The same, as typed.
#[derive(clap::Args)]
pub(crate) struct Asked {
    /// Alert if fewer jobs of a queue than this are completed a minute
    #[arg(long, value_name = "JOBS")]
    completed_below: Option<f64>,

    /// Alert if more jobs of a queue than this are due and not completed
    #[arg(long, value_name = "JOBS")]
    length_above: Option<u64>,

    /// Alert when it has been so for this long
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = between(1, 86_400))]
    lasting: Duration,
}

impl Asked {
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            completed_below: self.completed_below,
            length_above: self.length_above,
            lasting: self.lasting,
        }
    }
}

/// What an alert looks at, of one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Watched {
    /// Jobs completed since the installation.
    pub(crate) completed: i64,
    /// Jobs that are due and not completed, those after a failed attempt too.
    pub(crate) length: i64,
    /// Jobs that expired, and are kept until somebody redrives or deletes them.
    pub(crate) expired: i64,
}

/// Which jobs are looked at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    /// These queues; all if there is none.
    pub(crate) queues: Vec<String>,
    /// Not jobs with these tags; a `*` at the end stands for whatever follows.
    pub(crate) exempt: Vec<String>,
}

impl Scope {
    fn has(&self, of: &Counter) -> bool {
        let is_exempt = |pattern: &String| match pattern.strip_suffix('*') {
            Some(start) => of.tag.starts_with(start),
            None => of.tag == *pattern,
        };
        self.is_about(&of.queue) && !self.exempt.iter().any(is_exempt)
    }

    /// Whether it looks at this queue.
    pub(crate) fn is_about(&self, queue: &str) -> bool {
        self.queues.is_empty() || self.queues.iter().any(|one| one == queue)
    }

    /// What an alert looks at now, by queue. One that was named is there also without a job.
    pub(crate) fn watched(&self, counters: &Counters) -> BTreeMap<String, Watched> {
        let named = self.queues.iter().cloned();
        let mut all: BTreeMap<String, Watched> =
            named.map(|queue| (queue, Watched::default())).collect();
        for of in counters.jobs.iter().filter(|of| self.has(of)) {
            let watched = all.entry(of.queue.clone()).or_default();
            watched.completed += of.completed_total;
            watched.length += of.available + of.blocked + of.running + of.quarantined + of.retrying;
            watched.expired += of.expired;
        }
        all
    }
}

/// What was read at one moment, in seconds since some beginning.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) at: f64,
    pub(crate) queues: BTreeMap<String, Watched>,
}

/// What is wrong with a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Alert {
    /// Fewer jobs than expected were completed: the producer, the workers or both stand still.
    CompletionRate,
    /// More jobs wait than the workers get done.
    QueueLength,
    /// A job expired before anybody ran it.
    Expired,
}

impl Alert {
    /// As Prometheus knows it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::CompletionRate => "PosthasteCompletionRateLow",
            Self::QueueLength => "PosthasteQueueLong",
            Self::Expired => "PosthasteJobsExpired",
        }
    }
}

/// An alert that fires.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Finding {
    pub(crate) alert: Alert,
    pub(crate) queue: String,
    /// What was seen: jobs a minute, jobs, or expired jobs.
    pub(crate) value: f64,
    /// What it is held against.
    pub(crate) limit: f64,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            queue,
            value,
            limit,
            ..
        } = self;
        let name = self.alert.name();
        match self.alert {
            Alert::CompletionRate => write!(
                f,
                "{name} {queue}: {value:.1} jobs a minute are completed, fewer than {limit}"
            ),
            Alert::QueueLength => {
                write!(f, "{name} {queue}: {value} jobs are due, more than {limit}")
            }
            Alert::Expired => write!(f, "{name} {queue}: {value} jobs have expired"),
        }
    }
}

/// Readings of the time that counts.
#[derive(Debug, Default)]
pub(crate) struct History(VecDeque<Reading>);

impl History {
    /// Adds the newest, and forgets what no alert looks at any more: all but the last reading that
    /// is as old as `lasting`, and those after it.
    pub(crate) fn add(&mut self, reading: Reading, lasting: Duration) {
        let since = reading.at - lasting.as_secs_f64();
        self.0.push_back(reading);
        while self.0.get(1).is_some_and(|next| next.at <= since) {
            self.0.pop_front();
        }
    }

    /// What fires now. What must last is judged once it was looked at for so long.
    pub(crate) fn findings(&self, limits: &Limits) -> Vec<Finding> {
        let Some(newest) = self.0.back() else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for (queue, now) in &newest.queues {
            let mut find = |alert, value, limit| {
                let queue = queue.clone();
                found.push(Finding {
                    alert,
                    queue,
                    value,
                    limit,
                });
            };
            let rate = self.completed_a_minute(queue, limits.lasting);
            if let (Some(rate), Some(least)) = (rate, limits.completed_below)
                && rate < least
            {
                find(Alert::CompletionRate, rate, least);
            }
            let least_length = self.least_length(queue, limits.lasting);
            if let (Some(length), Some(most)) = (least_length, limits.length_above)
                && length > most as f64
            {
                find(Alert::QueueLength, now.length as f64, most as f64);
            }
            if now.expired > 0 {
                find(Alert::Expired, now.expired as f64, 0.0);
            }
        }
        found
    }

    /// Whether queues were looked at for as long as an alert must last.
    pub(crate) fn has_lasted(&self, lasting: Duration) -> bool {
        self.begin(lasting).is_some()
    }

    /// The first reading, if it is old enough.
    fn begin(&self, lasting: Duration) -> Option<&Reading> {
        let (first, last) = (self.0.front()?, self.0.back()?);
        (last.at - first.at >= lasting.as_secs_f64()).then_some(first)
    }

    fn completed_a_minute(&self, queue: &str, lasting: Duration) -> Option<f64> {
        let (first, last) = (self.begin(lasting)?, self.0.back()?);
        let completed = |reading: &Reading| reading.queues.get(queue).map(|of| of.completed);
        // A queue that came meanwhile has been looked at for less long.
        let (before, now) = (completed(first)?, completed(last)?);
        // Counters begin anew with a store that was restored.
        let jobs = if now >= before { now - before } else { now };
        Some(jobs as f64 * 60.0 / (last.at - first.at))
    }

    fn least_length(&self, queue: &str, lasting: Duration) -> Option<f64> {
        self.begin(lasting)?;
        let lengths = self.0.iter().map(|one| one.queues.get(queue));
        let least = lengths.map(|of| of.map_or(0, |of| of.length)).min()?;
        Some(least as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        completed_below: Some(10.0),
        length_above: Some(100),
        lasting: Duration::from_secs(60),
    };

    /// Readings ten seconds apart: completed, length and expired of one queue.
    fn played(readings: impl IntoIterator<Item = (i64, i64, i64)>) -> Vec<Alert> {
        let mut history = History::default();
        for (n, (completed, length, expired)) in readings.into_iter().enumerate() {
            let watched = Watched {
                completed,
                length,
                expired,
            };
            let queues = BTreeMap::from([("mail".to_owned(), watched)]);
            let at = n as f64 * 10.0;
            history.add(Reading { at, queues }, LIMITS.lasting);
        }
        let found = history.findings(&LIMITS);
        found.into_iter().map(|one| one.alert).collect()
    }

    #[test]
    fn what_completes_enough_and_is_short_is_no_alert() {
        assert_eq!(played((0..20).map(|n| (n * 2, 5, 0))), []);
    }

    #[test]
    fn a_rate_that_is_low_for_less_long_than_it_must_last_is_no_alert_and_one_for_as_long_is() {
        let stopped_for = |readings: i64| {
            let busy = (0..20).map(|n| (n * 10, 0, 0));
            played(busy.chain((0..readings).map(|_| (190, 0, 0))))
        };
        assert_eq!(stopped_for(4), [], "an average of 20 jobs over its minute");
        assert_eq!(stopped_for(6), [Alert::CompletionRate]);
    }

    #[test]
    fn a_queue_that_is_long_all_the_time_is_an_alert_and_one_that_was_short_once_is_not() {
        let long = |short: usize| {
            played((0..20).map(|n| (n as i64 * 10, if n == short { 0 } else { 101 }, 0)))
        };
        assert_eq!(long(100), [Alert::QueueLength]);
        assert_eq!(long(12), [Alert::QueueLength], "more than a minute ago");
        assert_eq!(long(15), []);
    }

    #[test]
    fn an_expired_job_is_an_alert_at_once() {
        assert_eq!(played([(0, 0, 1)]), [Alert::Expired]);
    }

    #[test]
    fn nothing_that_must_last_is_judged_before_it_was_looked_at_for_so_long() {
        assert_eq!(played((0..6).map(|_| (0, 1_000, 0))), []);
    }

    #[test]
    fn an_alert_of_another_limit_is_anothers() {
        let limits = Limits {
            completed_below: Some(10.0),
            length_above: None,
            lasting: Duration::from_secs(1),
        };
        let judged = |alert, limit| {
            let (queue, value) = ("mail".into(), 1.0);
            limits.judge(&Finding {
                alert,
                queue,
                value,
                limit,
            })
        };
        assert!(judged(Alert::CompletionRate, 10.0) && judged(Alert::Expired, 0.0));
        assert!(!judged(Alert::CompletionRate, 20.0) && !judged(Alert::QueueLength, 10.0));
    }

    #[test]
    fn jobs_of_exempt_tags_and_of_other_queues_are_not_looked_at() {
        let counter = |queue: &str, tag: &str| {
            let mut counter = Counter::default();
            (counter.queue, counter.tag) = (queue.into(), tag.into());
            (counter.available, counter.expired) = (1, 1);
            counter
        };
        let jobs = [
            ("mail", ""),
            ("mail", "reindex_user"),
            ("mail", "bulk"),
            ("other", ""),
        ];
        let counters = Counters {
            jobs: jobs.map(|(queue, tag)| counter(queue, tag)).into(),
            ..Counters::default()
        };
        let scope = Scope {
            queues: vec!["mail".into(), "empty".into()],
            exempt: vec!["reindex*".into(), "bulk".into()],
        };
        let watched = scope.watched(&counters);
        assert_eq!(watched["mail"].length, 1);
        assert_eq!(watched["empty"], Watched::default());
        assert_eq!(watched.len(), 2);
        assert_eq!(Scope::default().watched(&counters)["mail"].expired, 3);
    }
}

#[cfg(test)]
mod agreed;
