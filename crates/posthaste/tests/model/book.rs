//! The model: jobs, which worker has them, and which job holds which key. The transitions of a job
//! are those of the library, `next`.

use std::collections::{BTreeMap, BTreeSet};

use posthaste::__private::{Event, next};
use posthaste::State;
use uuid::Uuid;

use super::step::Close;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub queue: usize,
    pub priority: i32,
    pub state: State,
    pub attempt: i32,
    pub most: Option<i32>,
    pub key: Option<String>,
    /// Its ordering key.
    pub ordering_key: Option<String>,
    /// Its trace context.
    pub trace: Option<String>,
    /// Whether it has the turn of its key.
    pub has_turn: bool,
    /// The number of workers that died while they had it.
    pub crashes: i32,
}

/// A claimed batch.
#[derive(Clone, Debug)]
pub struct Hand {
    pub worker: i64,
    pub slot: i16,
    pub batch: i64,
    pub token: Uuid,
    pub given: Vec<i64>,
    /// The jobs that are still the worker's.
    pub open: BTreeSet<i64>,
    /// Whether a part of it was closed separately.
    pub is_split: bool,
}

#[derive(Debug, Default)]
pub struct Book {
    pub jobs: BTreeMap<i64, Job>,
    pub keys: BTreeMap<String, i64>,
    pub hands: Vec<Hand>,
    /// The blocked jobs of each key, in the order of their turns.
    blocked: BTreeMap<String, Vec<i64>>,
    pub paused: BTreeSet<usize>,
    /// Confirmations that came before the job awaited them.
    confirmed: BTreeSet<i64>,
    /// Jobs that were running when they were cancelled.
    cancelling: BTreeSet<i64>,
}

impl Book {
    /// Returns the job that holds a key.
    pub fn holder(&self, key: Option<&String>) -> Option<i64> {
        self.keys.get(key?).copied()
    }

    pub fn enqueued(&mut self, id: i64, job: Job) {
        if let Some(key) = &job.key {
            self.keys.insert(key.clone(), id);
        }
        let is_due = job.state == State::Available;
        self.jobs.insert(id, job);
        if is_due && self.jobs[&id].ordering_key.is_some() {
            self.block(id);
        }
    }

    /// Appends the job to those of its key.
    fn block(&mut self, id: i64) {
        let job = self.job(id);
        job.state = State::Blocked;
        job.has_turn = false;
        let ordering_key = job.ordering_key.clone().unwrap_or_default();
        self.blocked.entry(ordering_key).or_default().push(id);
    }

    /// Lets the next job begin for each key whose turn is over.
    pub fn takes_turns(&mut self) {
        for ordering_key in self.blocked.keys().cloned().collect::<Vec<_>>() {
            let is_taken = self.jobs.values().any(|job| {
                job.has_turn
                    && !is_over(job.state)
                    && job.ordering_key.as_ref() == Some(&ordering_key)
            });
            let jobs = &self.jobs;
            let waiting = self.blocked.entry(ordering_key).or_default();
            waiting.retain(|id| jobs[id].state == State::Blocked);
            if !is_taken && !waiting.is_empty() {
                let id = waiting.remove(0);
                self.happens(id, Event::Unblocked);
                self.job(id).has_turn = true;
            }
        }
    }

    /// Makes a job due: without a turn it is blocked until it has it.
    pub fn due(&mut self, id: i64) {
        let job = self.job(id);
        if job.ordering_key.is_some() && !job.has_turn {
            self.happens(id, Event::Blocked);
            self.block(id);
        } else {
            self.happens(id, Event::Due);
        }
    }

    /// Returns jobs in one of these states.
    pub fn in_state(&self, states: &[State]) -> Vec<i64> {
        let jobs = self.jobs.iter();
        jobs.filter(|(_, job)| states.contains(&job.state))
            .map(|(id, _)| *id)
            .collect()
    }

    /// Returns jobs of a queue that may be claimed.
    pub fn available(&self, queue: usize, state: State) -> BTreeSet<i64> {
        if self.paused.contains(&queue) {
            return BTreeSet::new();
        }
        let jobs = self.jobs.iter();
        jobs.filter(|(_, job)| job.queue == queue && job.state == state)
            .map(|(id, _)| *id)
            .collect()
    }

    pub fn claimed(&mut self, hand: Hand) {
        for id in &hand.given {
            self.happens(*id, Event::Claimed);
        }
        self.hands.push(hand);
    }

