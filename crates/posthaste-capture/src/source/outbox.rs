//! Rows of an outbox table. Pure.

use bytes::Bytes;
use serde_json::{Map, Value as Json, json};

use crate::event::EventDraft;
use crate::pgoutput::{Column, Relation, Tuple, Value};

/// The OID of bytea.
const BYTEA_OID: u32 = 17;

/// Columns of an outbox table whose names differ from the defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutboxColumns {
    /// The delivery id: `id`.
    pub id: Option<String>,
    /// The name of the message: `type`, `job_name` or `aggregatetype`.
    pub name: Option<String>,
    /// The key by which receivers partition: `key` or `aggregateid`.
    pub key: Option<String>,
    /// A JSON object of headers: `headers`.
    pub headers: Option<String>,
    /// The body: `payload` or `job_args`.
    pub payload: Option<String>,
}

/// A row whose columns are found by name.
struct OutboxRow<'a> {
    relation: &'a Relation,
    tuple: &'a Tuple,
}

impl<'a> OutboxRow<'a> {
    /// The first of these columns that the table has.
    fn find_column(
        &self,
        named: Option<&String>,
        usual: &[&str],
    ) -> Result<Option<(&'a Column, Option<&'a str>)>, String> {
        let columns = &self.relation.columns;
        let place = |name: &str| columns.iter().position(|column| column.name == name);
        let found = match named {
            Some(name) => Some(place(name).ok_or_else(|| self.missing_column(name))?),
            None => usual.iter().find_map(|name| place(name)),
        };
        let Some(found) = found else {
            return Ok(None);
        };
        let text = match self.tuple.get(found) {
            Some(Value::Text(text)) => Some(&**text),
            Some(Value::Null) => None,
            Some(Value::Unchanged) | None => return Err(self.missing_column(&columns[found].name)),
        };
        Ok(Some((&columns[found], text)))
    }

    fn find_text(&self, named: Option<&String>, usual: &[&str]) -> Result<Option<&'a str>, String> {
        Ok(self.find_column(named, usual)?.and_then(|(_, text)| text))
    }

    fn missing_column(&self, column: &str) -> String {
        let Relation { schema, name, .. } = self.relation;
        format!("the table {schema}.{name} has no value in the column {column:?}")
    }
}

impl OutboxColumns {
    /// The renamed columns and the required default columns.
    pub(crate) fn required_columns(&self) -> [(Option<&String>, &'static [&'static str]); 2] {
        [
            (self.name.as_ref(), &["type", "job_name", "aggregatetype"]),
            (
                self.payload.as_ref(),
                &["payload", "job_args", "table_name"],
            ),
        ]
    }

    /// The columns that were named.
    pub(crate) fn renamed_columns(&self) -> impl Iterator<Item = &String> {
        let all = [
            &self.id,
            &self.name,
            &self.key,
            &self.headers,
            &self.payload,
        ];
        all.into_iter().flatten()
    }

    pub(super) fn draft_event(
        &self,
        relation: &Relation,
        tuple: &Tuple,
    ) -> Result<EventDraft, String> {
        let row = OutboxRow { relation, tuple };
        let [(name, names), _] = self.required_columns();
        let name = row.find_text(name, names)?;
        let name = name.ok_or_else(|| row.missing_column(names[0]))?;
        let id = row.find_text(self.id.as_ref(), &["id"])?;
        let mut headers = parse_headers(row.find_text(self.headers.as_ref(), &["headers"])?)?;
        // An EventRouter routes by this column, unless it is the name.
        if let Some(kind) = row.find_text(None, &["aggregatetype"])?
            && kind != name
        {
            headers.push(("aggregatetype".into(), kind.into()));
        }
        Ok(EventDraft {
            id: id.and_then(|id| id.parse().ok()),
            name: name.to_owned(),
            key: row
                .find_text(self.key.as_ref(), &["key", "aggregateid"])?
                .map(ToOwned::to_owned),
            headers,
            body: self.read_body(&row)?,
        })
    }

    fn read_body(&self, row: &OutboxRow<'_>) -> Result<Bytes, String> {
        if let Some((column, text)) =
            row.find_column(self.payload.as_ref(), &["payload", "job_args"])?
            && (text.is_some() || self.payload.is_some())
        {
            let text = text.unwrap_or_default();
            return match column.kind {
                BYTEA_OID => decode_hex(text).ok_or_else(|| row.missing_column(&column.name)),
                _ => Ok(Bytes::copy_from_slice(text.as_bytes())),
            };
        }
        // A reference to a row of another table, as in posthaste.outbox.
        let table = row.find_text(None, &["table_name"])?;
        let id = row.find_text(None, &["table_id"])?;
        Ok(match (table, id) {
            (Some(table), Some(id)) => {
                let reference = json!({ "table_name": table, "table_id": id });
                reference.to_string().into()
            }
            // A row without a payload is an event without a body.
            _ => Bytes::new(),
        })
    }
}

