//! The jobs that a relay has and has not begun to send, and whether its destination is thought to
//! be up.

use std::collections::VecDeque;

use posthaste::consumer::Delivery;

use super::breaker::Breaker;

#[derive(Default)]
pub(super) struct SendBuffer {
    waiting: VecDeque<Delivery>,
    under_way: usize,
    pub(super) breaker: Breaker,
}

impl SendBuffer {
    /// How many more jobs it takes, of twice what can be under way; none while the destination is
    /// down. A small claim costs nearly what a large one does, so none is asked for before half of
    /// the room is free: what is under way goes on meanwhile.
    pub(super) fn room(&self, under_way: usize) -> usize {
        let here = self.waiting.len() + self.under_way;
        match self.breaker.opened_until() {
            None if here <= under_way => under_way.saturating_mul(2) - here,
            _ => 0,
        }
    }

    pub(super) fn join(&mut self, claim: Vec<Delivery>) {
        self.waiting.extend(claim);
    }

    /// The next of them, to be sent.
    pub(super) fn take(&mut self, batch: usize) -> Vec<Delivery> {
        let batch = batch.min(self.waiting.len());
        self.under_way += batch;
        self.waiting.drain(..batch).collect()
    }

    /// These are not under way any more.
    pub(super) fn ended(&mut self, jobs: usize) {
        self.under_way -= jobs;
    }

    /// Puts back what was not taken, before all others.
    pub(super) fn put_back(&mut self, jobs: Vec<Delivery>) {
        for one in jobs.into_iter().rev() {
            self.waiting.push_front(one);
        }
    }

    /// Takes out those of them that wait here.
    pub(super) fn remove(&mut self, which: impl Fn(&Delivery) -> bool) -> Vec<Delivery> {
        let all = std::mem::take(&mut self.waiting);
        let (removed, kept): (VecDeque<_>, _) = all.into_iter().partition(which);
        self.waiting = kept;
        Vec::from(removed)
    }

    pub(super) fn clear(&mut self) -> VecDeque<Delivery> {
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
    fn a_claim_is_asked_for_when_half_of_the_room_is_free() {
        let rooms = [0, 39, 40, 41, 80, 81].map(|jobs| buffer(jobs).room(40));
        assert_eq!(rooms, [80, 41, 40, 0, 0, 0]);
    }

    #[test]
    fn while_the_destination_is_down_there_is_no_room() {
        let mut buffer = buffer(0);
        buffer.breaker.failed(Instant::now(), 0.5);
        assert_eq!(buffer.room(40), 0);
        buffer.breaker.close();
        assert_eq!(buffer.room(40), 80);
    }
}
