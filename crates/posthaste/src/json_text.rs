//! The binary format of job arguments: the text of a jsonb value, neither parsed nor copied.

use bytes::BytesMut;
use postgres_types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

type WireError = Box<dyn std::error::Error + Sync + Send>;

/// The only version of jsonb's binary format: this byte, followed by the text.
const VERSION: u8 = 1;

/// The text of a `jsonb`.
#[derive(Debug)]
pub struct JsonText<'a>(pub &'a str);

impl<'a> FromSql<'a> for JsonText<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, WireError> {
        match raw.split_first() {
            Some((&VERSION, text)) => Ok(Self(std::str::from_utf8(text)?)),
            _ => Err("unknown jsonb version".into()),
        }
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::JSONB
    }
}

impl ToSql for JsonText<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, WireError> {
        out.extend_from_slice(&[VERSION]);
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::JSONB
    }

    to_sql_checked!();
}