    /// Closes a job of a hand, if the hand still has it. Returns whether it had.
    pub fn settled(&mut self, hand: usize, id: i64, how: Close) -> bool {
        if !self.hands[hand].open.remove(&id) {
            return false;
        }
        self.hands[hand].is_split = true;
        match how {
            Close::Done => self.happens(id, Event::Finished),
            Close::Discard => {
                self.job(id).attempt += 1;
                self.happens(id, Event::Discarded);
            }
            Close::Fail { later } => self.failed(id, later),
            Close::Snooze { later } => {
                self.happens(id, Event::Snoozed);
                self.job(id).crashes = 0;
                self.wait_is_over(id, later);
            }
            Close::Await => {
                self.happens(id, Event::HandedOn);
                self.job(id).crashes = 0;
                if self.confirmed.remove(&id) {
                    self.happens(id, Event::Confirmed);
                }
            }
            Close::GiveBack => self.given_back(id),
        }
        true
    }

    pub fn given_back(&mut self, id: i64) {
        if self.job(id).crashes > 0 {
            // It was not seen to run alone to its end.
            self.job(id).state = State::Quarantined;
        } else {
            self.happens(id, Event::GivenBack);
        }
    }

    /// Counts the attempt; the job ends if no other is left.
    pub fn failed(&mut self, id: i64, later: bool) {
        let job = self.job(id);
        job.attempt += 1;
        if job.most.is_some_and(|most| job.attempt >= most) {
            return self.happens(id, Event::Exhausted);
        }
        job.crashes = 0;
        self.happens(id, Event::Failed);
        self.wait_is_over(id, later);
    }

    fn wait_is_over(&mut self, id: i64, later: bool) {
        if !later {
            self.happens(id, Event::Due);
        }
    }

    pub fn confirmed(&mut self, id: i64) {
        if self.job(id).state == State::Awaiting {
            self.happens(id, Event::Confirmed);
        } else {
            self.confirmed.insert(id);
        }
    }

    /// Returns the answer of `posthaste.cancel`.
    pub fn cancelled(&mut self, id: i64) -> Option<&'static str> {
        match self.job(id).state {
            State::Completed => None,
            State::Dead => Some("dead"),
            State::Discarded => Some("discarded"),
            State::Expired => Some("expired"),
            State::Cancelled => Some("cancelled"),
            State::Running => {
                self.cancelling.insert(id);
                Some("running")
            }
            _ => {
                self.happens(id, Event::Cancelled);
                Some("cancelled")
            }
        }
    }

    /// Whether a job is done although it was cancelled while it ran: for some seconds the store
    /// does not distinguish it from a job that is being moved, and may return either answer.
    pub fn may_be_running(&self, id: i64) -> bool {
        self.jobs[&id].state == State::Completed && self.cancelling.contains(&id)
    }

    /// Cancels the jobs that were running when they were cancelled and wait now.
    pub fn cancelled_again(&mut self) {
        for id in self.cancelling.clone() {
            if !matches!(self.job(id).state, State::Running | State::Completed) {
                self.cancelled(id);
                self.cancelling.remove(&id);
            }
        }
    }

    pub fn redriven(&mut self, id: i64) -> bool {
        let key = self.job(id).key.clone();
        if self.holder(key.as_ref()).is_some() {
            return false;
        }
        if let Some(key) = key {
            self.keys.insert(key, id);
        }
        self.cancelling.remove(&id);
        let job = self.job(id);
        job.attempt = 0;
        job.crashes = 0;
        if self.job(id).ordering_key.is_some() {
            self.happens(id, Event::Blocked);
            self.block(id);
        } else {
            self.happens(id, Event::Redriven);
        }
        true
    }

    pub fn worker_died(&mut self, worker: i64) {
        let hands = self.hands.iter_mut();
        let lost: Vec<i64> = hands
            .filter(|hand| hand.worker == worker)
            .flat_map(|hand| {
                hand.is_split = true;
                std::mem::take(&mut hand.open)
            })
            .collect();
        for id in lost {
            let job = self.job(id);
            let was_alone = job.crashes > 0;
            job.crashes += 1;
            // A job that ran alone has killed its worker.
            job.attempt += i32::from(was_alone);
            if was_alone && job.most.is_some_and(|most| job.attempt >= most) {
                self.happens(id, Event::Exhausted);
            } else {
                self.happens(id, Event::WorkerDied);
            }
        }
    }

    pub fn happens(&mut self, id: i64, event: Event) {
        let job = self.job(id);
        job.state = next(job.state, event).unwrap_or_else(|illegal| panic!("{illegal}"));
        let is_over = is_over(job.state);
        let key = job.key.clone();
        if is_over {
            if self.jobs[&id].state != State::Completed {
                self.cancelling.remove(&id);
            }
            self.keys.retain(|one, _| Some(one) != key.as_ref());
        }
    }

    fn job(&mut self, id: i64) -> &mut Job {
        self.jobs.get_mut(&id).expect("a job of the model")
    }
}

/// Whether a state is final, except for a redrive.
fn is_over(state: State) -> bool {
    matches!(
        state,
        State::Completed | State::Dead | State::Discarded | State::Expired | State::Cancelled
    )
}
