//! Writes marks of accepted events while sending continues.

use std::mem::take;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::DirectRun;
use crate::batch::MARK_AFTER_BYTES;
use crate::error::Error;
use crate::handed_rows::HandedRows;
use crate::lsn::Lsn;
use crate::mark::{EventCounts, Mark};
use crate::session::{
    IDLE_MARK_INTERVAL, MARKS_PER_ROTATION, VISIBILITY_POLL, keep_alive_while, not_visible_error,
};
use crate::store::{Store, WriteOutcome};

/// Time between two marks.
const MARK_INTERVAL: Duration = Duration::from_secs(1);
/// Delay before a failed mark is written again.
const MARK_RETRY_DELAY: Duration = Duration::from_secs(2);

/// A mark, and the connection that wrote it.
pub(super) struct WrittenMark {
    mark: Mark,
    store: Arc<Store>,
    kept: WriteOutcome,
    /// The place that the stream must pass before the mark is confirmed.
    after: Result<Option<Lsn>, Error>,
}

pub(super) type MarkResult = Result<WrittenMark, Error>;

/// A mark that is being written.
pub(super) struct PendingMark<'a> {
    written: Pin<Box<dyn Future<Output = MarkResult> + 'a>>,
    sent: EventCounts,
    rows: Arc<HandedRows>,
}

