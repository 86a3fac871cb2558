//! Sends events without jobs, one batch at a time. While the destination accepts nothing, events
//! become jobs of its route, until all of those are sent.

mod copies;
mod marking;
mod polling;
mod sending;
mod showing;
mod spilling;

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{BATCH_INTERVAL, FrameEffect, STATUS_INTERVAL, Session, add_frame_to_batch};
use crate::assemble::{Assembler, UnreadableChange};
use crate::batch::Batch;
use crate::capture::{Direct, State};
use crate::direct::{BatchSize, InFlight, SpillPolicy};
use crate::error::Error;
use crate::handed_rows::HandedRows;
use crate::lsn::Lsn;
use crate::mark::{EventCounts, Mark};
use copies::HandedChunk;
use marking::{PendingMark, wait_for_mark};
use polling::PollResult;
use sending::SendOutcome;
use showing::PathDisplay;

/// Time between two requests for the server's place in a run that ends when it has caught up.
const END_POLL: Duration = Duration::from_millis(100);
/// How long a run that stops waits for the last answer.
const LAST_ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// A server that requests replies for this long without sending anything is shutting down.
const SHUTDOWN_AFTER: Duration = Duration::from_secs(2);

/// The most rows to delete that are kept in memory while no mark can be written.
const MAX_HANDED_ROWS: usize = 50_000;

/// The path that events take.
#[derive(Clone, Copy, Debug)]
enum EventPath {
    Direct,
    /// Events become jobs; from `poll_at` on, the remaining jobs are counted.
    Spilling {
        poll_at: Instant,
    },
    /// Events wait while few jobs are left.
    Draining {
        since: Instant,
        poll_at: Instant,
    },
}

/// A run of the direct path over one connection.
struct DirectRun<'s, 'a> {
    session: &'s mut Session<'a>,
    direct: &'a Direct,
    assembler: Assembler<'a>,
    reading: Batch,
    unreadable: Option<UnreadableChange>,
    began: Instant,
    path: EventPath,
    in_flight: Option<InFlight>,
    sending: JoinSet<SendOutcome>,
    /// Checks whether the destination answers while events become jobs.
    probing: JoinSet<bool>,
    pace: BatchSize,
    policy: SpillPolicy,
    /// Whether the destination is checked before messages are sent.
    asks_first: bool,
    /// The destination accepts too little: the rest of the batch becomes jobs.
    spills_next: bool,
    send_at: Instant,
    display: PathDisplay,
    /// `spill_most` is reached.
    is_full: bool,
    /// Bytes of events that may become jobs before the room is read again, and when it is read.
    room: u64,
    room_at: Instant,
    spilled_at: Instant,
    /// Everything up to this mark was accepted.
    accepted: Mark,
    marked: Mark,
    marked_at: Instant,
    marks: u32,
    marking: Option<PendingMark<'a>>,
    is_store_lost: bool,
    /// Accepted events that no mark counts.
    unmarked: EventCounts,
    /// The rows of these events, which are deleted with the mark.
    handed: HandedRows,
    /// The chunk of a copy that is being delivered.
    chunk: Option<HandedChunk>,
    /// Transactions that were read, and may not be visible to others.
    recent: Vec<u32>,
    /// Reads the operators' requests.
    polling: JoinSet<Result<PollResult, Error>>,
    /// When that last began, and whether any was read.
    polled_at: Instant,
    has_polled: bool,
    is_paused: bool,
    /// The first and the last of the server's requests for a reply without data between.
    reply_requested_since: Option<(Instant, Instant)>,
}

impl<'a> Session<'a> {
    /// Sends events until it is stopped, or up to a place in the log.
    pub(super) async fn run_direct(
        &mut self,
        direct: &'a Direct,
        until: Option<Lsn>,
    ) -> Result<(), Error> {
        let mut run = DirectRun::new(self, direct);
        loop {
            if run.session.stopping.is_cancelled() {
                return run.stop_and_mark().await;
            }
            run.take_due_steps().await?;
            let is_at_end = until.is_some_and(|until| run.has_reached(until));
            if is_at_end && run.has_polled && !run.session.copier.is_busy() {
                return run.mark_and_show().await;
            }
            run.wait_for_event(until.is_some()).await?;
        }
    }
}

