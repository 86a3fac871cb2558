//! Rate limits for log lines whose number grows with the jobs: a few per minute for each name. The
//! next line reports how many were suppressed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

const LIMIT_PERIOD: Duration = Duration::from_secs(60);
/// The most names with their own limit; all others share one.
const MAX_NAMES: usize = 1_000;
/// Lines per minute about jobs of one name.
pub const FEW: u32 = 10;

/// Limits the lines of one kind.
#[derive(Debug)]
pub struct LogLimit {
    most: u32,
    names: Mutex<BTreeMap<String, NameEntry>>,
}

#[derive(Debug)]
struct NameEntry {
    since: Instant,
    lines: u32,
    left_out: u64,
}

impl LogLimit {
    /// Allows this many lines per minute for each name.
    pub const fn new(most: u32) -> Self {
        Self {
            most,
            names: Mutex::new(BTreeMap::new()),
        }
    }

    /// Returns the number of lines suppressed since the last one if a line about this name may be
    /// written now, `None` if it must be suppressed.
    pub fn admit(&self, name: &str) -> Option<u64> {
        self.admit_at(name, Instant::now())
    }

    /// As [`admit`](Self::admit), as an optional field of the line: `None` if no line was
    /// suppressed.
    pub fn admit_field(&self, name: &str) -> Option<Option<u64>> {
        let left_out = self.admit(name)?;
        Some((left_out > 0).then_some(left_out))
    }

    fn admit_at(&self, name: &str, now: Instant) -> Option<u64> {
        let mut names = self.names.lock();
        if !names.contains_key(name) && names.len() >= MAX_NAMES {
            names.retain(|_, entry| entry.left_out > 0 || now - entry.since < LIMIT_PERIOD);
        }
        let is_known = names.contains_key(name) || names.len() < MAX_NAMES;
        let name = if is_known { name } else { "" };
        if !names.contains_key(name) {
            let entry = NameEntry {
                since: now,
                lines: 0,
                left_out: 0,
            };
            names.insert(name.to_owned(), entry);
        }
        let entry = names.get_mut(name)?;
        if now - entry.since >= LIMIT_PERIOD {
            entry.since = now;
            entry.lines = 0;
        }
        if entry.lines < self.most {
            entry.lines += 1;
            return Some(std::mem::take(&mut entry.left_out));
        }
        entry.left_out += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_lines_per_name_and_counts_the_rest() {
        let limit = LogLimit::new(2);
        let begun = Instant::now();
        let admitted: Vec<_> = (0..5).map(|_| limit.admit_at("a", begun)).collect();
        assert_eq!(admitted, [Some(0), Some(0), None, None, None]);
        assert_eq!(limit.admit_at("b", begun), Some(0));
        let later = begun + LIMIT_PERIOD;
        let admitted: Vec<_> = (0..3).map(|_| limit.admit_at("a", later)).collect();
        assert_eq!(admitted, [Some(3), Some(0), None]);
    }

    #[test]
    fn names_are_bounded() {
        let limit = LogLimit::new(1);
        let now = Instant::now();
        let admitted = (0..3 * MAX_NAMES).filter_map(|n| limit.admit_at(&n.to_string(), now));
        assert_eq!(admitted.count(), MAX_NAMES + 1);
        let later = now + 2 * LIMIT_PERIOD;
        assert_eq!(limit.admit_at("new", later), Some(0));
    }
}
