//! Parsers of options that several commands share: durations and rates.

use std::time::Duration;

use jiff::{Span, SpanRelativeTo};

/// Parses a duration: `30s`, `5m`, `36h` or `30d`; a bare number is seconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().or_else(|| parse_seconds(text));
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| "write 30s, 5m, 36h or 30d; a number alone is seconds".to_owned())
}

/// Parses a duration from `least` to `most` seconds.
pub(crate) fn parse_duration_between(
    least: u64,
    most: u64,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text| match parse_duration(text)? {
        time if (least..=most).contains(&time.as_secs()) => Ok(time),
        _ => Err(format!("must be from {least} to {most} seconds")),
    }
}

/// Parses whole seconds with a unit.
fn parse_seconds(text: &str) -> Option<u64> {
    let span: Span = text.parse().ok()?;
    let time = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    let is_whole = time.subsec_nanos() == 0;
    u64::try_from(time.as_secs()).ok().filter(|_| is_whole)
}

/// Parses a rate into a number and its seconds: `100/s`, `1000/m`, `5/h` or `1/d`; a bare number is
/// per second.
pub(crate) fn parse_rate(text: &str) -> Result<(i32, i64), String> {
    let (number, unit) = text.split_once('/').unwrap_or((text, "s"));
    let seconds = match unit {
        "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3_600),
        "d" => Some(86_400),
        _ => None,
    };
    let number = number.parse().ok().filter(|number| *number > 0);
    number
        .zip(seconds)
        .ok_or_else(|| "write a number and s, m, h or d, such as 100/s".to_owned())
}

/// Parses a rate of at least one per second into a number per second.
pub(crate) fn parse_rate_per_second(text: &str) -> Result<u32, String> {
    let (number, seconds) = parse_rate(text)?;
    u32::try_from(i64::from(number) / seconds)
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| "must be at least 1 per second".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_seconds_or_have_a_unit() {
        for (text, seconds) in [
            ("0", 0),
            ("90", 90),
            ("30s", 30),
            ("5m", 300),
            ("36h", 129_600),
            ("30d", 2_592_000),
            ("7 days", 604_800),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_secs(seconds)),
                "{text}"
            );
        }
        for wrong in ["", "long", "-5", "-5m", "1.5", "5 parsecs", "1500ms", "2mo"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            parse_duration_between(2, 60)("1m"),
            Ok(Duration::from_secs(60))
        );
        assert!(
            parse_duration_between(2, 60)("1").is_err()
                && parse_duration_between(2, 60)("2m").is_err()
        );
    }

    #[test]
    fn rates_are_a_number_with_a_unit() {
        assert_eq!(parse_rate("100/s"), Ok((100, 1)));
        assert_eq!(parse_rate("90/m"), Ok((90, 60)));
        assert_eq!(parse_rate("7"), Ok((7, 1)));
        assert_eq!(parse_rate_per_second("6000/m"), Ok(100));
        for wrong in ["", "0/s", "-1/s", "5/x", "/s", "many"] {
            assert!(parse_rate(wrong).is_err(), "{wrong}");
        }
        assert!(parse_rate_per_second("5/h").is_err());
    }
}
