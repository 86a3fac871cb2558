//! A clock that producers and handlers share, which run in one process.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Microseconds since the creation of the clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Instant, SystemTime);

impl Clock {
    /// Creates a clock that begins now.
    pub(crate) fn start() -> Self {
        Self(Instant::now(), SystemTime::now())
    }

    /// Microseconds since its creation.
    pub(crate) fn now(self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// The seconds since the epoch at `micros`, by the clock of a server on the same machine.
    pub(crate) fn epoch_seconds(self, micros: u64) -> f64 {
        let made = self.1.duration_since(UNIX_EPOCH).unwrap_or_default();
        made.as_secs_f64() + micros as f64 / 1e6
    }
}

/// The times at which jobs were seen, by the numbers in their arguments.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sightings(Arc<Mutex<Vec<(u64, u64)>>>);

impl Sightings {
    /// Records that job `number` was seen at `at`.
    pub(crate) fn note(&self, number: u64, at: u64) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((number, at));
    }

    /// All sightings until now, in their order.
    pub(crate) fn all(&self) -> Vec<(u64, u64)> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The milliseconds from each sighting in `earlier` to that of the same job here, in the order
    /// of the numbers. A job that was seen here first has not waited: zero. Jobs seen only once are
    /// left out.
    pub(crate) fn milliseconds_since(&self, earlier: &Self) -> Vec<f64> {
        let began: std::collections::BTreeMap<u64, u64> = earlier.all().into_iter().collect();
        let mut ended = self.all();
        ended.sort_unstable();
        ended
            .into_iter()
            .filter_map(|(number, at)| {
                Some(at.saturating_sub(*began.get(&number)?) as f64 / 1_000.0)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Sightings;

    #[test]
    fn waiting_is_measured_per_job_and_never_negative() {
        let (committed, started) = (Sightings::default(), Sightings::default());
        for (number, at) in [(1, 1_000), (2, 5_000), (3, 9_000)] {
            committed.note(number, at);
        }
        for (number, at) in [(2, 4_000), (1, 3_500), (7, 8_000)] {
            started.note(number, at);
        }
        assert_eq!(started.milliseconds_since(&committed), [2.5, 0.0]);
    }
}
