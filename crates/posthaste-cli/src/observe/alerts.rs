//! The alerts of `posthaste alerts`: its options, and the thresholds and totals by them.

use std::collections::BTreeMap;
use std::time::Duration;

use posthaste_observe::{Finding, Kind, Snapshot, Thresholds};

use crate::options::parse_duration_between;
use crate::thresholds::finding_sentence;

/// Options that select findings for alerts.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AlertScope {
    /// Alert only about this queue (repeatable)
    #[arg(long = "queue", value_name = "QUEUE")]
    pub(crate) queues: Vec<String>,

    /// Exclude jobs with this tag; a trailing * matches any text (repeatable)
    #[arg(long = "exempt-tag", value_name = "TAG")]
    pub(crate) exempt: Vec<String>,

    /// Alert if a --queue completes fewer jobs per minute than this
    #[arg(long, value_name = "JOBS", requires = "queues")]
    completed_below: Option<f64>,

    /// Alert if a --queue has more due jobs than this
    #[arg(long, value_name = "JOBS", requires = "queues")]
    length_above: Option<u64>,

    /// Time for which a finding must persist before an alert begins (at most two minutes for
    /// findings without a figure), and be absent before it ends
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10m",
        value_parser = parse_duration_between(1, 86_400)
    )]
    pub(crate) lasting: Duration,
}

impl AlertScope {
    /// Returns the thresholds of posthaste.toml, with those of the options.
    pub(crate) fn thresholds(&self, mut thresholds: Thresholds) -> Thresholds {
        for queue in &self.queues {
            if let Some(least) = self.completed_below {
                thresholds.completed_below.insert(queue.clone(), least);
            }
            if let Some(most) = self.length_above {
                thresholds.length_above.insert(queue.clone(), most as f64);
            }
        }
        thresholds
    }

    /// Whether this process alerts about a subject. Findings that belong to no queue are always
    /// included.
    pub(crate) fn includes(&self, kind: Kind, subject: &str) -> bool {
        let is_of_queue = ["queue", "jobs"].contains(&subject_kind(kind));
        self.queues.is_empty() || !is_of_queue || self.queues.iter().any(|one| one == subject)
    }

    /// Whether this process can judge the end of an alert that another process began.
    pub(crate) fn can_judge_end(&self, kind: Kind, subject: &str, thresholds: &Thresholds) -> bool {
        let figures = match kind {
            Kind::QueueLong => Some(&thresholds.length_above),
            Kind::QueueSlow => Some(&thresholds.completed_below),
            _ => None,
        };
        self.includes(kind, subject) && figures.is_none_or(|one| one.contains_key(subject))
    }

    /// Returns totals of completed jobs by queue. A named queue has a total even without jobs.
    pub(crate) fn completed_totals(&self, snapshot: &Snapshot) -> BTreeMap<String, i64> {
        let named = self.queues.iter().map(|queue| (queue.clone(), 0));
        let mut totals: BTreeMap<String, i64> = named.collect();
        for counter in &snapshot.counters.jobs {
            *totals.entry(counter.queue.clone()).or_default() += counter.completed_total;
        }
        totals
    }
}

fn subject_kind(kind: Kind) -> &'static str {
    kind.id().split('.').next().unwrap_or_default()
}

/// Returns the line for the beginning of an alert.
pub(crate) fn alert_line(finding: &Finding) -> String {
    let id = finding.kind.id();
    format!("{id}: {}", finding_sentence(finding))
}

#[cfg(test)]
mod agreed;

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(queues: &[&str]) -> AlertScope {
        AlertScope {
            queues: queues.iter().map(|&queue| queue.to_owned()).collect(),
            exempt: Vec::new(),
            completed_below: None,
            length_above: Some(100),
            lasting: Duration::from_secs(600),
        }
    }

    #[test]
    fn queue_filters_drop_alerts_of_other_queues_and_keep_store_wide_ones() {
        let mail = scope(&["mail"]);
        assert!(mail.includes(Kind::QueueLate, "mail"));
        assert!(!mail.includes(Kind::QueueLate, "other"));
        assert!(mail.includes(Kind::WorkerNone, ""));
        assert!(scope(&[]).includes(Kind::JobsDead, "other"));
    }

    #[test]
    fn alerts_on_another_processes_values_are_left_to_it() {
        let mail = scope(&["mail"]);
        let thresholds = mail.thresholds(Thresholds::default());
        assert!(mail.can_judge_end(Kind::QueueLong, "mail", &thresholds));
        assert!(!mail.can_judge_end(Kind::QueueSlow, "mail", &thresholds));
        assert!(mail.can_judge_end(Kind::QueueLate, "mail", &thresholds));
    }
}
