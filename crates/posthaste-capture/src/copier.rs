//! Reads the chunks of a copy on a separate connection while the stream continues. Each chunk is
//! ready when the stream brings its mark.

use std::time::{Duration, Instant};

use posthaste::Database;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;
use uuid::Uuid;

use crate::copying::{ChunkSize, CopiedTable, Key, Page, RequestedCopy, TouchedRows};
use crate::error::Error;
use crate::pgoutput::Tuple;
use crate::source::Source;
use crate::store::Store;
use crate::store::copy::CopyProgress;

/// Time between two snapshots while a required transaction is not visible.
const VISIBILITY_POLL: Duration = Duration::from_millis(2);
/// Time between two reads of the requested copy.
const REQUEST_POLL: Duration = Duration::from_secs(1);
/// Delay before a failed chunk is read again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Runs the copy of a capture, if one is requested.
pub(crate) struct Copier {
    database: Database,
    name: String,
    current: Option<ActiveCopy>,
    /// When the requested copy was last read; `None` reads it at once.
    polled: Option<Instant>,
    /// Records why a copy failed, on a separate connection.
    failing: JoinSet<()>,
}

struct ActiveCopy {
    copy: RequestedCopy,
    table: CopiedTable,
    /// The filters of the capture and of the copy.
    filter: Option<String>,
    /// The key after which the next chunk begins. Chunks before it may not be written yet.
    read_until: Option<Key>,
    pace: ChunkSize,
    /// Changes since the chunk began, with their transactions.
    changes: Vec<(u32, TouchedRows)>,
    /// Transactions whose changes were delivered: the next snapshot must see them.
    handed: Vec<u32>,
    reading: Option<PendingChunk>,
    store: Option<Store>,
    /// No chunk is read before this time.
    retry_at: Instant,
}

struct PendingChunk {
    mark: String,
    limit: i64,
    page: JoinHandle<(Option<Store>, Result<TimedPage, Error>)>,
    /// The rows that were read; the stream has not brought their mark yet.
    read: Option<TimedPage>,
}

/// A page and the time its snapshot was held.
type TimedPage = (Page, Duration);

/// Rows of which the stream has delivered no newer version.
pub(crate) struct Chunk {
    pub(crate) rows: Vec<Tuple>,
    /// The state of the copy after these rows.
    pub(crate) copy: RequestedCopy,
    pub(crate) is_last: bool,
    pace: ChunkSize,
}

impl Chunk {
    /// The progress to record.
    pub(crate) fn progress(&self, rows: usize) -> CopyProgress {
        CopyProgress {
            copy: self.copy.clone(),
            rows,
            is_last: self.is_last,
        }
    }
}

impl Drop for PendingChunk {
    fn drop(&mut self) {
        self.page.abort();
    }
}

