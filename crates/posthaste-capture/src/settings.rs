//! A capture as a section of `posthaste.toml`. Pure.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use posthaste::settings::Fields;
use posthaste::{Database, Error};
use posthaste_relay::Route;
use serde_json::Value;

use crate::capture::{Capture, Direct, Options};
use crate::source::{CapturedTable, OutboxColumns, Source, TableName};

const KNOWN_SETTINGS: [&str; 14] = [
    "queue",
    "route",
    "spill_after",
    "spill_after_time",
    "spill_most",
    "outbox",
    "outbox_columns",
    "messages",
    "tables",
    "table",
    "slot",
    "failover",
    "origin",
    "outbox_delete",
];
const OPERATIONS: [&str; 4] = ["insert", "update", "delete", "truncate"];

impl Capture {
    /// Reads a section: `queue`, or `route` with `spill_after`, `spill_after_time` and
    /// `spill_most`; one of `outbox`, `messages` and `tables`; `outbox_columns`, `outbox_delete`,
    /// `table`, `slot`, `failover` and `origin`. The server, where it is not the database of the
    /// jobs, and the route that is named are the caller's.
    pub fn read(
        name: &str,
        settings: &BTreeMap<String, Value>,
        server: Option<Database>,
        route: Option<&Route>,
    ) -> Result<Self, Error> {
        let read = || {
            if !Self::is_valid_name(name) {
                return Err(
                    "its name must have a to z, 0 to 9 and _, and at most 40 of them".to_owned(),
                );
            }
            if let Some(unknown) = settings
                .keys()
                .find(|key| !KNOWN_SETTINGS.contains(&&***key))
            {
                return Err(format!("{unknown}: is no setting of a capture"));
            }
            let slot = match settings.get("slot") {
                None => format!("posthaste_{name}"),
                Some(slot) => read_text("slot", slot)?,
            };
            if !is_slot_name(&slot) {
                return Err("slot: must have a to z, 0 to 9 and _, and at most 63 of them".into());
            }
            let direct = read_direct(settings, route)?;
            let queue = match (&direct, settings.get("queue")) {
                (Some(_), Some(_)) => return Err("queue: is the route's; name one of them".into()),
                (Some(direct), None) => direct.sender.queue().to_owned(),
                (None, Some(queue)) => read_text("queue", queue)?,
                (None, None) => name.to_owned(),
            };
            Ok(Self {
                name: name.to_owned(),
                queue,
                direct,
                source: read_source(settings)?,
                slot,
                server,
                options: read_options(settings)?,
            })
        };
        read().map_err(|problem| Error::config(format!("capture {name}: {problem}")))
    }
}

fn read_options(settings: &BTreeMap<String, Value>) -> Result<Options, String> {
    let local_only = match settings.get("origin").map(Value::as_str) {
        None | Some(Some("any")) => false,
        Some(Some("none")) => true,
        Some(_) => return Err("origin: must be \"any\" or \"none\"".into()),
    };
    let outbox_delete = read_boolean(settings, "outbox_delete")?;
    if outbox_delete.is_some() && !settings.contains_key("outbox") {
        return Err("outbox_delete: is valid only with outbox".into());
    }
    Ok(Options {
        failover: read_boolean(settings, "failover")?,
        local_only,
        outbox_delete: outbox_delete.unwrap_or(false),
    })
}

fn read_direct(
    settings: &BTreeMap<String, Value>,
    route: Option<&Route>,
) -> Result<Option<Direct>, String> {
    let mut limits = settings.clone();
    limits.retain(|name, _| name.starts_with("spill_"));
    if !settings.contains_key("route") {
        return match limits.keys().next() {
            Some(limit) => Err(format!("{limit}: is valid only with route")),
            None => Ok(None),
        };
    }
    let route = route.ok_or("route: there is no such route")?;
    let sender = route.sender().map_err(|error| error.to_string())?;
    let mut direct = Direct::new(sender);
    if let Some(bytes) = limits.remove("spill_after") {
        direct.spill_after =
            parse_size(&bytes).ok_or("spill_after: must be a size such as \"1GiB\"")?;
    }
    if let Some(bytes) = limits.remove("spill_most") {
        direct.spill_most =
            parse_size(&bytes).ok_or("spill_most: must be a size such as \"20GiB\"")?;
    }
    if limits.get("spill_after_time").and_then(Value::as_str) == Some("never") {
        direct.spill_after_time = None;
    } else if let Some(time) = Fields::new(limits).take("spill_after_time")? {
        direct.spill_after_time = Some(time);
    }
    Ok(Some(direct))
}

