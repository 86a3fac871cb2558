//! Times as Celery's Python client writes them. Pure.

use jiff::Timestamp;

/// Formats a time in UTC as Python does: some versions parse only zero, three or six decimals.
pub(super) fn format_utc(at: Timestamp) -> String {
    let at = match at.subsec_nanosecond() {
        0 => at.to_string(),
        _ => format!("{at:.6}"),
    };
    format!("{}+00:00", at.trim_end_matches('Z'))
}

#[cfg(test)]
mod tests {
    use super::format_utc;

    #[test]
    fn times_have_six_decimals_or_none() {
        for (at, written) in [
            ("2026-11-26T10:00:00Z", "2026-11-26T10:00:00+00:00"),
            (
                "2026-11-26T10:00:00.12345Z",
                "2026-11-26T10:00:00.123450+00:00",
            ),
        ] {
            assert_eq!(format_utc(at.parse().expect("a time")), written);
        }
    }
}