impl Copier {
    pub(crate) fn new(database: Database, name: &str) -> Self {
        Self {
            database,
            name: name.to_owned(),
            current: None,
            polled: None,
            failing: JoinSet::new(),
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.current.is_some() || !self.failing.is_empty()
    }

    /// The table whose changes it compares with its chunks.
    pub(crate) fn watched_table(&self) -> Option<&CopiedTable> {
        self.current.as_ref().map(|current| &current.table)
    }

    /// Whether the requested copy must be read again.
    pub(crate) fn is_due(&self) -> bool {
        self.polled
            .is_none_or(|polled| polled.elapsed() >= REQUEST_POLL)
    }

    /// Continues with the requested copy.
    pub(crate) async fn switch_to(
        &mut self,
        wanted: Option<RequestedCopy>,
        store: &Store,
        source: &Source,
        publication: &str,
    ) -> Result<(), Error> {
        self.polled = Some(Instant::now());
        // The request may be older than the reason.
        if !self.failing.is_empty() {
            return Ok(());
        }
        let going_on = self.current.as_ref().map(|current| current.copy.id);
        if going_on == wanted.as_ref().map(|copy| copy.id) {
            return Ok(());
        }
        self.current = None;
        let Some(copy) = wanted else {
            return Ok(());
        };
        let table = match source.captured_columns(&copy.table) {
            Ok(columns) => {
                store
                    .describe_table(&copy.table, columns, publication)
                    .await?
            }
            Err(problem) => Err(problem),
        };
        let table = match table {
            Ok(table) => table,
            Err(problem) => {
                self.record_failure(&copy, &problem);
                return Ok(());
            }
        };
        tracing::info!(capture = %self.name, on = %copy.table, "a copy continues");
        self.current = Some(ActiveCopy {
            filter: source.copy_filter(&copy.table, copy.filter.as_deref()),
            read_until: copy.after.clone(),
            copy,
            table,
            pace: ChunkSize::default(),
            changes: Vec::new(),
            handed: Vec::new(),
            reading: None,
            store: None,
            retry_at: Instant::now(),
        });
        Ok(())
    }

    /// Makes the next snapshot see these transactions of the stream.
    pub(crate) fn require_visible(&mut self, xids: &[u32]) {
        if let Some(current) = &mut self.current {
            current.handed.extend(xids);
        }
    }

    /// Begins to read the next chunk, unless one is pending. Delivered transactions must be visible
    /// or passed to [`Self::require_visible`].
    pub(crate) async fn begin_chunk(&mut self) {
        while self.failing.try_join_next().is_some() {}
        let Some(current) = &mut self.current else {
            return;
        };
        if let Some(reading) = &mut current.reading {
            if reading.read.is_some() || !reading.page.is_finished() {
                return;
            }
            let Err(error) = current.wait_for_page().await else {
                return;
            };
            let is_final = current.schedule_retry(&error);
            if is_final {
                return self.refuse_copy(&error.to_string());
            }
            tracing::debug!(capture = %self.name, %error, "a chunk is read again");
        }
        if Instant::now() >= retry_time(self.current.as_ref()) {
            self.spawn_read();
        }
    }

    fn spawn_read(&mut self) {
        let Some(current) = &mut self.current else {
            return;
        };
        let changes = current.changes.drain(..).map(|(xid, _)| xid);
        current.handed.extend(changes);
        current.handed.sort_unstable();
        current.handed.dedup();
        let (mark, limit) = (Uuid::new_v4().to_string(), current.pace.rows());
        let (database, name) = (self.database.clone(), self.name.clone());
        let (table, filter) = (current.table.clone(), current.filter.clone());
        let (after, handed) = (current.read_until.clone(), current.handed.clone());
        let (store, their_mark) = (current.store.take(), mark.clone());
        let read = async move {
            let store = match store {
                Some(store) => store,
                None => match Store::open(&database, &name).await {
                    Ok(store) => store,
                    Err(error) => return (None, Err(error)),
                },
            };
            let page = async {
                loop {
                    let began = Instant::now();
                    let read =
                        store.read_page(&table, filter.as_deref(), after.as_ref(), limit, &handed);
                    if let Some(page) = read.await? {
                        let took = began.elapsed();
                        store.emit_mark(&their_mark).await?;
                        return Ok((page, took));
                    }
                    sleep(VISIBILITY_POLL).await;
                }
            };
            let page = page.await;
            (page.is_ok().then_some(store), page)
        };
        current.reading = Some(PendingChunk {
            mark,
            limit,
            page: tokio::spawn(read),
            read: None,
        });
    }

    /// Records a change of the table.
    pub(crate) fn note_change(&mut self, xid: u32, touched: TouchedRows) {
        if let Some(current) = &mut self.current {
            current.changes.push((xid, touched));
        }
    }

    /// Whether this is the mark of the pending chunk.
    pub(crate) fn awaits_mark(&self, mark: &str) -> bool {
        let reading = self.current.as_ref().and_then(|one| one.reading.as_ref());
        reading.is_some_and(|reading| reading.mark == mark)
    }

    /// The chunk whose mark the stream has brought; `None` if reading it failed.
    pub(crate) async fn take_chunk(&mut self) -> Option<Chunk> {
        let current = self.current.as_mut()?;
        if let Err(error) = current.wait_for_page().await {
            current.schedule_retry(&error);
            return None;
        }
        let mut reading = current.reading.take()?;
        let (page, took) = reading.read.take()?;
        let mut copy = current.copy.clone();
        copy.after = page.last_key().cloned().or(copy.after);
        let (is_last, pace) = (page.is_last_page(reading.limit), current.pace);
        current.pace = pace.next_after_read(&page, took);
        current.read_until.clone_from(&copy.after);
        current.handed.clear();
        Some(Chunk {
            rows: page.rows_without_newer_version(&current.changes),
            copy,
            is_last,
            pace,
        })
    }

    /// Begins to read the chunk after this one, which is not written yet. All changes of the stream
    /// until its mark must be written before the next chunk.
    pub(crate) fn read_ahead(&mut self, chunk: &Chunk) {
        if !chunk.is_last {
            self.spawn_read();
        }
    }

    /// Continues after a chunk that took this long to write, or ends a cancelled copy.
    pub(crate) fn finish_chunk(&mut self, chunk: Chunk, took: Duration, goes_on: bool) {
        let Some(current) = &mut self.current else {
            return;
        };
        if chunk.is_last || !goes_on {
            let on = &current.copy.table;
            tracing::info!(capture = %self.name, %on, "a copy has ended");
            (self.current, self.polled) = (None, None);
            return;
        }
        current.copy = chunk.copy;
        let by_handing_out = chunk.pace.next_after_delivery(took);
        current.pace = current.pace.min(by_handing_out);
    }

    /// Ends a copy that cannot continue, such as one with a row that cannot become a job.
    pub(crate) fn refuse_copy(&mut self, problem: &str) {
        if let Some(current) = self.current.take() {
            self.record_failure(&current.copy, problem);
        }
    }

    /// Records why a copy failed. If that fails, the copy is tried again and refused again.
    fn record_failure(&mut self, copy: &RequestedCopy, problem: &str) {
        let on = &copy.table;
        tracing::error!(capture = %self.name, %on, error = problem, "a copy failed");
        let (database, name) = (self.database.clone(), self.name.clone());
        let (id, problem) = (copy.id, problem.to_owned());
        self.failing.spawn(async move {
            let recorded = async {
                Store::open(&database, &name)
                    .await?
                    .fail_copy(id, &problem)
                    .await
            };
            if let Err(error) = recorded.await {
                tracing::debug!(capture = %name, %error, "the problem of a copy is not recorded");
            }
        });
    }
}

fn retry_time(current: Option<&ActiveCopy>) -> Instant {
    current.map_or_else(Instant::now, |current| current.retry_at)
}

impl ActiveCopy {
    /// Waits until the chunk is read.
    async fn wait_for_page(&mut self) -> Result<(), Error> {
        let Some(reading) = &mut self.reading else {
            return Err(Error::lost("no chunk is read"));
        };
        if reading.read.is_some() {
            return Ok(());
        }
        let ended = (&mut reading.page).await;
        let (store, page) = ended.map_err(|_| Error::lost("the reader of a copy has ended"))?;
        self.store = store;
        reading.read = Some(page?);
        Ok(())
    }

    /// Schedules another read of a chunk; returns whether the error is permanent.
    fn schedule_retry(&mut self, error: &Error) -> bool {
        self.reading = None;
        self.retry_at = Instant::now() + RETRY_AFTER;
        let code = error.code().unwrap_or_default();
        match code {
            "57014" => self.pace = self.pace.next_after_timeout(),
            "55P03" => {}
            // The statement is invalid, or not allowed.
            _ => return ["42", "22"].iter().any(|class| code.starts_with(class)),
        }
        self.retry_at = Instant::now() + RETRY_AFTER / 10;
        false
    }
}
