//! Checks the ticks of a periodic job on a server whose clock steps: each is enqueued once, and
//! none that the clock passed is missing.

use std::collections::BTreeMap;

use super::book::Book;
use super::{Judge, Rule};
use crate::history::{Moment, Tick, Turn};

const MINUTE: Moment = 60_000_000;
/// The number of missed ticks that are made up for: the newest.
const MOST: Moment = 1_000;
/// The limit for a worker to notice that a minute has begun, in microseconds.
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
        let left_out = (pair[0] / MINUTE + 1..pair[1] / MINUTE).map(|tick| tick * MINUTE);
        // Of a jump, only the newest ticks are made up for.
        let is_made_up_for = pair[1] - pair[0] > MOST * MINUTE
            || left_out
                .into_iter()
                .all(|tick| is_behind_a_jump(&book.history.turns, tick));
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

/// Whether the clock jumped over a tick, by more than is made up for, and had passed it when it was
/// set back: the tick is neither among the newest of the jump nor in the future.
fn is_behind_a_jump(turns: &[Turn], tick: Moment) -> bool {
    let after = |turn: &Turn| turn.until + turn.ahead();
    turns.windows(3).any(|three| {
        let before = three[1].from + three[0].ahead();
        let is_jump = after(&three[1]) - before > MOST * MINUTE;
        let is_over = before < tick && tick < after(&three[1]);
        is_jump && is_over && tick <= after(&three[2]) + SEEN_IN
    })
}

/// Checks that a tick is enqueued once, or again if its job was lost with a server.
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

#[cfg(test)]
mod tests {
    use super::{MINUTE, SEEN_IN, is_behind_a_jump};
    use crate::history::Turn;

    #[test]
    fn ticks_skipped_by_a_clock_jump_may_be_missing() {
        const YEAR: i64 = 31_536_000;
        let turn = |from: i64, seconds: i64| Turn {
            from,
            until: from,
            seconds,
            followed: None,
        };
        // A minute begins while the clock is a year ahead.
        let minute = 1_000 * MINUTE;
        let (jumped, back) = (minute - 5_000_000, minute + 2_000_000);
        let turns = [turn(0, 0), turn(jumped, YEAR), turn(back, 0)];
        assert!(is_behind_a_jump(&turns, minute));
        assert!(!is_behind_a_jump(&turns, minute - MINUTE), "it was made");
        assert!(!is_behind_a_jump(&turns, minute + MINUTE), "it comes");
        // A step within what is made up for omits nothing.
        let turns = [turn(0, 0), turn(jumped, 3_600), turn(back, 0)];
        assert!(!is_behind_a_jump(&turns, minute));
        let turns = [turn(0, 0), turn(jumped, YEAR), turn(back, -600)];
        assert!(!is_behind_a_jump(&turns, minute + SEEN_IN));
    }
}