/// The fields of an object; values that are not texts become their JSON.
fn parse_headers(text: Option<&str>) -> Result<Vec<(String, String)>, String> {
    let Some(text) = text else {
        return Ok(Vec::new());
    };
    let object: Map<String, Json> = serde_json::from_str(text)
        .map_err(|_| "the headers of the row are not a JSON object".to_owned())?;
    let header = |(name, value)| match value {
        Json::String(text) => (name, text),
        other => (name, other.to_string()),
    };
    Ok(object.into_iter().map(header).collect())
}

fn decode_hex(text: &str) -> Option<Bytes> {
    let digits = text.strip_prefix("\\x")?.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let pairs = digits.chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    });
    let bytes: Option<Vec<u8>> = pairs.collect();
    bytes.map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::OutboxColumns;
    use crate::event::EventDraft;
    use crate::pgoutput::{Column, Relation, ReplicaIdentity, Value};

    fn draft(
        columns: &OutboxColumns,
        row: &[(&str, u32, Option<&str>)],
    ) -> Result<EventDraft, String> {
        let relation = Relation {
            oid: 1,
            schema: "public".into(),
            name: "outbox".into(),
            identity: ReplicaIdentity::Nothing,
            columns: row
                .iter()
                .map(|(name, kind, _)| Column {
                    name: (*name).into(),
                    kind: *kind,
                    is_key: false,
                })
                .collect(),
        };
        let tuple = row.iter().map(|(_, _, text)| match text {
            Some(text) => Value::Text((*text).into()),
            None => Value::Null,
        });
        columns.draft_event(&relation, &tuple.collect())
    }

    #[test]
    fn reads_rows_of_an_outbox() {
        let id = "01900000-0000-7000-8000-00000000002a";
        let row = [
            ("id", 2950, Some(id)),
            ("type", 25, Some("order.paid")),
            ("payload", 17, Some("\\x00ff7b")),
            ("headers", 3802, Some(r#"{"a": "b", "n": 1}"#)),
            ("key", 25, Some("7")),
        ];
        let draft = draft(&OutboxColumns::default(), &row).unwrap();
        assert_eq!(draft.id, id.parse().ok());
        assert_eq!(
            (&*draft.name, draft.key.as_deref()),
            ("order.paid", Some("7"))
        );
        assert_eq!(&*draft.body, [0, 255, b'{']);
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(draft.headers, [header("a", "b"), header("n", "1")]);
    }

    #[test]
    fn reads_staged_jobs_and_references() {
        let columns = OutboxColumns::default();
        let staged = [
            ("id", 20, Some("7")),
            ("job_name", 25, Some("mail")),
            ("job_args", 3802, Some("[1, 2]")),
        ];
        let staged = draft(&columns, &staged).unwrap();
        assert_eq!(
            (staged.id, &*staged.name, &*staged.body),
            (None, "mail", &b"[1, 2]"[..])
        );
        let reference = [
            ("type", 25, Some("order")),
            ("payload", 17, None),
            ("table_name", 25, Some("orders")),
            ("table_id", 25, Some("7")),
        ];
        let reference = draft(&columns, &reference).unwrap();
        assert_eq!(
            &*reference.body,
            br#"{"table_id":"7","table_name":"orders"}"#
        );
    }

    #[test]
    fn reads_the_columns_of_an_event_router() {
        let row = [
            ("aggregatetype", 1043, Some("order")),
            ("aggregateid", 1043, Some("7")),
            ("type", 1043, Some("OrderPaid")),
            ("payload", 3802, Some("{}")),
        ];
        let draft = draft(&OutboxColumns::default(), &row).unwrap();
        assert_eq!(
            (&*draft.name, draft.key.as_deref()),
            ("OrderPaid", Some("7"))
        );
        assert_eq!(
            draft.headers,
            [("aggregatetype".to_owned(), "order".to_owned())]
        );
    }

    #[test]
    fn rejects_rows_without_a_name_or_with_invalid_headers() {
        let columns = OutboxColumns::default();
        assert!(draft(&columns, &[("payload", 25, Some("x"))]).is_err());
        let row = [("type", 25, Some("a")), ("headers", 25, Some("[]"))];
        assert!(draft(&columns, &row).is_err());
        let renamed = OutboxColumns {
            payload: Some("content".into()),
            ..OutboxColumns::default()
        };
        assert!(draft(&renamed, &[("type", 25, Some("a"))]).is_err());
    }
}
