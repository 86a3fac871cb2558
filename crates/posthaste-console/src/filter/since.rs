//! A time in a filter: a time of day, a date, a moment, or an age. No IO, no clock.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// A moment, as it was typed and as a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) typed: String,
    pub(crate) at: Timestamp,
}

impl Moment {
    /// Creates an absolute moment.
    pub(super) fn absolute(at: Timestamp) -> Self {
        Self {
            typed: at.to_string(),
            at,
        }
    }

    /// Parses a text that was typed at this time. Times without a zone are in UTC, as on all pages.
    pub(super) fn parse(key: &str, typed: String, now: Timestamp) -> Result<Self, String> {
        let at = parse_age(&typed, now)
            .or_else(|| typed.parse().ok())
            .or_else(|| to_utc(typed.parse().ok()?))
            .or_else(|| to_utc(typed.parse::<Date>().ok()?.into()))
            .or_else(|| last_time_of_day(typed.parse().ok()?, now));
        match at {
            Some(at) => Ok(Self { typed, at }),
            None => Err(format!(
                "{key}:{typed} is not a time: write 11:30, 2026-11-24, 2026-11-24T11:30 or 2h"
            )),
        }
    }
}

/// Parses an age before now: 90s, 15m, 2h, 7d.
fn parse_age(typed: &str, now: Timestamp) -> Option<Timestamp> {
    let unit = typed.chars().next_back()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return None,
    };
    let number: u32 = typed.strip_suffix(unit)?.parse().ok()?;
    let span = SignedDuration::from_secs(i64::from(number).checked_mul(seconds)?);
    now.checked_sub(span).ok()
}

/// Returns the last occurrence of this time of day, today or yesterday.
fn last_time_of_day(time: Time, now: Timestamp) -> Option<Timestamp> {
    let today = now.to_zoned(TimeZone::UTC).date();
    let at = to_utc(today.to_datetime(time))?;
    match at <= now {
        true => Some(at),
        false => to_utc(today.yesterday().ok()?.to_datetime(time)),
    }
}

fn to_utc(at: DateTime) -> Option<Timestamp> {
    let at = at.to_zoned(TimeZone::UTC).ok()?.timestamp();
    // PostgreSQL does not read years below 1 as they are printed here; this bound is in the year 5.
    (at.as_second() > -62_000_000_000).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_times_mean_the_most_recent() {
        let now: Timestamp = "2026-11-24T12:04:31Z".parse().unwrap();
        for (typed, at) in [
            ("11:30", "2026-11-24T11:30:00Z"),
            ("23:59:30", "2026-11-23T23:59:30Z"),
            ("2026-11-20", "2026-11-20T00:00:00Z"),
            ("2026-11-20T10:15", "2026-11-20T10:15:00Z"),
            ("2026-11-20T10:15:00+02:00", "2026-11-20T08:15:00Z"),
            ("90s", "2026-11-24T12:03:01Z"),
            ("2h", "2026-11-24T10:04:31Z"),
            ("7d", "2026-11-17T12:04:31Z"),
        ] {
            let since = Moment::parse("since", typed.to_owned(), now).unwrap();
            assert_eq!(since.at, at.parse().unwrap(), "{typed}");
        }
        for typed in ["", "x", "25:00", "-1h", "4294967296d", "h", "-009999-01-01"] {
            let read = Moment::parse("since", typed.to_owned(), now);
            assert!(read.is_err(), "{typed}");
        }
    }
}
