//! A change of a row as JSON. Pure.

use jiff::{SignedDuration, Timestamp};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

use crate::pgoutput::{OldRow, Relation, ReplicaIdentity, Tuple, Value};
use crate::position::Position;

/// OIDs of types whose text is JSON, except NaN and infinities.
const NUMBER_OIDS: [u32; 7] = [20, 21, 23, 26, 700, 701, 1700];
const BOOLEAN_OID: u32 = 16;
/// json and jsonb.
const JSON_OIDS: [u32; 2] = [114, 3802];

/// Seconds from 1970 to 2000, where the server's times begin.
const POSTGRES_EPOCH: i64 = 946_684_800;

/// The operation on a row or a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Operation {
    Insert,
    Update,
    Delete,
    Truncate,
    /// An existing row that a copy reads.
    Read,
}

impl Operation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Truncate => "truncate",
            Self::Read => "read",
        }
    }
}

/// A change with the rows before and after it.
pub(crate) struct Change {
    pub(crate) operation: Operation,
    pub(crate) old: Option<OldRow>,
    pub(crate) new: Option<Tuple>,
}

/// The transaction and the position of a change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangePlace {
    pub(crate) timeline: u32,
    pub(crate) position: Position,
    pub(crate) xid: u32,
    /// Microseconds since 2000.
    pub(crate) committed_at: i64,
}

#[derive(serde::Serialize)]
struct ChangeBody<'a> {
    operation: Operation,
    schema: &'a str,
    table: &'a str,
    key: Option<Fields<'a>>,
    before: Option<Fields<'a>>,
    after: Option<Fields<'a>>,
    unchanged: Vec<&'a str>,
    position: String,
    committed_at: String,
    xid: u32,
}

/// The change as receivers get it, and its key as text.
pub(crate) fn encode_change(
    relation: &Relation,
    change: &Change,
    keys: &[String],
    place: ChangePlace,
) -> Result<(String, Option<String>), String> {
    let before = change.old.as_ref().map(|old| old_row_fields(relation, old));
    let after = change
        .new
        .as_ref()
        .map(|new| new_row_fields(relation, new, change.old.as_ref()));
    let before = before.transpose()?;
    let (after, unchanged) = after.transpose()?.unzip();
    let key = after
        .as_ref()
        .or(before.as_ref())
        .and_then(|row| row.key_fields(relation, keys));
    let text = key.as_ref().map(serde_json::to_string).transpose();
    let body = ChangeBody {
        operation: change.operation,
        schema: &relation.schema,
        table: &relation.name,
        key,
        before,
        after,
        unchanged: unchanged.unwrap_or_default(),
        position: format!("{:08x}{}", place.timeline, place.position),
        committed_at: parse_time(place.committed_at)?.to_string(),
        xid: place.xid,
    };
    let body = serde_json::to_string(&body).map_err(|error| error.to_string())?;
    Ok((body, text.map_err(|error| error.to_string())?))
}

/// The columns of the old row that the replica identity contains. The stream has nulls for the
/// others; they are left out because their values are unknown.
fn old_row_fields<'a>(relation: &'a Relation, old: &'a OldRow) -> Result<Fields<'a>, String> {
    let (tuple, is_full) = match old {
        OldRow::Key(tuple) => (tuple, false),
        OldRow::Full(tuple) => (tuple, true),
    };
    let fields = columns_with_values(relation, tuple)?;
    let known = fields
        .filter(|(column, value)| (is_full || column.is_key) && !matches!(value, Value::Unchanged));
    Ok(Fields(known.map(field_from_value).collect()))
}

/// The new row, and the columns whose values are unknown.
fn new_row_fields<'a>(
    relation: &'a Relation,
    new: &'a Tuple,
    old: Option<&'a OldRow>,
) -> Result<(Fields<'a>, Vec<&'a str>), String> {
    let (mut known, mut unchanged) = (Vec::new(), Vec::new());
    for (number, (column, value)) in columns_with_values(relation, new)?.enumerate() {
        let value = match (value, old) {
            (Value::Unchanged, Some(OldRow::Full(old))) => old.get(number).unwrap_or(value),
            (Value::Unchanged, Some(OldRow::Key(old))) if column.is_key => {
                old.get(number).unwrap_or(value)
            }
            _ => value,
        };
        match value {
            Value::Unchanged => unchanged.push(&*column.name),
            value => known.push(field_from_value((column, value))),
        }
    }
    Ok((Fields(known), unchanged))
}

