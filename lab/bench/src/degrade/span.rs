//! Durations in the format of scenarios: `10ms`, `2s`, `60m`, `1h`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de::Error};

/// A duration of a scenario.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd)]
pub(crate) struct Span(pub(crate) Duration);

impl Span {
    /// A duration in seconds.
    pub(crate) const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// The duration in a run that is faster by this factor.
    pub(crate) fn at_speed(self, speed: f64) -> Duration {
        self.0.div_f64(speed)
    }

    /// Parses a number with a unit.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.find(|one: char| !one.is_ascii_digit())?;
        let (number, unit) = text.split_at(digits);
        let milliseconds = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        let number: u64 = number.parse().ok()?;
        number
            .checked_mul(milliseconds)
            .map(|whole| Self(Duration::from_millis(whole)))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            D::Error::custom(format!(
                "{text:?} is no duration: write 10ms, 2s, 60m or 1h"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Span;

    #[test]
    fn numbers_with_units_are_durations() {
        let parsed = |text| Span::parse(text).map(|span| span.0);
        assert_eq!(parsed("10ms"), Some(Duration::from_millis(10)));
        assert_eq!(parsed("60m"), Some(Duration::from_secs(3_600)));
        assert_eq!(parsed("0s"), Some(Duration::ZERO));
        for wrong in [
            "",
            "10",
            "s",
            "-1s",
            "1.5s",
            "1 s",
            "1d",
            "99999999999999999999s",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_faster_run_has_shorter_durations() {
        assert_eq!(Span::seconds(60).at_speed(20.0), Duration::from_secs(3));
    }
}
