//! Direct indexing writes documents right after a commit, for speed, within a strict time budget. A
//! failed write is not retried: the document's job follows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use posthaste::__private::{FEW, LogLimit};
use tokio::sync::Semaphore;

use super::decide::Mark;
use super::index::{Index, IndexError, Write, WriteOutcome};

/// The most writes in flight, including those whose caller no longer waits: no more are begun while
/// the index is down.
const MAX_IN_FLIGHT: usize = 64;
/// The timeout, in budgets, of a write whose caller no longer waits.
const ABANDONED_WRITE_BUDGETS: u32 = 20;

static MISSED_WRITE_LOG: LogLimit = LogLimit::new(FEW);

/// Writes documents into an index right after their commit. No error is returned and nothing is
/// retried. A late write is harmless, because the index retains the document with the larger mark.
///
/// ```no_run
/// # async fn example(client: &mut tokio_postgres::Client, direct: &posthaste_sync::Direct)
/// #     -> Result<(), tokio_postgres::Error> {
/// let tx = client.transaction().await?;
/// let insert = "INSERT INTO annotation (body) VALUES ($1) RETURNING id::text, version";
/// let row = tx.query_one(insert, &[&"post haste"]).await?;
/// tx.commit().await?;
/// // The trigger has enqueued the job. Never before the commit: what is rolled back must not be
/// // found.
/// direct.put(row.get::<_, &str>(0), row.get(1), r#"{"body": "post haste"}"#).await;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Direct {
    index: Arc<dyn Index>,
    budget: Duration,
    slots: Arc<Semaphore>,
    counts: Arc<Counts>,
    /// Whether a write found that the index does not wait for a fill.
    is_filled: Arc<AtomicBool>,
}

#[derive(Default)]
struct Counts {
    taken: AtomicU64,
    older: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    late: AtomicU64,
    skipped: AtomicU64,
}

/// The outcomes of all direct writes since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectCounts {
    /// Writes that the index reports as stored.
    pub taken: u64,
    /// Writes of which the index had the same version or a newer one.
    pub older: u64,
    /// Writes that the index refused.
    pub refused: u64,
    /// Writes that failed because the index was not available.
    pub failed: u64,
    /// Writes that were not answered within the budget.
    pub late: u64,
    /// Writes that were not begun because too many were in flight.
    pub skipped: u64,
}

impl Direct {
    /// Writes into this index, with a budget of 300 ms for each write.
    pub fn to(index: impl Index) -> Self {
        Self::to_any(Arc::new(index))
    }

    /// As [`to`](Self::to), for an index that is chosen at run time.
    pub fn to_any(index: Arc<dyn Index>) -> Self {
        Self {
            index,
            budget: Duration::from_millis(300),
            slots: Arc::new(Semaphore::new(MAX_IN_FLIGHT)),
            counts: Arc::default(),
            is_filled: Arc::default(),
        }
    }

    /// Sets the time that a caller waits for a write at most.
    pub fn budget(mut self, budget: Duration) -> Self {
        self.budget = budget;
        self
    }

    /// Writes a row's document, a JSON object, with the row's version.
    pub async fn put(&self, id: impl Into<String>, version: i64, document: impl Into<String>) {
        let document = Some(document.into());
        self.write(id.into(), Mark::new(version), document).await;
    }

    /// Deletes a document, with the version of the deletion. If the version is unknown, leave the
    /// deletion to the job.
    pub async fn delete(&self, id: impl Into<String>, version: i64) {
        self.write(id.into(), Mark::deletion(version), None).await;
    }

    /// Returns the outcomes of all writes.
    pub fn counts(&self) -> DirectCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counts {
            taken,
            older,
            refused,
            failed,
            late,
            skipped,
        } = &*self.counts;
        DirectCounts {
            taken: count(taken),
            older: count(older),
            refused: count(refused),
            failed: count(failed),
            late: count(late),
            skipped: count(skipped),
        }
    }

    async fn write(&self, id: String, mark: Mark, document: Option<String>) {
        let token = 0;
        let write = Write {
            id,
            mark,
            token,
            document,
        };
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            return self.count_and_log(&self.counts.skipped, "too many are in flight");
        };
        let (index, longest) = (
            Arc::clone(&self.index),
            self.budget * ABANDONED_WRITE_BUDGETS,
        );
        let is_filled = Arc::clone(&self.is_filled);
        // In a separate task: dropping a write midway may leave an answer pending on its
        // connection.
        let written = tokio::spawn(async move {
            let _slot = slot;
            let late = |_| Err(IndexError("no answer".into()));
            let written = async {
                // A sync fills an empty index; after this one document it would not.
                if !is_filled.load(Ordering::Relaxed) {
                    if index.awaits_fill().await? {
                        return Err(IndexError(
                            "the index is empty, and its sync fills it".into(),
                        ));
                    }
                    is_filled.store(true, Ordering::Relaxed);
                }
                index.write(&[write]).await
            };
            let written = tokio::time::timeout(longest, written).await;
            written.unwrap_or_else(late)
        });
        let counts = &self.counts;
        match tokio::time::timeout(self.budget, written).await {
            Err(_) => self.count_and_log(&counts.late, "not answered in time"),
            Ok(Err(panicked)) => self.count_and_log(&counts.failed, &panicked.to_string()),
            Ok(Ok(Err(IndexError(reason)))) => self.count_and_log(&counts.failed, &reason),
            Ok(Ok(Ok(answers))) => match answers.into_iter().next() {
                Some(WriteOutcome::Taken) => drop(counts.taken.fetch_add(1, Ordering::Relaxed)),
                Some(WriteOutcome::Older) => drop(counts.older.fetch_add(1, Ordering::Relaxed)),
                Some(WriteOutcome::Rejected { reason } | WriteOutcome::Never { reason }) => {
                    self.count_and_log(&counts.refused, &reason)
                }
                Some(WriteOutcome::Retry { reason }) => self.count_and_log(&counts.failed, &reason),
                None => self.count_and_log(&counts.failed, "no answer"),
            },
        }
    }

    fn count_and_log(&self, counter: &AtomicU64, reason: &str) {
        counter.fetch_add(1, Ordering::Relaxed);
        let index = self.index.label();
        let Some(left_out) = MISSED_WRITE_LOG.admit_field(&index) else {
            return;
        };
        tracing::warn!(
            index,
            error = reason,
            left_out,
            "a direct write failed; the document's job will index it"
        );
    }
}
