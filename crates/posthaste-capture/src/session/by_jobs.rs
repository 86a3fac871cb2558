//! Writes each event as a job, in the transaction of the mark that counts it.

use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::{
    BATCH_INTERVAL, FrameEffect, IDLE_MARK_INTERVAL, MARKS_PER_ROTATION, STATUS_INTERVAL, Session,
    add_frame_to_batch,
};
use crate::batch::Batch;
use crate::error::Error;
use crate::handed_rows::HandedRows;
use crate::lsn::Lsn;

/// Time between two requests for the server's place in a run that ends when it has caught up.
const END_POLL: Duration = Duration::from_millis(100);

impl Session<'_> {
    /// Captures until it is stopped, or up to a place in the log.
    pub(super) async fn run_by_jobs(&mut self, until: Option<Lsn>) -> Result<(), Error> {
        let mut assembler = self.new_assembler();
        let mut batch = Batch::new(self.mark);
        let rested = Instant::now().checked_sub(BATCH_INTERVAL);
        let (mut flushed, mut marks) = (rested.unwrap_or_else(Instant::now), 0);
        loop {
            let is_between = assembler.open_transaction().is_none();
            let is_due = is_between && flushed.elapsed() >= BATCH_INTERVAL;
            let is_idle_due = batch.is_mark_due() || flushed.elapsed() >= IDLE_MARK_INTERVAL;
            let is_at_end = until.is_some_and(|until| is_between && batch.end_lsn() >= until);
            let is_stopping = self.stopping.is_cancelled();
            let flushes = match batch.is_empty() {
                false => batch.is_full() || is_due || is_at_end || (is_stopping && is_between),
                true => batch.unmarked_bytes() > 0 && (is_idle_due || is_at_end || is_stopping),
            };
            if flushes {
                self.flush_batch(&mut batch).await?;
                flushed = Instant::now();
                if marks % MARKS_PER_ROTATION == 0 {
                    self.rotate_marks().await?;
                }
                marks += 1;
            }
            // All delivered transactions are visible to others.
            if is_between && batch.is_empty() && !is_stopping {
                self.begin_next_chunk(&mut assembler).await?;
            }
            if is_stopping || (is_at_end && batch.is_empty() && !self.copier.is_busy()) {
                return Ok(());
            }
            let wait = match (batch.is_empty(), is_between) {
                (false, true) => BATCH_INTERVAL.saturating_sub(flushed.elapsed()),
                _ if until.is_some() => END_POLL,
                _ => STATUS_INTERVAL,
            };
            let frame = tokio::select! {
                frame = timeout(wait, self.feed.next_frame()) => frame,
                () = self.stopping.cancelled() => continue,
            };
            let Ok(frame) = frame else {
                if until.is_some() {
                    self.feed.request_reply().await?;
                }
                continue;
            };
            match add_frame_to_batch(frame?, &mut assembler, &mut batch) {
                FrameEffect::Read => {}
                FrameEffect::Copied(touched, mark) => {
                    self.apply_to_copy(touched, mark, &assembler, &mut batch)
                        .await?;
                }
                FrameEffect::Asked => {
                    // A server that shuts down waits until everything it sent is confirmed.
                    if assembler.open_transaction().is_none() && batch.unmarked_bytes() > 0 {
                        self.flush_batch(&mut batch).await?;
                        flushed = Instant::now();
                    }
                    self.feed.report_progress().await?;
                }
                FrameEffect::Unreadable(change) => {
                    self.flush_batch(&mut batch).await?;
                    return self.stop_at_unreadable(&change).await;
                }
            }
        }
    }

    /// Writes the batch, and confirms it.
    pub(super) async fn flush_batch(&mut self, batch: &mut Batch) -> Result<(), Error> {
        let mark = batch.next_mark();
        let (events, xids) = (batch.events(), batch.xids());
        let rows = HandedRows::from_events(events, xids);
        self.write_batch(events.iter(), xids, &rows, None, mark)
            .await?;
        batch.clear();
        Ok(())
    }
}
