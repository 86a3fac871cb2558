//! Environment variables in the settings of a file. A variable in a URL is percent-encoded for its
//! part of the URL, so that a password may have any characters.

use anyhow::Context as _;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The characters that are percent-encoded in a user name, a password or a query value.
const COMPONENT_CHARS: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// The same for a path, which may have several segments.
const PATH_CHARS: &AsciiSet = &COMPONENT_CHARS.remove(b'/');
/// The same for a query, which may have several pairs.
const QUERY_CHARS: &AsciiSet = &COMPONENT_CHARS.remove(b'=').remove(b'&');

/// A setting with its variables replaced.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct FilledSetting {
    pub(crate) text: String,
    /// Values that may be secret: those in the password, path or query of a URL, both raw and
    /// encoded.
    pub(crate) secrets: Vec<String>,
}

/// Replaces `${NAME}` by the value of the variable.
pub(crate) fn fill_variables(
    setting: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<FilledSetting> {
    let mut filled = FilledSetting::default();
    let mut rest = setting;
    while let Some((before, after)) = rest.split_once("${") {
        let start = setting.len() - after.len() - "${".len();
        let (name, after) = after.split_once('}').context("a ${ without a closing }")?;
        let value = variable(name).with_context(|| {
            format!(
                "the environment variable {name} is \
                                                            not set"
            )
        })?;
        filled.text.push_str(before);
        let part = url_part(&setting[..start], after);
        match part.encoded_chars() {
            None => filled.text.push_str(&value),
            Some(set) => {
                let written = utf8_percent_encode(&value, set).to_string();
                filled.text.push_str(&written);
                if part != UrlPart::Name {
                    filled.secrets.extend([value, written]);
                }
            }
        }
        rest = after;
    }
    filled.text.push_str(rest);
    Ok(filled)
}

/// The part of a URL that a variable is in.
#[derive(Clone, Copy, Debug, PartialEq)]
enum UrlPart {
    /// Not in a URL, or a whole URL, or host and port.
    Whole,
    /// A user name before a password, or one segment of a path.
    Name,
    /// A password or token, or a query value.
    Value,
    /// Several segments of a path.
    Path,
    /// Several pairs of a query.
    Pairs,
}

impl UrlPart {
    fn encoded_chars(self) -> Option<&'static AsciiSet> {
        match self {
            Self::Whole => None,
            Self::Name | Self::Value => Some(COMPONENT_CHARS),
            Self::Path => Some(PATH_CHARS),
            Self::Pairs => Some(QUERY_CHARS),
        }
    }
}

/// Returns the part of a URL between these texts. A setting may have several URLs.
fn url_part(before: &str, after: &str) -> UrlPart {
    let Some((scheme, url)) = before.rsplit_once("://") else {
        return UrlPart::Whole;
    };
    // The path of a local folder is not encoded.
    if scheme.ends_with("tantivy") {
        return UrlPart::Whole;
    }
    let is_end = |c: char| matches!(c, '/' | '?' | '#');
    let Some((_, rest)) = url.split_once(is_end) else {
        let authority = after.split(is_end).next().unwrap_or_default();
        let authority = authority.split(',').next().unwrap_or_default();
        return match authority.rsplit_once('@') {
            None => UrlPart::Whole,
            Some((rest, _)) if rest.contains(':') && !url.contains(':') => UrlPart::Name,
            Some(_) => UrlPart::Value,
        };
    };
    let is_in_path = !url.contains(['?', '#']);
    // A virtual host of RabbitMQ is one segment, which may have slashes.
    let is_name = ["amqp", "amqps"].iter().any(|one| scheme.ends_with(one));
    match is_in_path {
        true if is_name => UrlPart::Name,
        true => UrlPart::Path,
        false if url.ends_with(['?', '&']) && !rest.ends_with('=') => UrlPart::Pairs,
        false => UrlPart::Value,
    }
}

#[cfg(test)]
mod tests {
    use super::fill_variables;

    const HARD: &str = "p/w#1%41?a b@c:d,ü";
    const WRITTEN: &str = "p%2Fw%231%2541%3Fa%20b%40c%3Ad%2C%C3%BC";

    fn of(setting: &str) -> String {
        let variable = |name: &str| match name {
            "PW" => Some(HARD.to_owned()),
            "HOST" => Some("redis.example:6379".to_owned()),
            "URL" => Some(format!("redis://:{WRITTEN}@h:1/0")),
            "PAIRS" => Some("key=a&more=b c".to_owned()),
            "TOKEN" => Some("T0/B0/x?y".to_owned()),
            _ => None,
        };
        fill_variables(setting, variable).expect(setting).text
    }

    #[test]
    fn variables_are_percent_encoded_for_their_part_of_a_url() {
        for (setting, expected) in [
            (
                "sidekiq://:${PW}@h:1/0",
                format!("sidekiq://:{WRITTEN}@h:1/0"),
            ),
            (
                "amqp://${PW}:${PW}@h/v",
                format!("amqp://{WRITTEN}:{WRITTEN}@h/v"),
            ),
            ("amqps://u:p@h/${PW}", format!("amqps://u:p@h/{WRITTEN}")),
            ("nats://${PW}@a,b", format!("nats://{WRITTEN}@a,b")),
            (
                "nats://u:${PW}@a,nats://u:${PW}@b",
                format!("nats://u:{WRITTEN}@a,nats://u:{WRITTEN}@b"),
            ),
            (
                "https://h/x?token=${PW}",
                format!("https://h/x?token={WRITTEN}"),
            ),
            (
                "https://h/${TOKEN}/hook",
                "https://h/T0/B0/x%3Fy/hook".to_owned(),
            ),
            (
                "https://h/x?${PAIRS}",
                "https://h/x?key=a&more=b%20c".to_owned(),
            ),
            (
                "https://h/x?a=1&${PAIRS}",
                "https://h/x?a=1&key=a&more=b%20c".to_owned(),
            ),
            (
                "asynq://:x@${HOST}/0",
                "asynq://:x@redis.example:6379/0".to_owned(),
            ),
            (
                "asynq://${HOST}/0?a=@",
                "asynq://redis.example:6379/0?a=@".to_owned(),
            ),
        ] {
            assert_eq!(of(setting), expected, "{setting}");
        }
    }

    #[test]
    fn variables_outside_of_urls_are_inserted_verbatim() {
        for (setting, expected) in [
            ("${PW}", HARD.to_owned()),
            ("${URL}", format!("redis://:{WRITTEN}@h:1/0")),
            (
                "sidekiq+${URL}",
                format!("sidekiq+redis://:{WRITTEN}@h:1/0"),
            ),
            ("tantivy:///data/${PW}", format!("tantivy:///data/{HARD}")),
            ("$c${HOST}$d", "$credis.example:6379$d".to_owned()),
        ] {
            assert_eq!(of(setting), expected, "{setting}");
        }
        let missing = fill_variables("a${B}", |_| None).unwrap_err().to_string();
        assert_eq!(missing, "the environment variable B is not set");
        assert!(fill_variables("${A", |_| None).is_err());
    }

    #[test]
    fn url_secrets_are_concealed_plain_and_encoded() {
        let of =
            |setting: &str| fill_variables(setting, |_| Some("a/b".to_owned())).expect("filled");
        assert_eq!(of("redis://:${A}@h").secrets, ["a/b", "a%2Fb"]);
        assert_eq!(of("nats://${A}@h").secrets.len(), 2);
        for shown in ["redis://${A}", "redis://${A}:pw@h", "amqp://h/${A}"] {
            assert_eq!(of(shown).secrets, Vec::<String>::new(), "{shown}");
        }
    }
}
