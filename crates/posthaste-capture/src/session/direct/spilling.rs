//! Decides when events become jobs of the route, and when they are sent directly again.

use std::mem::take;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{DirectRun, EventPath};
use crate::capture::State;
use crate::direct::{BacklogState, BatchSize, SpillPolicy};
use crate::error::Error;
use crate::handed_rows::HandedRows;
use crate::session::{BATCH_INTERVAL, keep_alive_while};

/// Time between two reads of the room for jobs.
const ROOM_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two reads of the remaining jobs, while events become jobs and while they wait.
const SPILLING_POLL: Duration = Duration::from_secs(1);
const DRAINING_POLL: Duration = Duration::from_millis(25);

impl DirectRun<'_, '_> {
    /// Writes the events in flight that were not accepted as jobs.
    pub(super) async fn spill_unsent(&mut self) -> Result<(), Error> {
        let Some(in_flight) = self.in_flight.take() else {
            return Ok(());
        };
        let mark = in_flight.batch.next_mark();
        let unsent = in_flight.unsent_events();
        if !unsent.is_empty() {
            self.finish_marking().await?;
        }
        self.unmarked.add(in_flight.accepted_counts());
        let rows = HandedRows::from_events(in_flight.batch.events(), in_flight.batch.xids());
        self.handed.append(&rows);
        self.accepted = mark;
        if unsent.is_empty() {
            return Ok(());
        }
        self.session.store.count_events(take(&mut self.unmarked));
        let (events, rows) = (unsent.iter().copied(), take(&mut self.handed));
        let (xids, copied) = (in_flight.batch.xids(), self.copy_progress_at(mark));
        let written = self
            .session
            .write_batch(events, xids, &rows, copied.as_ref(), mark);
        written.await?;
        self.session.shared.count_spilled(unsent.len() as u64);
        self.record_written_mark(mark);
        self.rotate_marks().await
    }

    /// Begins to spill if the destination has accepted too little for too long.
    pub(super) async fn spill_if_due(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        let is_waiting = self.in_flight.is_some() && self.sending.is_empty();
        self.spills_next |=
            is_waiting && (self.policy.is_overdue(self.began.elapsed()) || self.pace.is_stuck());
        if !(self.spills_next && is_waiting) {
            return Ok(());
        }
        let capture = &self.session.capture.name;
        tracing::warn!(capture, "a capture spills: events become jobs of its route");
        self.spills_next = false;
        self.finish_marking().await?;
        let poll_at = now + SPILLING_POLL;
        self.switch_path(EventPath::Spilling { poll_at }, State::Spilling);
        self.check_room().await?;
        match self.is_full {
            true => Ok(()),
            false => self.spill_unsent().await,
        }
    }

    /// Reads, if due, whether more events may become jobs.
    pub(super) async fn check_room(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        let is_used = self.room == 0 && !self.is_full;
        if now < self.room_at && !is_used {
            return Ok(());
        }
        self.finish_marking().await?;
        let store = Arc::clone(&self.session.store);
        let stored = keep_alive_while(&mut self.session.feed, store.stored_bytes()).await?;
        self.room_at = now + ROOM_CHECK_INTERVAL;
        self.room = self.direct.spill_most.saturating_sub(stored) / 2;
        let is_full = stored >= self.direct.spill_most;
        if is_full && !self.is_full {
            let capture = &self.session.capture.name;
            tracing::warn!(
                capture,
                "a capture may spill no more: the server retains its log"
            );
        }
        self.is_full = is_full;
        self.switch_path(self.path, self.spilling_state());
        Ok(())
    }

    fn spilling_state(&self) -> State {
        match self.is_full {
            true => State::Full,
            false => State::Spilling,
        }
    }

    /// Writes the events that were read as jobs.
    pub(super) async fn spill_batch(&mut self) -> Result<(), Error> {
        self.spill_unsent().await?;
        let is_whole = self.assembler.open_transaction().is_none() || self.unreadable.is_some();
        let is_due = is_whole && self.spilled_at.elapsed() >= BATCH_INTERVAL;
        if self.reading.is_empty() || !(is_due || self.reading.is_full()) {
            return Ok(());
        }
        self.finish_marking().await?;
        let mark = self.reading.next_mark();
        let (events, xids) = (self.reading.events(), self.reading.xids());
        let mut rows = take(&mut self.handed);
        rows.append(&HandedRows::from_events(events, xids));
        let copied = self.copy_progress_at(mark);
        let written = self
            .session
            .write_batch(events.iter(), xids, &rows, copied.as_ref(), mark);
        written.await?;
        let count = self.reading.events().len() as u64;
        self.session.shared.count_spilled(count);
        self.room = self.room.saturating_sub(self.reading.job_bytes() as u64);
        self.reading.clear();
        self.accepted = mark;
        self.record_written_mark(mark);
        self.spilled_at = Instant::now();
        self.rotate_marks().await
    }

    /// Sends directly again once no job is left that must come before.
    pub(super) async fn choose_path_by_backlog(&mut self) -> Result<(), Error> {
        self.finish_marking().await?;
        let (store, capture) = (Arc::clone(&self.session.store), self.session.capture);
        let asked = Instant::now();
        let backlog = store.backlog_age(&capture.queue);
        let backlog = keep_alive_while(&mut self.session.feed, backlog).await?;
        // A slow read is repeated less often.
        let (now, took) = (Instant::now(), asked.elapsed());
        let (since, is_held) = match self.path {
            EventPath::Draining { since, .. } => (since, true),
            _ => (now, false),
        };
        let drained = match BacklogState::new(backlog, now.duration_since(since)) {
            // A relay that has claimed the jobs may be unable to send them.
            BacklogState::Nearly if !is_held && !self.has_answered() => BacklogState::Not,
            drained => drained,
        };
        let (path, state) = match drained {
            BacklogState::Whole => {
                tracing::info!(
                    capture = capture.name,
                    "the backlog is sent; a capture sends directly again"
                );
                (self.send_at, self.asks_first) = (now, true);
                self.policy = SpillPolicy::new(self.direct);
                self.pace = BatchSize::new(self.direct.sender.batch());
                (EventPath::Direct, State::Direct)
            }
            BacklogState::Nearly => {
                let poll_at = now + DRAINING_POLL.max(took * 4);
                (EventPath::Draining { since, poll_at }, State::Draining)
            }
            BacklogState::Not => {
                let poll_at = now + SPILLING_POLL.max(took * 10);
                (EventPath::Spilling { poll_at }, self.spilling_state())
            }
        };
        self.switch_path(path, state);
        Ok(())
    }

    /// Whether the destination has answered since the last call. The check runs beside the
    /// spilling, because a frozen destination answers late.
    fn has_answered(&mut self) -> bool {
        if let Some(asked) = self.probing.try_join_next() {
            return asked.unwrap_or(false);
        }
        if self.probing.is_empty() {
            let sender = self.direct.sender.clone();
            let ask = async move { sender.check().await.is_ok() };
            self.probing.spawn(ask);
        }
        false
    }

    fn switch_path(&mut self, path: EventPath, state: State) {
        self.path = path;
        if self.session.shared.status().state != state {
            self.session.shared.set_state(state);
        }
    }
}
