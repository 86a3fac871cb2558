//! Decisions of the direct path, and the events in flight. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use posthaste_relay::{Answer, Message, Sender};

use crate::batch::Batch;
use crate::capture::Direct;
use crate::event::Event;
use crate::lsn::Lsn;
use crate::mark::EventCounts;

/// The first and the largest number of messages that are sent together.
const FIRST_BATCH_SIZE: usize = 64;
const MAX_BATCH_SIZE: usize = 500;
/// A batch that is answered sooner grows, and one that takes longer shrinks.
const MAX_ANSWER_TIME_TO_GROW: Duration = Duration::from_secs(1);
const SHRINK_ABOVE: Duration = Duration::from_secs(5);
/// The first and the longest delay after a failure; it doubles each time.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(50);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(1);
/// A single message that a reachable destination leaves unanswered this often becomes a job: the
/// relay counts its attempts.
const MAX_STRIKES: u32 = 3;
/// A relay that sends jobs within this time keeps up.
const MAX_RELAY_LAG: Duration = Duration::from_secs(1);
/// How long events wait for a relay that keeps up.
const MAX_HOLD: Duration = Duration::from_secs(2);
/// The time over which a destination is judged to keep up.
const LOG_GROWTH_WINDOW: Duration = Duration::from_secs(30);

/// How many messages are sent together, and when.
#[derive(Debug)]
pub(crate) struct BatchSize {
    size: usize,
    most: usize,
    retry: Duration,
    strikes: u32,
}

impl BatchSize {
    pub(crate) fn new(most: Option<usize>) -> Self {
        let most = most.unwrap_or(MAX_BATCH_SIZE).clamp(1, MAX_BATCH_SIZE);
        Self {
            size: FIRST_BATCH_SIZE.min(most),
            most,
            retry: MIN_RETRY_DELAY,
            strikes: 0,
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn record_success(&mut self, took: Duration) {
        (self.retry, self.strikes) = (MIN_RETRY_DELAY, 0);
        if took < MAX_ANSWER_TIME_TO_GROW {
            self.size = (self.size * 2).min(self.most);
        } else if took > SHRINK_ABOVE {
            self.size = (self.size / 2).max(1);
        }
    }

    /// Returns the delay. After a failure messages are sent one by one, to find the one that fails.
    pub(crate) fn record_failure(&mut self, was_there: bool) -> Duration {
        self.strikes = match was_there && self.size == 1 {
            true => self.strikes + 1,
            false => 0,
        };
        self.size = 1;
        let wait = self.retry;
        self.retry = (wait * 2).min(MAX_RETRY_DELAY);
        wait
    }

    /// Whether a single message is the cause.
    pub(crate) fn is_stuck(&self) -> bool {
        self.strikes >= MAX_STRIKES
    }
}

/// Decides when events become jobs. Times are counted from the beginning of the run.
#[derive(Debug)]
pub(crate) struct SpillPolicy {
    spill_after: u64,
    spill_after_time: Option<Duration>,
    /// Since when the destination accepts nothing.
    silent: Option<Duration>,
    window: Option<(Duration, u64, Lsn)>,
}

impl SpillPolicy {
    pub(crate) fn new(direct: &Direct) -> Self {
        Self {
            spill_after: direct.spill_after,
            spill_after_time: direct.spill_after_time,
            silent: None,
            window: None,
        }
    }

    pub(crate) fn record_acceptance(&mut self) {
        self.silent = None;
    }

    pub(crate) fn record_refusal(&mut self, now: Duration) {
        self.silent.get_or_insert(now);
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.silent.is_some()
    }

    pub(crate) fn is_overdue(&self, now: Duration) -> bool {
        let limit = self.spill_after_time;
        let silent = self.silent.map(|since| now.saturating_sub(since));
        silent
            .zip(limit)
            .is_some_and(|(silent, limit)| silent >= limit)
    }

    /// Whether this much unconfirmed log is too much: at once while the destination accepts
    /// nothing, else if it grows although transactions are completed.
    pub(crate) fn is_log_too_long(&mut self, now: Duration, unconfirmed: u64, done: Lsn) -> bool {
        if self.silent.is_some() {
            return unconfirmed > self.spill_after;
        }
        let (since, before, done_before) = *self.window.get_or_insert((now, unconfirmed, done));
        if now.saturating_sub(since) < LOG_GROWTH_WINDOW {
            return false;
        }
        self.window = Some((now, unconfirmed, done));
        unconfirmed > self.spill_after && unconfirmed > before && done > done_before
    }
}

/// The state of the jobs that must come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BacklogState {
    Whole,
    /// Few are left: new events wait until the relay has sent them.
    Nearly,
    Not,
}

impl BacklogState {
    /// By the age of the oldest job, and how long events have been held for the last ones.
    pub(crate) fn new(backlog: Option<Duration>, held: Duration) -> Self {
        match backlog {
            None => Self::Whole,
            Some(oldest) if oldest < MAX_RELAY_LAG && held < MAX_HOLD => Self::Nearly,
            Some(_) => Self::Not,
        }
    }
}

/// Events that are being sent, and those of them that are left.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) batch: Batch,
    left: VecDeque<NumberedMessage>,
    /// Refused by the destination: they become jobs of the relay.
    refused: Vec<usize>,
}

/// A message with the number of its event in the batch.
pub(crate) type NumberedMessage = (usize, Message);

impl InFlight {
    pub(crate) fn new(batch: Batch, sender: &Sender) -> Self {
        let (mut left, mut refused) = (VecDeque::new(), Vec::new());
        for (number, event) in batch.events().iter().enumerate() {
            match sender.message(&event.to_outgoing()) {
                Some(message) => left.push_back((number, message)),
                None => refused.push(number),
            }
        }
        Self {
            batch,
            left,
            refused,
        }
    }

