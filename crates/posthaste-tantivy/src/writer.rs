//! The thread that owns the writer: it executes waiting orders, compares marks, and commits them
//! together.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use jiff::Timestamp;
use tantivy::collector::Count;
use tantivy::query::RangeQuery;
use tantivy::schema::Term;
use tantivy::{IndexReader, IndexWriter};
use tokio::sync::oneshot;

use super::lookup;
use super::schema::{Fields, is_id};
use posthaste_sync::{IndexError, Mark, Write, WriteOutcome};

/// Memory in bytes that the writer fills before it creates a segment.
const WRITER_MEMORY: usize = 64 << 20;
/// The most orders that share a commit, which waits for the disk.
const MAX_ORDERS_PER_COMMIT: usize = 100;

type ReplySender<T> = oneshot::Sender<Result<T, IndexError>>;

/// An order to the writer.
pub(super) enum Order {
    Write(Vec<Write>, ReplySender<Vec<WriteOutcome>>),
    Forget(Duration, ReplySender<u64>),
}

/// An executed order, which is answered after the commit.
enum ExecutedOrder {
    Written(Vec<WriteOutcome>, ReplySender<Vec<WriteOutcome>>),
    Forgotten(u64, ReplySender<u64>),
}

struct WriterThread {
    writer: IndexWriter,
    fields: Fields,
    reader: IndexReader,
    /// The marks that are not committed yet.
    pending: HashMap<String, Mark>,
}

/// Starts the writer's thread, which ends when all senders are dropped.
pub(super) fn start_writer(
    index: &tantivy::Index,
    fields: Fields,
    reader: IndexReader,
) -> tantivy::Result<Sender<Order>> {
    // A single thread executes writes in the order of their arrival.
    let writer = index.writer_with_num_threads(1, WRITER_MEMORY)?;
    // The previous writer has released the lock by now, and may have committed since the index was
    // opened.
    reader.reload()?;
    let owner = WriterThread {
        writer,
        fields,
        reader,
        pending: HashMap::new(),
    };
    let (orders, ordered) = channel();
    let thread = std::thread::Builder::new().name("posthaste-tantivy".into());
    thread.spawn(move || owner.run(&ordered))?;
    Ok(orders)
}

impl WriterThread {
    fn run(mut self, ordered: &Receiver<Order>) {
        while let Ok(first) = ordered.recv() {
            let others = ordered.try_iter().take(MAX_ORDERS_PER_COMMIT - 1);
            let orders: Vec<Order> = std::iter::once(first).chain(others).collect();
            if !self.execute(orders) {
                return;
            }
        }
    }

    /// Executes orders: either all of them are committed, or none. Returns false if the writer
    /// cannot continue.
    fn execute(&mut self, orders: Vec<Order>) -> bool {
        let mut answered = Vec::with_capacity(orders.len());
        let mut failed = None;
        for order in orders {
            let result = match order {
                Order::Write(writes, answer) => {
                    let written = self.write(&writes);
                    written.map(|written| ExecutedOrder::Written(written, answer))
                }
                Order::Forget(older_than, answer) => {
                    let forgotten = self.prune_deletions(older_than);
                    forgotten.map(|forgotten| ExecutedOrder::Forgotten(forgotten, answer))
                }
            };
            match result {
                Ok(one) => answered.push(one),
                // Callers whose order has no answer receive an error.
                Err(error) => failed = Some(error),
            }
        }
        let committed = match failed {
            None => self.writer.commit().and_then(|_| self.reader.reload()),
            Some(error) => Err(error),
        };
        self.pending.clear();
        let result = committed.map_err(|error| IndexError(error.to_string()));
        answered
            .into_iter()
            .for_each(|one| one.send_answer(result.clone()));
        result.is_ok() || self.writer.rollback().is_ok() && self.reader.reload().is_ok()
    }

    fn write(&mut self, writes: &[Write]) -> tantivy::Result<Vec<WriteOutcome>> {
        let ids: Vec<&str> = writes.iter().map(|one| &*one.id).collect();
        let committed = lookup::entries_by_ids(&self.reader.searcher(), &self.fields, &ids)?;
        let now = Timestamp::now().as_millisecond();
        let mut answers = Vec::with_capacity(writes.len());
        for (write, committed) in writes.iter().zip(committed) {
            let pending = self.pending.get(&write.id).copied();
            let before = pending.or(committed.map(|seen| seen.mark));
            if before.is_some_and(|before| before >= write.mark) {
                answers.push(WriteOutcome::Older);
                continue;
            }
            if !is_id(&write.id) {
                let reason = "the id is too long".into();
                answers.push(WriteOutcome::Never { reason });
                continue;
            }
            match self.fields.to_document(write, now) {
                Ok(document) => {
                    // Skipped for new ids, because each deletion is searched in all segments.
                    if before.is_some() {
                        let id = Term::from_field_text(self.fields.id, &write.id);
                        self.writer.delete_term(id);
                    }
                    self.writer.add_document(document)?;
                    self.pending.insert(write.id.clone(), write.mark);
                    answers.push(WriteOutcome::Taken);
                }
                Err(reason) => answers.push(WriteOutcome::Rejected { reason }),
            }
        }
        Ok(answers)
    }

    fn prune_deletions(&mut self, older_than: Duration) -> tantivy::Result<u64> {
        let age = i64::try_from(older_than.as_millis()).unwrap_or(i64::MAX);
        let before = Timestamp::now().as_millisecond().saturating_sub(age);
        let before = Term::from_field_i64(self.fields.deleted_at, before);
        let old = || RangeQuery::new(Bound::Unbounded, Bound::Excluded(before.clone()));
        let forgotten = self.reader.searcher().search(&old(), &Count)?;
        if forgotten > 0 {
            self.writer.delete_query(Box::new(old()))?;
        }
        Ok(forgotten as u64)
    }
}

impl ExecutedOrder {
    fn send_answer(self, committed: Result<(), IndexError>) {
        // An answer that its caller no longer awaits is dropped.
        match self {
            Self::Written(written, answer) => drop(answer.send(committed.map(|()| written))),
            Self::Forgotten(forgotten, answer) => drop(answer.send(committed.map(|()| forgotten))),
        }
    }
}
