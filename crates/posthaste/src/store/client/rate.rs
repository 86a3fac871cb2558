//! The limit of how many jobs of a queue are claimed per time.

use std::time::Duration;

use crate::error::Error;

/// The most jobs of a queue that all workers together claim per time.
///
/// ```
/// use std::time::Duration;
///
/// use posthaste::Rate;
///
/// let rate = Rate::new(90, Duration::from_secs(60)).burst(3); // 90 a minute, 3 at once
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rate {
    pub(crate) jobs: u32,
    pub(crate) per: Duration,
    pub(crate) burst: Option<u32>,
}

/// A year of 360 days, as Postgres counts it when it compares intervals.
const MAX_PERIOD: Duration = Duration::from_secs(360 * 86_400);

impl Rate {
    /// Allows this many jobs in this time: 1 to 2,147,483,647 in a microsecond to 360 days.
    pub fn new(jobs: u32, per: Duration) -> Self {
        Self {
            jobs,
            per,
            burst: None,
        }
    }

    /// Allows this many jobs at once after an idle time: 1 to 2,147,483,647. The default is the
    /// number of jobs of the rate.
    pub fn burst(mut self, jobs: u32) -> Self {
        self.burst = Some(jobs);
        self
    }

    /// Rejects values that the database would reject.
    pub(crate) fn check(&self) -> Result<(), Error> {
        for (field, jobs) in [("jobs", Some(self.jobs)), ("burst", self.burst)] {
            if jobs.is_some_and(|jobs| jobs < 1 || i32::try_from(jobs).is_err()) {
                return Err(Error::invalid(field, "must be between 1 and 2147483647"));
            }
        }
        if self.per.as_micros() < 1 || self.per > MAX_PERIOD {
            let reason = "must be between a microsecond and 360 days";
            return Err(Error::invalid("per", reason));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_PERIOD, Rate};
    use std::time::Duration;

    #[test]
    fn rejects_rates_of_zero_and_out_of_range() {
        let second = Duration::from_secs(1);
        for (rate, field) in [
            (Rate::new(0, second), "jobs"),
            (Rate::new(u32::MAX, second), "jobs"),
            (Rate::new(1, second).burst(0), "burst"),
            (Rate::new(1, Duration::from_nanos(999)), "per"),
            (Rate::new(1, MAX_PERIOD + second), "per"),
        ] {
            let error = rate.check().expect_err("refused").to_string();
            assert!(error.starts_with(field), "{error}");
        }
        assert!(Rate::new(1, MAX_PERIOD).burst(7).check().is_ok());
    }
}