    /// Takes the next messages.
    pub(crate) fn take_messages(&mut self, count: usize) -> (Vec<usize>, Vec<Message>) {
        let count = count.min(self.left.len());
        self.left.drain(..count).unzip()
    }

    /// Puts back messages that were not accepted. Returns how many were, and why others were not.
    pub(crate) fn apply_answers(
        &mut self,
        sent: Vec<NumberedMessage>,
        answers: Vec<Answer>,
    ) -> (usize, Option<String>) {
        let (mut accepted, mut problem) = (0, None);
        for (one, answer) in sent.into_iter().zip(answers).rev() {
            match answer {
                Answer::Accepted => accepted += 1,
                Answer::Unavailable { reason } | Answer::Backpressure { reason } => {
                    problem = Some(reason.to_string());
                    self.left.push_front(one);
                }
                _ => self.refused.push(one.0),
            }
        }
        (accepted, problem)
    }

    /// Whether nothing is left to send.
    pub(crate) fn is_all_sent(&self) -> bool {
        self.left.is_empty()
    }

    /// The accepted events, once all are answered.
    pub(crate) fn accepted_counts(&self) -> EventCounts {
        let (mut sent, unsent) = (EventCounts::default(), self.unsent_events());
        for event in self.batch.events() {
            let bytes = event.job_bytes();
            sent.add(EventCounts { events: 1, bytes });
        }
        for event in unsent {
            sent.events -= 1;
            sent.bytes -= event.job_bytes();
        }
        sent
    }

    /// The events that were not accepted, in the order of the stream.
    pub(crate) fn unsent_events(&self) -> Vec<&Event> {
        let left = self.left.iter().map(|(number, _)| *number);
        let mut numbers: Vec<usize> = left.chain(self.refused.iter().copied()).collect();
        numbers.sort_unstable();
        let events = self.batch.events();
        numbers.iter().map(|number| &events[*number]).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{BacklogState, BatchSize, SpillPolicy};
    use crate::lsn::Lsn;

    #[test]
    fn events_wait_only_briefly_and_only_for_a_relay_that_keeps_up() {
        let millis = Duration::from_millis;
        let drained =
            |oldest: Option<u64>, held| BacklogState::new(oldest.map(millis), millis(held));
        assert_eq!(drained(None, 9_000), BacklogState::Whole);
        assert_eq!(drained(Some(0), 0), BacklogState::Nearly);
        assert_eq!(drained(Some(999), 1_999), BacklogState::Nearly);
        assert_eq!(drained(Some(1_000), 0), BacklogState::Not);
        assert_eq!(drained(Some(0), 2_000), BacklogState::Not);
    }

    #[test]
    fn batches_grow_with_quick_answers_and_shrink_to_one_after_a_failure() {
        let mut pace = BatchSize::new(None);
        let sizes = [1, 1, 1, 1, 2_000, 6_000].map(|millis| {
            let before = pace.size();
            pace.record_success(Duration::from_millis(millis));
            before
        });
        assert_eq!(sizes, [64, 128, 256, 500, 500, 500]);
        assert_eq!(pace.size(), 250);
        let waits = [1, 2, 3, 4, 5, 6, 7].map(|_| pace.record_failure(false).as_millis());
        assert_eq!(waits, [50, 100, 200, 400, 800, 1_000, 1_000]);
        assert_eq!(pace.size(), 1);
        pace.record_success(Duration::ZERO);
        assert_eq!(
            (pace.size(), pace.record_failure(false).as_millis()),
            (2, 50)
        );
        assert_eq!(BatchSize::new(Some(7)).size(), 7);
    }

    #[test]
    fn only_single_messages_of_reachable_destinations_are_stuck() {
        let mut pace = BatchSize::new(None);
        // The first failure was a batch's.
        for _ in 0..3 {
            pace.record_failure(true);
        }
        assert!(!pace.is_stuck());
        pace.record_failure(true);
        assert!(pace.is_stuck());
        pace.record_failure(false);
        assert!(!pace.is_stuck());
    }

    fn patience(spill_after: u64) -> SpillPolicy {
        SpillPolicy {
            spill_after,
            spill_after_time: Some(Duration::from_secs(300)),
            silent: None,
            window: None,
        }
    }

    #[test]
    fn silent_destinations_spill_by_time_or_by_log() {
        let (mut patience, now) = (patience(100), Duration::ZERO);
        assert!(!patience.is_overdue(now + Duration::from_secs(301)));
        patience.record_refusal(now);
        patience.record_refusal(now + Duration::from_secs(200));
        assert!(!patience.is_overdue(now + Duration::from_secs(299)));
        assert!(patience.is_overdue(now + Duration::from_secs(300)));
        assert!(!patience.is_log_too_long(now, 100, Lsn(1)));
        assert!(patience.is_log_too_long(now, 101, Lsn(1)));
        patience.record_acceptance();
        assert!(!patience.is_log_too_long(now, 101, Lsn(1)) && !patience.is_silent());
    }

    #[test]
    fn slow_destinations_spill_only_while_the_log_grows() {
        let later = |seconds| Duration::from_secs(seconds);
        let (mut patience, now) = (patience(100), Duration::ZERO);
        assert!(!patience.is_log_too_long(now, 200, Lsn(1)));
        assert!(!patience.is_log_too_long(now + later(20), 300, Lsn(2)));
        // It shrinks, stays within one transaction, and grows.
        assert!(!patience.is_log_too_long(now + later(31), 150, Lsn(3)));
        assert!(!patience.is_log_too_long(now + later(62), 250, Lsn(3)));
        assert!(patience.is_log_too_long(now + later(93), 350, Lsn(4)));
    }
}