impl<'a> DirectRun<'_, 'a> {
    /// Begins to write a mark, if one is due.
    pub(super) fn begin_mark(&mut self) {
        let (new, old) = (self.accepted, self.marked);
        let is_due = match self.is_store_lost {
            true => self.marked_at.elapsed() >= MARK_RETRY_DELAY,
            // The copy continues once its chunk is marked.
            false if self.counts_chunk(new) => true,
            false if new.position != old.position => self.marked_at.elapsed() >= MARK_INTERVAL,
            false => {
                let unmarked = new.done.0.saturating_sub(old.done.0);
                unmarked >= MARK_AFTER_BYTES || self.marked_at.elapsed() >= IDLE_MARK_INTERVAL
            }
        };
        // A lost store is also tried without a new mark, to learn that it is back.
        let is_wanted = new != old || self.is_store_lost;
        if !is_wanted || !is_due || self.marking.is_some() || !self.polling.is_empty() {
            return;
        }
        self.marked_at = Instant::now();
        let (sent, rows) = (take(&mut self.unmarked), Arc::new(take(&mut self.handed)));
        let written = Box::pin(self.write_mark(new, sent, Arc::clone(&rows)));
        self.marking = Some(PendingMark {
            written,
            sent,
            rows,
        });
    }

    fn write_mark(
        &self,
        mark: Mark,
        sent: EventCounts,
        rows: Arc<HandedRows>,
    ) -> impl Future<Output = MarkResult> + 'a + use<'a> {
        let (store, is_lost) = (Arc::clone(&self.session.store), self.is_store_lost);
        let (database, capture) = (self.session.database, self.session.capture);
        let reader = self.session.reader.clone();
        let (deletion, stopping) = (self.session.deletion.clone(), self.session.stopping);
        let copied = self.copy_progress_at(mark);
        let is_failover = self.session.is_failover;
        let rotates = self.marks.is_multiple_of(MARKS_PER_ROTATION);
        async move {
            let store = match is_lost {
                false => store,
                true => {
                    let store = Store::open(database, &capture.name).await?;
                    // Counting continues from the newest mark.
                    store.read_mark(reader.epoch).await?;
                    Arc::new(store)
                }
            };
            store.count_events(sent);
            loop {
                let deleted = (deletion.as_deref(), &*rows);
                let copied = copied.as_ref();
                match store
                    .write_batch(&reader, &[], &[], deleted, copied, mark)
                    .await?
                {
                    WriteOutcome::Unseen if stopping.is_cancelled() => {
                        return Err(not_visible_error());
                    }
                    WriteOutcome::Unseen => sleep(VISIBILITY_POLL).await,
                    kept => {
                        let after = place_to_pass(&store, rotates, is_failover).await;
                        return Ok(WrittenMark {
                            mark,
                            store,
                            kept,
                            after,
                        });
                    }
                }
            }
        }
    }

    pub(super) async fn finish_mark(&mut self, marked: MarkResult) -> Result<(), Error> {
        let marking = self.marking.take();
        match marked {
            Ok(written) => {
                let snapshot = match written.kept {
                    WriteOutcome::Done { snapshot, .. } => snapshot,
                    WriteOutcome::Superseded(reason) => return Err(Error::lost(reason)),
                    WriteOutcome::Unseen => return Err(not_visible_error()),
                };
                (self.session.store, self.is_store_lost) = (written.store, false);
                self.forget_visible(&snapshot);
                self.record_written_mark(written.mark);
                match written.after {
                    Ok(after) => {
                        let done = written.mark.done;
                        self.session.feed.confirm(done, after).await
                    }
                    Err(error) if error.is_shutdown() => Err(error),
                    // The next confirmation includes this mark.
                    Err(error) => {
                        self.lose_store(&error);
                        Ok(())
                    }
                }
            }
            // The walsender waits for our confirmation, which waits for a destination.
            Err(error) if error.is_shutdown() || self.policy.is_silent() => Err(error),
            Err(error) => {
                if let Some(marking) = marking {
                    self.unmarked.add(marking.sent);
                    self.handed.append(&marking.rows);
                }
                self.lose_store(&error);
                Ok(())
            }
        }
    }

    /// Continues without the store, and reconnects to it later.
    pub(super) fn lose_store(&mut self, error: &Error) {
        if !self.is_store_lost {
            let capture = &self.session.capture.name;
            tracing::warn!(capture, %error, "the mark of a capture cannot be written");
        }
        self.is_store_lost = true;
    }

    /// Waits until nothing else uses the store, and requires one.
    pub(super) async fn finish_marking(&mut self) -> Result<(), Error> {
        self.finish_polling().await?;
        if let Some(marking) = &mut self.marking {
            let written = async { Ok(marking.written.as_mut().await) };
            let marked = keep_alive_while(&mut self.session.feed, written).await?;
            self.finish_mark(marked).await?;
        }
        match self.is_store_lost {
            true => self.write_accepted_mark().await,
            false => Ok(()),
        }
    }

    /// Marks all accepted events.
    pub(super) async fn mark_now(&mut self) -> Result<(), Error> {
        self.finish_marking().await?;
        match self.accepted == self.marked {
            true => Ok(()),
            false => self.write_accepted_mark().await,
        }
    }

    async fn write_accepted_mark(&mut self) -> Result<(), Error> {
        let (sent, rows) = (take(&mut self.unmarked), Arc::new(take(&mut self.handed)));
        let written = self.write_mark(self.accepted, sent, rows);
        let written = keep_alive_while(&mut self.session.feed, written).await?;
        self.finish_mark(Ok(written)).await
    }

    pub(super) async fn rotate_marks(&mut self) -> Result<(), Error> {
        match self.marks % MARKS_PER_ROTATION {
            1 => self.session.rotate_marks().await,
            _ => Ok(()),
        }
    }

    pub(super) fn record_written_mark(&mut self, mark: Mark) {
        self.finish_chunk(mark);
        self.marked = mark;
        self.marked_at = Instant::now();
        self.marks += 1;
    }
}

/// The place that the stream must pass before a mark that was written is confirmed.
async fn place_to_pass(
    store: &Store,
    rotates: bool,
    is_failover: bool,
) -> Result<Option<Lsn>, Error> {
    if rotates {
        store.rotate_long_marks().await?;
    }
    match is_failover {
        true => store.flush_lsn().await.map(Some),
        false => Ok(None),
    }
}

/// Completes when the pending mark is written.
pub(super) async fn wait_for_mark(marking: &mut Option<PendingMark<'_>>) -> MarkResult {
    match marking {
        Some(marking) => marking.written.as_mut().await,
        None => std::future::pending().await,
    }
}
