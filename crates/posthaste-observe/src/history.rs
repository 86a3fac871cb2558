//! Rates of completed jobs of queues over a time that the caller chooses, from readings of totals.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Totals of completed jobs by queue, the oldest reading first, each with its time in seconds.
#[derive(Clone, Debug, Default)]
pub struct History(VecDeque<(f64, BTreeMap<String, i64>)>);

impl History {
    /// Adds the newest totals. Of those older than `over` only the last one remains.
    pub fn add(&mut self, at: f64, completed: BTreeMap<String, i64>, over: Duration) {
        let since = at - over.as_secs_f64();
        self.0.push_back((at, completed));
        while self.0.get(1).is_some_and(|(next, _)| *next <= since) {
            self.0.pop_front();
        }
    }

    /// Returns whether totals are known for this long.
    pub fn covers(&self, over: Duration) -> bool {
        let at = |reading: Option<&(f64, _)>| reading.map_or(0.0, |(at, _)| *at);
        at(self.0.back()) - at(self.0.front()) >= over.as_secs_f64()
    }

    /// Returns the completed jobs per minute of each queue that was known for this long.
    pub fn rates(&self, over: Duration) -> BTreeMap<String, f64> {
        let (Some((then, before)), Some((now, totals))) = (self.0.front(), self.0.back()) else {
            return BTreeMap::new();
        };
        if !self.covers(over) {
            return BTreeMap::new();
        }
        let minutes = (now - then) / 60.0;
        let rate = |(queue, total): (&String, &i64)| {
            let before = before.get(queue)?;
            // Totals of a restored store start again.
            let jobs = if total >= before {
                total - before
            } else {
                *total
            };
            Some((queue.clone(), jobs as f64 / minutes))
        };
        totals.iter().filter_map(rate).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OVER: Duration = Duration::from_secs(60);

    fn rate_of(totals: &[i64]) -> Option<f64> {
        let mut history = History::default();
        for (n, total) in totals.iter().enumerate() {
            let completed = BTreeMap::from([("mail".to_owned(), *total)]);
            history.add(n as f64 * 10.0, completed, OVER);
        }
        history.rates(OVER).get("mail").copied()
    }

    #[test]
    fn rates_cover_the_last_minute_and_are_unknown_before() {
        assert_eq!(rate_of(&[0, 10, 20, 30, 40, 50]), None);
        assert_eq!(rate_of(&[0, 10, 20, 30, 40, 50, 60]), Some(60.0));
        assert_eq!(rate_of(&[0, 100, 100, 100, 100, 100, 100, 107]), Some(7.0));
    }

    #[test]
    fn counter_resets_count_from_zero() {
        assert_eq!(rate_of(&[500, 500, 500, 500, 500, 500, 3]), Some(3.0));
    }
}
