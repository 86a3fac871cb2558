//! The same log, read by the parser of another crate.

use std::collections::HashMap;
use std::fmt::Write as _;

use pg_walstream::protocol::{
    ColumnInfo, LogicalReplicationMessage as Message, LogicalReplicationParser, TupleData,
};

use super::World;

/// Names and columns of tables by OID, from their last descriptions.
type Tables = HashMap<u32, (String, Vec<ColumnInfo>)>;

/// Returns a line for each change, in the format of the capture's lines.
pub(super) async fn parsed(world: &World, types: &dyn Fn(&str, &str) -> String) -> Vec<String> {
    let sql = "SELECT data FROM pg_logical_slot_peek_binary_changes('third', NULL, NULL, \
               'proto_version', '1', 'publication_names', '\"posthaste_all\"')";
    let rows = world.client.query(sql, &[]).await.unwrap();
    let mut parser = LogicalReplicationParser::with_protocol_version(1);
    let (mut tables, mut lines) = (Tables::new(), Vec::new());
    for row in rows {
        let parsed = parser.parse_wal_message(row.get(0)).unwrap();
        let mut add = |oid: u32, operation: &str, row: Vec<(String, String)>| {
            lines.push(line(&tables[&oid].0, operation, row, types));
        };
        match parsed.message {
            Message::Relation {
                relation_id,
                relation_name,
                columns,
                ..
            } => {
                tables.insert(relation_id, (relation_name.to_string(), columns));
            }
            Message::Insert { relation_id, tuple } => {
                let row = new_row(&tables[&relation_id].1, &tuple, None);
                add(relation_id, "INSERT", row);
            }
            Message::Update {
                relation_id,
                old_tuple,
                new_tuple,
                key_type,
            } => {
                let old = old_tuple.filter(|_| key_type == Some('O'));
                let row = new_row(&tables[&relation_id].1, &new_tuple, old.as_ref());
                add(relation_id, "UPDATE", row);
            }
            Message::Delete {
                relation_id,
                old_tuple,
                key_type,
            } => {
                let row = old_row(&tables[&relation_id].1, &old_tuple, key_type == 'O');
                add(relation_id, "DELETE", row);
            }
            Message::Truncate { relation_ids, .. } => {
                for oid in relation_ids {
                    add(oid, "TRUNCATE", Vec::new());
                }
            }
            _ => {}
        }
    }
    lines
}

fn line(
    table: &str,
    operation: &str,
    mut row: Vec<(String, String)>,
    types: &dyn Fn(&str, &str) -> String,
) -> String {
    row.sort();
    let mut line = format!("{table} {operation}");
    for (name, value) in row {
        let kind = types(table, &name);
        let value = match (&*kind, &*value) {
            ("boolean", "t") => "true",
            ("boolean", "f") => "false",
            (_, value) => value,
        };
        write!(line, " {name}[{kind}]:{value}").unwrap();
    }
    line
}

/// Returns the new row, without values that the log lacks.
fn new_row(
    columns: &[ColumnInfo],
    new: &TupleData,
    old: Option<&TupleData>,
) -> Vec<(String, String)> {
    let mut row = Vec::new();
    for (number, column) in columns.iter().enumerate() {
        let mut value = new.get_column(number).unwrap();
        if value.is_unchanged() {
            match old.and_then(|old| old.get_column(number)) {
                Some(old) => value = old,
                None => continue,
            }
        }
        let text = value.as_string().unwrap_or_else(|| "null".into());
        row.push((column.name.to_string(), text));
    }
    row
}

/// Returns the old row without nulls, which the other plugin omits.
fn old_row(columns: &[ColumnInfo], old: &TupleData, is_full: bool) -> Vec<(String, String)> {
    let columns = columns.iter().enumerate();
    let known = columns.filter(|(_, column)| is_full || column.is_key());
    known
        .filter_map(|(number, column)| {
            let text = old.get_column(number)?.as_string()?;
            Some((column.name.to_string(), text))
        })
        .collect()
}
