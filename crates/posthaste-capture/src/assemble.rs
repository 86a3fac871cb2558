//! Assembles events from messages of the stream. Pure.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use ::bytes::Bytes;
use serde_json::{Map, Value as Json};
use uuid::Uuid;

use crate::change::{Change, ChangePlace, Operation, parse_time};
use crate::copying::{CopiedTable, MARK_PREFIX, TouchedRows};
use crate::event::{Event, EventDraft};
use crate::lsn::Lsn;
use crate::pgoutput::{self, OldRow, Relation, StreamMessage, Tuple, Value};
use crate::position::{Position, RecordKind, RowNumbers, Timelines, delivery_id};
use crate::source::Source;

/// The result of a message of the stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct MessageEffect {
    pub(crate) events: Vec<Event>,
    /// The end of the transaction, if this was its commit.
    pub(crate) committed: Option<Lsn>,
    /// Changed rows of the copied table.
    pub(crate) touched: Vec<TouchedRows>,
    /// A mark of a copy with its position.
    pub(crate) mark: Option<(String, Position)>,
}

/// A change that cannot become an event. Reading stops at it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnreadableChange {
    pub(crate) position: Position,
    pub(crate) problem: String,
}

/// Reads the stream of one connection. Each connection describes its tables again.
#[derive(Debug)]
pub(crate) struct Assembler<'a> {
    source: &'a Source,
    epoch: Uuid,
    timelines: Timelines,
    /// The last change that is done.
    marked: Position,
    relations: HashMap<u32, Relation>,
    transaction: Option<OpenTransaction>,
    rows: RowNumbers,
    /// The copied table.
    watched: Option<CopiedTable>,
    /// The columns by which rows of an outbox are deleted.
    deleted_by: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenTransaction {
    commit: Lsn,
    committed_at: i64,
    pub(crate) xid: u32,
}

impl<'a> Assembler<'a> {
    pub(crate) fn new(
        source: &'a Source,
        epoch: Uuid,
        timelines: Timelines,
        marked: Position,
    ) -> Self {
        Self {
            source,
            epoch,
            timelines,
            marked,
            relations: HashMap::new(),
            transaction: None,
            rows: RowNumbers::default(),
            watched: None,
            deleted_by: Vec::new(),
        }
    }

    /// Sets the columns by which rows of the outbox are deleted.
    pub(crate) fn with_deletion_key(mut self, key: &[String]) -> Self {
        self.deleted_by = key.to_vec();
        self
    }

    /// Sets the copied table.
    pub(crate) fn watch_table(&mut self, table: Option<&CopiedTable>) {
        if self.watched.as_ref() != table {
            self.watched = table.cloned();
        }
    }

    /// Turns rows of a chunk into events at the position of its mark.
    pub(crate) fn events_of_rows(
        &self,
        relation: &Relation,
        rows: Vec<Tuple>,
        mark: Position,
    ) -> impl Iterator<Item = Result<Event, String>> {
        let event = move |(number, row): (usize, Tuple)| -> Result<Option<Event>, String> {
            let number = u16::try_from(number).map_err(|_| "a chunk has more than 65536 rows")?;
            let position = Position {
                row: number,
                ..mark
            };
            let step =
                self.assemble_change(position, relation, Operation::Read, None, Some(row))?;
            Ok(step.events.into_iter().next())
        };
        let numbered = rows.into_iter().enumerate();
        numbered.filter_map(move |row| event(row).transpose())
    }

    /// The open transaction of the stream.
    pub(crate) fn open_transaction(&self) -> Option<OpenTransaction> {
        self.transaction
    }

    /// Reads the next message, with the place of its record.
    pub(crate) fn read_message(
        &mut self,
        record: Lsn,
        message: Bytes,
    ) -> Result<MessageEffect, UnreadableChange> {
        let mut position = Position {
            commit: self.transaction.map_or(Lsn(0), |open| open.commit),
            record,
            row: 0,
        };
        let is_change = pgoutput::is_change(&message);
        let number = |rows: &mut RowNumbers| match is_change {
            true => rows.next_number(record),
            false => Ok(0),
        };
        let taken = number(&mut self.rows).and_then(|row| {
            position.row = row;
            self.apply_message(record, position, pgoutput::parse_message(message)?)
        });
        match taken {
            Ok(step) => Ok(step),
            // An operator skipped it.
            Err(_) if is_change && position <= self.marked => Ok(MessageEffect::default()),
            Err(problem) => Err(UnreadableChange { position, problem }),
        }
    }

