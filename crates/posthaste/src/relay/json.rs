//! JSON that is written by hand, piece by piece, for formats of which most never changes. Pure.

use super::message::Message;

/// Appends a text, within quotes.
pub(super) fn put_text(json: &mut String, text: &str) {
    let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    if text.bytes().all(is_plain) {
        json.push('"');
        json.push_str(text);
        json.push('"');
    } else {
        json.push_str(&serde_json::Value::from(text).to_string());
    }
}

/// Appends the payload as it is; as a text where it is no JSON.
pub(super) fn put_payload(json: &mut String, message: &Message) {
    if message.is_json() {
        json.push_str(message.payload());
    } else {
        put_text(json, message.payload());
    }
}

#[cfg(test)]
mod tests {
    use super::{put_payload, put_text};
    use crate::relay::message::tests::{ID, job};
    use crate::relay::{Mapping, Template};

    #[test]
    fn a_text_is_read_back_as_it_was() {
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
    fn a_payload_that_is_no_json_becomes_a_text() {
        for (template, written) in [("[1, 2]", "[1, 2]"), ("[1, 2", "\"[1, 2\""), ("", "\"\"")] {
            let mapping = Mapping::default().payload(Template::text(template));
            let message = mapping.message(job("a", "{}"), ID).expect("a message");
            let mut json = String::new();
            put_payload(&mut json, &message);
            assert_eq!(json, written);
        }
    }
}
