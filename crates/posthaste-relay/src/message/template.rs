//! Texts with placeholders that are filled from a job: `jobs.{name}`, `mail.{kwargs.to.domain}`.
//! Pure.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;

use posthaste::Error;
use serde_json::value::RawValue;

use crate::message::json::{is_json_value, put_text};
use crate::message::outbox::OutboxJob;

/// A text with placeholders that are filled from a job.
///
/// | placeholder | value |
/// |---|---|
/// | `{id}` | the delivery id |
/// | `{job_id}` `{name}` `{queue}` `{priority}` `{tag}` `{attempt}` | the job's |
/// | `{unique_key}` `{ordering_key}` | the job's, empty without one |
/// | `{enqueued_at}` `{scheduled_at}` `{expires_at}` | RFC 3339, in UTC |
/// | `{kwargs}` | all arguments, as JSON; the unchanged payload if it came by `posthaste.outbox` |
/// | `{kwargs.to.address}` | one argument: a string without quotes, any other value as JSON |
/// | `{json:kwargs.to.address}` `{json:name}` and so on | always JSON, so a string has quotes |
///
/// `{{` and `}}` stand for braces. A job that lacks a named argument is rejected permanently. Build
/// a JSON payload from `{json:…}` alone: the value of any other placeholder may contain quotes.
///
/// ```
/// use posthaste_relay::Template;
/// assert!(Template::parse("mail.{kwargs.kind}").is_ok());
/// assert!(Template::parse("mail.{colour}").is_err());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    Field { field: Field, as_json: bool },
    Argument { path: Vec<String>, as_json: bool },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Field {
    Id,
    JobId,
    Name,
    Queue,
    Priority,
    Tag,
    Attempt,
    UniqueKey,
    OrderingKey,
    EnqueuedAt,
    ScheduledAt,
    ExpiresAt,
}

impl Template {
    /// Parses a template; the error names what cannot be filled.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::parse_secret(text)
            .map_err(|reason| Error::invalid("template", format!("{reason}, in {text:?}")))
    }

    /// As [`parse`](Self::parse); the error does not repeat the text, which may be a secret.
    pub(crate) fn parse_secret(text: &str) -> Result<Self, String> {
        parse_parts(text).map(Self)
    }

    /// Creates a template without placeholders.
    pub fn text(text: impl Into<String>) -> Self {
        Self(vec![Part::Text(text.into())])
    }

    /// Creates the template of the job's name.
    pub(crate) fn job_name() -> Self {
        let (field, as_json) = (Field::Name, false);
        Self(vec![Part::Field { field, as_json }])
    }

    /// Returns whether it is exactly `{kwargs}`, the default payload.
    pub(crate) fn is_whole_payload(&self) -> bool {
        matches!(&self.0[..], [Part::Argument { path, as_json: false }] if path.is_empty())
    }

    /// Returns the names of the arguments that it is filled from.
    pub(crate) fn argument_names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Argument { path, .. } => path.first().map(String::as_str),
            _ => None,
        })
    }

    /// Returns a placeholder that two jobs with the same arguments may fill differently.
    pub(crate) fn per_job_placeholder(&self) -> Option<&'static str> {
        self.0.iter().find_map(|part| match part {
            Part::Field { field, .. } => match field {
                Field::JobId => Some("{job_id}"),
                Field::Attempt => Some("{attempt}"),
                Field::ScheduledAt => Some("{scheduled_at}"),
                Field::ExpiresAt => Some("{expires_at}"),
                _ => None,
            },
            _ => None,
        })
    }

    /// Fills it from this job. The error names the missing argument.
    pub(crate) fn fill(&self, outgoing: &OutboxJob) -> Result<String, String> {
        let mut filled = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => filled.push_str(text),
                Part::Field { field, as_json } if *as_json && !field.is_number() => {
                    let mut text = String::new();
                    put_field(&mut text, *field, outgoing);
                    put_text(&mut filled, &text);
                }
                Part::Field { field, .. } => put_field(&mut filled, *field, outgoing),
                Part::Argument { path, as_json } => {
                    let kwargs = outgoing.job.kwargs_json();
                    let is_text = || outgoing.bytes.is_some() || !is_json_value(kwargs);
                    match path.is_empty() && *as_json && is_text() {
                        true => put_text(&mut filled, kwargs),
                        false => filled.push_str(&find_argument(kwargs, path, *as_json)?),
                    }
                }
            }
        }
        Ok(filled)
    }
}

