//! What an answer means for its job. No IO and no clock.

use std::time::{Duration, SystemTime};

use crate::consumer::Outcome;
use crate::handler::RetryLater;

/// Who says "at once" is not hammered.
const SOONEST: Duration = Duration::from_secs(1);
/// Who says "next year" has made a mistake, and the job would expire.
const LATEST: Duration = Duration::from_secs(86_400);
/// So much of the body goes into the error: what the store keeps is 2,000 characters.
const QUOTED: usize = 1_700;

/// What a status means; `after` is what the server asked for, `body` the start of what it said.
pub(crate) fn decide(
    status: u16,
    after: Option<Duration>,
    body: &[u8],
) -> Result<Outcome, RetryLater> {
    let quoted = quote(body);
    match status {
        200..=299 => Ok(Outcome::Done),
        408 | 425 | 429 | 500..=599 => {
            let reason = format!("the answer was {status}{quoted}");
            Err(match after {
                Some(after) => RetryLater::after(after, reason),
                None => RetryLater::by_backoff(reason),
            })
        }
        400..=499 => Ok(Outcome::Discard {
            reason: format!("the answer was {status}{quoted}"),
        }),
        // The one that moved the address can move it back, or correct it here: no reason to give up
        // jobs.
        300..=399 => Err(RetryLater::by_backoff(format!(
            "the answer was {status}, and redirects are not followed{quoted}"
        ))),
        _ => Err(RetryLater::by_backoff(format!(
            "the answer was {status}{quoted}"
        ))),
    }
}

/// `Retry-After`: seconds, or a date, which is read by the server's own clock where it told it.
pub(super) fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    let asked = if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are more than the longest wait.
        Duration::from_secs(value.parse().unwrap_or(u64::MAX))
    } else {
        let date = httpdate::parse_http_date(value).ok()?;
        date.duration_since(now).unwrap_or_default()
    };
    Some(asked.clamp(SOONEST, LATEST))
}

fn quote(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    let mut start: String = text.chars().take(QUOTED).collect();
    if start.is_empty() {
        return start;
    }
    if start.len() < text.len() {
        start.push('…');
    }
    format!(": {start}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_of_status_has_its_outcome() {
        let after = Some(Duration::from_secs(7));
        for status in 100..=599 {
            let outcome = decide(status, after, b"said");
            match status {
                200..=299 => assert_eq!(outcome, Ok(Outcome::Done)),
                408 | 425 | 429 | 500..=599 => {
                    let reason = format!("the answer was {status}: said");
                    let wait = Duration::from_secs(7);
                    assert_eq!(outcome, Err(RetryLater::after(wait, reason)));
                }
                400..=499 => {
                    let reason = format!("the answer was {status}: said");
                    assert_eq!(outcome, Ok(Outcome::Discard { reason }));
                }
                _ => assert_eq!(outcome.unwrap_err().after, None, "{status}"),
            }
        }
        let unasked = decide(503, None, b"");
        assert_eq!(unasked, Err(RetryLater::by_backoff("the answer was 503")));
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_and_bounded() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let read = |value| retry_after(value, now).map(|wait| wait.as_secs());
        assert_eq!(read("120"), Some(120));
        assert_eq!(read(" 5 "), Some(5));
        assert_eq!(read("0"), Some(1));
        assert_eq!(read("99999999999999999999999"), Some(86_400));
        assert_eq!(read("Sun, 06 Nov 1994 08:50:37 GMT"), Some(60));
        assert_eq!(read("Sunday, 06-Nov-94 08:50:37 GMT"), Some(60));
        assert_eq!(read("Sun Nov  6 08:50:37 1994"), Some(60));
        assert_eq!(read("Sun, 06 Nov 1994 08:00:00 GMT"), Some(1));
        assert_eq!(read("Thu, 06 Nov 2994 08:00:00 GMT"), Some(86_400));
        for wrong in ["", "soon", "-1", "1.5", "+3"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn of_a_long_body_the_start_is_quoted() {
        let reason = decide(503, None, &b"ab".repeat(5_000)).unwrap_err().reason;
        assert!(reason.starts_with("the answer was 503: abab"), "{reason}");
        assert!(reason.ends_with('…') && reason.chars().count() < 2000);
    }
}
