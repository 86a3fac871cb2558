//! Keeps a search index consistent with a table of Postgres: a job leaves its queue only after the
//! sync has read its row's version from the index.
//!
//! A program saves a row and, in the same transaction, enqueues the job that indexes its document;
//! the triggers of `posthaste.sync_table` enqueue that job automatically. After the commit, the
//! program may also write the index [directly](Direct), for speed; a direct write may fail, because
//! the job follows it. An [`IndexSync`] periodically checks the documents whose jobs are due: it
//! writes the documents that the index lacks, and completes the jobs of those that it reads there.
//!
//! ```no_run
//! # async fn example(pool: deadpool_postgres::Pool) -> Result<(), Box<dyn std::error::Error>> {
//! use posthaste::Worker;
//! use posthaste_sync::{IndexSync, Postgres, Table};
//!
//! // Once: SELECT posthaste.sync_table('annotation')
//! let index = Postgres::new(pool.clone(), "annotation");
//! let sync = IndexSync::builder(Table::new(pool.clone(), "annotation"), index.clone()).start()?;
//! let worker = Worker::builder(pool).consumer("sync.annotation", sync).start().await?;
//! let ids = index.search("post haste", 10).await?;
//! # worker.run_until_signal().await?;
//! # Ok(()) }
//! ```
//!
//! The index is a table of Postgres ([`Postgres`]), Elasticsearch or OpenSearch (feature
//! `elastic`), a folder (crate posthaste-tantivy), or any other [`Index`].
#![forbid(unsafe_code)]

// A module imports only from the groups above its own.
mod audit_report;
mod behind;
mod decide;
mod source;

mod bisect;
mod index;

mod compare;
mod direct;
mod fill;

mod audit;
mod job;
mod spans;
mod status;

#[cfg(feature = "elastic")]
mod elastic;
mod reindex;
mod sync_loop;

mod store;

mod postgres;
mod table;

mod synced;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub use audit::Audit;
pub use audit_report::{AuditReport, Difference};
pub use behind::{Problem, SyncLag};
pub use bisect::rows_of;
pub use compare::{Pass, SyncOutcome, SyncRequest};
pub use decide::{IndexedVersion, Mark, Reason};
pub use direct::{Direct, DirectCounts};
#[cfg(feature = "elastic")]
pub use elastic::{Elastic, Rebuilt};
pub use fill::{fill, search_rows};
pub use index::{Index, IndexError, Proof, Write, WriteOutcome};
pub use job::{index_job, queue};
pub use postgres::{Postgres, Weight};
#[cfg(feature = "elastic")]
pub use posthaste_elastic::Client as ElasticClient;
pub use reindex::{Reindex, ReindexPlan, reindex_queue};
pub use source::{Body, Field, Row, RowVersion, Source, SourceError};
pub use status::{DOCUMENTS_TOTAL, SyncCount, SyncStatus};
pub use store::behind::lagging_syncs;
pub use synced::{Access, IndexKind, OpenIndex, Synced};
pub use table::{Query, Table};

use posthaste::consumer::{Consumer, Delivery};
use posthaste::{Backoff, Error, JobId};

/// Builds a sync.
pub struct SyncBuilder {
    source: Arc<dyn Source>,
    index: Arc<dyn Index>,
    options: SyncOptions,
}

#[derive(Clone, Debug)]
struct SyncOptions {
    period: Duration,
    batch: usize,
    bytes: usize,
    proof: Proof,
    time_limit: Duration,
    keep_deletions: Duration,
    backoff: Backoff,
}

impl Default for SyncOptions {
    fn default() -> Self {
        Self {
            period: Duration::from_secs(60),
            batch: 2_500,
            bytes: 10 << 20,
            proof: Proof::default(),
            time_limit: Duration::from_secs(300),
            keep_deletions: Duration::from_secs(7 * 86_400),
            backoff: Backoff::default(),
        }
    }
}

impl SyncBuilder {
    /// Sets the time between two polls; 60 s by default. While at least half a batch of jobs is
    /// due, the next batch follows at once.
    pub fn period(mut self, period: Duration) -> Self {
        self.options.period = period;
        self
    }

    /// Sets the most jobs that are processed together; 2,500 by default.
    pub fn batch(mut self, jobs: usize) -> Self {
        self.options.batch = jobs;
        self
    }

    /// Sets the approximate size of one write in bytes of documents; 10 MiB by default.
    pub fn bytes(mut self, bytes: usize) -> Self {
        self.options.bytes = bytes;
        self
    }

    /// Sets the condition under which a document counts as indexed; [`Proof::Stored`] by default.
    pub fn proof(mut self, proof: Proof) -> Self {
        self.options.proof = proof;
        self
    }

