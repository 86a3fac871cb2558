//! The line of jobs that wait for a slot: its length, its order, and when jobs are given back.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::MutexGuard;

use super::Runner;
use crate::consumer::Delivery;
use crate::work::handlers::HandlerId;

/// The approximate time that jobs wait in line, estimated from the last runs: a slow job delays
/// others by no more than that.
pub(super) const TARGET_LINE_TIME: Duration = Duration::from_millis(20);
/// The longest line: two claims of the largest size, so that one is fetched while the other runs.
const MAX_LINE_JOBS: usize = 10_000;
/// A job that waited for longer is given back, because runs have become slow.
const MAX_LINE_WAIT: Duration = Duration::from_secs(1);

impl Runner {
    pub(super) fn line(&self) -> MutexGuard<'_, VecDeque<Delivery>> {
        self.line.lock()
    }

    /// Returns the length of the line for the duration of the last runs; 0 if that is at most one
    /// job per slot, or if a handler has a concurrency limit, whose waiting jobs could fill the
    /// line.
    pub(super) fn line_limit(&self) -> usize {
        if self.limited.is_some() {
            return 0;
        }
        let run = u128::from(self.run_time.load(Ordering::Relaxed).max(1));
        let ahead = (TARGET_LINE_TIME.as_nanos() * self.config.concurrency as u128 / run)
            .min(MAX_LINE_JOBS as u128) as usize;
        if ahead > self.config.concurrency {
            ahead
        } else {
            0
        }
    }

    /// Takes the next job whose handler has room, with that handler.
    fn next(&self) -> Option<(Delivery, Option<HandlerId>)> {
        let mut line = self.line();
        let Some(limited) = &self.limited else {
            let delivery = line.pop_front()?;
            let which = self.handlers.get(&delivery.job.name);
            return Some((delivery, which));
        };
        let mut limited = limited.lock();
        for at in 0..line.len() {
            let which = self.handlers.get(&line[at].job.name);
            let most = which.and_then(|which| self.handlers.settings(which).concurrency);
            if let (Some(which), Some(most)) = (which, most) {
                let running = limited.entry(which).or_default();
                if *running >= most {
                    continue;
                }
                *running += 1;
            }
            return line.remove(at).map(|delivery| (delivery, which));
        }
        None
    }

    /// Waits for the next job; returns `None` when the runner ends.
    pub(super) async fn next_or_wait(&self) -> Option<(Delivery, Option<HandlerId>)> {
        loop {
            if let Some(next) = self.next() {
                return Some(next);
            }
            let arrived = self.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            if let Some(next) = self.next() {
                return Some(next);
            }
            tokio::select! { () = arrived => {}, () = self.aborted.cancelled() => return None }
        }
    }

    /// Gives back jobs that waited in line for too long: another worker may be idle. If jobs wait
    /// for each other, or for a free slot that has no thread, the next claim would bring as many
    /// again, so only expired jobs are given back.
    pub(super) fn shorten_line(&self) {
        let mut line = self.line();
        let waits_long = |one: &Delivery| one.ticket.began.elapsed() > MAX_LINE_WAIT;
        if !line.front().is_some_and(waits_long) {
            return;
        }
        let now = Timestamp::now();
        let is_full = self.busy.load(Ordering::SeqCst) >= self.config.concurrency;
        let all_go = is_full && self.limited.is_none();
        let goes = |one: &Delivery| waits_long(one) && (all_go || one.job.expires_at <= now);
        let (gone, waiting) = line.drain(..).partition::<VecDeque<_>, _>(goes);
        *line = waiting;
        drop(line);
        if all_go {
            // No line is built until runs are known to be fast again.
            let slow = u64::try_from(MAX_LINE_WAIT.as_nanos()).unwrap_or(u64::MAX);
            self.run_time.fetch_max(slow, Ordering::Relaxed);
        }
        if let Some(probe) = &self.probe {
            probe.give_back(gone.len());
        }
        gone.into_iter().for_each(|one| one.ticket.give_back());
    }

    pub(super) fn record_duration(&self, run: Duration) {
        let run = u64::try_from(run.as_nanos()).unwrap_or(u64::MAX);
        let average = self.run_time.load(Ordering::Relaxed);
        self.run_time
            .store(average - average / 16 + run / 16, Ordering::Relaxed);
    }
}
