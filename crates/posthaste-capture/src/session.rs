//! A session: one connection, from its login to the end of its stream.

mod by_jobs;
mod copies;
mod direct;

use std::sync::Arc;
use std::time::Duration;

use posthaste::{Database, NewJob};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::assemble::{Assembler, UnreadableChange};
use crate::batch::Batch;
use crate::capture::{Capture, SharedStatus, State};
use crate::copier::Copier;
use crate::copying::TouchedRows;
use crate::error::Error;
use crate::event::Event;
use crate::feed::{Feed, Frame};
use crate::handed_rows::HandedRows;
use crate::lsn::Lsn;
use crate::mark::Mark;
use crate::opening::{limit_sender_timeout, open_feed, plugin_options};
use crate::position::{Position, Timelines};
use crate::requirements::check_origin;
use crate::slot::{Slot, gap_reason};
use crate::store::copy::CopyProgress;
use crate::store::outbox::Deletion;
use crate::store::{InstalledCapture, RunnerIdentity, Store, WriteOutcome};

/// Time between two batches under load. The first batch after a pause is written at once.
const BATCH_INTERVAL: Duration = Duration::from_millis(50);
/// Time between two marks without events.
const IDLE_MARK_INTERVAL: Duration = Duration::from_secs(60);
/// Time between two status messages while a batch is written.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two snapshots while a commit is not visible.
const VISIBILITY_POLL: Duration = Duration::from_millis(2);
/// The length of the marks is read after this many of them.
const MARKS_PER_ROTATION: u32 = 1_000;

/// A capture on one connection.
pub(crate) struct Session<'a> {
    capture: &'a Capture,
    shared: &'a SharedStatus,
    stopping: &'a CancellationToken,
    database: &'a Database,
    store: Arc<Store>,
    feed: Feed,
    installed: InstalledCapture,
    /// The server synchronizes the slot to its standbys.
    is_failover: bool,
    /// How captured rows of the outbox are deleted, if they are.
    deletion: Option<Arc<Deletion>>,
    reader: RunnerIdentity,
    timelines: Timelines,
    mark: Mark,
    copier: Copier,
    /// The end of the server's log when the session began.
    pub(crate) end: Lsn,
}

impl<'a> Session<'a> {
    /// Connects, takes the slot, and finds the place to continue from.
    pub(crate) async fn begin(
        capture: &'a Capture,
        database: &'a Database,
        shared: &'a SharedStatus,
        stopping: &'a CancellationToken,
    ) -> Result<Self, Error> {
        let store = Arc::new(Store::open(database, &capture.name).await?);
        let installed = store.require_installed().await?;
        if installed.is_paused {
            return Err(Error::paused());
        }
        if !installed.is_here {
            return stop_capture(
                &store,
                "this is a copy of the database in which it was installed; 'posthaste capture \
                 begin' starts it here",
            )
            .await;
        }
        if !installed.is_published {
            let reason = format!(
                "the publication {} was dropped or recreated, and lacks earlier changes: \
                 'posthaste capture begin {}' restarts the capture",
                installed.publication, capture.name
            );
            return stop_capture(&store, &reason).await;
        }
        // The slot is read before the mark, because another process may write and confirm a mark
        // between the two.
        let slot = store.find_slot(&installed.slot).await?;
        let mark = require_mark(&store, &installed).await?;
        require_slot(capture, &store, &installed, slot.as_ref(), mark).await?;
        let mut feed = open_feed(capture.server.as_ref().unwrap_or(database)).await?;
        let identified = feed.identify().await?;
        let history = feed.timeline_history(identified.timeline).await?;
        let timelines = Timelines::parse(identified.timeline, &history).map_err(Error::lost)?;
        if !timelines.is_current(&installed.timeline) {
            return Err(Error::lost(
                "the stream and the store are of two servers, as during a failover",
            ));
        }
        limit_sender_timeout(&mut feed).await;
        let deletion = match check_options(capture, &store).await {
            Err(error) if error.is_stopped() => {
                return stop_capture(&store, &error.to_string()).await;
            }
            checked => checked?,
        };
        let options = plugin_options(&installed.publication, capture.options.local_only);
        // A failover slot may be confirmed up to its mark only after the mark was streamed.
        let is_failover = slot.as_ref().is_some_and(|slot| slot.is_failover);
        let confirmed = match slot {
            Some(slot) if slot.is_failover => slot.confirmed,
            _ => mark.done,
        };
        feed.start_streaming(&installed.slot, mark.done, confirmed, &options)
            .await?;
        // Only this process streams from the slot. The previous one may still write its last batch.
        let reader = RunnerIdentity {
            runner: Uuid::new_v4(),
            epoch: installed.epoch,
            timeline: installed.timeline.clone(),
        };
        let path = capture.direct.as_ref().map(|_| State::Draining.path_name());
        let taken = store.take_over(&reader, path).await?;
        let mark = taken.unwrap_or(mark);
        let slot = store.find_slot(&installed.slot).await?;
        require_slot(capture, &store, &installed, slot.as_ref(), mark).await?;
        let after = match is_failover {
            true => Some(store.flush_lsn().await?),
            false => None,
        };
        feed.confirm(mark.done, after).await?;
        if capture.direct.is_none() {
            shared.set_state(State::Running);
        }
        tracing::info!(capture = %capture.name, "a capture continues");
        Ok(Self {
            capture,
            shared,
            stopping,
            database,
            store,
            feed,
            installed,
            is_failover,
            deletion: deletion.map(Arc::new),
            reader,
            timelines,
            mark,
            copier: Copier::new(database.clone(), &capture.name),
            end: identified.end,
        })
    }

