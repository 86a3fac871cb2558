//! A capture as a section of `posthaste.toml`. Pure.

use std::collections::BTreeMap;

use posthaste::settings::Fields;
use posthaste::{Database, Error};
use posthaste_relay::Route;
use serde_json::Value;

use crate::capture::{Capture, Direct};
use crate::source::{CapturedTable, OutboxColumns, Source, TableName};

const KNOWN: [&str; 10] = [
    "queue",
    "route",
    "spill_after",
    "spill_after_time",
    "outbox",
    "outbox_columns",
    "messages",
    "tables",
    "table",
    "slot",
];
const OPERATIONS: [&str; 4] = ["insert", "update", "delete", "truncate"];

impl Capture {
    /// Reads a section: `queue`, or `route` with `spill_after` and `spill_after_time`; one of
    /// `outbox`, `messages` and `tables`; `outbox_columns`, `table` and `slot`. The server, where
    /// it is not the database of the jobs, and the route that is named are the caller's.
    pub fn read(
        name: &str,
        settings: &BTreeMap<String, Value>,
        server: Option<Database>,
        route: Option<&Route>,
    ) -> Result<Self, Error> {
        let read = || {
            if !Self::is_name(name) {
                return Err(
                    "its name must have a to z, 0 to 9 and _, and at most 40 of them".to_owned(),
                );
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
            let direct = direct(settings, route)?;
            let queue = match (&direct, settings.get("queue")) {
                (Some(_), Some(_)) => return Err("queue: is the route's; name one of them".into()),
                (Some(direct), None) => direct.sender.queue().to_owned(),
                (None, Some(queue)) => text("queue", queue)?,
                (None, None) => name.to_owned(),
            };
            Ok(Self {
                name: name.to_owned(),
                queue,
                direct,
                source: source(settings)?,
                slot,
                server,
            })
        };
        read().map_err(|problem| Error::config(format!("capture {name}: {problem}")))
    }
}

fn direct(
    settings: &BTreeMap<String, Value>,
    route: Option<&Route>,
) -> Result<Option<Direct>, String> {
    let mut limits = settings.clone();
    limits.retain(|name, _| name.starts_with("spill_"));
    if !settings.contains_key("route") {
        return match limits.keys().next() {
            Some(limit) => Err(format!("{limit}: goes only with route")),
            None => Ok(None),
        };
    }
    let route = route.ok_or("route: there is no such route")?;
    let sender = route.sender().map_err(|error| error.to_string())?;
    let mut direct = Direct::new(sender);
    if let Some(bytes) = limits.remove("spill_after") {
        direct.spill_after = size(&bytes).ok_or("spill_after: must be a size such as \"1GiB\"")?;
    }
    if limits.get("spill_after_time").and_then(Value::as_str) == Some("never") {
        direct.spill_after_time = None;
    } else if let Some(time) = Fields::new(limits).take("spill_after_time")? {
        direct.spill_after_time = Some(time);
    }
    Ok(Some(direct))
}

/// A number of bytes, or of KiB, MiB, GiB or TiB.
fn size(value: &Value) -> Option<u64> {
    if let Some(bytes) = value.as_u64() {
        return Some(bytes);
    }
    let text = value.as_str()?;
    let split = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..split].parse().ok()?;
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = units
        .iter()
        .position(|unit| *unit == text[split..].trim())?;
    number.checked_mul(1 << (10 * unit))
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
    use std::time::Duration;

    use posthaste_relay::Route;
    use serde_json::json;

    use crate::capture::Capture;
    use crate::source::Source;

    fn read(name: &str, settings: serde_json::Value) -> Result<Capture, String> {
        let settings = serde_json::from_value(settings).unwrap();
        Capture::read(name, &settings, None, None).map_err(|error| error.to_string())
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
    fn a_capture_with_a_route_sends_without_jobs_and_spills_into_its_queue() {
        let read = |more: serde_json::Value| {
            let route = json!({ "to": "stdout:", "ordered": true, "queue": "mail" });
            let route = Route::read("r", route.as_object().unwrap()).unwrap();
            let mut settings = json!({ "outbox": "outbox", "route": "r" });
            let all = settings.as_object_mut().unwrap();
            all.extend(more.as_object().unwrap().clone());
            let settings = serde_json::from_value(settings).unwrap();
            let read = Capture::read("a", &settings, None, Some(&route));
            read.map_err(|error| error.to_string())
        };
        let capture = read(json!({})).unwrap();
        let direct = capture.direct.unwrap();
        assert_eq!((&*capture.queue, direct.spill_after), ("mail", 1 << 30));
        let minutes = |minutes: u64| Some(Duration::from_secs(minutes * 60));
        assert_eq!(direct.spill_after_time, minutes(5));
        let limits = json!({ "spill_after": "20 MiB", "spill_after_time": "2m" });
        let direct = read(limits).unwrap().direct.unwrap();
        assert_eq!(
            (direct.spill_after, direct.spill_after_time),
            (20 << 20, minutes(2))
        );
        let never = json!({ "spill_after": 7, "spill_after_time": "never" });
        let direct = read(never).unwrap().direct.unwrap();
        assert_eq!((direct.spill_after, direct.spill_after_time), (7, None));
        for (more, said) in [
            (json!({ "queue": "q" }), "queue: is the route's"),
            (
                json!({ "spill_after": "1GB" }),
                "spill_after: must be a size",
            ),
            (
                json!({ "spill_after_time": "soon" }),
                "spill_after_time: must be",
            ),
        ] {
            let error = read(more).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
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
                "route: there is no such",
            ),
            (
                "a",
                json!({ "outbox": "o", "table": {} }),
                "goes only with tables",
            ),
            (
                "a",
                json!({ "outbox": "o", "spill_after": 1 }),
                "goes only with route",
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
