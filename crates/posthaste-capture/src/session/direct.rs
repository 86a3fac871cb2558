//! Sends events without jobs, one batch at a time. Where the destination takes nothing, they become
//! jobs of its route, until all of those are sent.

mod copies;
mod marking;
mod sending;
mod spilling;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{BETWEEN_BATCHES, Session, TICK, Taken, take, while_alive};
use crate::assemble::{Assembler, Unreadable};
use crate::batch::Batch;
use crate::capture::{Direct, State};
use crate::direct::{Hand, Pace, Patience};
use crate::error::Error;
use crate::handed_rows::HandedRows;
use crate::lsn::Lsn;
use crate::mark::{Counted, Mark};
use copies::HandedChunk;
use marking::{Marking, written};
use sending::Sent;

/// How often a run that is to end asks the server how far it is.
const ASK: Duration = Duration::from_millis(100);
/// A run that is to stop waits so long for an answer.
const LAST_ANSWER: Duration = Duration::from_secs(5);
/// A server that asks again and again for so long, and sends nothing, is shutting down.
const SHUTS_DOWN: Duration = Duration::from_secs(2);

/// The most rows to be deleted that are held in memory while no mark can be written.
const MOST_ROWS: usize = 50_000;

/// The path of events.
#[derive(Clone, Copy, Debug)]
enum Path {
    Direct,
    /// They become jobs; from then on it is asked whether few are left.
    Spilling {
        ask_at: Instant,
    },
    /// They wait, as long as few jobs are left.
    Draining {
        since: Instant,
        ask_at: Instant,
    },
}

/// A run of the direct path over one connection.
struct Run<'s, 'a> {
    session: &'s mut Session<'a>,
    direct: &'a Direct,
    assembler: Assembler<'a>,
    reading: Batch,
    unreadable: Option<Unreadable>,
    began: Instant,
    path: Path,
    hand: Option<Hand>,
    sending: JoinSet<Sent>,
    /// Whether the destination is there while events become jobs.
    probing: JoinSet<bool>,
    pace: Pace,
    patience: Patience,
    /// Whether the destination is asked before something is sent.
    asks_first: bool,
    /// It takes too little: what is left of the batch becomes jobs.
    gives_up: bool,
    send_at: Instant,
    look_at: Instant,
    /// Why the destination takes nothing, as the store has it.
    shown_problem: Option<String>,
    /// There are as many jobs as there may be.
    is_full: bool,
    /// How many bytes of events may become jobs before it is asked whether there is room, and when.
    room: u64,
    room_at: Instant,
    spilled_at: Instant,
    /// Up to here all was accepted.
    accepted: Mark,
    marked: Mark,
    marked_at: Instant,
    marks: u32,
    marking: Option<Marking<'a>>,
    is_store_lost: bool,
    /// Events that were accepted, and that no mark counts.
    unmarked: Counted,
    /// The rows of these events, to be deleted with the mark.
    handed: HandedRows,
    /// A chunk of a copy that is handed out.
    chunk: Option<HandedChunk>,
    /// Transactions that were read, and that others may not see yet.
    recent: Vec<u32>,
    /// When it was last asked whether somebody has paused it.
    asked_at: Instant,
    /// Since when the server asks again and again.
    asked_since: Option<(Instant, Instant)>,
}

impl<'a> Session<'a> {
    /// Sends what it reads until it is asked to stop, or up to a place in the log.
    pub(super) async fn run_direct(
        &mut self,
        direct: &'a Direct,
        until: Option<Lsn>,
    ) -> Result<(), Error> {
        let mut run = Run::new(self, direct);
        loop {
            if run.session.stopping.is_cancelled() {
                return run.stop().await;
            }
            run.advance().await?;
            if until.is_some_and(|until| run.is_done_to(until)) && !run.session.copier.is_busy() {
                return run.mark_now().await;
            }
            run.wait(until.is_some()).await?;
        }
    }
}

impl<'s, 'a> Run<'s, 'a> {
    fn new(session: &'s mut Session<'a>, direct: &'a Direct) -> Self {
        let (now, mark) = (Instant::now(), session.mark);
        // Jobs of an earlier run may wait: until none is left, nothing may pass them.
        let path = Path::Draining {
            since: now,
            ask_at: now,
        };
        session.shared.set(State::Draining);
        Self {
            assembler: session.assembler(),
            reading: Batch::new(mark),
            unreadable: None,
            began: now,
            path,
            hand: None,
            sending: JoinSet::new(),
            probing: JoinSet::new(),
            pace: Pace::new(direct.sender.batch()),
            patience: Patience::new(direct),
            asks_first: true,
            gives_up: false,
            send_at: now,
            look_at: now,
            shown_problem: None,
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
            unmarked: Counted::default(),
            handed: HandedRows::default(),
            chunk: None,
            recent: Vec::new(),
            asked_at: now.checked_sub(TICK).unwrap_or(now),
            asked_since: None,
            session,
            direct,
        }
    }