fn columns_with_values<'a>(
    relation: &'a Relation,
    tuple: &'a Tuple,
) -> Result<impl Iterator<Item = (&'a crate::pgoutput::Column, &'a Value)>, String> {
    match tuple.len() == relation.columns.len() {
        true => Ok(relation.columns.iter().zip(tuple)),
        false => Err(format!(
            "a row of {}.{} has {} values for {} columns",
            relation.schema,
            relation.name,
            tuple.len(),
            relation.columns.len()
        )),
    }
}

fn field_from_value<'a>(
    (column, value): (&'a crate::pgoutput::Column, &'a Value),
) -> (&'a str, Field<'a>) {
    let field = match value {
        Value::Text(text) => Field::from_text(column.kind, text),
        Value::Null | Value::Unchanged => Field::Null,
    };
    (&column.name, field)
}

/// Columns and their values.
#[derive(Clone)]
struct Fields<'a>(Vec<(&'a str, Field<'a>)>);

impl<'a> Fields<'a> {
    /// The configured columns, or those of the replica identity; none if that is the whole row.
    fn key_fields(&self, relation: &Relation, named: &[String]) -> Option<Fields<'a>> {
        let is_key = |name: &str| match named {
            [] => {
                let mut columns = relation.columns.iter();
                relation.identity == ReplicaIdentity::Key
                    && columns.any(|column| column.is_key && column.name == name)
            }
            named => named.iter().any(|one| one == name),
        };
        let fields = self.0.iter().filter(|(name, _)| is_key(name));
        let fields: Vec<_> = fields.cloned().collect();
        (!fields.is_empty()).then_some(Fields(fields))
    }
}

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[derive(Clone, serde::Serialize)]
#[serde(untagged)]
enum Field<'a> {
    Null,
    Boolean(bool),
    Json(&'a RawValue),
    Text(&'a str),
}

impl<'a> Field<'a> {
    /// Booleans, numbers and documents are JSON; other values are the server's text.
    fn from_text(kind: u32, text: &'a str) -> Self {
        if kind == BOOLEAN_OID {
            return Self::Boolean(text == "t");
        }
        let is_json = NUMBER_OIDS.contains(&kind) || JSON_OIDS.contains(&kind);
        match is_json.then(|| serde_json::from_str(text)) {
            Some(Ok(json)) => Self::Json(json),
            _ => Self::Text(text),
        }
    }
}

/// Converts a time of the stream.
pub(crate) fn parse_time(micros: i64) -> Result<Timestamp, String> {
    let since = SignedDuration::from_micros(micros);
    let at = Timestamp::from_second(POSTGRES_EPOCH).and_then(|start| start.checked_add(since));
    at.map_err(|_| "the time of a commit is out of range".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::{Change, ChangePlace, Operation, encode_change};
    use crate::pgoutput::{Column, OldRow, Relation, ReplicaIdentity, Value};
    use crate::position::Position;

    const PLACE: ChangePlace = ChangePlace {
        timeline: 1,
        position: Position {
            commit: crate::lsn::Lsn(2),
            record: crate::lsn::Lsn(1),
            row: 0,
        },
        xid: 742,
        committed_at: 1_500_000,
    };

    fn relation(identity: ReplicaIdentity) -> Relation {
        let column = |name: &str, kind, is_key| Column {
            name: name.into(),
            kind,
            is_key,
        };
        Relation {
            oid: 1,
            schema: "public".into(),
            name: "item".into(),
            identity,
            columns: vec![
                column("id", 23, true),
                column("price", 1700, identity == ReplicaIdentity::Full),
                column("big", 25, identity == ReplicaIdentity::Full),
            ],
        }
    }

    fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    fn made(relation: &Relation, change: &Change) -> Json {
        let (body, _) = encode_change(relation, change, &[], PLACE).unwrap();
        serde_json::from_str(&body).unwrap()
    }

    #[test]
    fn an_insert_has_its_row_and_its_key() {
        let change = Change {
            operation: Operation::Insert,
            old: None,
            new: Some(vec![text("7"), text("1.50"), Value::Null]),
        };
        let (body, key) =
            encode_change(&relation(ReplicaIdentity::Key), &change, &[], PLACE).unwrap();
        assert_eq!(
            body,
            r#"{"operation":"insert","schema":"public","table":"item","key":{"id":7},"#.to_owned()
                + r#""before":null,"after":{"id":7,"price":1.50,"big":null},"unchanged":[],"#
                + r#""position":"00000001000000000000000200000000000000010000","#
                + r#""committed_at":"2000-01-01T00:00:01.5Z","xid":742}"#
        );
        assert_eq!(key.as_deref(), Some(r#"{"id":7}"#));
    }

    #[test]
    fn columns_outside_the_identity_are_absent_from_the_old_row() {
        let old = vec![text("7"), Value::Null, Value::Null];
        let change = Change {
            operation: Operation::Delete,
            old: Some(OldRow::Key(old)),
            new: None,
        };
        let made = made(&relation(ReplicaIdentity::Key), &change);
        assert_eq!(made["before"], json!({ "id": 7 }));
        assert_eq!(made["key"], json!({ "id": 7 }));
        assert_eq!(made["after"], Json::Null);
    }

    #[test]
    fn a_changed_key_is_in_both_rows() {
        let old = vec![text("7"), Value::Null, Value::Null];
        let change = Change {
            operation: Operation::Update,
            old: Some(OldRow::Key(old)),
            new: Some(vec![text("8"), Value::Null, Value::Null]),
        };
        let made = made(&relation(ReplicaIdentity::Key), &change);
        assert_eq!(
            (&made["key"]["id"], &made["before"]["id"]),
            (&json!(8), &json!(7))
        );
    }

    #[test]
    fn unchanged_large_values_are_listed_or_taken_from_the_full_old_row() {
        let new = || Some(vec![text("7"), text("2"), Value::Unchanged]);
        let change = |old| Change {
            operation: Operation::Update,
            old,
            new: new(),
        };
        let unknown = made(&relation(ReplicaIdentity::Key), &change(None));
        assert_eq!(unknown["after"], json!({ "id": 7, "price": 2 }));
        assert_eq!(unknown["unchanged"], json!(["big"]));
        let old = OldRow::Full(vec![text("7"), text("1"), text("large")]);
        let known = made(&relation(ReplicaIdentity::Full), &change(Some(old)));
        assert_eq!(known["after"]["big"], json!("large"));
        assert_eq!(
            (&known["unchanged"], &known["key"]),
            (&json!([]), &Json::Null)
        );
    }

    #[test]
    fn named_columns_are_the_key_of_a_table_with_a_full_identity() {
        let old = OldRow::Full(vec![text("7"), text("1"), Value::Null]);
        let change = Change {
            operation: Operation::Delete,
            old: Some(old),
            new: None,
        };
        let keys = ["id".to_owned()];
        let (_, key) =
            encode_change(&relation(ReplicaIdentity::Full), &change, &keys, PLACE).unwrap();
        assert_eq!(key.as_deref(), Some(r#"{"id":7}"#));
    }

    #[test]
    fn text_that_is_not_json_stays_text() {
        use super::Field;
        let made = |kind, text| serde_json::to_string(&Field::from_text(kind, text)).unwrap();
        assert_eq!(made(16, "t"), "true");
        assert_eq!(made(701, "1e+300"), "1e+300");
        assert_eq!(made(1700, "NaN"), "\"NaN\"");
        assert_eq!(
            made(1700, "12345678901234567890.12345678901234567890"),
            "12345678901234567890.12345678901234567890"
        );
        assert_eq!(made(701, "-Infinity"), "\"-Infinity\"");
        assert_eq!(made(114, "{\"a\" : 1}"), "{\"a\" : 1}");
        assert_eq!(made(25, "1"), "\"1\"");
    }
}
