//! Messages to NATS and answers of JetStream. Pure.

use std::time::Duration;

use async_nats::{HeaderName, HeaderValue};
use serde::Deserialize;

use crate::destination::answer::Answer;
use crate::destination::contract::UnsafeSetting;
use crate::destination::reason::{Failure, Reason};
use crate::destination::retention::check_retention;

/// The size of a header block without its lines: the version, and an empty line.
pub(super) const EMPTY_HEADER_BYTES: usize = "NATS/1.0\r\n\r\n".len();

/// The longest subject, in bytes.
const MAX_SUBJECT_BYTES: usize = 1_024;

/// Codes of errors that affect any message: JetStream lacks a resource, or is overloaded.
const OVERLOAD_CODES: [u16; 2] = [503, 429];
/// Codes for an account and a server whose streams have no more memory or disk.
const FULL_CODES: [u32; 3] = [10_002, 10_028, 10_047];
/// The code for a message that is too large.
const TOO_LARGE_CODE: u32 = 10_054;

/// The most violations that are remembered per connection.
const MAX_VIOLATIONS: usize = 100;

/// A permission that the account lacks, in the server's words.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Violation {
    /// The subject that it may not publish to; `None`: it may not subscribe, and receives no
    /// answers.
    subject: Option<String>,
    text: String,
}

/// Parses an error of the server that answers no request; `None` unless it concerns a permission.
pub(super) fn parse_violation(text: &str) -> Option<Violation> {
    let text = text.strip_prefix("nats: ").unwrap_or(text);
    let (_, of) = text.split_once("Permissions Violation for ")?;
    let quoted = of.split('"').nth(1);
    let subject = match of.starts_with("Publish") {
        true => Some(quoted?.to_owned()),
        false => None,
    };
    let text = text.to_owned();
    Some(Violation { subject, text })
}

/// Adds a violation once; returns whether it is new. The oldest is forgotten.
pub(super) fn add_violation(known: &mut Vec<Violation>, violation: Option<Violation>) -> bool {
    let Some(violation) = violation.filter(|one| !known.contains(one)) else {
        return false;
    };
    if known.len() >= MAX_VIOLATIONS {
        known.remove(0);
    }
    known.push(violation);
    true
}

/// Returns why a request to a subject will get no answer.
pub(super) fn denial_reason(known: &[Violation], subject: &str) -> Option<Reason> {
    let is_about = |one: &&Violation| one.subject.as_deref().is_none_or(|of| of == subject);
    let violation = known.iter().rev().find(is_about)?;
    let reason = format!("NATS: {}; grant it to the account", violation.text);
    Some(Reason::new(Failure::Auth, reason))
}

/// Encodes a header; returns it with its length in the block.
pub(super) fn encode_header(name: &str, value: &str) -> Option<(HeaderName, HeaderValue, usize)> {
    let length = name.len() + value.len() + ": \r\n".len();
    Some((name.parse().ok()?, value.parse().ok()?, length))
}

/// Returns why a route may not set a header of this name: another id would defeat the detection of
/// duplicates.
pub(super) fn header_objection(name: &str) -> Option<String> {
    let is = |own: &str| name.eq_ignore_ascii_case(own);
    if is("Nats-Expected-Stream") {
        return Some("is set by the relay; use the route's setting stream".into());
    }
    is("Nats-Msg-Id").then(|| "is set to the delivery id".into())
}

/// Returns why a message cannot be published to this subject.
pub(super) fn subject_problem(subject: &str) -> Option<&'static str> {
    // A line of the protocol has at most 4,096 bytes; a longer one closes the connection.
    if subject.len() > MAX_SUBJECT_BYTES {
        return Some("is longer than 1,024 bytes");
    }
    let is_wild = |token: &str| token == "*" || token == ">";
    if subject.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Some("contains a blank");
    }
    if subject.split('.').any(str::is_empty) {
        return Some("has an empty token");
    }
    subject
        .split('.')
        .any(is_wild)
        .then_some("contains a wildcard")
}

