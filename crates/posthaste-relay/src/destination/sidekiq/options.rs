//! Options that a route may set on Sidekiq's jobs, and keys that it may not. Pure.

use std::fmt::{self, Write as _};

use posthaste::settings::Read;
use serde_json::Value;

use crate::message::json::put_text;

/// A value of Sidekiq's `retry` and `backtrace`: true, false, or a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ToggleOrCount {
    /// Sidekiq's number for true: 25 retries, the whole backtrace.
    All,
    /// None.
    None,
    /// This many.
    Number(u32),
}

impl From<u32> for ToggleOrCount {
    fn from(number: u32) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for ToggleOrCount {
    fn from(is_wanted: bool) -> Self {
        match is_wanted {
            true => Self::All,
            false => Self::None,
        }
    }
}

impl fmt::Display for ToggleOrCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("true"),
            Self::None => f.write_str("false"),
            Self::Number(number) => number.fmt(f),
        }
    }
}

impl Read for ToggleOrCount {
    const EXPECTED: &'static str = "true, false or a whole number";
    fn read(value: Value) -> Option<Self> {
        match value {
            Value::Bool(is_wanted) => Some(is_wanted.into()),
            number => u32::read(number).map(Self::Number),
        }
    }
}

/// Keys of a job that this module or Sidekiq writes, or that must not be strings.
const RESERVED_KEYS: [&str; 23] = [
    "args",
    "at",
    "backtrace",
    "cattr",
    "class",
    "created_at",
    "dead",
    "delivery_id",
    "discarded_at",
    "enqueued_at",
    "error_backtrace",
    "error_class",
    "error_message",
    "expires_in",
    "failed_at",
    "jid",
    "queue",
    "retried_at",
    "retry",
    "retry_count",
    "retry_for",
    "tags",
    "unique_for",
];
/// Keys among them for which a route has settings.
const KEYS_WITH_SETTINGS: [&str; 4] = ["backtrace", "dead", "retry", "tags"];

/// The options that all jobs of a route share.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) retry: Option<ToggleOrCount>,
    pub(super) backtrace: Option<ToggleOrCount>,
    pub(super) tags: Vec<String>,
    pub(super) dead: Option<bool>,
}

impl Options {
    pub(super) fn put_options(&self, job: &mut String) {
        if let Some(backtrace) = self.backtrace {
            let _ = write!(job, ",\"backtrace\":{backtrace}");
        }
        for (n, tag) in self.tags.iter().enumerate() {
            job.push_str(if n == 0 { ",\"tags\":[" } else { "," });
            put_text(job, tag);
        }
        if !self.tags.is_empty() {
            job.push(']');
        }
        if let Some(is_kept) = self.dead {
            let _ = write!(job, ",\"dead\":{is_kept}");
        }
    }
}

/// Returns why a route may not set a key of this name.
pub(super) fn header_objection(name: &str) -> Option<String> {
    RESERVED_KEYS
        .contains(&name)
        .then(|| match KEYS_WITH_SETTINGS.contains(&name) {
            true => format!("is a key that Sidekiq sets; use the route's setting {name}"),
            false => "is a key that Sidekiq sets".into(),
        })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Options, RESERVED_KEYS};
    use crate::destination::contract::Destination;
    use crate::destination::sidekiq::Sidekiq;
    use crate::destination::sidekiq::{TimeUnit, encode_job};
    use crate::message::mapping::Mapping;
    use crate::message::template::Template;
    use crate::message::tests::{ID, job};

    #[test]
    fn optional_sidekiq_fields_are_omitted_by_default() {
        let written = |options: &Options| {
            let message = Mapping::default().message(job("MailJob", "{}"), ID);
            let message = message.expect("a message");
            let at = message.job.enqueued_at;
            let job = encode_job(&message, "mail", options, TimeUnit::Seconds, at);
            serde_json::from_str::<serde_json::Value>(&job).expect("JSON")
        };
        let silent = written(&Options::default());
        for name in ["retry", "backtrace", "tags", "dead"] {
            assert!(silent.get(name).is_none(), "{silent}");
        }
        assert_eq!(
            silent["args"],
            serde_json::json!([]),
            "no arguments are none"
        );
        let job = written(&Options {
            retry: Some(false.into()),
            backtrace: Some(5.into()),
            tags: vec!["a\"b".into()],
            dead: Some(false),
        });
        assert_eq!(job["retry"], false);
        assert_eq!(job["backtrace"], 5);
        assert_eq!(job["tags"], serde_json::json!(["a\"b"]));
        assert_eq!(job["dead"], false);
    }

    #[test]
    fn scheduled_jobs_are_sent_early_only_with_explicit_retries() {
        let sidekiq = || Sidekiq::new("redis://127.0.0.1").expect("a destination");
        assert_eq!(sidekiq().max_lead_time(), Duration::ZERO);
        assert_eq!(
            sidekiq().dead(false).backtrace(5).max_lead_time(),
            Duration::ZERO
        );
        assert_eq!(sidekiq().retry(25).max_lead_time(), Duration::MAX);
        assert_eq!(sidekiq().retry(false).max_lead_time(), Duration::MAX);
    }

    #[test]
    fn sidekiq_rejects_reserved_headers_and_deep_nesting() {
        let sidekiq = Sidekiq::new("redis://127.0.0.1").expect("a destination");
        let of = |mapping: Mapping, kwargs: &str| {
            let message = mapping.message(job("MailJob", kwargs), ID);
            sidekiq.rejection_reason(&message.expect("a message"))
        };
        assert_eq!(of(Mapping::default(), "{}"), None);
        let mapping = Mapping::default().header("locale", Template::text("de"));
        assert_eq!(of(mapping, "{}"), None);
        for name in RESERVED_KEYS {
            let mapping = Mapping::default().header(name, Template::text("1"));
            let error = of(mapping, "{}").expect(name);
            assert!(
                error.contains(&format!("the header {name:?} is a key")),
                "{error}"
            );
        }
        let mapping = Mapping::default().kind(Template::text(" "));
        assert!(of(mapping, "{}").is_some());
        let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let deep = |depth: usize| format!(r#"{{"a": {}}}"#, deep(depth - 1));
        assert_eq!(of(Mapping::default(), &deep(98)), None);
        let error = of(Mapping::default(), &deep(99)).expect("too deep");
        assert!(error.contains("99 levels deep"), "{error}");
    }
}
