//! When a receiver runs a message, if the route sets a time: a receiver with a schedule gets it
//! ahead of time; for all others the job waits in Postgres. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use posthaste::Job;

use crate::message::Message;
use crate::message::outbox::OutboxJob;
use crate::message::template::Template;

/// Returns when the receiver is to run it: RFC 3339, or seconds since 1970. A job without the
/// argument runs at once.
pub(crate) fn scheduled_at(
    at: &Template,
    outgoing: &OutboxJob,
) -> Result<Option<Timestamp>, String> {
    match at.fill(outgoing).unwrap_or_default().trim() {
        "" | "null" => Ok(None),
        text => parse_time(text).map(Some).ok_or_else(|| {
            let from: Vec<&str> = at.argument_names().collect();
            let from = match from.is_empty() {
                true => "this job".to_owned(),
                false => format!("the argument {:?}", from.join(", ")),
            };
            format!(
                "the route's `at` yields no valid time from {from}: it accepts \
                 2026-11-21T10:00:00Z, with Z or an offset, or seconds since 1970"
            )
        }),
    }
}

/// Parses a time to the microsecond, the precision of Postgres.
fn parse_time(text: &str) -> Option<Timestamp> {
    let micros = match text.parse::<Timestamp>() {
        Ok(time) => time.as_microsecond(),
        Err(_) => {
            let seconds: f64 = text.parse().ok()?;
            // A number that is too large becomes one that `from_microsecond` rejects.
            Some(seconds * 1e6)
                .filter(|micros| micros.is_finite())?
                .round() as i64
        }
    };
    Timestamp::from_microsecond(micros).ok()
}

/// Returns the message if it is sent now, without a time that is past; else the time until which it
/// waits.
pub(crate) fn message_if_due(
    mut message: Message,
    ahead: Duration,
    now: Timestamp,
) -> Result<Message, Timestamp> {
    if let Some(at) = message.at {
        if let Some(until) = held_until(at, ahead, &message.job, now) {
            return Err(until);
        }
        message.at = Some(at).filter(|at| *at > now && !ahead.is_zero());
    }
    Ok(message)
}

/// Returns until when a job waits here if its receiver accepts it `ahead` of its time; `None` sends
/// it now. A job that was rescheduled is due by the server's clock, even if this clock is late.
fn held_until(at: Timestamp, ahead: Duration, job: &Job, now: Timestamp) -> Option<Timestamp> {
    let ahead = SignedDuration::try_from(ahead).unwrap_or(SignedDuration::MAX);
    let until = at.saturating_sub(ahead).unwrap_or(Timestamp::MIN);
    (now.max(job.scheduled_at) < until).then_some(until)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::{Timestamp, ToSpan as _};

    use super::{held_until, parse_time, scheduled_at};
    use crate::message::outbox;
    use crate::message::template::Template;
    use crate::message::tests::{ID, job};

    #[test]
    fn times_are_strings_or_seconds() {
        let ten: Timestamp = "2026-11-21T10:00:00.5Z".parse().expect("a time");
        for text in [
            "2026-11-21T10:00:00.5Z",
            "2026-11-21T11:00:00.5+01:00",
            "1795255200.5",
        ] {
            assert_eq!(parse_time(text), Some(ten), "{text}");
        }
        for text in ["tomorrow", "1e300", "NaN", "2026-11-21", "[1]"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }

    #[test]
    fn a_missing_time_runs_at_once_and_an_invalid_one_is_refused() {
        let at = Template::parse("{kwargs.at}").expect("a template");
        let of = |kwargs: &str| scheduled_at(&at, &outbox::unwrap_envelope(job("n", kwargs), ID)?);
        for kwargs in ["{}", r#"{"at": null}"#, r#"{"at": ""}"#] {
            assert_eq!(of(kwargs), Ok(None), "{kwargs}");
        }
        let second = Timestamp::from_second(7).ok();
        assert_eq!(of(r#"{"at": 7}"#), Ok(second));
        let error = of(r#"{"at": "soon"}"#).expect_err("no time");
        assert!(
            error.contains("no valid time from the argument \"at\": it accepts"),
            "{error}"
        );
        assert!(
            !error.contains("soon"),
            "arguments stay out of errors: {error}"
        );
    }

    #[test]
    fn jobs_scheduled_too_far_ahead_wait_in_postgres() {
        let job = job("n", "{}");
        let at = job.scheduled_at + 1.hour();
        let stays = |ahead, now| held_until(at, Duration::from_secs(ahead), &job, now);
        let now = job.scheduled_at - 1.second();
        assert_eq!(stays(0, now), Some(at));
        assert_eq!(stays(600, now), Some(at - 10.minutes()));
        assert_eq!(stays(3601, now), None);
        assert_eq!(stays(0, at), None);
        assert_eq!(held_until(at, Duration::MAX, &job, now), None);
    }

    #[test]
    fn a_rescheduled_job_is_sent_despite_a_late_local_clock() {
        let mut late = (*job("n", "{}")).clone();
        let at = late.scheduled_at + 1.hour();
        late.scheduled_at = at;
        assert_eq!(
            held_until(at, Duration::ZERO, &late, at - 5.seconds()),
            None
        );
    }
}
