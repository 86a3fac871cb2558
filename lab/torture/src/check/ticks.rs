//! The ticks of a periodic job on a server whose clock steps: each is enqueued once, and none that
//! the clock has come by is left out.

use std::collections::BTreeMap;

use super::book::Book;
use super::{Judge, Rule};
use crate::history::{Moment, Tick};

const MINUTE: Moment = 60_000_000;
/// The newest that are made up for.
const MOST: Moment = 1_000;
/// How long a worker may take to see that a minute has begun.
const SEEN_IN: Moment = 3_000_000;

pub(super) fn judge(book: &Book<'_>, judge: &mut Judge) {
    if !book.clock.is_own() {
        return;
    }
    let mut ticks: BTreeMap<Moment, Vec<&Tick>> = BTreeMap::new();
    for tick in &book.history.ticks {
        ticks.entry(tick.tick).or_default().push(tick);
    }
    for (at, runs) in &mut ticks {
        runs.sort_by_key(|run| run.began);
        for pair in runs.windows(2) {
            once(book, at / MINUTE, pair[0], pair[1], judge);
        }
    }
    let all: Vec<Moment> = ticks.into_keys().collect();
    for pair in all.windows(2) {
        let is_next = pair[1] - pair[0] <= MINUTE;
        // All that lies before the newest of a jump is left out.
        let is_made_up_for = is_next || pair[1] - pair[0] > MOST * MINUTE;
        let what = "came before a tick that was left out";
        judge.must(Rule::H1, is_made_up_for, pair[1] / MINUTE, what);
    }
    if let Some(turn) = book.history.turns.last() {
        let furthest = (turn.until + turn.ahead() + SEEN_IN) / MINUTE;
        let last = all.last().map_or(0, |last| last / MINUTE);
        let what = "are the last tick, although later ones were due";
        judge.must(Rule::H1, last + 1 >= furthest, last, what);
    }
}

/// A tick whose job was lost with a server is enqueued again.
fn once(book: &Book<'_>, tick: i64, before: &Tick, next: &Tick, judge: &mut Judge) {
    let is_same = before.id == next.id;
    let mut lost = book.promotions();
    let is_lost = lost.any(|one| before.began <= one.until && one.from <= next.began);
    let what = "are a tick that was enqueued twice";
    judge.must(Rule::H4, is_same || is_lost, tick, what);
    let mut excuses = book.excuses(&before.worker, before.began, next.began);
    let is_excused = !is_same || excuses.next().is_some();
    let what = "are a tick that was run again, and nothing had happened to its worker";
    judge.must(Rule::H4, is_excused, tick, what);
}
