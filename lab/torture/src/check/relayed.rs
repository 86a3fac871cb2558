//! Checks arrivals at receivers: expected, complete, in time, in order, and repeated only if a
//! fault explains it.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::book::{Book, Job};
use super::hands::Hands;
use super::{Judge, Rule};
use crate::history::{Fault, JobBehavior, Kind, Moment, Run};
use crate::relay::{CONFIRMED, ORDERED};

/// The tolerance in microseconds: clocks count microseconds, and Postgres rounds to them.
const ROUNDED: Moment = 1_000;
/// The longest time between a fault and an arrival that it repeated, in microseconds: the reader
/// may have been disconnected, and the relay may have waited for an answer.
const SLACK: Moment = 15_000_000;
/// The number of messages that one relay may have in flight to Sidekiq or asynq: four batches of
/// ten. The same number may wait in its queue.
const UNDER_WAY: u64 = 40;
/// The number of messages that an ordered relay may have in flight.
const DRAINED: u64 = 10;
const RELAYS: u64 = 3;

pub(super) fn judge(book: &Book<'_>, judge: &mut Judge) {
    let mut hands = Hands::of(book.history);
    for (key, job) in &book.jobs {
        twice(book, *key, job, judge, &mut hands);
        for run in &job.runs {
            let is_due = run.began + ROUNDED >= job.intent.due;
            judge.must(Rule::Due, is_due, *key, "arrived before they were due");
            let is_same = run.args == job.intent.args;
            judge.must(Rule::H7, is_same, *key, "arrived with other arguments");
        }
    }
    judge.verdict.load.repeats = hands.repeats();
    let what = "arrived again: more than those who were struck can have had in hand";
    judge.must(Rule::H4, hands.can_hold(in_hand), 0, what);
    counted(book, judge);
    in_order(book, judge);
}

/// Checks counted attempts. An unreachable server counts as no attempt. A relay that meets another
/// fault while it isolates the message that breaks its connection may count an attempt of an
/// innocent one.
fn counted(book: &Book<'_>, judge: &mut Judge) {
    let mut counted = 0;
    for job in book.jobs.values() {
        let is_innocent =
            job.intent.behavior == JobBehavior::Finish && job.intent.queue != CONFIRMED;
        if let Some(run) = job.runs.first()
            && is_innocent
        {
            let attempts = book.history.end.attempts.get(&run.id);
            counted += attempts.map_or(0, |(counted, _)| *counted).unsigned_abs();
        }
    }
    let faults = book.history.faults.iter();
    // A producer's lost answer has no effect on relays.
    let strikes = faults.filter(|fault| fault.kind != Kind::HalfAnswer);
    let is_borne = counted <= strikes.count() as u64;
    let what = "counted attempts: more than one for each fault";
    judge.must(Rule::Attempts, is_borne, 0, what);
}

/// The number of messages that a fault may repeat.
fn in_hand(fault: &Fault) -> u64 {
    match fault.kind {
        // Everything that it had claimed, of both queues: the store may not know that it was
        // accepted.
        Kind::RelayKill => 2 * (UNDER_WAY + DRAINED),
        // A link leads to one server.
        Kind::RelayCut | Kind::RelayHalfOpen => UNDER_WAY,
        Kind::RedisKill => RELAYS * UNDER_WAY,
        // Also the messages that waited for a confirmation, which may be the same number again.
        Kind::RedisLoss => RELAYS * 2 * UNDER_WAY,
        // One ordered relay sends, and another may have taken over.
        Kind::RabbitMqKill => 2 * DRAINED,
        _ => 0,
    }
}

/// Records arrivals after the first; each needs a fault between the two. A receiver that drops
/// duplicates gets none unless it has lost the first.
fn twice<'h>(book: &Book<'h>, key: i64, job: &Job<'_>, judge: &mut Judge, hands: &mut Hands<'h>) {
    for pair in job.runs.windows(2) {
        let (before, next) = (pair[0], pair[1]);
        let faults = book.history.faults.iter();
        let is_excused = hands.again(faults.filter(|fault| {
            let is_near = fault.until + SLACK >= before.began && fault.from <= next.began;
            is_near && explains(fault, job, before)
        }));
        let what = "arrived again, and nothing had happened that explains it";
        judge.must(Rule::H4, is_excused, key, what);
        if job.intent.queue == CONFIRMED {
            let what = "were taken twice by a receiver that knew them";
            judge.must(Rule::H4, before.fence != next.fence, key, what);
        }
    }
}

/// Whether a fault may have lost the answer for a relay that had sent this, or may have made a
/// receiver forget it.
fn explains(fault: &Fault, job: &Job<'_>, sent: &Run) -> bool {
    let relay = sent.worker.split('.').next();
    match fault.kind {
        Kind::RelayKill | Kind::RelayCut | Kind::RelayHalfOpen => {
            job.intent.queue != CONFIRMED && fault.target.as_deref() == relay
        }
        Kind::RedisLoss => job.intent.queue == CONFIRMED,
        Kind::RabbitMqKill => job.intent.queue == ORDERED,
        Kind::RedisKill => job.intent.queue == "a",
        // A server that is out of memory accepts nothing.
        _ => false,
    }
}

/// Checks that a job arrived first if it was committed before the other's transaction began, or
/// precedes it in the same transaction. A job that was refused temporarily or that crashed its
/// relay more than once may arrive later.
fn in_order(book: &Book<'_>, judge: &mut Judge) {
    let is_late = |run: &Run| {
        let attempts = book.history.end.attempts.get(&run.id);
        attempts.is_some_and(|(counted, crashed)| *counted > 0 || *crashed > 1)
    };
    let mut arrivals: Vec<(i64, &Job<'_>, &Run)> = Vec::new();
    for (key, job) in &book.jobs {
        if let Some(first) = job.runs.first()
            && job.intent.queue == ORDERED
            && job.is_kept()
        {
            arrivals.push((*key, job, first));
        }
    }
    arrivals.sort_by_key(|(_, _, first)| first.began);
    // From the last to the first: no later arrival was committed before this one's transaction
    // began, or precedes it in its transaction.
    let mut earliest = Moment::MAX;
    let mut places: BTreeMap<(usize, u64), usize> = BTreeMap::new();
    for (key, job, first) in arrivals.iter().rev() {
        let place = places.entry(job.transaction).or_insert(usize::MAX);
        let is_in_order = earliest >= job.meant_at && *place > job.place;
        let what = "arrived before one that stood before them in the lane";
        judge.must(Rule::H5, is_in_order, *key, what);
        if !is_late(first) {
            earliest = earliest.min(job.answered_at);
            *place = (*place).min(job.place);
        }
    }
}
