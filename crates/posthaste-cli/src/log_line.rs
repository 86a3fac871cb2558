//! Lines of the log: text, or one JSON document each.

use anyhow::bail;
use jiff::Timestamp;
use posthaste_observe::format::escape_controls_in_json;
use serde::Serialize;
use serde_json::{Map, Value};
use tracing::Level;

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Json,
}

impl Format {
    /// Reads `POSTHASTE_LOG_FORMAT`.
    pub(crate) fn from_env() -> anyhow::Result<Self> {
        Ok(match env_or_empty("POSTHASTE_LOG_FORMAT")?.as_str() {
            "" | "text" => Self::Text,
            "json" => Self::Json,
            _ => bail!("POSTHASTE_LOG_FORMAT must be 'text' or 'json'"),
        })
    }
}

/// Reads an environment variable; empty if it is not set, because environment files leave values
/// empty.
pub(crate) fn env_or_empty(name: &str) -> anyhow::Result<String> {
    match std::env::var(name) {
        Ok(value) => Ok(value),
        Err(std::env::VarError::NotPresent) => Ok(String::new()),
        Err(std::env::VarError::NotUnicode(_)) => bail!("{name} is not UTF-8"),
    }
}

/// Returns a line that reports dropped lines.
pub(crate) fn dropped_lines(lines: u64, message: &str) -> String {
    let mut fields = Map::new();
    fields.insert("left_out".to_owned(), lines.into());
    event_line(Level::WARN, "posthaste", message, &fields)
}

/// Returns a line without an event.
pub(crate) fn line_without_event(level: Level, message: &str) -> String {
    event_line(level, "posthaste", message, &Map::new())
}

pub(crate) fn event_line(
    level: Level,
    target: &str,
    message: &str,
    fields: &Map<String, Value>,
) -> String {
    /// A line with its fields in the order of reading.
    #[derive(Serialize)]
    struct LogLine<'a> {
        timestamp: String,
        level: &'a str,
        message: &'a str,
        target: &'a str,
        #[serde(flatten)]
        fields: &'a Map<String, Value>,
    }
    let now = Timestamp::now();
    let line = LogLine {
        timestamp: now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
        level: match level {
            Level::ERROR => "error",
            Level::WARN => "warn",
            Level::INFO => "info",
            Level::DEBUG => "debug",
            Level::TRACE => "trace",
        },
        message,
        target,
        fields,
    };
    // Strings and numbers can always be serialized.
    escape_controls_in_json(&serde_json::to_string(&line).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_are_single_json_documents() {
        let mut fields = Map::new();
        fields.insert("queue".to_owned(), "a\nb\u{9b}\"".into());
        let written = event_line(Level::WARN, "posthaste::x", "two\nlines", &fields);
        assert!(!written.chars().any(char::is_control), "{written}");
        let read: Value = serde_json::from_str(&written).unwrap();
        assert_eq!(read["level"], "warn");
        assert_eq!(read["message"], "two\nlines");
        assert_eq!(read["queue"], "a\nb\u{9b}\"");
        let timestamp = read["timestamp"].as_str().unwrap();
        assert!(timestamp.parse::<Timestamp>().is_ok(), "{timestamp}");
    }
}