impl Field {
    fn is_number(self) -> bool {
        matches!(self, Self::JobId | Self::Priority | Self::Attempt)
    }
}

fn put_field(filled: &mut String, field: Field, OutboxJob { job, id, .. }: &OutboxJob) {
    // Writing to a string cannot fail.
    let _ = match field {
        Field::Id => write!(filled, "{id}"),
        Field::JobId => write!(filled, "{}", job.id),
        Field::Name => write!(filled, "{}", job.name),
        Field::Queue => write!(filled, "{}", job.queue),
        Field::Priority => write!(filled, "{}", job.priority),
        Field::Tag => write!(filled, "{}", job.tag),
        Field::Attempt => write!(filled, "{}", job.attempt),
        Field::UniqueKey => write!(filled, "{}", job.unique_key.as_deref().unwrap_or("")),
        Field::OrderingKey => write!(filled, "{}", job.ordering_key.as_deref().unwrap_or("")),
        Field::EnqueuedAt => write!(filled, "{}", job.enqueued_at),
        Field::ScheduledAt => write!(filled, "{}", job.scheduled_at),
        Field::ExpiresAt => write!(filled, "{}", job.expires_at),
    };
}

fn parse_parts(text: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        plain.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        if rest[at + 1..].starts_with(brace) {
            plain.push_str(brace);
            rest = &rest[at + 2..];
            continue;
        }
        if brace == "}" {
            return Err("a } without an opening {".into());
        }
        let end = rest[at..].find('}').ok_or("a { without a closing }")? + at;
        if !plain.is_empty() {
            parts.push(Part::Text(std::mem::take(&mut plain)));
        }
        parts.push(parse_placeholder(&rest[at + 1..end])?);
        rest = &rest[end + 1..];
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        parts.push(Part::Text(plain));
    }
    Ok(parts)
}

fn parse_placeholder(name: &str) -> Result<Part, String> {
    let (as_json, path) = match name.strip_prefix("json:") {
        Some(path) => (true, path),
        None => (false, name),
    };
    if path == "kwargs" || path.starts_with("kwargs.") {
        let path = path.split('.').skip(1).map(str::to_owned).collect();
        return Ok(Part::Argument { path, as_json });
    }
    let field = match path {
        "id" => Field::Id,
        "job_id" => Field::JobId,
        "name" => Field::Name,
        "queue" => Field::Queue,
        "priority" => Field::Priority,
        "tag" => Field::Tag,
        "attempt" => Field::Attempt,
        "unique_key" => Field::UniqueKey,
        "ordering_key" => Field::OrderingKey,
        "enqueued_at" => Field::EnqueuedAt,
        "scheduled_at" => Field::ScheduledAt,
        "expires_at" => Field::ExpiresAt,
        _ => return Err(format!("{{{name}}} is not a known placeholder")),
    };
    Ok(Part::Field { field, as_json })
}

/// Finds one argument step by step. Numbers keep all digits that were written.
pub(crate) fn find_argument<'a>(
    kwargs: &'a str,
    path: &[String],
    as_json: bool,
) -> Result<Cow<'a, str>, String> {
    let mut found = kwargs;
    for step in path {
        let fields: HashMap<Cow<str>, &RawValue> =
            serde_json::from_str(found).map_err(|_| missing_argument(path))?;
        found = fields
            .get(step.as_str())
            .map(|value| value.get())
            .ok_or_else(|| missing_argument(path))?;
    }
    if !as_json && !path.is_empty() && found.starts_with('"') {
        return serde_json::from_str(found).map_err(|error| error.to_string());
    }
    Ok(Cow::Borrowed(found))
}

