//! Decides what an answer means for its job. No IO and no clock.

use std::time::{Duration, SystemTime};

use crate::handler::RetryLater;

/// The shortest delay of `Retry-After`, so that a server that answers "at once" is not overloaded.
const MIN_RETRY_AFTER: Duration = Duration::from_secs(1);
/// The longest delay of `Retry-After`: a longer one is a mistake, and the job would expire.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(86_400);
/// The most characters of the body in an error; the store keeps 2,000 characters.
const MAX_QUOTED_CHARS: usize = 1_700;

/// The meaning of an answer for its job.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The job is done.
    Done,
    /// This job is rejected permanently.
    Refused {
        /// The status and the start of the body.
        reason: String,
    },
    /// This job is retried, and the attempt counts.
    Later(RetryLater),
    /// The endpoint would answer any job this way: its address or secret is wrong, or it is out of
    /// service. Jobs wait, unless [others are accepted](super::Faults).
    Endpoint {
        /// The status and the start of the body.
        reason: String,
        /// Whether the status is a client error (4xx).
        is_client_error: bool,
    },
}

impl Verdict {
    /// Returns the verdict for an endpoint that only this job uses: the fault is the job's.
    pub fn blaming_the_job(self) -> Self {
        match self {
            Self::Endpoint {
                reason,
                is_client_error: true,
            } => Self::Refused { reason },
            Self::Endpoint { reason, .. } => Self::Later(RetryLater::by_backoff(reason)),
            other => other,
        }
    }
}

/// Returns the meaning of a status; `after` is the delay that the server requested, `body` the
/// start of its body.
pub(super) fn decide_by_status(status: u16, after: Option<Duration>, body: &[u8]) -> Verdict {
    let quoted = quote(body);
    let reason = format!("HTTP status {status}{quoted}");
    match (status, after) {
        (200..=299, _) => Verdict::Done,
        // The operator who moved the address can move it back, or correct it here.
        (300..=399, _) => Verdict::Endpoint {
            reason: format!("HTTP status {status}; redirects are not followed{quoted}"),
            is_client_error: false,
        },
        (408 | 425 | 429 | 500..=599, Some(after)) => {
            Verdict::Later(RetryLater::after(after, reason))
        }
        // An unknown secret, path, method or type; or a proxy without its server.
        (401..=405 | 407 | 415 | 421 | 426 | 501..=505 | 511, _) => Verdict::Endpoint {
            reason,
            is_client_error: status < 500,
        },
        (408 | 425 | 429, None) => Verdict::Later(RetryLater::by_backoff(reason)),
        (400..=499, _) => Verdict::Refused { reason },
        _ => Verdict::Later(RetryLater::by_backoff(reason)),
    }
}

/// Reads `Retry-After`: seconds, or a date, which is compared with the server's clock if it sent a
/// Date.
pub(super) fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    let asked = if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number with too many digits is longer than the longest delay.
        Duration::from_secs(value.parse().unwrap_or(u64::MAX))
    } else {
        let date = httpdate::parse_http_date(value).ok()?;
        date.duration_since(now).unwrap_or_default()
    };
    Some(asked.clamp(MIN_RETRY_AFTER, MAX_RETRY_AFTER))
}

fn quote(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    let mut start: String = text.chars().take(MAX_QUOTED_CHARS).collect();
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
    fn each_status_class_maps_to_an_outcome() {
        let after = Some(Duration::from_secs(7));
        let endpoint = |status: u16| match status {
            401..=405 | 407 | 415 | 421 | 426 | 501..=505 | 511 => true,
            _ => (300..=399).contains(&status),
        };
        for status in 100..=599 {
            let reason = format!("HTTP status {status}: busy");
            let verdict = decide_by_status(status, None, b"busy");
            let expected = match status {
                200..=299 => Verdict::Done,
                300..=399 => {
                    assert!(matches!(verdict, Verdict::Endpoint { .. }), "{status}");
                    continue;
                }
                _ if endpoint(status) => Verdict::Endpoint {
                    reason: reason.clone(),
                    is_client_error: status < 500,
                },
                408 | 425 | 429 | 500..=599 | 100..=199 => {
                    Verdict::Later(RetryLater::by_backoff(reason.clone()))
                }
                _ => Verdict::Refused {
                    reason: reason.clone(),
                },
            };
            assert_eq!(verdict, expected, "{status}");
            let asked = decide_by_status(status, after, b"busy");
            match status {
                408 | 425 | 429 | 500..=599 => {
                    let later = RetryLater::after(Duration::from_secs(7), reason);
                    assert_eq!(asked, Verdict::Later(later), "{status}");
                }
                _ => assert_eq!(asked, verdict, "{status}"),
            }
        }
    }

    #[test]
    fn refusals_of_a_single_job_are_blamed_on_the_job() {
        let reason = |status| format!("HTTP status {status}");
        let refused = decide_by_status(404, None, b"").blaming_the_job();
        let expected = Verdict::Refused {
            reason: reason(404),
        };
        assert_eq!(refused, expected);
        let later = decide_by_status(503, None, b"").blaming_the_job();
        let expected = Verdict::Later(RetryLater::by_backoff(reason(503)));
        assert_eq!(later, expected);
        assert_eq!(
            decide_by_status(204, None, b"").blaming_the_job(),
            Verdict::Done
        );
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
    fn long_bodies_are_quoted_from_their_start() {
        let body = b"ab".repeat(5_000);
        let Verdict::Refused { reason } = decide_by_status(400, None, &body) else {
            panic!("400 refuses");
        };
        assert!(reason.starts_with("HTTP status 400: abab"), "{reason}");
        assert!(reason.ends_with('…') && reason.chars().count() < 2000);
    }
}