    /// Does what is due.
    async fn advance(&mut self) -> Result<(), Error> {
        self.settle_hand().await?;
        if self.is_paused().await? {
            self.stop().await?;
            return Err(Error::paused());
        }
        match self.path {
            Path::Direct => {
                self.give_up_if_due().await?;
                self.send().await;
            }
            Path::Spilling { ask_at } => {
                self.look_for_room().await?;
                if !self.is_full {
                    self.spill().await?;
                }
                if Instant::now() >= ask_at {
                    self.drain().await?;
                }
            }
            Path::Draining { ask_at, .. } if Instant::now() >= ask_at => self.drain().await?,
            Path::Draining { .. } => {}
        }
        let is_empty = self.hand.is_none() && self.reading.is_empty();
        if let Some(change) = self.unreadable.take_if(|_| is_empty) {
            self.mark_now().await?;
            return self.session.unreadable(&change).await;
        }
        self.mark();
        self.copy_on().await
    }

    /// Asks once a second whether somebody has paused it.
    async fn is_paused(&mut self) -> Result<bool, Error> {
        let is_due = self.asked_at.elapsed() >= TICK;
        if !is_due || self.marking.is_some() || self.is_store_lost {
            return Ok(false);
        }
        self.asked_at = Instant::now();
        let store = Arc::clone(&self.session.store);
        let asked = while_alive(&mut self.session.feed, store.wanted()).await;
        match (asked, self.path) {
            (Ok((is_paused, wanted)), _) => {
                self.want_copy(wanted).await?;
                self.show_waiting().await;
                Ok(is_paused)
            }
            (Err(error), Path::Direct) => {
                self.lose_store(&error);
                Ok(false)
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Waits for what comes next, and takes it.
    async fn wait(&mut self, asks: bool) -> Result<(), Error> {
        let reads = !self.reading.is_full() && self.unreadable.is_none();
        let hands_out = self.may_hand_out();
        let tick = self.next_tick(asks);
        let stopping = self.session.stopping;
        tokio::select! {
            biased;
            () = stopping.cancelled() => {}
            Some(sent) = self.sending.join_next() => {
                let sent = sent.map_err(|error| Error::lost(error.to_string()))?;
                self.sent(sent);
            }
            marked = written(&mut self.marking) => self.was_marked(marked).await?,
            frame = self.session.feed.next(), if reads => {
                let taken = take(frame?, &mut self.assembler, &mut self.reading);
                self.note_transaction();
                self.taken(taken).await?;
            }
            () = std::future::ready(()), if hands_out => {
                let next = Batch::new(self.reading.next_mark());
                let batch = std::mem::replace(&mut self.reading, next);
                self.hand = Some(Hand::new(batch, &self.direct.sender));
            }
            () = sleep(tick) => {
                match asks && reads && tick >= ASK {
                    true => self.session.feed.ask().await?,
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
            Path::Direct if self.hand.is_some() && self.sending.is_empty() => until(self.send_at),
            Path::Direct => TICK,
            Path::Spilling { .. } if self.reading.is_empty() || self.is_full => TICK,
            Path::Spilling { .. } => until(self.spilled_at + BETWEEN_BATCHES),
            Path::Draining { ask_at, .. } => until(ask_at),
        };
        let most = if asks { ASK } else { TICK };
        due.clamp(Duration::from_millis(1), most)
    }

    async fn taken(&mut self, taken: Taken) -> Result<(), Error> {
        match taken {
            Taken::Read => self.asked_since = None,
            Taken::Copied(touched, mark) => return self.take_copied(touched, mark).await,
            Taken::Asked => return self.asked().await,
            Taken::Unreadable(change) => self.unreadable = Some(change),
        }
        Ok(())
    }

    /// A server that shuts down waits until all that it has sent is confirmed, for ever.
    async fn asked(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        let is_idle = self.hand.is_none() && self.reading.is_empty();
        if is_idle && self.assembler.transaction().is_none() {
            // Where it cannot be written, the next time will do.
            let _ = self.mark_now().await;
        }
        let (first, last) = self.asked_since.unwrap_or((now, now));
        let goes_on = now.duration_since(last) < TICK;
        self.asked_since = Some((if goes_on { first } else { now }, now));
        if goes_on && now.duration_since(first) > SHUTS_DOWN {
            return Err(Error::lost("the server shuts down"));
        }
        self.session.feed.report().await
    }

    fn may_hand_out(&self) -> bool {
        let is_whole = self.assembler.transaction().is_none() || self.unreadable.is_some();
        matches!(self.path, Path::Direct)
            && self.hand.is_none()
            && self.handed.len() < MOST_ROWS
            && !self.reading.is_empty()
            && (is_whole || self.reading.is_full())
    }

    /// All that was handed out has been answered: what was refused becomes jobs.
    async fn settle_hand(&mut self) -> Result<(), Error> {
        let is_sent = |hand: &Hand| hand.is_sent();
        if self.sending.is_empty() && self.hand.as_ref().is_some_and(is_sent) {
            self.leave_to_relay().await?;
        }
        if self.hand.is_none() && self.reading.is_empty() {
            self.accepted = self.reading.next_mark();
        }
        Ok(())
    }

    /// All is done that was committed before.
    fn is_done_to(&self, until: Lsn) -> bool {
        self.assembler.transaction().is_none()
            && self.hand.is_none()
            && self.reading.is_empty()
            && self.reading.end() >= until
    }

    /// Waits for the last answer, and marks what was accepted: the rest is read again.
    async fn stop(&mut self) -> Result<(), Error> {
        if let Ok(Some(Ok(sent))) = timeout(LAST_ANSWER, self.sending.join_next()).await {
            self.sent(sent);
        }
        self.sending.abort_all();
        self.settle_hand().await?;
        self.mark_now().await
    }
}
