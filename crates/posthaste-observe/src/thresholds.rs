//! From when on something is worth a finding: one set of defaults for all tools.

use std::collections::BTreeMap;
use std::time::Duration;

use posthaste::settings::{Fields, Read};
use serde_json::Value;

use crate::format;

/// From when on something is worth a finding. `[observe]` of posthaste.toml sets them.
#[derive(Clone, Debug, PartialEq)]
pub struct Thresholds {
    /// A worker without a heartbeat for longer is silent: no queue counts as served by it.
    pub worker_silent: Duration,
    /// A queue whose oldest job has waited for longer is late.
    pub queue_late: Duration,
    /// A transaction, or a lock on the queue's tables, that lasts longer is reported.
    pub long_transaction: Duration,
    /// Jobs of a sync that have failed for longer are reported.
    pub sync_failing: Duration,
    /// Changes that are due for longer and not in their index are reported.
    pub sync_late: Duration,
    /// A queue of whose attempts a larger share fails is reported.
    pub failing_share: f64,
    /// Fewer failed attempts than this in ten minutes are not reported.
    pub failing_attempts: i64,
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
        }
    }
}

/// A share, from 0 to 1.
struct Share(f64);

impl Read for Share {
    const WHAT: &'static str = "a number from 0 to 1";
    fn read(value: Value) -> Option<Self> {
        let share = value.as_f64().filter(|share| (0.0..=1.0).contains(share));
        share.map(Self)
    }
}

impl Thresholds {
    /// Reads the table `[observe]` of posthaste.toml; an error names the setting.
    pub fn of_table(table: BTreeMap<String, Value>) -> Result<Self, String> {
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
        if let Some(attempts) = fields.positive("failing_attempts")? {
            thresholds.failing_attempts = i64::try_from(attempts).unwrap_or(i64::MAX);
        }
        fields.all_known("[observe]")?;
        Ok(thresholds)
    }

    /// What each is and how it is set, for people.
    pub fn shown(&self) -> Vec<(&'static str, String)> {
        let age = |time: Duration| format::age(time.as_secs_f64());
        vec![
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
        ]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(table: Value) -> Result<Thresholds, String> {
        let table = table.as_object().cloned().unwrap_or_default();
        Thresholds::of_table(table.into_iter().collect())
    }

    #[test]
    fn settings_are_read_by_name_and_wrong_ones_are_refused() {
        let thresholds = of(json!({ "queue_late": "5m", "failing_share": 0.2 })).unwrap();
        assert_eq!(thresholds.queue_late, Duration::from_secs(300));
        assert_eq!(thresholds.failing_share, 0.2);
        for wrong in [
            json!({ "queue_late": "-5s" }),
            json!({ "failing_share": 2 }),
            json!({ "failing_attempts": 0 }),
            json!({ "late": "5m" }),
        ] {
            assert!(of(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