    /// Captures until it is stopped, or up to a place in the log.
    pub(crate) async fn run(&mut self, until: Option<Lsn>) -> Result<(), Error> {
        let capture = self.capture;
        match &capture.direct {
            None => self.run_by_jobs(until).await,
            Some(direct) => Box::pin(self.run_direct(direct, until)).await,
        }
    }

    /// Ends the stream after a run without a lost connection.
    pub(crate) async fn end(self) {
        self.feed.end_stream().await;
    }

    fn new_assembler(&self) -> Assembler<'a> {
        let timelines = self.timelines.clone();
        let (epoch, source) = (self.installed.epoch, &self.capture.source);
        let key = self.deletion.as_ref().map_or(&[][..], |one| &one.key);
        Assembler::new(source, epoch, timelines, self.mark.position).with_deletion_key(key)
    }

    /// Writes these events as jobs with the mark that counts them, deletes rows, and confirms the
    /// mark.
    async fn write_batch<'e>(
        &mut self,
        events: impl Iterator<Item = &'e Event>,
        xids: &[u32],
        rows: &HandedRows,
        copied: Option<&CopyProgress>,
        mark: Mark,
    ) -> Result<(), Error> {
        let capture = self.capture;
        let job = match capture.direct {
            None => Event::to_job,
            Some(_) => Event::to_spilled_job,
        };
        let jobs = events.map(|event| job(event, &capture.queue));
        let jobs = jobs.collect::<Result<Vec<NewJob>, _>>()?;
        let (store, feed, stopping) = (&self.store, &mut self.feed, self.stopping);
        let (reader, rows) = (&self.reader, (self.deletion.as_deref(), rows));
        let keep = async {
            loop {
                match store
                    .write_batch(reader, &jobs, xids, rows, copied, mark)
                    .await?
                {
                    WriteOutcome::Unseen if stopping.is_cancelled() => {
                        return Err(not_visible_error());
                    }
                    WriteOutcome::Unseen => sleep(VISIBILITY_POLL).await,
                    kept => return Ok::<_, Error>(kept),
                }
            }
        };
        if let WriteOutcome::Superseded(reason) = keep_alive_while(feed, keep).await? {
            return Err(Error::lost(reason));
        }
        self.shared.count_events(jobs.len() as u64);
        let after = self.lsn_after_mark().await?;
        self.feed.confirm(mark.done, after).await
    }

    /// The place that the stream must pass before the last mark is confirmed.
    async fn lsn_after_mark(&mut self) -> Result<Option<Lsn>, Error> {
        Ok(match self.is_failover {
            true => Some(keep_alive_while(&mut self.feed, self.store.flush_lsn()).await?),
            false => None,
        })
    }

    async fn rotate_marks(&mut self) -> Result<(), Error> {
        keep_alive_while(&mut self.feed, self.store.rotate_long_marks()).await
    }

    /// Stops at a change that cannot become a job, until an operator skips it.
    async fn stop_at_unreadable<T>(&self, change: &UnreadableChange) -> Result<T, Error> {
        let (name, position, problem) = (&self.capture.name, change.position, &change.problem);
        let reason = format!(
            "the change at {position} cannot be captured: {problem}. 'posthaste capture skip \
             {name} --at {position}' skips it"
        );
        stop_capture(&self.store, &reason).await
    }
}

