//! Thresholds of findings, with the same defaults for all tools.

use std::collections::BTreeMap;
use std::time::Duration;

use posthaste::settings::{Fields, Read};
use serde_json::Value;

use crate::format;

/// The values from which a finding is reported. `[observe]` of posthaste.toml sets them.
#[derive(Clone, Debug, PartialEq)]
pub struct Thresholds {
    /// A worker without a heartbeat for longer is silent and serves no queue.
    pub worker_silent: Duration,
    /// A queue whose oldest job has waited longer is late.
    pub queue_late: Duration,
    /// A transaction, or a lock on the queue's tables, that lasts longer is reported.
    pub long_transaction: Duration,
    /// Jobs of a sync that have failed for longer are reported.
    pub sync_failing: Duration,
    /// Changes that have been due for longer without being in their index are reported.
    pub sync_late: Duration,
    /// A queue is reported from this share of failed attempts.
    pub failing_share: f64,
    /// Fewer failed attempts than this in ten minutes are not reported.
    pub failing_attempts: i64,
    /// A job that failed this many times in a row and will be retried is reported.
    pub failing_job: i64,
    /// The number of due jobs of a queue above which it is reported.
    pub length_above: BTreeMap<String, f64>,
    /// The completed jobs per minute of a queue below which it is reported.
    pub completed_below: BTreeMap<String, f64>,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            worker_silent: Duration::from_secs(60),
            queue_late: Duration::from_secs(120),
            long_transaction: Duration::from_secs(900),
            sync_failing: Duration::from_secs(60),
            sync_late: Duration::from_secs(600),
            failing_share: 0.5,
            failing_attempts: 10,
            failing_job: 8,
            length_above: BTreeMap::new(),
            completed_below: BTreeMap::new(),
        }
    }
}

/// A share, from 0 to 1.
struct Share(f64);

impl Read for Share {
    const EXPECTED: &'static str = "a number from 0 to 1";
    fn read(value: Value) -> Option<Self> {
        let share = value.as_f64().filter(|share| (0.0..=1.0).contains(share));
        share.map(Self)
    }
}

/// A figure for each of some queues.
struct NumberByQueue(BTreeMap<String, f64>);

impl Read for NumberByQueue {
    const EXPECTED: &'static str = "a table of queues with a number of jobs for each";
    fn read(value: Value) -> Option<Self> {
        let figures = value.as_object()?.iter();
        let figures = figures.map(|(queue, figure)| {
            let figure = figure.as_f64().filter(|figure| *figure >= 0.0)?;
            Some((queue.clone(), figure))
        });
        figures.collect::<Option<_>>().map(Self)
    }
}

impl Thresholds {
    /// Reads the table `[observe]` of posthaste.toml; an error names the setting.
    pub fn from_table(table: BTreeMap<String, Value>) -> Result<Self, String> {
        let mut fields = Fields::new(table);
        let mut thresholds = Self::default();
        for (setting, place) in [
            ("worker_silent", &mut thresholds.worker_silent),
            ("queue_late", &mut thresholds.queue_late),
            ("long_transaction", &mut thresholds.long_transaction),
            ("sync_failing", &mut thresholds.sync_failing),
            ("sync_late", &mut thresholds.sync_late),
        ] {
            if let Some(time) = fields.take(setting)? {
                *place = time;
            }
        }
        if let Some(Share(share)) = fields.take("failing_share")? {
            thresholds.failing_share = share;
        }
        for (setting, place) in [
            ("failing_attempts", &mut thresholds.failing_attempts),
            ("failing_job", &mut thresholds.failing_job),
        ] {
            if let Some(attempts) = fields.positive(setting)? {
                *place = i64::try_from(attempts).unwrap_or(i64::MAX);
            }
        }
        for (setting, place) in [
            ("length_above", &mut thresholds.length_above),
            ("completed_below", &mut thresholds.completed_below),
        ] {
            if let Some(NumberByQueue(figures)) = fields.take(setting)? {
                *place = figures;
            }
        }
        fields.all_known("[observe]")?;
        Ok(thresholds)
    }

    /// Returns each threshold with a description, for people.
    pub fn descriptions(&self) -> Vec<(&'static str, String)> {
        let age = |time: Duration| format::age(time.as_secs_f64());
        let mut shown = vec![
            ("A worker is silent after", age(self.worker_silent)),
            ("A queue is late after", age(self.queue_late)),
            ("A transaction is long after", age(self.long_transaction)),
            ("A sync is failing after", age(self.sync_failing)),
            ("A sync is late after", age(self.sync_late)),
            (
                "A queue is failing from",
                format!(
                    "{:.0} % of at least {} attempts in 10 min",
                    self.failing_share * 100.0,
                    format::count(self.failing_attempts)
                ),
            ),
            (
                "A job is failing from",
                format!("{} attempts in a row", format::count(self.failing_job)),
            ),
        ];
        for (name, figures, unit) in [
            ("A queue is long above", &self.length_above, "jobs"),
            (
                "A queue is slow below",
                &self.completed_below,
                "jobs a minute",
            ),
        ] {
            let figures = figures.iter();
            let figures = figures.map(|(queue, jobs)| format!("{jobs} {unit} in {queue}"));
            let figures: Vec<String> = figures.collect();
            if !figures.is_empty() {
                shown.push((name, figures.join(", ")));
            }
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(table: Value) -> Result<Thresholds, String> {
        let table = table.as_object().cloned().unwrap_or_default();
        Thresholds::from_table(table.into_iter().collect())
    }

    #[test]
    fn thresholds_are_parsed_by_name_and_invalid_ones_rejected() {
        let thresholds = parse(json!({
            "queue_late": "5m", "failing_share": 0.2, "length_above": { "mail": 1000 },
        }))
        .unwrap();
        assert_eq!(thresholds.queue_late, Duration::from_secs(300));
        assert_eq!(thresholds.length_above["mail"], 1_000.0);
        assert_eq!(thresholds.failing_share, 0.2);
        for wrong in [
            json!({ "queue_late": "-5s" }),
            json!({ "failing_share": 2 }),
            json!({ "failing_attempts": 0 }),
            json!({ "length_above": 1000 }),
            json!({ "completed_below": { "mail": -1 } }),
            json!({ "late": "5m" }),
        ] {
            assert!(parse(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
