//! The meaning of an answer that is not a success. No IO and no clock.

use serde::Deserialize;
use serde_json::Value;

use crate::ErrorKind;
use crate::error::quote_error;

/// The error in a server's answer: an object or, for some calls, a line of text.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum ErrorBody {
    Object {
        #[serde(rename = "type", default)]
        named: String,
        #[serde(default)]
        reason: Option<String>,
        #[serde(default)]
        caused_by: Option<Value>,
    },
    Line(String),
}

impl ErrorBody {
    pub(super) fn error_type(&self) -> &str {
        match self {
            Self::Object { named, .. } => named,
            Self::Line(_) => "",
        }
    }

    /// Returns one line: the type, the reason, and the root cause.
    pub(super) fn to_line(&self) -> String {
        match self {
            Self::Line(line) => quote_error(line),
            Self::Object {
                named,
                reason,
                caused_by,
            } => {
                let parts = [
                    Some(named.as_str()).filter(|named| !named.is_empty()),
                    reason.as_deref(),
                    caused_by.as_ref().and_then(root_cause),
                ];
                let parts: Vec<String> = parts.into_iter().flatten().map(quote_error).collect();
                parts.join(": ")
            }
        }
    }
}

fn root_cause(mut cause: &Value) -> Option<&str> {
    while let Some(deeper) = cause.get("caused_by") {
        cause = deeper;
    }
    cause.get("reason")?.as_str()
}

/// Returns the outcome of the call and the reason for it.
pub(super) fn interpret_error(status: u16, body: &[u8]) -> (ErrorKind, String) {
    let error = parse_error(body);
    let kind = ErrorKind::from_status(status, error.as_ref().map_or("", ErrorBody::error_type));
    let reason = match error {
        Some(error) => format!("HTTP status {status}: {}", error.to_line()),
        // The body is that of a proxy, whose error page contains nothing helpful.
        None => format!("HTTP status {status}"),
    };
    (kind, reason)
}

pub(super) fn parse_error(body: &[u8]) -> Option<ErrorBody> {
    #[derive(Deserialize)]
    struct Body {
        error: ErrorBody,
    }
    let body: Body = serde_json::from_slice(body).ok()?;
    Some(body.error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_show_type_reason_and_root_cause() {
        let body = br#"{"error":{"root_cause":[],"type":"illegal_argument_exception",
            "reason":"failed to execute script","caused_by":{"type":"x","reason":"y",
            "caused_by":{"type":"resource_not_found_exception",
            "reason":"unable to find script [nope]"}}},"status":400}"#;
        let (kind, reason) = interpret_error(400, body);
        assert_eq!(kind, ErrorKind::Refused);
        assert_eq!(
            reason,
            "HTTP status 400: illegal_argument_exception: failed to execute script: \
             unable to find script [nope]"
        );
    }

    #[test]
    fn plain_text_and_proxy_error_pages_are_accepted() {
        let body = br#"{"error":"alias [a] missing","status":404}"#;
        let expected = "HTTP status 404: alias [a] missing".to_owned();
        assert_eq!(interpret_error(404, body), (ErrorKind::Missing, expected));
        let (kind, reason) = interpret_error(502, b"<html>Bad gateway</html>");
        assert_eq!(
            (kind, &*reason),
            (ErrorKind::Unavailable, "HTTP status 502")
        );
    }
}
