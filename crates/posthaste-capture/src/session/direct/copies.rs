//! Sends rows of a copy at the mark of their chunk. The progress of the copy is written with the
//! mark that counts them.

use std::mem::take;
use std::time::Instant;

use super::DirectRun;
use crate::copier::Chunk;
use crate::copying::{RequestedCopy, TouchedRows};
use crate::error::Error;
use crate::mark::Mark;
use crate::position::Position;
use crate::session::keep_alive_while;
use crate::snapshot::Snapshot;
use crate::store::copy::CopyProgress;

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
    fn is_counted_by(&self, mark: Mark) -> bool {
        mark.position >= self.last || mark.done > self.last.commit
    }
}

impl DirectRun<'_, '_> {
    /// Continues with the requested copy.
    pub(super) async fn switch_copy(&mut self, wanted: Option<RequestedCopy>) -> Result<(), Error> {
        if self.chunk.is_some() {
            return Ok(());
        }
        let session = &mut *self.session;
        let (source, publication) = (&session.capture.source, &session.installed.publication);
        let (copier, store) = (&mut session.copier, &session.store);
        let was_busy = copier.is_busy();
        let switch_to = copier.switch_to(wanted, store, source, publication);
        keep_alive_while(&mut session.feed, switch_to).await?;
        self.assembler.watch_table(session.copier.watched_table());
        if !was_busy {
            session.copier.require_visible(&self.recent);
        }
        Ok(())
    }

    /// Begins the next chunk, if a copy is requested and no chunk is pending.
    pub(super) async fn begin_next_chunk(&mut self) -> Result<(), Error> {
        let is_between = self.assembler.open_transaction().is_none() && self.chunk.is_none();
        let has_store = self.marking.is_none() && !self.is_store_lost;
        if !is_between || !has_store || !self.session.copier.is_busy() {
            return Ok(());
        }
        let session = &mut *self.session;
        let copier = &mut session.copier;
        let begin = async {
            copier.begin_chunk().await;
            Ok(())
        };
        keep_alive_while(&mut session.feed, begin).await?;
        self.assembler.watch_table(session.copier.watched_table());
        Ok(())
    }

    /// Remembers a transaction that may not be visible to others yet.
    pub(super) fn note_transaction(&mut self) {
        if let Some(open) = self.assembler.open_transaction()
            && self.recent.last() != Some(&open.xid)
        {
            self.recent.push(open.xid);
        }
    }

    /// Forgets transactions that this snapshot sees: later snapshots see them too.
    pub(super) fn forget_visible(&mut self, snapshot: &Snapshot) {
        self.recent.retain(|xid| !snapshot.sees(*xid));
    }

    pub(super) async fn apply_to_copy(
        &mut self,
        touched: Vec<TouchedRows>,
        mark: Option<(String, Position)>,
    ) -> Result<(), Error> {
        self.reply_requested_since = None;
        let xid = self.assembler.open_transaction().map_or(0, |open| open.xid);
        for touched in touched {
            self.session.copier.note_change(xid, touched);
        }
        match mark {
            Some((mark, position)) if self.session.copier.awaits_mark(&mark) => {
                self.add_chunk_rows(xid, position).await
            }
            _ => Ok(()),
        }
    }

    /// Adds the rows of a chunk at the place of its mark.
    async fn add_chunk_rows(&mut self, xid: u32, position: Position) -> Result<(), Error> {
        let session = &mut *self.session;
        let copier = &mut session.copier;
        let taken =
            keep_alive_while(&mut session.feed, async { Ok(copier.take_chunk().await) }).await?;
        let (Some(mut chunk), Some(table)) = (taken, session.copier.watched_table()) else {
            return Ok(());
        };
        let rows = take(&mut chunk.rows);
        let events = self
            .assembler
            .events_of_rows(&table.relation, rows, position);
        let events = events.map(|event| {
            let event = event?;
            let checked = event.check_fits_job().map_err(|error| error.to_string());
            checked.map(|()| event)
        });
        let events = match events.collect::<Result<Vec<_>, _>>() {
            Ok(events) => events,
            Err(problem) => {
                self.session.copier.refuse_copy(&problem);
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
        handed.is_some_and(|chunk| chunk.is_counted_by(mark))
    }

    /// The progress of the copy at this mark.
    pub(super) fn copy_progress_at(&self, mark: Mark) -> Option<CopyProgress> {
        let handed = self
            .chunk
            .as_ref()
            .filter(|chunk| chunk.is_counted_by(mark));
        handed.map(|handed| handed.chunk.progress(handed.rows))
    }

    /// Ends the chunk if this mark, which was written, counts it.
    pub(super) fn finish_chunk(&mut self, mark: Mark) {
        if let Some(handed) = self.chunk.take_if(|chunk| chunk.is_counted_by(mark)) {
            let took = handed.began.elapsed();
            self.session.copier.finish_chunk(handed.chunk, took, true);
        }
    }
}
