//! Copies existing rows in chunks beside the stream. Pure: finds the rows of a chunk that are newer
//! in the stream, and the size of the next chunk.
//!
//! A chunk is read in one snapshot. A mark is written into the log after it. Until the stream
//! brings the mark, each change of a transaction that the snapshot did not see removes its row from
//! the chunk, because the stream has delivered a newer version.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::time::Duration;

use crate::change::Change;
use crate::pgoutput::{OldRow, Relation, Tuple, Value};
use crate::snapshot::Snapshot;
use crate::source::TableName;

/// The prefix of marks.
pub(crate) const MARK_PREFIX: &str = "posthaste.mark";

/// The values of a key, as the server prints them.
pub(crate) type Key = Vec<String>;

/// The time that a chunk should take, short enough for its snapshot and for waiting changes.
const TARGET_CHUNK_TIME: Duration = Duration::from_millis(400);
const CHUNK_ROWS: std::ops::RangeInclusive<i64> = 1..=10_000;
const FIRST_CHUNK_ROWS: i64 = 200;
const TARGET_CHUNK_BYTES: usize = 8 << 20;

/// A copy of the database's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestedCopy {
    pub(crate) id: i64,
    pub(crate) table: TableName,
    /// Copies rows for which this SQL expression is true.
    pub(crate) filter: Option<String>,
    /// The key of the last row that was read.
    pub(crate) after: Option<Key>,
}

/// A table as the stream describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopiedTable {
    pub(crate) relation: Relation,
    /// The columns of its key, in order.
    pub(crate) keys: Vec<String>,
}

/// The rows that a change touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TouchedRows {
    Rows(Vec<Key>),
    /// All rows, or a row whose key is unknown.
    All,
}

/// The rows of a chunk as they were read.
#[derive(Debug)]
pub(crate) struct Page {
    snapshot: Snapshot,
    rows: Vec<(Key, Tuple)>,
    /// The key of the last row that was read.
    last: Option<Key>,
    scanned: usize,
    bytes: usize,
}

pub(crate) fn value_from_text(text: Option<&str>) -> Value {
    text.map_or(Value::Null, |text| Value::Text(text.to_owned()))
}

impl CopiedTable {
    /// The rows of this table that a change touches; `None` for changes of other tables.
    pub(crate) fn touched_rows(&self, relation: &Relation, change: &Change) -> Option<TouchedRows> {
        if relation.oid != self.relation.oid {
            return None;
        }
        let (old, is_full) = match &change.old {
            Some(OldRow::Full(tuple)) => (Some(tuple), true),
            Some(OldRow::Key(tuple)) => (Some(tuple), false),
            None => (None, false),
        };
        let before = old.map(|old| self.read_key(relation, old, None, is_full));
        let after = change
            .new
            .as_ref()
            .map(|new| self.read_key(relation, new, old, true));
        let keys: Option<Vec<Key>> = before.into_iter().chain(after).collect();
        Some(match keys {
            Some(keys) if !keys.is_empty() => TouchedRows::Rows(keys),
            _ => TouchedRows::All,
        })
    }

    /// `None` if a value is not in the log, or the table has changed.
    fn read_key(
        &self,
        relation: &Relation,
        tuple: &Tuple,
        old: Option<&Tuple>,
        is_whole: bool,
    ) -> Option<Key> {
        let value = |name: &String| {
            let mut columns = relation.columns.iter();
            let number = columns.position(|column| column.name == *name)?;
            if !is_whole && !relation.columns[number].is_key {
                return None;
            }
            let value = match tuple.get(number)? {
                Value::Unchanged => old?.get(number)?,
                value => value,
            };
            match value {
                Value::Text(text) => Some(text.clone()),
                Value::Null | Value::Unchanged => None,
            }
        };
        self.keys.iter().map(value).collect()
    }
}

