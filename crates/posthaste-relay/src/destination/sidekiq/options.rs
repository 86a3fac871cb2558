//! What a route may say of Sidekiq's jobs beside their calls, and what it may not. Pure.

use std::fmt::{self, Write as _};

use posthaste::settings::Read;
use serde_json::Value;

use crate::message::json::put_text;

/// What Sidekiq takes for `retry` and `backtrace`: yes, no, or how many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HowMany {
    /// As many as Sidekiq has for a yes: 25 retries, the whole backtrace.
    All,
    /// None.
    None,
    /// This many.
    Number(u32),
}

impl From<u32> for HowMany {
    fn from(number: u32) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for HowMany {
    fn from(is_wanted: bool) -> Self {
        match is_wanted {
            true => Self::All,
            false => Self::None,
        }
    }
}

impl fmt::Display for HowMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("true"),
            Self::None => f.write_str("false"),
            Self::Number(number) => number.fmt(f),
        }
    }
}

impl Read for HowMany {
    const WHAT: &'static str = "true, false or a whole number";
    fn read(value: Value) -> Option<Self> {
        match value {
            Value::Bool(is_wanted) => Some(is_wanted.into()),
            number => u32::read(number).map(Self::Number),
        }
    }
}

/// Keys of a job that this writes, that Sidekiq writes, or that must be no text.
const OWN: [&str; 23] = [
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
/// Those of them that a route has settings for.
const SETTINGS: [&str; 4] = ["backtrace", "dead", "retry", "tags"];

/// What is said of all jobs.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) retry: Option<HowMany>,
    pub(super) backtrace: Option<HowMany>,
    pub(super) tags: Vec<String>,
    pub(super) dead: Option<bool>,
}

impl Said {
    pub(super) fn put(&self, job: &mut String) {
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

/// Why a job has no key of this name from a route.
pub(super) fn rejects_header(name: &str) -> Option<String> {
    OWN.contains(&name).then(|| match SETTINGS.contains(&name) {
        true => format!("is a key of Sidekiq's own format; the route's setting {name} says it"),
        false => "is a key of Sidekiq's own format".into(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{OWN, Said};
    use crate::destination::contract::Destination;
    use crate::destination::sidekiq::Sidekiq;
    use crate::destination::sidekiq::{Times, encode};
    use crate::message::mapping::Mapping;
    use crate::message::template::Template;
    use crate::message::tests::{ID, job};

    #[test]
    fn of_retries_and_the_like_nothing_is_said_unless_it_is_said_here() {
        let written = |said: &Said| {
            let message = Mapping::default().message(job("MailJob", "{}"), ID);
            let message = message.expect("a message");
            let at = message.job.enqueued_at;
            let job = encode(&message, "mail", said, Times::Seconds, at);
            serde_json::from_str::<serde_json::Value>(&job).expect("JSON")
        };
        let silent = written(&Said::default());
        for name in ["retry", "backtrace", "tags", "dead"] {
            assert!(silent.get(name).is_none(), "{silent}");
        }
        assert_eq!(
            silent["args"],
            serde_json::json!([]),
            "no arguments are none"
        );
        let said = written(&Said {
            retry: Some(false.into()),
            backtrace: Some(5.into()),
            tags: vec!["a\"b".into()],
            dead: Some(false),
        });
        assert_eq!(said["retry"], false);
        assert_eq!(said["backtrace"], 5);
        assert_eq!(said["tags"], serde_json::json!(["a\"b"]));
        assert_eq!(said["dead"], false);
    }

    #[test]
    fn a_job_for_later_is_handed_over_ahead_only_if_its_retries_are_said_here() {
        let sidekiq = || Sidekiq::new("redis://127.0.0.1").expect("a destination");
        assert_eq!(sidekiq().ahead(), Duration::ZERO);
        assert_eq!(sidekiq().dead(false).backtrace(5).ahead(), Duration::ZERO);
        assert_eq!(sidekiq().retry(25).ahead(), Duration::MAX);
        assert_eq!(sidekiq().retry(false).ahead(), Duration::MAX);
    }

    #[test]
    fn no_header_takes_the_place_of_a_key_and_what_ruby_cannot_read_is_refused() {
        let sidekiq = Sidekiq::new("redis://127.0.0.1").expect("a destination");
        let of = |mapping: Mapping, kwargs: &str| {
            let message = mapping.message(job("MailJob", kwargs), ID);
            sidekiq.rejects(&message.expect("a message"))
        };
        assert_eq!(of(Mapping::default(), "{}"), None);
        let mapping = Mapping::default().header("locale", Template::text("de"));
        assert_eq!(of(mapping, "{}"), None);
        for name in OWN {
            let mapping = Mapping::default().header(name, Template::text("1"));
            let said = of(mapping, "{}").expect(name);
            assert!(
                said.contains(&format!("the header {name:?} is a key")),
                "{said}"
            );
        }
        let mapping = Mapping::default().kind(Template::text(" "));
        assert!(of(mapping, "{}").is_some());
        let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let deep = |depth: usize| format!(r#"{{"a": {}}}"#, deep(depth - 1));
        assert_eq!(of(Mapping::default(), &deep(98)), None);
        let said = of(Mapping::default(), &deep(99)).expect("too deep");
        assert!(said.contains("99 deep"), "{said}");
    }
}