/// The effect of a frame.
enum FrameEffect {
    Read,
    /// Changes of the copied table, or the mark of a chunk.
    Copied(Vec<TouchedRows>, Option<(String, Position)>),
    /// The server requests a reply.
    Asked,
    Unreadable(UnreadableChange),
}

/// Adds the events of a frame to the batch.
fn add_frame_to_batch(
    frame: Frame,
    assembler: &mut Assembler<'_>,
    batch: &mut Batch,
) -> FrameEffect {
    let (record, message) = match frame {
        Frame::Data { record, message } => (record, message),
        Frame::Alive { end, is_asked } => {
            if assembler.open_transaction().is_none() {
                batch.advance_to(end);
            }
            return match is_asked {
                true => FrameEffect::Asked,
                false => FrameEffect::Read,
            };
        }
    };
    let step = match assembler.read_message(record, message) {
        Ok(step) => step,
        Err(unreadable) => return FrameEffect::Unreadable(unreadable),
    };
    let xid = assembler.open_transaction().map_or(0, |open| open.xid);
    for event in step.events {
        if let Err(error) = event.check_fits_job() {
            let (position, problem) = (event.position, error.to_string());
            return FrameEffect::Unreadable(UnreadableChange { position, problem });
        }
        batch.add(xid, event);
    }
    if let Some(end) = step.committed {
        batch.end_transaction(end);
    }
    match step.touched.is_empty() && step.mark.is_none() {
        true => FrameEffect::Read,
        false => FrameEffect::Copied(step.touched, step.mark),
    }
}

/// Reads the newest mark, and stops if there is none.
async fn require_mark(store: &Store, installed: &InstalledCapture) -> Result<Mark, Error> {
    let mark = store.read_mark(installed.epoch).await?;
    match mark {
        Some(mark) => Ok(mark),
        None => {
            stop_capture(
                store,
                "it has no start position; 'posthaste capture install' writes one",
            )
            .await
        }
    }
}

/// Stops, and records a gap, if the slot would leave out changes.
async fn require_slot(
    capture: &Capture,
    store: &Store,
    installed: &InstalledCapture,
    slot: Option<&Slot>,
    mark: Mark,
) -> Result<(), Error> {
    let Some(reason) = gap_reason(slot, mark.done) else {
        return Ok(());
    };
    let tables = capture.source.tables();
    let tables: Vec<String> = tables.iter().map(ToString::to_string).collect();
    let epoch = installed.epoch;
    store
        .put_gap(epoch, mark.done, None, &reason, &tables)
        .await?;
    let name = &capture.name;
    let reason = format!(
        "changes after {} are lost: {reason}. 'posthaste capture gaps' lists them, 'posthaste \
         capture begin {name}' restarts the capture from now",
        mark.done
    );
    stop_capture(store, &reason).await
}

/// Checks the options against the server; returns how rows of the outbox are deleted.
async fn check_options(capture: &Capture, store: &Store) -> Result<Option<Deletion>, Error> {
    if capture.options.local_only {
        let version = store.server_settings().await?.version;
        check_origin(true, version).map_err(Error::stopped)?;
    }
    capture.prepare_deletion(store).await
}

fn not_visible_error() -> Error {
    Error::lost("the capture was stopped before other sessions could see the captured commits")
}

async fn stop_capture<T>(store: &Store, reason: &str) -> Result<T, Error> {
    store.record_stop(reason).await?;
    Err(Error::stopped(reason))
}

/// Does some work while status messages keep the connection alive.
async fn keep_alive_while<T>(
    feed: &mut Feed,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = sleep(STATUS_INTERVAL) => feed.keep_alive().await?,
        }
    }
}
