//! Turns findings into alerts. An alert begins when its finding has lasted for a while, and ends
//! when the finding has been absent for the hold time, so that a value near its threshold raises
//! one alert. No IO and no clock.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::finding::{Finding, Kind, Level};

/// Age at which most findings become alerts, unless the hold time is shorter.
const DEFAULT_ALERT_AGE: Duration = Duration::from_secs(120);

/// Returns whether a finding of this kind raises an alert. Pauses are intended and hints can wait,
/// so neither does.
pub fn is_alert(kind: Kind) -> bool {
    let is_intended = matches!(kind, Kind::QueuePaused | Kind::CapturePaused);
    kind.level() != Level::Hint && !is_intended
}

/// The identity of an alert: findings with the same kind and subject are one alert.
type Fingerprint = (Kind, String);

/// Firing alerts, and findings that may become alerts.
#[derive(Clone, Debug)]
pub struct Alerts {
    lasting: Duration,
    pending: BTreeMap<Fingerprint, f64>,
    firing: BTreeMap<Fingerprint, FiringAlert>,
}

#[derive(Clone, Debug)]
struct FiringAlert {
    finding: Finding,
    /// When its finding was first absent, in seconds; `None` while it is present.
    absent_since: Option<f64>,
}

impl Alerts {
    /// Creates an empty set of alerts. A queue must be long for `lasting` before its alert begins,
    /// and a finding must be absent for `lasting` before its alert ends.
    pub fn new(lasting: Duration) -> Self {
        Self {
            lasting,
            pending: BTreeMap::new(),
            firing: BTreeMap::new(),
        }
    }

    /// Takes over alerts that another process began. They fire until their findings have been
    /// absent for the hold time.
    pub fn resume(&mut self, notified: impl IntoIterator<Item = Fingerprint>) {
        for (kind, subject) in notified {
            let finding = Finding::new(kind, kind.meaning(), "").about(&subject, 0);
            let firing = FiringAlert {
                finding,
                absent_since: None,
            };
            self.firing.insert((kind, subject), firing);
        }
    }

    /// Records the findings at this time, in seconds, and returns those that fire.
    pub fn update(&mut self, at: f64, found: Vec<Finding>) -> Vec<Finding> {
        let found = found.into_iter().filter(|one| is_alert(one.kind));
        let found: BTreeMap<Fingerprint, Finding> = found
            .map(|one| ((one.kind, one.subject.clone()), one))
            .collect();
        self.pending.retain(|key, _| found.contains_key(key));
        let lasting = self.lasting.as_secs_f64();
        self.firing.retain(|key, firing| {
            if found.contains_key(key) {
                return true;
            }
            at - *firing.absent_since.get_or_insert(at) < lasting
        });
        for (key, finding) in found {
            let since = *self.pending.entry(key.clone()).or_insert(at);
            if self.firing.contains_key(&key) || at - since >= self.begin_after(key.0) {
                let firing = FiringAlert {
                    finding,
                    absent_since: None,
                };
                self.firing.insert(key, firing);
            }
        }
        let firing = self.firing.values();
        firing.map(|one| one.finding.clone()).collect()
    }

    fn begin_after(&self, kind: Kind) -> f64 {
        let after = match kind {
            // Its rate is measured over the whole period, so the alert begins at once.
            Kind::QueueSlow => Duration::ZERO,
            Kind::QueueLong => self.lasting,
            _ => self.lasting.min(DEFAULT_ALERT_AGE),
        };
        after.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD_TIME: Duration = Duration::from_secs(60);

    fn finding(kind: Kind) -> Finding {
        Finding::new(kind, "It is so.", "Do this.").about("mail", 1)
    }

    /// Reads one character every ten seconds, `x` for a finding; writes `A` while the alert fires.
    fn firing_timeline(kind: Kind, found: &str) -> String {
        let mut alerts = Alerts::new(HOLD_TIME);
        let found = found.chars().enumerate();
        let fires = found.map(|(n, found)| {
            let found = match found {
                'x' => vec![finding(kind)],
                _ => Vec::new(),
            };
            match alerts.update(n as f64 * 10.0, found).len() {
                0 => '.',
                _ => 'A',
            }
        });
        fires.collect()
    }

    #[test]
    fn alerts_begin_and_end_after_a_hold_time() {
        assert_eq!(
            firing_timeline(Kind::QueueLate, "xxxxxxxxx......."),
            "......AAAAAAAAA."
        );
        assert_eq!(
            firing_timeline(Kind::QueueLate, "xxxxx.xxxxx."),
            "............"
        );
        assert_eq!(firing_timeline(Kind::QueueSlow, "x......."), "AAAAAAA.");
    }

    #[test]
    fn a_value_hovering_at_its_threshold_raises_one_alert() {
        let found = "xxxxxxx.x.x..x...x.....x.x";
        let fires = firing_timeline(Kind::QueueLong, found);
        assert_eq!(fires, format!("......{}", "A".repeat(found.len() - 6)));
    }

    #[test]
    fn pauses_and_hints_raise_no_alert() {
        assert_eq!(firing_timeline(Kind::QueuePaused, "xxxxxxxxx"), ".........");
        assert_eq!(
            firing_timeline(Kind::CapturePaused, "xxxxxxxxx"),
            "........."
        );
        assert_eq!(firing_timeline(Kind::WorkerIdle, "xxxxxxxxx"), ".........");
    }

    #[test]
    fn alerts_begun_by_another_process_stay_active_until_absent() {
        let mut alerts = Alerts::new(HOLD_TIME);
        alerts.resume([(Kind::QueueLate, "mail".to_owned())]);
        assert_eq!(alerts.update(0.0, Vec::new()).len(), 1);
        let found = alerts.update(50.0, vec![finding(Kind::QueueLate)]);
        assert_eq!(found[0].summary, "It is so.");
        assert_eq!(alerts.update(70.0, Vec::new()).len(), 1);
        assert_eq!(alerts.update(130.0, Vec::new()).len(), 0);
    }
}
