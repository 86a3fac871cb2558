//! The jobs that a relay has claimed and not begun to send, and the circuit breaker of its
//! destination.

use std::collections::VecDeque;

use posthaste::consumer::{Breaker, Delivery};

#[derive(Default)]
pub(crate) struct SendBuffer {
    waiting: VecDeque<Delivery>,
    under_way: usize,
    pub(crate) breaker: Breaker,
}

impl SendBuffer {
    /// Returns how many more jobs it accepts, up to twice the number that can be in flight; none
    /// while the destination is down. A small claim costs nearly as much as a large one, so it
    /// requests none before half of the room is free; sends in flight continue.
    pub(crate) fn room(&self, under_way: usize) -> usize {
        if self.breaker.is_half_open() {
            return match self.waiting.is_empty() {
                true => self.breaker.room(1),
                false => 0,
            };
        }
        let here = self.waiting.len() + self.under_way;
        match here <= under_way {
            true => self.breaker.room(under_way.saturating_mul(2) - here),
            false => 0,
        }
    }

    pub(crate) fn add_claimed(&mut self, claim: Vec<Delivery>) {
        self.waiting.extend(claim);
    }

    /// Takes the next jobs to send.
    pub(crate) fn take_batch(&mut self, batch: usize) -> Vec<Delivery> {
        let batch = self.breaker.admit(batch.min(self.waiting.len()));
        self.under_way += batch;
        self.waiting.drain(..batch).collect()
    }

    /// Ends the sending of these jobs. Returns whether a single job may be sent as a probe.
    pub(crate) fn finish_jobs(&mut self, jobs: usize) -> bool {
        self.under_way -= jobs;
        self.breaker.release()
    }

    /// Lets one job through. Returns the other waiting jobs, unless all stay.
    pub(crate) fn let_one_through(&mut self, keeps_all: bool) -> Vec<Delivery> {
        self.breaker.half_open();
        let remaining = if keeps_all { self.waiting.len() } else { 1 };
        let others = self.waiting.split_off(remaining.min(self.waiting.len()));
        Vec::from(others)
    }

    /// Returns jobs that were not accepted to the front.
    pub(crate) fn put_back(&mut self, jobs: Vec<Delivery>) {
        for one in jobs.into_iter().rev() {
            self.waiting.push_front(one);
        }
    }

    /// Removes the waiting jobs that match.
    pub(crate) fn remove(&mut self, which: impl Fn(&Delivery) -> bool) -> Vec<Delivery> {
        let all = std::mem::take(&mut self.waiting);
        let (removed, remaining): (VecDeque<_>, _) = all.into_iter().partition(which);
        self.waiting = remaining;
        Vec::from(removed)
    }

    pub(crate) fn take_all(&mut self) -> VecDeque<Delivery> {
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::SendBuffer;

    fn buffer(under_way: usize) -> SendBuffer {
        SendBuffer {
            under_way,
            ..SendBuffer::default()
        }
    }

    #[test]
    fn the_buffer_requests_a_claim_when_half_empty() {
        let rooms = [0, 39, 40, 41, 80, 81].map(|jobs| buffer(jobs).room(40));
        assert_eq!(rooms, [80, 41, 40, 0, 0, 0]);
    }

    #[test]
    fn the_buffer_accepts_nothing_while_the_destination_is_down() {
        let mut buffer = buffer(0);
        buffer.breaker.failed(Instant::now(), 0.5);
        assert_eq!(buffer.room(40), 0);
        buffer.breaker.close();
        assert_eq!(buffer.room(40), 80);
    }

    #[test]
    fn a_half_open_buffer_accepts_one_job() {
        let mut buffer = buffer(40);
        buffer.breaker.failed(Instant::now(), 0.5);
        buffer.let_one_through(false);
        assert_eq!(buffer.room(40), 1);
        assert_eq!(buffer.breaker.admit(1), 1);
        assert_eq!(buffer.room(40), 0);
        assert!(buffer.finish_jobs(40), "nothing is known of it");
        assert_eq!(buffer.room(40), 1);
    }
}
