//! Parameters with their types: an unnamed statement is sent together with its parameters, without
//! querying the server for their types.

use jiff::Timestamp;
use postgres_types::{ToSql, Type};
use uuid::Uuid;

use crate::json_text::JsonText;

/// A value that knows its type in the database.
pub trait Parameter: ToSql + Sync {
    /// Returns its type.
    fn kind(&self) -> Type;
    /// Returns the value itself.
    fn value(&self) -> &(dyn ToSql + Sync);
    /// Returns it escaped to ASCII if it is a text for people ([`Prose`](super::prose::Prose)).
    fn escaped(&self) -> Option<Box<dyn ToSql + Sync + Send>>;
}

impl<T: Kind + ToSql + Sync> Parameter for T {
    fn kind(&self) -> Type {
        T::KIND
    }

    fn value(&self) -> &(dyn ToSql + Sync) {
        self
    }

    fn escaped(&self) -> Option<Box<dyn ToSql + Sync + Send>> {
        Kind::escaped(self)
    }
}

/// Returns the values with their types, as the driver expects them.
pub fn typed<'a>(parameters: &[&'a dyn Parameter]) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    parameters
        .iter()
        .map(|parameter| (parameter.value(), parameter.kind()))
        .collect()
}

/// The database type of all values of a Rust type.
pub trait Kind {
    /// The database type.
    const KIND: Type;
    /// As [`Parameter::escaped`].
    fn escaped(&self) -> Option<Box<dyn ToSql + Sync + Send>> {
        None
    }
}

macro_rules! kinds {
    ($($rust:ty => $one:ident, $many:ident;)*) => {$(
        impl Kind for $rust {
            const KIND: Type = Type::$one;
        }
        impl Kind for Option<$rust> {
            const KIND: Type = Type::$one;
        }
        impl Kind for &[$rust] {
            const KIND: Type = Type::$many;
        }
        impl Kind for Option<&[$rust]> {
            const KIND: Type = Type::$many;
        }
        impl Kind for Vec<$rust> {
            const KIND: Type = Type::$many;
        }
        impl Kind for Vec<Option<$rust>> {
            const KIND: Type = Type::$many;
        }
    )*};
}
kinds! {
    bool => BOOL, BOOL_ARRAY;
    i16 => INT2, INT2_ARRAY;
    i32 => INT4, INT4_ARRAY;
    i64 => INT8, INT8_ARRAY;
    &str => TEXT, TEXT_ARRAY;
    String => TEXT, TEXT_ARRAY;
    Timestamp => TIMESTAMPTZ, TIMESTAMPTZ_ARRAY;
    Uuid => UUID, UUID_ARRAY;
}

impl Kind for JsonText<'_> {
    const KIND: Type = Type::JSONB;
}

impl Kind for Vec<Option<JsonText<'_>>> {
    const KIND: Type = Type::JSONB_ARRAY;
}