impl<'s, 'a> DirectRun<'s, 'a> {
    fn new(session: &'s mut Session<'a>, direct: &'a Direct) -> Self {
        let (now, mark) = (Instant::now(), session.mark);
        // Jobs of an earlier run may wait, and nothing may overtake them.
        let path = EventPath::Draining {
            since: now,
            poll_at: now,
        };
        session.shared.set_state(State::Draining);
        Self {
            assembler: session.new_assembler(),
            reading: Batch::new(mark),
            unreadable: None,
            began: now,
            path,
            in_flight: None,
            sending: JoinSet::new(),
            probing: JoinSet::new(),
            pace: BatchSize::new(direct.sender.batch()),
            policy: SpillPolicy::new(direct),
            asks_first: true,
            spills_next: false,
            send_at: now,
            display: PathDisplay::new(State::Draining),
            is_full: false,
            room: 0,
            room_at: now,
            spilled_at: now,
            accepted: mark,
            marked: mark,
            marked_at: now,
            marks: 0,
            marking: None,
            is_store_lost: false,
            unmarked: EventCounts::default(),
            handed: HandedRows::default(),
            chunk: None,
            recent: Vec::new(),
            polling: JoinSet::new(),
            polled_at: now.checked_sub(STATUS_INTERVAL).unwrap_or(now),
            has_polled: false,
            is_paused: false,
            reply_requested_since: None,
            session,
            direct,
        }
    }

    /// Takes the steps that are due.
    async fn take_due_steps(&mut self) -> Result<(), Error> {
        self.settle_in_flight().await?;
        self.begin_poll();
        if self.is_paused {
            self.stop_and_mark().await?;
            return Err(Error::paused());
        }
        match self.path {
            EventPath::Direct => {
                self.spill_if_due().await?;
                self.begin_send().await;
            }
            EventPath::Spilling { poll_at } => {
                self.check_room().await?;
                if !self.is_full {
                    self.spill_batch().await?;
                }
                if Instant::now() >= poll_at {
                    self.choose_path_by_backlog().await?;
                }
            }
            EventPath::Draining { poll_at, .. } if Instant::now() >= poll_at => {
                self.choose_path_by_backlog().await?
            }
            EventPath::Draining { .. } => {}
        }
        let is_empty = self.in_flight.is_none() && self.reading.is_empty();
        if let Some(change) = self.unreadable.take_if(|_| is_empty) {
            self.mark_now().await?;
            return self.session.stop_at_unreadable(&change).await;
        }
        self.begin_mark();
        self.show_path();
        self.begin_next_chunk().await
    }

    /// Waits for the next event, answer or mark, and handles it.
    async fn wait_for_event(&mut self, asks: bool) -> Result<(), Error> {
        let reads = !self.reading.is_full() && self.unreadable.is_none();
        let hands_out = self.may_send_batch();
        let tick = self.next_tick(asks);
        let stopping = self.session.stopping;
        tokio::select! {
            biased;
            () = stopping.cancelled() => {}
            Some(sent) = self.sending.join_next() => {
                let sent = sent.map_err(|error| Error::lost(error.to_string()))?;
                self.apply_answers(sent);
            }
            Some(polled) = self.polling.join_next() => {
                let polled = polled.map_err(|error| Error::lost(error.to_string()))?;
                self.apply_poll(polled).await?;
            }
            marked = wait_for_mark(&mut self.marking) => self.finish_mark(marked).await?,
            frame = self.session.feed.next_frame(), if reads => {
                let taken = add_frame_to_batch(frame?, &mut self.assembler, &mut self.reading);
                self.note_transaction();
                self.handle_frame_effect(taken).await?;
            }
            () = std::future::ready(()), if hands_out => {
                let next = Batch::new(self.reading.next_mark());
                let batch = std::mem::replace(&mut self.reading, next);
                self.in_flight = Some(InFlight::new(batch, &self.direct.sender));
            }
            () = sleep(tick) => {
                match asks && reads && tick >= END_POLL {
                    true => self.session.feed.request_reply().await?,
                    false => self.session.feed.keep_alive().await?,
                }
            }
        }
        Ok(())
    }