fn missing_argument(path: &[String]) -> String {
    format!("the job has no argument {:?}", path.join("."))
}

#[cfg(test)]
mod tests {
    use super::Template;
    use crate::message::outbox;
    use crate::message::tests::{ID, job};

    fn filled_for(template: &str, name: &str, kwargs: &str) -> Result<String, String> {
        let template = Template::parse(template).map_err(|error| error.to_string())?;
        template.fill(&outbox::unwrap_envelope(job(name, kwargs), ID)?)
    }

    fn filled(template: &str, kwargs: &str) -> Result<String, String> {
        filled_for(template, "mail.send", kwargs)
    }

    #[test]
    fn placeholders_are_filled_from_the_job() {
        assert_eq!(
            filled("{queue}/{name}!{tag}", "{}"),
            Ok("mail/mail.send!signup".into())
        );
        assert_eq!(filled("{{{name}}}", "{}"), Ok("{mail.send}".into()));
        assert_eq!(filled("", "{}"), Ok(String::new()));
        let at = filled("{scheduled_at}", "{}").expect("filled");
        assert_eq!(at, "2026-11-21T10:00:00Z");
    }

    #[test]
    fn arguments_keep_their_exact_text_and_digits() {
        let kwargs = r#"{"to": {"a": "ü\"n"}, "n": 123456789012345678901234567890, "l": [1, 2]}"#;
        assert_eq!(filled("{kwargs.to.a}", kwargs), Ok("ü\"n".into()));
        assert_eq!(filled("{json:kwargs.to.a}", kwargs), Ok(r#""ü\"n""#.into()));
        assert_eq!(
            filled("{kwargs.n} {kwargs.l}", kwargs),
            Ok("123456789012345678901234567890 [1, 2]".into())
        );
        assert_eq!(filled("{kwargs}", "{\"a\": 1}"), Ok("{\"a\": 1}".into()));
    }

    #[test]
    fn missing_and_unfillable_placeholders_are_refused_by_name() {
        let missing = filled("{kwargs.to.b}", r#"{"to": {}}"#).expect_err("missing");
        assert!(missing.contains("to.b"), "{missing}");
        for template in [
            "{colour}",
            "{name",
            "name}",
            "{json:colour}",
            "{json:}",
            "{}",
        ] {
            assert!(filled(template, "{}").is_err(), "{template}");
        }
    }

    #[test]
    fn json_placeholders_always_render_one_value() {
        let name = "a\",\"b\":\"\u{1}";
        let json = r#"{{"name": {json:name}, "n": {json:priority}, "all": {json:kwargs},
            "at": {json:enqueued_at}}}"#;
        for (kwargs, all) in [
            (r#"{"a": 1}"#, serde_json::json!({"a": 1})),
            (
                concat!(
                    r#"{"posthaste.outbox": {"id": "01900000-0000-7000-8000-00000000002a", "#,
                    r#""text": "1},{"}}"#
                ),
                serde_json::json!("1},{"),
            ),
            (
                concat!(
                    r#"{"posthaste.outbox": {"id": "01900000-0000-7000-8000-00000000002a", "#,
                    r#""hex": "8812"}}"#
                ),
                serde_json::json!("8812"),
            ),
        ] {
            let filled = filled_for(json, name, kwargs).expect("filled");
            let read: serde_json::Value = serde_json::from_str(&filled).expect(&filled);
            let expected = serde_json::json!({
                "name": name, "n": 0, "all": all, "at": "2026-11-21T10:00:00Z",
            });
            assert_eq!(read, expected);
        }
    }
}
