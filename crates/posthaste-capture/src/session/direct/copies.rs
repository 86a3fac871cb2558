//! Sends rows of a copy at the mark of their chunk. The progress of the copy is written with the
//! mark that counts them.

use std::mem::take;
use std::time::Instant;

use super::Run;
use crate::copier::Chunk;
use crate::copying::{TableCopy, Touched};
use crate::error::Error;
use crate::mark::Mark;
use crate::position::Position;
use crate::session::keep_alive_while;
use crate::snapshot::Snapshot;
use crate::store::copy::Copied;

/// A chunk that is being delivered.
pub(super) struct HandedChunk {
    chunk: Chunk,
    rows: usize,
    /// The position of its last row.
    last: Position,
    began: Instant,
}

impl HandedChunk {
    /// Whether this mark counts all of it.
    fn is_counted(&self, mark: Mark) -> bool {
        mark.position >= self.last || mark.done > self.last.commit
    }
}

impl Run<'_, '_> {
    /// Continues with the requested copy.
    pub(super) async fn switch_copy(&mut self, wanted: Option<TableCopy>) -> Result<(), Error> {
        if self.chunk.is_some() {
            return Ok(());
        }
        let session = &mut *self.session;
        let (source, publication) = (&session.capture.source, &session.installed.publication);
        let (copier, store) = (&mut session.copier, &session.store);
        let was_busy = copier.is_busy();
        let switch_to = copier.switch_to(wanted, store, source, publication);
        keep_alive_while(&mut session.feed, switch_to).await?;
        self.assembler.watch(session.copier.table());
        if !was_busy {
            session.copier.require(&self.recent);
        }
        Ok(())
    }

    /// Begins the next chunk, if a copy is requested and no chunk is pending.
    pub(super) async fn copy_on(&mut self) -> Result<(), Error> {
        let is_between = self.assembler.transaction().is_none() && self.chunk.is_none();
        let has_store = self.marking.is_none() && !self.is_store_lost;
        if !is_between || !has_store || !self.session.copier.is_busy() {
            return Ok(());
        }
        let session = &mut *self.session;
        let copier = &mut session.copier;
        let begin = async {
            copier.begin().await;
            Ok(())
        };
        keep_alive_while(&mut session.feed, begin).await?;
        self.assembler.watch(session.copier.table());
        Ok(())
    }

    /// Remembers a transaction that may not be visible to others yet.
    pub(super) fn note_transaction(&mut self) {
        if let Some(open) = self.assembler.transaction()
            && self.recent.last() != Some(&open.xid)
        {
            self.recent.push(open.xid);
        }
    }

    /// Forgets transactions that this snapshot sees: later snapshots see them too.
    pub(super) fn forget_seen(&mut self, snapshot: &Snapshot) {
        self.recent.retain(|xid| !snapshot.sees(*xid));
    }

    pub(super) async fn take_copied(
        &mut self,
        touched: Vec<Touched>,
        mark: Option<(String, Position)>,
    ) -> Result<(), Error> {
        self.reply_requested_since = None;
        let xid = self.assembler.transaction().map_or(0, |open| open.xid);
        for touched in touched {
            self.session.copier.note(xid, touched);
        }
        match mark {
            Some((mark, position)) if self.session.copier.awaits(&mark) => {
                self.read_chunk(xid, position).await
            }
            _ => Ok(()),
        }
    }

    /// Adds the rows of a chunk at the place of its mark.
    async fn read_chunk(&mut self, xid: u32, position: Position) -> Result<(), Error> {
        let session = &mut *self.session;
        let copier = &mut session.copier;
        let taken = keep_alive_while(&mut session.feed, async { Ok(copier.take().await) }).await?;
        let (Some(mut chunk), Some(table)) = (taken, session.copier.table()) else {
            return Ok(());
        };
        let rows = take(&mut chunk.rows);
        let events = self.assembler.read(&table.relation, rows, position);
        let events = events.and_then(|events| {
            let mut checked = events.iter().map(crate::event::Event::require_job);
            let checked = checked.try_for_each(|one| one.map_err(|error| error.to_string()));
            checked.map(|()| events)
        });
        let events = match events {
            Ok(events) => events,
            Err(problem) => {
                self.session.copier.refuse(&problem);
                return Ok(());
            }
        };
        self.chunk = Some(HandedChunk {
            rows: events.len(),
            last: events.last().map_or(position, |event| event.position),
            began: Instant::now(),
            chunk,
        });
        for event in events {
            self.reading.add(xid, event);
        }
        Ok(())
    }

    /// Whether this mark counts the chunk that is being delivered.
    pub(super) fn counts_chunk(&self, mark: Mark) -> bool {
        let handed = self.chunk.as_ref();
        handed.is_some_and(|chunk| chunk.is_counted(mark))
    }

    /// The progress of the copy at this mark.
    pub(super) fn copied_to(&self, mark: Mark) -> Option<Copied> {
        let handed = self.chunk.as_ref().filter(|chunk| chunk.is_counted(mark));
        handed.map(|handed| handed.chunk.copied(handed.rows))
    }

    /// Ends the chunk if this mark, which was written, counts it.
    pub(super) fn finish_chunk(&mut self, mark: Mark) {
        if let Some(handed) = self.chunk.take_if(|chunk| chunk.is_counted(mark)) {
            let took = handed.began.elapsed();
            self.session.copier.written(handed.chunk, took, true);
        }
    }
}