    fn next_tick(&self, asks: bool) -> Duration {
        let now = Instant::now();
        let until = |at: Instant| at.saturating_duration_since(now);
        let due = match self.path {
            EventPath::Direct if self.in_flight.is_some() && self.sending.is_empty() => {
                until(self.send_at)
            }
            EventPath::Direct => STATUS_INTERVAL,
            EventPath::Spilling { .. } if self.reading.is_empty() || self.is_full => {
                STATUS_INTERVAL
            }
            EventPath::Spilling { .. } => until(self.spilled_at + BATCH_INTERVAL),
            EventPath::Draining { poll_at, .. } => until(poll_at),
        };
        let most = if asks { END_POLL } else { STATUS_INTERVAL };
        due.clamp(Duration::from_millis(1), most)
    }

    async fn handle_frame_effect(&mut self, taken: FrameEffect) -> Result<(), Error> {
        match taken {
            FrameEffect::Read => self.reply_requested_since = None,
            FrameEffect::Copied(touched, mark) => return self.apply_to_copy(touched, mark).await,
            FrameEffect::Asked => return self.reply_to_server().await,
            FrameEffect::Unreadable(change) => self.unreadable = Some(change),
        }
        Ok(())
    }

    /// Replies to the server. One that shuts down waits until everything it sent is confirmed.
    async fn reply_to_server(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        let is_idle = self.in_flight.is_none() && self.reading.is_empty();
        if is_idle && self.assembler.open_transaction().is_none() {
            // A mark that cannot be written now is written later.
            let _ = self.mark_now().await;
        }
        let (first, last) = self.reply_requested_since.unwrap_or((now, now));
        let goes_on = now.duration_since(last) < STATUS_INTERVAL;
        self.reply_requested_since = Some((if goes_on { first } else { now }, now));
        if goes_on && now.duration_since(first) > SHUTDOWN_AFTER {
            return Err(Error::lost("the server shuts down"));
        }
        self.session.feed.report_progress().await
    }

    fn may_send_batch(&self) -> bool {
        let is_whole = self.assembler.open_transaction().is_none() || self.unreadable.is_some();
        matches!(self.path, EventPath::Direct)
            && self.in_flight.is_none()
            && self.handed.len() < MAX_HANDED_ROWS
            && !self.reading.is_empty()
            && (is_whole || self.reading.is_full())
    }

    /// Ends a batch whose messages were all answered: refused ones become jobs.
    async fn settle_in_flight(&mut self) -> Result<(), Error> {
        let is_sent = |in_flight: &InFlight| in_flight.is_all_sent();
        if self.sending.is_empty() && self.in_flight.as_ref().is_some_and(is_sent) {
            self.spill_unsent().await?;
        }
        if self.in_flight.is_none() && self.reading.is_empty() {
            self.accepted = self.reading.next_mark();
        }
        Ok(())
    }

    /// Whether everything committed before this place is done.
    fn has_reached(&self, until: Lsn) -> bool {
        self.assembler.open_transaction().is_none()
            && self.in_flight.is_none()
            && self.reading.is_empty()
            && self.reading.end_lsn() >= until
    }

    /// Waits for the last answer, and marks the accepted events. Others are read again.
    async fn stop_and_mark(&mut self) -> Result<(), Error> {
        if let Ok(Some(Ok(sent))) = timeout(LAST_ANSWER_TIMEOUT, self.sending.join_next()).await {
            self.apply_answers(sent);
        }
        self.sending.abort_all();
        self.settle_in_flight().await?;
        self.mark_and_show().await
    }

    async fn mark_and_show(&mut self) -> Result<(), Error> {
        self.mark_now().await?;
        self.finish_showing().await;
        Ok(())
    }
}