    /// Sets the time limit of a batch; five minutes by default. Documents that were not verified by
    /// then are checked again.
    pub fn time_limit(mut self, time_limit: Duration) -> Self {
        self.options.time_limit = time_limit;
        self
    }

    /// Sets how long the index retains the marks of deletions, which refuse late writes; seven days
    /// by default.
    pub fn keep_deletions(mut self, keep: Duration) -> Self {
        self.options.keep_deletions = keep;
        self
    }

    /// Sets the delay before the retry of a document that cannot be made or is refused.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.options.backoff = backoff;
        self
    }

    /// Starts the sync on the current runtime. Fails if the batch, the period or the time limit is
    /// 0.
    pub fn start(self) -> Result<IndexSync, Error> {
        let options = &self.options;
        if options.batch == 0 || options.period.is_zero() || options.time_limit.is_zero() {
            let problem = "a sync's batch, period and time limit must not be 0";
            return Err(Error::config(problem));
        }
        let shared = Arc::new(SharedState {
            source: self.source,
            index: self.index,
            options: self.options,
            inbox: Mutex::default(),
            arrived: Notify::new(),
            stopping: CancellationToken::new(),
            aborted: CancellationToken::new(),
            status: Mutex::default(),
            is_filled: AtomicBool::new(false),
        });
        tokio::spawn(sync_loop::run_until_stopped(Arc::clone(&shared)));
        Ok(IndexSync { shared })
    }
}

/// Keeps an index consistent with a table: a [`Consumer`], for
/// [`WorkerBuilder::consumer`](posthaste::WorkerBuilder::consumer) on the table's [`queue`].
#[derive(Clone)]
pub struct IndexSync {
    shared: Arc<SharedState>,
}

impl IndexSync {
    /// Returns a builder for a sync of this index with these rows.
    pub fn builder(source: impl Source, index: impl Index) -> SyncBuilder {
        Self::builder_any(Arc::new(source), Arc::new(index))
    }

    /// As [`builder`](Self::builder), for a source and an index that are chosen at run time.
    pub fn builder_any(source: Arc<dyn Source>, index: Arc<dyn Index>) -> SyncBuilder {
        SyncBuilder {
            source,
            index,
            options: SyncOptions::default(),
        }
    }

    /// Returns the counters and the last error.
    pub fn status(&self) -> SyncStatus {
        self.shared.status().clone()
    }
}

/// The state that the consumer and its task share.
struct SharedState {
    source: Arc<dyn Source>,
    index: Arc<dyn Index>,
    options: SyncOptions,
    inbox: Mutex<Inbox>,
    arrived: Notify,
    /// Cancelled when no more work is to begin.
    stopping: CancellationToken,
    /// Cancelled when work in progress must end.
    aborted: CancellationToken,
    status: Mutex<SyncStatus>,
    /// Whether a check of all rows was enqueued since the index was found empty.
    is_filled: AtomicBool,
}

/// Jobs that were claimed and not begun.
#[derive(Default)]
struct Inbox {
    is_open: bool,
    waiting: Vec<Delivery>,
}

impl SharedState {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock()
    }

    fn status(&self) -> MutexGuard<'_, SyncStatus> {
        self.status.lock()
    }

    fn give_back_waiting(&self) {
        let waiting = std::mem::take(&mut self.inbox().waiting);
        waiting.into_iter().for_each(|one| one.ticket.give_back());
    }
}

impl Consumer for IndexSync {
    fn capacity(&self) -> usize {
        let inbox = self.shared.inbox();
        if !inbox.is_open || self.shared.stopping.is_cancelled() {
            return 0;
        }
        self.shared
            .options
            .batch
            .saturating_sub(inbox.waiting.len())
    }

    fn consume(&self, claim: Vec<Delivery>) {
        self.shared.inbox().waiting.extend(claim);
        self.shared.arrived.notify_one();
        if self.shared.stopping.is_cancelled() {
            self.shared.give_back_waiting();
        }
    }

    fn give_back(&self) {
        self.shared.stopping.cancel();
        self.shared.give_back_waiting();
    }

    fn abort(&self) {
        self.shared.stopping.cancel();
        self.shared.aborted.cancel();
        self.shared.give_back_waiting();
    }

    fn cancel(&self, jobs: &[JobId]) {
        let waiting = std::mem::take(&mut self.shared.inbox().waiting);
        let (cancelled, remaining): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .partition(|one| jobs.contains(&one.job.id));
        self.shared.inbox().waiting.extend(remaining);
        cancelled.into_iter().for_each(|one| one.ticket.cancel());
    }

    fn limit(&self) -> Option<Duration> {
        Some(self.shared.options.time_limit)
    }

    fn quarantine_batch(&self) -> usize {
        self.shared.options.batch
    }

    fn backoff(&self) -> Backoff {
        self.shared.options.backoff
    }
}
