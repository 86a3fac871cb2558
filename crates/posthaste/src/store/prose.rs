//! Texts for people: errors, reasons, names of workers. A database whose encoding is not UTF-8
//! rejects a statement with a character that it lacks, at each retry.

use std::error::Error as StdError;
use std::fmt::Write as _;

use bytes::BytesMut;
use postgres_types::{IsNull, ToSql, Type, to_sql_checked};

use super::parameter::Kind;

/// A text for people, as a parameter: if the database's encoding lacks a character of the
/// statement's texts, all characters that are not ASCII are sent as code points, such as
/// `<U+2013>`.
#[derive(Clone, Debug)]
pub struct Prose<'a>(pub Option<&'a str>);

/// The text escaped to ASCII.
#[derive(Debug)]
pub(crate) struct Escaped(Option<String>);

impl Prose<'_> {
    fn escaped(&self) -> Escaped {
        Escaped(self.0.map(escape))
    }
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_ascii() && letter != '\0' {
            escaped.push(letter);
        } else {
            // Writing to a String cannot fail.
            let _ = write!(escaped, "<U+{:04X}>", u32::from(letter));
        }
    }
    escaped
}

impl ToSql for Prose<'_> {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        self.0.to_sql(kind, out)
    }

    fn accepts(kind: &Type) -> bool {
        <&str as ToSql>::accepts(kind)
    }

    to_sql_checked!();
}

impl ToSql for Escaped {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        self.0.to_sql(kind, out)
    }

    fn accepts(kind: &Type) -> bool {
        <&str as ToSql>::accepts(kind)
    }

    to_sql_checked!();
}

impl Kind for Prose<'_> {
    const KIND: Type = Type::TEXT;

    fn escaped(&self) -> Option<Box<dyn ToSql + Sync + Send>> {
        Some(Box::new(self.escaped()))
    }
}

impl Kind for Vec<Prose<'_>> {
    const KIND: Type = Type::TEXT_ARRAY;

    fn escaped(&self) -> Option<Box<dyn ToSql + Sync + Send>> {
        let escaped = self.iter().map(Prose::escaped);
        Some(Box::new(escaped.collect::<Vec<_>>()))
    }
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn escaping_yields_ascii_and_keeps_json_valid() {
        let text = "caf\u{e9} \u{2013} \u{1f680}\0 \"a\\n\"";
        let escaped = escape(text);
        assert_eq!(escaped, "caf<U+00E9> <U+2013> <U+1F680><U+0000> \"a\\n\"");
        assert_eq!(escape(&escaped), escaped);
    }
}
