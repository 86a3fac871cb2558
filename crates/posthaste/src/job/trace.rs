//! The trace context of a job: its validation and its two parts.

use super::Job;
use crate::error::Error;

/// The largest trace context, in bytes.
const MAX_BYTES: usize = 600;
/// Length of a `traceparent` of version 00, in bytes.
const TRACEPARENT_BYTES: usize = 55;

impl Job {
    /// Returns the `traceparent` of the job's trace context. `None` for a job without one, and if a
    /// role that may write rows of the store wrote an invalid one.
    pub fn traceparent(&self) -> Option<&str> {
        split_trace(self.trace.as_deref()?).map(|(parent, _)| parent)
    }

    /// Returns the `tracestate` of the job's trace context, if it has one; never without a
    /// [`traceparent`](Self::traceparent).
    pub fn tracestate(&self) -> Option<&str> {
        split_trace(self.trace.as_deref()?)?.1
    }
}

impl Job {
    /// Returns both parts with their names in W3C Trace Context.
    #[cfg(any(feature = "exec", feature = "http"))]
    pub(crate) fn trace_headers(&self) -> [(&'static str, Option<&str>); 2] {
        let read = self.trace.as_deref().and_then(split_trace);
        [
            ("traceparent", read.map(|(parent, _)| parent)),
            ("tracestate", read.and_then(|(_, state)| state)),
        ]
    }
}

pub(super) fn check(trace: &str) -> Result<(), Error> {
    let problem = match trace.len() {
        ..=MAX_BYTES if split_trace(trace).is_some() => return Ok(()),
        ..=MAX_BYTES => {
            "must be a traceparent of version 00, with a space and a tracestate or without".into()
        }
        _ => format!("must have at most {MAX_BYTES} bytes"),
    };
    Err(Error::invalid("trace", problem))
}

/// Splits a trace context into its parts. Accepts the same text as posthaste.is_valid
/// (sql/functions/checks.sql).
fn split_trace(trace: &str) -> Option<(&str, Option<&str>)> {
    let (parent, rest) = trace.split_at_checked(TRACEPARENT_BYTES)?;
    let is_parent = parent.starts_with("00-") && is_traceparent(parent);
    let is_state = |state: &str| {
        let is_visible = |byte: u8| (b'!'..=b'~').contains(&byte);
        state.bytes().all(|byte| byte == b' ' || is_visible(byte))
            && state.bytes().next().is_some_and(is_visible)
            && state.bytes().last().is_some_and(is_visible)
    };
    let state = match rest {
        "" => None,
        _ => Some(rest.strip_prefix(' ').filter(|state| is_state(state))?),
    };
    is_parent.then_some((parent, state))
}

/// Whether this is a `traceparent` of W3C Trace Context: version, trace, span and flags.
pub fn is_traceparent(value: &str) -> bool {
    let mut parts = value.split('-');
    let is_hex = |part: Option<&str>, digits: usize| {
        part.is_some_and(|part| {
            part.len() == digits
                && part
                    .bytes()
                    .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        })
    };
    is_hex(parts.next(), 2)
        && is_hex(parts.next(), 32)
        && is_hex(parts.next(), 16)
        && is_hex(parts.next(), 2)
        && parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::{check, split_trace};

    const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_trace_has_a_traceparent_and_an_optional_tracestate() {
        assert_eq!(split_trace(TRACEPARENT), Some((TRACEPARENT, None)));
        let both = format!("{TRACEPARENT} a=1, b=2");
        assert_eq!(split_trace(&both), Some((TRACEPARENT, Some("a=1, b=2"))));
        let longest = format!("{TRACEPARENT} {}", "s".repeat(600 - 56));
        assert!(check(&longest).is_ok());
        for wrong in [
            String::new(),
            TRACEPARENT.to_uppercase(),
            TRACEPARENT.replace("00-4", "01-4"),
            TRACEPARENT.replace('-', "_"),
            TRACEPARENT.replace("4bf", "\u{e4}f"),
            format!("{TRACEPARENT} "),
            format!("{TRACEPARENT}  a=1"),
            format!("{TRACEPARENT} a=1 "),
            format!("{TRACEPARENT}\na=1"),
            format!("{TRACEPARENT} a=\u{e4}"),
            format!("{TRACEPARENT}-a"),
            format!(" {TRACEPARENT}"),
            format!("{longest}s"),
        ] {
            let error = check(&wrong).expect_err(&wrong).to_string();
            assert!(error.starts_with("trace: "), "{error}");
        }
    }
}
