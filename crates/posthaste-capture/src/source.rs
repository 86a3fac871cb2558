//! The source of a capture, and how a change becomes an event. Pure.

mod outbox;

use bytes::Bytes;

use crate::change::{self, Change, ChangePlace, Operation};
use crate::event::EventDraft;
use crate::pgoutput::Relation;
pub use outbox::OutboxColumns;

/// The source of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Rows inserted into an outbox table; each is a message.
    Outbox {
        /// The table.
        table: TableName,
        /// Columns with other names than the defaults.
        columns: OutboxColumns,
    },
    /// Messages of `pg_logical_emit_message(true, …)` with this prefix. A `*` at its end matches
    /// any suffix.
    Messages(String),
    /// Changes of rows of these tables.
    Tables(Vec<CapturedTable>),
}

/// A table whose changes are captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedTable {
    /// Its name.
    pub table: TableName,
    /// The captured columns; empty means all.
    pub columns: Vec<String>,
    /// Captures only rows for which this SQL expression is true.
    pub filter: Option<String>,
    /// The captured operations; empty means all.
    pub operations: Vec<String>,
    /// The columns of the key; empty means those of the replica identity.
    pub key: Vec<String>,
}

/// A table's schema and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableName {
    /// The schema.
    pub schema: String,
    /// The name in it.
    pub name: String,
}

impl TableName {
    /// Parses `schema.name`; the default schema is `public`.
    pub fn read(text: &str) -> Result<Self, String> {
        let (schema, name) = text.split_once('.').unwrap_or(("public", text));
        if schema.is_empty() || name.is_empty() {
            return Err(format!(
                "{text:?} is not the name of a table. Write \"schema.table\""
            ));
        }
        if schema == "posthaste" {
            return Err("tables of the schema posthaste are never captured".into());
        }
        Ok(Self {
            schema: schema.into(),
            name: name.into(),
        })
    }

    fn matches(&self, relation: &Relation) -> bool {
        self.schema == relation.schema && self.name == relation.name
    }
}

impl std::fmt::Display for TableName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.schema, self.name)
    }
}

impl CapturedTable {
    fn captures(&self, operation: Operation) -> bool {
        let name = operation.name();
        let is_read = operation == Operation::Read;
        is_read || self.operations.is_empty() || self.operations.iter().any(|one| one == name)
    }
}

impl Source {
    /// The operations that its publication publishes.
    pub(crate) fn published_operations(&self) -> String {
        let Self::Tables(tables) = self else {
            return "insert".into();
        };
        let all = ["insert", "update", "delete", "truncate"];
        let wanted = all.into_iter().filter(|one| {
            let mut tables = tables.iter();
            tables.any(|table| {
                table.operations.is_empty() || table.operations.iter().any(|op| op == one)
            })
        });
        let wanted: Vec<&str> = wanted.collect();
        wanted.join(", ")
    }

    /// The tables of its publication.
    pub(crate) fn tables(&self) -> Vec<&TableName> {
        match self {
            Self::Outbox { table, .. } => vec![table],
            Self::Messages(_) => Vec::new(),
            Self::Tables(tables) => tables.iter().map(|one| &one.table).collect(),
        }
    }

    /// Whether it captures messages of `pg_logical_emit_message`.
    pub(crate) fn captures_messages(&self) -> bool {
        matches!(self, Self::Messages(_))
    }

    /// The captured columns of a table, empty meaning all; an error if it is not captured.
    pub(crate) fn captured_columns(&self, table: &TableName) -> Result<&[String], String> {
        match self {
            Self::Outbox { table: outbox, .. } if outbox == table => Ok(&[]),
            Self::Tables(tables) => {
                let known = tables.iter().find(|one| one.table == *table);
                known
                    .map(|one| &*one.columns)
                    .ok_or_else(|| format!("{table} is not captured"))
            }
            _ => Err(format!("{table} is not captured")),
        }
    }

    /// The filter of a copy: captured rows for which this expression is true too.
    pub(crate) fn copy_filter(&self, table: &TableName, more: Option<&str>) -> Option<String> {
        let captured = match self {
            Self::Tables(tables) => {
                let known = tables.iter().find(|one| one.table == *table);
                known.and_then(|one| one.filter.as_deref())
            }
            _ => None,
        };
        let filters: Vec<String> = captured
            .into_iter()
            .chain(more)
            .map(|one| format!("({one})"))
            .collect();
        (!filters.is_empty()).then(|| filters.join(" AND "))
    }

    /// The event of a changed row; `None` if it is not captured.
    pub(crate) fn draft_change(
        &self,
        relation: &Relation,
        change: &Change,
        place: ChangePlace,
    ) -> Result<Option<EventDraft>, String> {
        if relation.schema == "posthaste" {
            return Ok(None);
        }
        match self {
            Self::Outbox { table, columns } => {
                let is_row = matches!(change.operation, Operation::Insert | Operation::Read);
                let is_message = table.matches(relation) && is_row;
                match (&change.new, is_message) {
                    (Some(new), true) => columns.draft_event(relation, new).map(Some),
                    _ => Ok(None),
                }
            }
            Self::Messages(_) => Ok(None),
            Self::Tables(tables) => {
                // A renamed table is still captured, but its key columns may not fit.
                let table = tables.iter().find(|one| one.table.matches(relation));
                let keys = table.map_or(&[][..], |table| &table.key);
                if table.is_some_and(|table| !table.captures(change.operation)) {
                    return Ok(None);
                }
                let (body, key) = change::encode_change(relation, change, keys, place)?;
                Ok(Some(EventDraft {
                    id: None,
                    name: format!("{}.{}", relation.schema, relation.name),
                    key,
                    headers: Vec::new(),
                    body: body.into(),
                }))
            }
        }
    }

    /// The event of a transactional message.
    pub(crate) fn draft_message(&self, prefix: &str, content: Bytes) -> Option<EventDraft> {
        let Self::Messages(pattern) = self else {
            return None;
        };
        let matches = match pattern.strip_suffix('*') {
            Some(begin) => prefix.starts_with(begin),
            None => prefix == pattern,
        };
        matches.then(|| EventDraft {
            id: None,
            name: prefix.to_owned(),
            key: None,
            headers: Vec::new(),
            body: content,
        })
    }
}
