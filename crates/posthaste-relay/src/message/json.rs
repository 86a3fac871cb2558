//! JSON that is written piece by piece, for formats of which most parts are constant. Pure.

use serde::de::IgnoredAny;

/// Returns whether a text is exactly one JSON value. Only such a text may be inserted into JSON
/// unquoted: any other could end the value that surrounds it.
pub(crate) fn is_json_value(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Appends a text in quotes.
pub(crate) fn put_text(json: &mut String, text: &str) {
    let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    if text.bytes().all(is_plain) {
        json.push('"');
        json.push_str(text);
        json.push('"');
    } else {
        json.push_str(&serde_json::Value::from(text).to_string());
    }
}

/// Returns the nesting depth of a value's lists and objects if it exceeds `most`, the limit of the
/// receiver's parser.
#[cfg(any(
    feature = "celery-rabbitmq",
    feature = "celery-redis",
    feature = "sidekiq"
))]
pub(crate) fn depth_beyond(json: &str, most: usize) -> Option<usize> {
    let opens = |byte: &u8| matches!(byte, b'[' | b'{');
    // A value with few brackets cannot be too deep, and most values have few.
    if json.bytes().filter(opens).count() <= most {
        return None;
    }
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_text, mut escaped) = (false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    (deepest > most).then_some(deepest)
}

#[cfg(all(
    test,
    feature = "bullmq",
    feature = "celery-redis",
    feature = "sidekiq"
))]
mod tests {
    use super::{depth_beyond, put_text};
    use crate::message::mapping::Mapping;
    use crate::message::template::Template;
    use crate::message::tests::{ID, job};

    #[test]
    fn strings_round_trip() {
        for text in ["", "mail", "ü 日本 🚀", "\"\\/\u{0}\n\u{7f}\u{2028}"] {
            let mut json = String::new();
            put_text(&mut json, text);
            assert_eq!(
                serde_json::from_str::<String>(&json).ok().as_deref(),
                Some(text)
            );
        }
    }

    #[test]
    fn a_non_json_payload_becomes_a_string() {
        for (template, written) in [("[1, 2]", "[1, 2]"), ("[1, 2", "\"[1, 2\""), ("", "\"\"")] {
            let mapping = Mapping::default().payload(Template::text(template));
            let message = mapping.message(job("a", "{}"), ID).expect("a message");
            let mut json = String::new();
            message.append_payload(&mut json);
            assert_eq!(json, written);
        }
    }

    #[test]
    fn nesting_depth_ignores_strings() {
        assert_eq!(depth_beyond(r#"[[{"a": []}]]"#, 3), Some(4));
        assert_eq!(depth_beyond(r#"[[{"a": []}]]"#, 4), None);
        assert_eq!(depth_beyond(r#"["[[[[\"[[[[", [], [], [], []]"#, 2), None);
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(depth_beyond(&deep, 98), Some(100_000));
    }
}