/// An answer of JetStream to any request.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Reply {
    /// The stream that stored a message.
    stream: String,
    error: Option<ApiError>,
    /// Names of streams.
    #[serde(deserialize_with = "deserialize_names")]
    pub(super) streams: Vec<String>,
    config: StreamConfig,
    state: StreamState,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ApiError {
    code: u16,
    err_code: u32,
    description: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StreamConfig {
    storage: String,
    discard: String,
    max_msgs: i64,
    max_bytes: i64,
    /// The duplicate window, in nanoseconds.
    duplicate_window: u64,
    no_ack: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StreamState {
    messages: u64,
    bytes: u64,
}

/// Reads a list of names; an empty list is sent as null.
fn deserialize_names<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    // The statistics of an account have a number of this name.
    let names = serde_json::Value::deserialize(from)?;
    let names = names.as_array().into_iter().flatten();
    Ok(names
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect())
}

impl Reply {
    pub(super) fn parse(payload: &[u8]) -> Self {
        serde_json::from_slice(payload).unwrap_or_default()
    }

    pub(super) fn check_error(&self) -> Result<(), String> {
        match &self.error {
            None => Ok(()),
            Some(error) => Err(describe_error(error)),
        }
    }

    /// Returns whether the stream would refuse a message of this many bytes. A stream that drops
    /// old messages for new ones is never full.
    pub(super) fn is_full(&self, bytes: u64) -> bool {
        let (config, state) = (&self.config, &self.state);
        let is_beyond = |amount: u64, limit: i64| {
            u64::try_from(limit).is_ok_and(|limit| limit > 0 && amount > limit)
        };
        config.discard == "new"
            && (is_beyond(state.messages + 1, config.max_msgs)
                || is_beyond(state.bytes + bytes, config.max_bytes))
    }

    /// Returns the settings with which the stream may lose acknowledged messages, or store them
    /// twice.
    pub(super) fn unsafe_settings(
        &self,
        longest_outage: Duration,
    ) -> Result<Vec<UnsafeSetting>, String> {
        self.check_error()?;
        let mut unsafe_settings = Vec::new();
        let mut weak = |setting: &str, lost: String| {
            let setting = setting.into();
            unsafe_settings.push(UnsafeSetting { setting, lost });
        };
        if self.config.storage == "memory" {
            let lost = "is \"memory\", so a restart of NATS loses messages that it has \
                        acknowledged; set it to file";
            weak("storage", lost.into());
        }
        if self.config.no_ack {
            let lost = "is true, so the relay cannot know whether the stream has a message; set \
                        it to \
                 false";
            weak("no_ack", lost.into());
        }
        let window = Duration::from_nanos(self.config.duplicate_window);
        unsafe_settings.extend(check_retention("duplicate_window", window, longest_outage));
        Ok(unsafe_settings)
    }
}

/// Returns the unsafe setting of a stream whose settings are unknown.
pub(super) fn unknown_stream_setting() -> UnsafeSetting {
    UnsafeSetting {
        setting: "stream".into(),
        lost: "is not named, so its storage and duplicate_window cannot be checked; name it".into(),
    }
}

/// Returns the answer to a message, and whether a stream was full.
pub(super) fn answer_from_reply(payload: &[u8]) -> (Answer, bool) {
    let reply = Reply::parse(payload);
    match &reply.error {
        None if !reply.stream.is_empty() => (Answer::Accepted, false),
        None => {
            let reason = "no stream acknowledged it";
            (Answer::retry(Reason::new(Failure::NoRoute, reason)), false)
        }
        Some(error) if error.err_code == TOO_LARGE_CODE => {
            let reason = Reason::new(Failure::TooLarge, describe_error(error));
            (Answer::rejected(reason), false)
        }
        Some(error)
            if OVERLOAD_CODES.contains(&error.code) || FULL_CODES.contains(&error.err_code) =>
        {
            (Answer::backpressure(describe_error(error)), true)
        }
        Some(error) => (Answer::retry(describe_error(error)), false),
    }
}

fn describe_error(error: &ApiError) -> String {
    format!("NATS: {} ({})", error.description, error.err_code)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::{Reply, answer_from_reply, subject_problem};
    use crate::destination::answer::Answer;
    use crate::destination::reason::{Failure, Reason};

    #[test]
    fn duplicates_are_accepted_and_replies_of_other_services_retried() {
        let of = |reply: Value| answer_from_reply(reply.to_string().as_bytes());
        assert_eq!(
            of(json!({"stream": "S", "seq": 1})),
            (Answer::Accepted, false)
        );
        let again = json!({"stream": "S", "seq": 1, "duplicate": true});
        assert_eq!(of(again), (Answer::Accepted, false));
        assert!(matches!(
            answer_from_reply(b"pong"),
            (Answer::Retry { .. }, false)
        ));
        assert!(matches!(
            answer_from_reply(b"{}"),
            (Answer::Retry { .. }, false)
        ));
    }

    #[test]
    fn message_errors_are_distinguished_from_stream_errors() {
        let of = |code: u16, err_code: u32| {
            let error = json!({"code": code, "err_code": err_code, "description": "d"});
            answer_from_reply(json!({ "error": error }).to_string().as_bytes())
        };
        let too_large = Reason::new(Failure::TooLarge, "NATS: d (10054)");
        assert_eq!(of(400, 10054), (Answer::rejected(too_large), false));
        for (code, err_code) in [(503, 10077), (400, 10002), (429, 10167)] {
            let (answer, is_full) = of(code, err_code);
            assert!(
                matches!(answer, Answer::Backpressure { .. }) && is_full,
                "{err_code}"
            );
        }
        assert!(matches!(of(400, 10060), (Answer::Retry { .. }, false)));
    }

    fn stream(config: Value, state: Value) -> Reply {
        Reply::parse(
            json!({"config": config, "state": state})
                .to_string()
                .as_bytes(),
        )
    }

    #[test]
    fn only_streams_that_reject_new_messages_count_as_full() {
        let full = |discard: &str, most: i64, bytes: i64| {
            let config = json!({"discard": discard, "max_msgs": most, "max_bytes": bytes});
            stream(config, json!({"messages": 10, "bytes": 1000})).is_full(100)
        };
        assert!(full("new", 10, -1) && full("new", -1, 1099));
        assert!(!full("old", 10, 1000) && !full("new", 11, 1100) && !full("new", -1, -1));
    }

    #[test]
    fn unsafe_stream_settings_are_reported() {
        let weak = |storage: &str, seconds: u64| {
            let config = json!({"storage": storage, "duplicate_window": seconds * 1_000_000_000});
            let unsafe_settings =
                stream(config, json!({})).unsafe_settings(Duration::from_secs(24 * 3600));
            let unsafe_settings = unsafe_settings.expect("a stream").into_iter();
            unsafe_settings.map(|one| one.setting).collect::<Vec<_>>()
        };
        assert_eq!(weak("file", 24 * 3600), Vec::<String>::new());
        assert_eq!(weak("memory", 120), ["storage", "duplicate_window"]);
    }

    #[test]
    fn invalid_subjects_and_reserved_headers_are_reported() {
        for good in ["mail", "mail.sent", "a.b*c.>d"] {
            assert_eq!(subject_problem(good), None, "{good}");
        }
        for bad in ["", ".", "a..b", "a.", "a b", "a.*", "a.>", "a\r\nPUB b"] {
            assert!(subject_problem(bad).is_some(), "{bad:?}");
        }
        assert!(subject_problem(&"x".repeat(1_025)).is_some());
        for own in ["Nats-Msg-Id", "nats-msg-id", "Nats-Expected-Stream"] {
            assert!(super::header_objection(own).is_some(), "{own}");
        }
        assert_eq!(super::header_objection("Nats-TTL"), None);
    }
}