    fn apply_message(
        &mut self,
        record: Lsn,
        position: Position,
        part: StreamMessage,
    ) -> Result<MessageEffect, String> {
        let (oid, operation, old, new) = match part {
            StreamMessage::Begin { commit, at, xid } => {
                self.transaction = Some(OpenTransaction {
                    commit,
                    committed_at: at,
                    xid,
                });
                self.rows = RowNumbers::default();
                return Ok(MessageEffect::default());
            }
            StreamMessage::Commit { end } => {
                self.transaction = None;
                return Ok(MessageEffect {
                    committed: Some(end),
                    ..MessageEffect::default()
                });
            }
            StreamMessage::Relation(relation) => {
                self.relations.insert(relation.oid, relation);
                return Ok(MessageEffect::default());
            }
            StreamMessage::Insert { oid, new } => (oid, Operation::Insert, None, Some(new)),
            StreamMessage::Update { oid, old, new } => (oid, Operation::Update, old, Some(new)),
            StreamMessage::Delete { oid, old } => (oid, Operation::Delete, Some(old), None),
            StreamMessage::Truncate { oids } => {
                return self.assemble_truncate(record, position, &oids);
            }
            StreamMessage::Message {
                is_transactional,
                prefix,
                content,
            } => {
                if is_transactional && prefix == MARK_PREFIX {
                    let mark = String::from_utf8_lossy(&content).into_owned();
                    return Ok(MessageEffect {
                        mark: Some((mark, position)),
                        ..MessageEffect::default()
                    });
                }
                // A message without a transaction has no commit, so its position is not unique.
                let draft = match is_transactional {
                    true => self.source.draft_message(&prefix, content),
                    false => None,
                };
                let events =
                    draft.map(|draft| self.assemble_event(draft, position, RecordKind::Message));
                let events = events.transpose()?;
                return Ok(MessageEffect::from_event(events.flatten()));
            }
            StreamMessage::Other => return Ok(MessageEffect::default()),
        };
        let relation = self.find_relation(oid)?;
        self.assemble_change(position, relation, operation, old, new)
    }

    fn find_relation(&self, oid: u32) -> Result<&Relation, String> {
        let relation = self.relations.get(&oid);
        relation.ok_or_else(|| "a change is of a table that was not described".to_owned())
    }

    fn assemble_change(
        &self,
        position: Position,
        relation: &Relation,
        operation: Operation,
        old: Option<OldRow>,
        new: Option<Tuple>,
    ) -> Result<MessageEffect, String> {
        if position <= self.marked {
            return Ok(MessageEffect::default());
        }
        let open = self.transaction.ok_or(OUTSIDE_TRANSACTION)?;
        let place = ChangePlace {
            timeline: self.timelines.timeline_at(position.commit),
            position,
            xid: open.xid,
            committed_at: open.committed_at,
        };
        let change = Change {
            operation,
            old,
            new,
        };
        let is_copied = operation == Operation::Read;
        let watched = self.watched.as_ref().filter(|_| !is_copied);
        let touched = watched.and_then(|table| table.touched_rows(relation, &change));
        let draft = self.source.draft_change(relation, &change, place)?;
        // Rows of a copy have the position of a message, the mark of their chunk.
        let kind = match is_copied {
            true => RecordKind::Message,
            false => RecordKind::Change,
        };
        let event = draft.map(|draft| self.assemble_event(draft, position, kind));
        let mut event = event.transpose()?.flatten();
        if let Some(event) = event.as_mut().filter(|_| !self.deleted_by.is_empty()) {
            event.row = change
                .new
                .as_ref()
                .map(|new| self.deletion_key(relation, new));
        }
        Ok(MessageEffect {
            touched: touched.into_iter().collect(),
            ..MessageEffect::from_event(event)
        })
    }

    fn deletion_key(&self, relation: &Relation, row: &Tuple) -> Map<String, Json> {
        let columns = relation.columns.iter().zip(row);
        let columns = columns.filter(|(column, _)| self.deleted_by.contains(&column.name));
        columns
            .filter_map(|(column, value)| match value {
                Value::Text(text) => Some((column.name.clone(), Json::from(&**text))),
                Value::Null | Value::Unchanged => None,
            })
            .collect()
    }

    /// An event for each table of the record. Partitions count as their table.
    fn assemble_truncate(
        &mut self,
        record: Lsn,
        mut position: Position,
        oids: &[u32],
    ) -> Result<MessageEffect, String> {
        let mut step = MessageEffect::default();
        for (number, oid) in oids.iter().enumerate() {
            if oids[..number].contains(oid) {
                continue;
            }
            if number > 0 {
                position.row = self.rows.next_number(record)?;
            }
            let relation = self.find_relation(*oid)?;
            let one = self.assemble_change(position, relation, Operation::Truncate, None, None)?;
            step.events.extend(one.events);
            step.touched.extend(one.touched);
        }
        Ok(step)
    }

    fn assemble_event(
        &self,
        draft: EventDraft,
        position: Position,
        kind: RecordKind,
    ) -> Result<Option<Event>, String> {
        let open = self.transaction.ok_or(OUTSIDE_TRANSACTION)?;
        if position <= self.marked {
            return Ok(None);
        }
        let at = parse_time(open.committed_at)?;
        // A prepared transaction's records may stand on an older timeline than its commit.
        let written_on = self.timelines.timeline_at(position.record);
        let id = delivery_id(
            self.epoch,
            (written_on, open.committed_at),
            (kind, position.record),
            position.row,
        );
        let timeline = self.timelines.timeline_at(position.commit);
        Ok(Some(Event::new(draft, id, at, timeline, position)))
    }
}

const OUTSIDE_TRANSACTION: &str = "a change is outside of a transaction";

impl MessageEffect {
    fn from_event(event: Option<Event>) -> Self {
        Self {
            events: event.into_iter().collect(),
            ..Self::default()
        }
    }
}
