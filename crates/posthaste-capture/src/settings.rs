//! A capture as a section of `posthaste.toml`. Pure.

use std::collections::BTreeMap;

use posthaste::{Database, Error};
use serde_json::Value;

use crate::capture::Capture;
use crate::source::{CapturedTable, OutboxColumns, Source, TableName};

const KNOWN: [&str; 7] = [
    "queue",
    "outbox",
    "outbox_columns",
    "messages",
    "tables",
    "table",
    "slot",
];
const OPERATIONS: [&str; 4] = ["insert", "update", "delete", "truncate"];

impl Capture {
    /// Reads a section: `queue`, one of `outbox`, `messages` and `tables`, `outbox_columns`,
    /// `table` and `slot`. The server, where it is not the database of the jobs, is the caller's.
    pub fn read(
        name: &str,
        settings: &BTreeMap<String, Value>,
        server: Option<Database>,
    ) -> Result<Self, Error> {
        let read = || {
            if !Self::is_name(name) {
                return Err(
                    "its name must have a to z, 0 to 9 and _, and at most 40 of them".to_owned(),
                );
            }
            if settings.contains_key("route") {
                return Err("route: is not there yet. Write queue = the route's queue".into());
            }
            if let Some(unknown) = settings.keys().find(|key| !KNOWN.contains(&&***key)) {
                return Err(format!("{unknown}: is no setting of a capture"));
            }
            let slot = match settings.get("slot") {
                None => format!("posthaste_{name}"),
                Some(slot) => text("slot", slot)?,
            };
            if !slot_is_allowed(&slot) {
                return Err("slot: must have a to z, 0 to 9 and _, and at most 63 of them".into());
            }
            let queue = settings.get("queue");
            Ok(Self {
                name: name.to_owned(),
                queue: queue.map_or(Ok(name.to_owned()), |queue| text("queue", queue))?,
                source: source(settings)?,
                slot,
                server,
            })
        };
        read().map_err(|problem| Error::config(format!("capture {name}: {problem}")))
    }
}

fn slot_is_allowed(slot: &str) -> bool {
    let is_known = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
    !slot.is_empty() && slot.len() <= 63 && slot.bytes().all(is_known)
}

fn source(settings: &BTreeMap<String, Value>) -> Result<Source, String> {
    let sources = ["outbox", "messages", "tables"].map(|one| settings.get(one));
    let only_with = |setting: &str, source: &str| match settings.contains_key(setting) {
        true => Err(format!("{setting}: goes only with {source}")),
        false => Ok(()),
    };
    match sources {
        [Some(table), None, None] => {
            only_with("table", "tables")?;
            let table = text("outbox", table)?;
            let table = TableName::read(&table).map_err(|why| format!("outbox: {why}"))?;
            let columns = outbox_columns(settings.get("outbox_columns"))?;
            Ok(Source::Outbox { table, columns })
        }
        [None, Some(prefix), None] => {
            only_with("table", "tables")?;
            only_with("outbox_columns", "outbox")?;
            let prefix = text("messages", prefix)?;
            match prefix.strip_suffix('*').unwrap_or(&prefix).contains('*') {
                true => Err("messages: * may stand at the end only".into()),
                false => Ok(Source::Messages(prefix)),
            }
        }
        [None, None, Some(tables)] => {
            only_with("outbox_columns", "outbox")?;
            let names = texts("tables", tables)?;
            captured(&names, settings.get("table")).map(Source::Tables)
        }
        _ => Err("name one of outbox, messages and tables".into()),
    }
}

fn outbox_columns(settings: Option<&Value>) -> Result<OutboxColumns, String> {
    let mut columns = OutboxColumns::default();
    for (field, column) in table("outbox_columns", settings)? {
        let name = Some(text("outbox_columns", column)?);
        match &*field {
            "id" => columns.id = name,
            "name" => columns.name = name,
            "key" => columns.key = name,
            "headers" => columns.headers = name,
            "payload" => columns.payload = name,
            other => {
                return Err(format!(
                    "outbox_columns: {other} is none of id, name, key, headers and payload"
                ));
            }
        }
    }
    Ok(columns)
}

fn captured(names: &[String], more: Option<&Value>) -> Result<Vec<CapturedTable>, String> {
    let mut tables = Vec::with_capacity(names.len());
    for name in names {
        tables.push(CapturedTable {
            table: TableName::read(name).map_err(|why| format!("tables: {why}"))?,
            columns: Vec::new(),
            filter: None,
            operations: Vec::new(),
            key: Vec::new(),
        });
    }
    if tables.is_empty() {
        return Err("tables: names no table".into());
    }
    for (name, settings) in table("table", more)? {
        let wanted = TableName::read(&name).map_err(|why| format!("table: {why}"))?;
        let known = tables.iter_mut().find(|one| one.table == wanted);
        let known = known.ok_or_else(|| format!("table: {name} is not among tables"))?;
        for (setting, value) in table(&name, Some(settings))? {
            match &*setting {
                "columns" => known.columns = texts("columns", value)?,
                "key" => known.key = texts("key", value)?,
                "operations" => known.operations = operations(value)?,
                "where" => known.filter = Some(text("where", value)?),
                other => return Err(format!("{name}: {other}: is no setting of a table")),
            }
        }
    }
    Ok(tables)
}