impl Page {
    /// Splits rows into the key, a column that says whether the filter matches, and the values.
    pub(crate) fn new(table: &CopiedTable, snapshot: Snapshot, rows: Vec<Vec<Value>>) -> Self {
        let keys = table.keys.len();
        let (scanned, mut last, mut bytes) = (rows.len(), None, 0);
        let mut wanted = Vec::with_capacity(rows.len());
        for mut row in rows {
            let values = row.split_off((keys + 1).min(row.len()));
            let is_wanted = matches!(row.pop(), Some(Value::Text(text)) if text == "t");
            let key = row.into_iter().map(|value| match value {
                Value::Text(text) => text,
                Value::Null | Value::Unchanged => String::new(),
            });
            let key: Key = key.collect();
            if is_wanted {
                let sizes = values.iter().map(|value| match value {
                    Value::Text(text) => text.len(),
                    Value::Null | Value::Unchanged => 0,
                });
                bytes += sizes.sum::<usize>();
                wanted.push((key, values));
                last = None;
            } else {
                last = Some(key);
            }
        }
        let last = last.or_else(|| wanted.last().map(|(key, _): &(Key, Tuple)| key.clone()));
        Self {
            snapshot,
            rows: wanted,
            last,
            scanned,
            bytes,
        }
    }

    /// The rows of which these changes of the stream are no newer version.
    pub(crate) fn rows_without_newer_version(self, seen: &[(u32, TouchedRows)]) -> Vec<Tuple> {
        let mut newer: HashSet<&Key> = HashSet::new();
        for (_, touched) in seen.iter().filter(|(xid, _)| !self.snapshot.sees(*xid)) {
            match touched {
                TouchedRows::All => return Vec::new(),
                TouchedRows::Rows(keys) => newer.extend(keys),
            }
        }
        let rows = self.rows.into_iter();
        rows.filter(|(key, _)| !newer.contains(key))
            .map(|(_, row)| row)
            .collect()
    }

    pub(crate) fn last_key(&self) -> Option<&Key> {
        self.last.as_ref()
    }

    /// Whether the table ends with it, if it was read with this limit.
    pub(crate) fn is_last_page(&self, limit: i64) -> bool {
        i64::try_from(self.scanned).is_ok_and(|rows| rows < limit)
    }
}

/// The number of rows of the next chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChunkSize(i64);

impl Default for ChunkSize {
    fn default() -> Self {
        Self(FIRST_CHUNK_ROWS)
    }
}

impl ChunkSize {
    pub(crate) fn rows(self) -> i64 {
        self.0
    }

    /// The next size after this chunk, which took this long to read.
    pub(crate) fn next_after_read(self, page: &Page, took: Duration) -> Self {
        let by_size = TARGET_CHUNK_BYTES as f64 / (page.bytes as f64).max(1.0);
        self.scale_by(by_size.clamp(0.25, 4.0))
            .min(self.next_by_time(took))
    }

    /// The next size after a chunk that took this long.
    fn next_by_time(self, took: Duration) -> Self {
        let by_time = TARGET_CHUNK_TIME.as_secs_f64() / took.as_secs_f64().max(0.001);
        self.scale_by(by_time.clamp(0.25, 4.0))
    }

    /// The next size after a chunk that took this long from its mark until it was written. Much of
    /// that is a wait that fewer rows would not shorten.
    pub(crate) fn next_after_delivery(self, took: Duration) -> Self {
        self.next_by_time(took).max(Self::default())
    }

    /// The next size after a chunk that could not be read in time.
    pub(crate) fn next_after_timeout(self) -> Self {
        self.scale_by(0.25)
    }

    #[allow(clippy::cast_possible_truncation, reason = "it is clamped")]
    fn scale_by(self, factor: f64) -> Self {
        let rows = (self.0 as f64 * factor) as i64;
        Self(rows.clamp(*CHUNK_ROWS.start(), *CHUNK_ROWS.end()))
    }
}
