//! The jobs that a relay has and has not begun to send, and whether its destination is thought to be up.

use std::collections::VecDeque;

use super::breaker::Breaker;
use crate::consumer::Delivery;
use crate::job::JobId;

#[derive(Default)]
pub(super) struct Line {
    waiting: VecDeque<Delivery>,
    under_way: usize,
    pub(super) breaker: Breaker,
}

impl Line {
    /// How many more jobs it takes, of so many in all; none while the destination is down.
    pub(super) fn room(&self, of: usize) -> usize {
        match self.breaker.opened_until() {
            Some(_) => 0,
            None => of.saturating_sub(self.waiting.len() + self.under_way),
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
    pub(super) fn remove(&mut self, jobs: &[JobId]) -> Vec<Delivery> {
        let all = std::mem::take(&mut self.waiting);
        let (removed, kept): (VecDeque<_>, _) =
            all.into_iter().partition(|one| jobs.contains(&one.job.id));
        self.waiting = kept;
        Vec::from(removed)
    }

    pub(super) fn clear(&mut self) -> VecDeque<Delivery> {
        std::mem::take(&mut self.waiting)
    }
}