/// Parses a number of bytes, KiB, MiB, GiB or TiB.
fn parse_size(value: &Value) -> Option<u64> {
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

fn is_slot_name(slot: &str) -> bool {
    let is_known = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
    !slot.is_empty() && slot.len() <= 63 && slot.bytes().all(is_known)
}

fn read_source(settings: &BTreeMap<String, Value>) -> Result<Source, String> {
    let sources = ["outbox", "messages", "tables"].map(|one| settings.get(one));
    let only_with = |setting: &str, source: &str| match settings.contains_key(setting) {
        true => Err(format!("{setting}: is valid only with {source}")),
        false => Ok(()),
    };
    match sources {
        [Some(table), None, None] => {
            only_with("table", "tables")?;
            let table = read_text("outbox", table)?;
            let table = TableName::read(&table).map_err(|why| format!("outbox: {why}"))?;
            let columns = read_outbox_columns(settings.get("outbox_columns"))?;
            Ok(Source::Outbox { table, columns })
        }
        [None, Some(prefix), None] => {
            only_with("table", "tables")?;
            only_with("outbox_columns", "outbox")?;
            let prefix = read_text("messages", prefix)?;
            match prefix.strip_suffix('*').unwrap_or(&prefix).contains('*') {
                true => Err("messages: * may stand at the end only".into()),
                false => Ok(Source::Messages(prefix)),
            }
        }
        [None, None, Some(tables)] => {
            only_with("outbox_columns", "outbox")?;
            let names = read_texts("tables", tables)?;
            read_captured_tables(&names, settings.get("table")).map(Source::Tables)
        }
        _ => Err("name one of outbox, messages and tables".into()),
    }
}

fn read_outbox_columns(settings: Option<&Value>) -> Result<OutboxColumns, String> {
    let mut columns = OutboxColumns::default();
    for (field, column) in read_table("outbox_columns", settings)? {
        let name = Some(read_text("outbox_columns", column)?);
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

fn read_captured_tables(
    names: &[String],
    more: Option<&Value>,
) -> Result<Vec<CapturedTable>, String> {
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
    for (name, settings) in read_table("table", more)? {
        let wanted = TableName::read(&name).map_err(|why| format!("table: {why}"))?;
        let known = tables.iter_mut().find(|one| one.table == wanted);
        let known = known.ok_or_else(|| format!("table: {name} is not among tables"))?;
        for (setting, value) in read_table(&name, Some(settings))? {
            match &*setting {
                "columns" => known.columns = read_texts("columns", value)?,
                "key" => known.key = read_texts("key", value)?,
                "operations" => known.operations = read_operations(value)?,
                "where" => known.filter = Some(read_text("where", value)?),
                other => return Err(format!("{name}: {other}: is no setting of a table")),
            }
        }
    }
    Ok(tables)
}

fn read_operations(value: &Value) -> Result<Vec<String>, String> {
    let operations = read_texts("operations", value)?;
    let unknown = operations.iter().find(|one| !OPERATIONS.contains(&&***one));
    match unknown {
        Some(unknown) => Err(format!(
            "operations: {unknown} is none of {}",
            OPERATIONS.join(", ")
        )),
        None => Ok(operations),
    }
}

fn read_boolean(settings: &BTreeMap<String, Value>, setting: &str) -> Result<Option<bool>, String> {
    let Some(value) = settings.get(setting) else {
        return Ok(None);
    };
    let value = value.as_bool();
    value
        .map(Some)
        .ok_or_else(|| format!("{setting}: must be true or false"))
}

fn read_text(setting: &str, value: &Value) -> Result<String, String> {
    match value.as_str() {
        Some(text) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err(format!("{setting}: must be a string")),
    }
}

fn read_texts(setting: &str, value: &Value) -> Result<Vec<String>, String> {
    let list = value.as_array();
    let list = list.ok_or_else(|| format!("{setting}: must be a list of texts"))?;
    list.iter().map(|one| read_text(setting, one)).collect()
}

fn read_table<'a>(
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
