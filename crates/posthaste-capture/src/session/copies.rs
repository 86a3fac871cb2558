//! Operators' requests to a running capture: to pause, and to copy tables beside the stream.

use std::time::Instant;

use super::{Session, keep_alive_while};
use crate::assemble::Assembler;
use crate::batch::Batch;
use crate::chunk_jobs::ChunkJobs;
use crate::copying::TouchedRows;
use crate::error::Error;
use crate::position::Position;

impl Session<'_> {
    /// Begins the next chunk, if a copy is requested and no chunk is pending. All delivered
    /// transactions must be visible to others.
    pub(super) async fn begin_next_chunk(
        &mut self,
        assembler: &mut Assembler<'_>,
    ) -> Result<(), Error> {
        if self.copier.is_due() {
            Box::pin(self.read_requests()).await?;
        }
        let copier = &mut self.copier;
        let begin = async {
            copier.begin_chunk().await;
            Ok(())
        };
        keep_alive_while(&mut self.feed, begin).await?;
        assembler.watch_table(self.copier.watched_table());
        Ok(())
    }

    /// Applies a message of the stream to the copy.
    pub(super) async fn apply_to_copy(
        &mut self,
        touched: Vec<TouchedRows>,
        mark: Option<(String, Position)>,
        assembler: &Assembler<'_>,
        batch: &mut Batch,
    ) -> Result<(), Error> {
        let xid = assembler.open_transaction().map_or(0, |open| open.xid);
        for touched in touched {
            self.copier.note_change(xid, touched);
        }
        match mark {
            Some((mark, position)) if self.copier.awaits_mark(&mark) => {
                Box::pin(self.write_chunk(position, assembler, batch)).await
            }
            _ => Ok(()),
        }
    }

    /// Reads the operators' requests.
    async fn read_requests(&mut self) -> Result<(), Error> {
        let store = &self.store;
        let (is_paused, requests) = keep_alive_while(&mut self.feed, store.read_requests()).await?;
        if is_paused {
            return Err(Error::paused());
        }
        let (source, publication) = (&self.capture.source, &self.installed.publication);
        let switch_to = self.copier.switch_to(requests, store, source, publication);
        keep_alive_while(&mut self.feed, switch_to).await
    }

    /// Writes the rows of a chunk as jobs at the place of its mark.
    async fn write_chunk(
        &mut self,
        position: Position,
        assembler: &Assembler<'_>,
        batch: &mut Batch,
    ) -> Result<(), Error> {
        if !batch.is_empty() {
            self.flush_batch(batch).await?;
        }
        let copier = &mut self.copier;
        let take = async { Ok(copier.take_chunk().await) };
        let chunk = keep_alive_while(&mut self.feed, take).await?;
        let Some(mut chunk) = chunk else {
            return Ok(());
        };
        self.copier.read_ahead(&chunk);
        let Some(table) = self.copier.watched_table() else {
            return Ok(());
        };
        let rows = std::mem::take(&mut chunk.rows);
        let (began, copied) = (Instant::now(), chunk.progress(rows.len()));
        let events = assembler.events_of_rows(&table.relation, rows, position);
        let mut jobs = ChunkJobs::new(events, &self.capture.queue);
        let deletion = self.deletion.as_deref();
        let keep = self
            .store
            .write_chunk(&self.reader, &copied, &mut jobs, deletion);
        let kept = keep_alive_while(&mut self.feed, keep).await;
        let (count, problem) = (jobs.counts.events as u64, jobs.problem.take());
        drop(jobs);
        if let Some(problem) = problem {
            self.copier.refuse_copy(&problem);
            return Ok(());
        }
        let goes_on = kept?.map_err(Error::lost)?;
        if goes_on {
            self.shared.count_events(count);
        }
        self.copier.finish_chunk(chunk, began.elapsed(), goes_on);
        Ok(())
    }
}