fn operations(value: &Value) -> Result<Vec<String>, String> {
    let operations = texts("operations", value)?;
    let unknown = operations.iter().find(|one| !OPERATIONS.contains(&&***one));
    match unknown {
        Some(unknown) => Err(format!(
            "operations: {unknown} is none of {}",
            OPERATIONS.join(", ")
        )),
        None => Ok(operations),
    }
}

fn text(setting: &str, value: &Value) -> Result<String, String> {
    match value.as_str() {
        Some(text) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err(format!("{setting}: must be a string")),
    }
}

fn texts(setting: &str, value: &Value) -> Result<Vec<String>, String> {
    let list = value.as_array();
    let list = list.ok_or_else(|| format!("{setting}: must be a list of texts"))?;
    list.iter().map(|one| text(setting, one)).collect()
}

fn table<'a>(
    setting: &str,
    value: Option<&'a Value>,
) -> Result<impl Iterator<Item = (String, &'a Value)>, String> {
    let map = match value {
        None => None,
        Some(Value::Object(map)) => Some(map),
        Some(_) => return Err(format!("{setting}: must be a table")),
    };
    let fields = map.into_iter().flatten();
    Ok(fields.map(|(name, value)| (name.clone(), value)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::capture::Capture;
    use crate::source::Source;

    fn read(name: &str, settings: serde_json::Value) -> Result<Capture, String> {
        let settings = serde_json::from_value(settings).unwrap();
        Capture::read(name, &settings, None).map_err(|error| error.to_string())
    }

    #[test]
    fn a_capture_needs_little() {
        let capture = read("orders", json!({ "outbox": "outbox" })).unwrap();
        assert_eq!(
            (&*capture.queue, &*capture.slot),
            ("orders", "posthaste_orders")
        );
        let table = &capture.source.tables()[0];
        assert_eq!(table.to_string(), "public.outbox");
        let messages = json!({ "queue": "q", "messages": "order.*", "slot": "s" });
        let messages = read("a", messages).unwrap();
        assert_eq!(messages.source, Source::Messages("order.*".into()));
        let tables = json!({
            "tables": ["a", "s.b"],
            "table": { "s.b": { "columns": ["id"], "where": "id > 0", "key": ["id"],
                                "operations": ["insert"] } },
        });
        let Source::Tables(tables) = read("a", tables).unwrap().source else {
            panic!("tables");
        };
        assert_eq!(tables[1].filter.as_deref(), Some("id > 0"));
        assert_eq!(tables[1].operations, ["insert"]);
    }

    #[test]
    fn errors_name_the_setting() {
        for (name, settings, said) in [
            ("a", json!({}), "name one of"),
            ("A", json!({ "outbox": "o" }), "name must have"),
            (
                "a",
                json!({ "outbox": "o", "tables": ["b"] }),
                "name one of",
            ),
            ("a", json!({ "outbox": "posthaste.job" }), "never captured"),
            (
                "a",
                json!({ "outbox": "o", "colour": 1 }),
                "colour: is no setting",
            ),
            (
                "a",
                json!({ "outbox": "o", "route": "r" }),
                "route: is not there yet",
            ),
            (
                "a",
                json!({ "outbox": "o", "table": {} }),
                "goes only with tables",
            ),
            ("a", json!({ "messages": "a*b" }), "at the end only"),
            (
                "a",
                json!({ "messages": "a", "outbox_columns": {} }),
                "goes only with outbox",
            ),
            ("a", json!({ "tables": [] }), "names no table"),
            (
                "a",
                json!({ "tables": ["a"], "table": { "b": {} } }),
                "not among",
            ),
            (
                "a",
                json!({ "tables": ["a"], "table": { "a": { "x": 1 } } }),
                "no setting",
            ),
            (
                "a",
                json!({ "outbox": "o", "outbox_columns": { "x": "y" } }),
                "none of id",
            ),
            ("a", json!({ "outbox": "o", "slot": "S" }), "slot:"),
            (
                "a",
                json!({ "tables": ["a"], "table": { "a": { "operations": ["merge"] } } }),
                "merge is none of",
            ),
        ] {
            let error = read(name, settings.clone()).unwrap_err();
            assert!(error.contains(said), "{settings}: {error}");
        }
    }
}
