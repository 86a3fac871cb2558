//! The server's clock, where it has one of its own: how far it was ahead, and until when a step
//! back may be felt.

#[cfg(test)]
mod tests;

use crate::history::{Fault, History, Kind, Moment, Turn};

/// What is set right behind a step back takes four seconds, and a machine may be busy.
const FOLLOWED_IN: Moment = 5_000_000;
/// How long after a run its end may have been written down.
const ACKNOWLEDGED_IN: Moment = 2_000_000;
/// How long a fault is felt: by then another leads, and the dead are rescued.
const FELT: Moment = 10_000_000;

/// As it was turned.
pub(super) struct Clock<'h> {
    turns: &'h [Turn],
    faults: Vec<&'h Fault>,
}

impl<'h> Clock<'h> {
    pub(super) fn of(history: &'h History) -> Self {
        let faults = history.faults.iter();
        let mut faults: Vec<_> = faults
            .filter(|fault| fault.kind != Kind::ClockStep)
            .collect();
        faults.sort_by_key(|fault| fault.from);
        Self {
            turns: &history.turns,
            faults,
        }
    }

    /// Whether it is another one than the machine's.
    pub(super) fn is_own(&self) -> bool {
        !self.turns.is_empty()
    }

    /// As far ahead of the machine's as it may have been between two moments.
    pub(super) fn furthest(&self, from: Moment, until: Moment) -> Moment {
        let stretches = self.stretches().filter(|(turn, next)| {
            turn.from <= until && next.is_none_or(|next| next.until >= from)
        });
        let ahead = stretches.map(|(turn, _)| turn.ahead());
        ahead.max().unwrap_or(0)
    }

    /// Each way that it was, and when it was turned again.
    fn stretches(&self) -> impl Iterator<Item = (&'h Turn, Option<&'h Turn>)> {
        let turns = self.turns;
        let next = move |at: usize| turns.get(at + 1);
        turns
            .iter()
            .enumerate()
            .map(move |(at, turn)| (turn, next(at)))
    }

    fn steps(&self, is_meant: impl Fn(&Turn, &Turn) -> bool) -> impl Iterator<Item = &'h Turn> {
        let pairs = self.turns.windows(2);
        pairs.filter_map(move |pair| is_meant(&pair[0], &pair[1]).then_some(&pair[1]))
    }

    fn steps_back(&self) -> impl Iterator<Item = &'h Turn> {
        self.steps(|before, after| after.seconds < before.seconds)
    }

    /// Whether it stepped forward between two moments.
    pub(super) fn jumped(&self, from: Moment, until: Moment) -> bool {
        let mut jumps = self.steps(|before, after| after.seconds > before.seconds);
        jumps.any(|turn| turn.until >= from && turn.from <= until)
    }

    /// Whether it stepped back between two moments.
    pub(super) fn stepped_back(&self, from: Moment, until: Moment) -> bool {
        let mut steps = self.steps_back();
        steps.any(|turn| turn.until >= from && turn.from <= until)
    }

    /// When a step back was followed: as it was seen, or else when it must have been.
    fn followed(&self, turn: &Turn) -> Moment {
        let must = self.must_be_followed(turn);
        turn.followed.map_or(must, |seen| seen.max(must))
    }

    /// Each step back that was seen to be followed, and whether that was in time.
    pub(super) fn followings(&self) -> impl Iterator<Item = bool> {
        self.steps_back()
            .filter_map(|turn| Some(turn.followed? <= self.must_be_followed(turn)))
    }

    /// When a step back must have been followed: four seconds later, and where something else
    /// happened meanwhile when that is no more felt.
    fn must_be_followed(&self, turn: &Turn) -> Moment {
        let mut followed = turn.until + FOLLOWED_IN;
        for fault in &self.faults {
            if fault.from <= followed && fault.until + FELT >= turn.from {
                followed = followed.max(fault.until + FELT);
            }
        }
        followed
    }

    /// Since when the clock counts that somebody may have gone by who wrote at this moment, or soon
    /// after: the one before a step back that was not followed yet.
    pub(super) fn in_force_since(&self, at: Moment) -> Moment {
        self.unfollowed(at).map_or(at, |turn| turn.from.min(at))
    }

    /// Whether who wrote at this moment, or soon after, may have gone by a clock of before.
    pub(super) fn is_unfollowed(&self, at: Moment) -> bool {
        self.unfollowed(at).is_some()
    }

    fn unfollowed(&self, at: Moment) -> Option<&'h Turn> {
        let mut steps = self.steps_back();
        steps.find(|turn| turn.from <= at + ACKNOWLEDGED_IN && at <= self.followed(turn))
    }

    /// When a job that waited for nothing but this time since that moment must have been begun, at
    /// the first one at which it was certainly due and the clock stayed for long enough; unless it
    /// was begun before. Nothing is asked where something else happened, nor before it was turned.
    pub(super) fn due_by(
        &self,
        since: Moment,
        due: Moment,
        soon: Moment,
        began: Moment,
    ) -> Option<Moment> {
        for (turn, next) in self.stretches() {
            let is_step_back = self.steps_back().any(|step| step.from == turn.from);
            let from = if is_step_back {
                self.followed(turn)
            } else {
                turn.until
            };
            let ready = from.max(since).max(due - turn.ahead());
            let bound = ready + soon;
            let stays = next.is_none_or(|next| bound <= next.from);
            let is_begun = next.is_none_or(|next| began <= next.from);
            if stays || is_begun {
                let is_quiet = !self
                    .faults
                    .iter()
                    .any(|fault| fault.until + FELT >= ready && fault.from <= bound);
                let is_first = self.turns.first().is_some_and(|one| one.from == turn.from);
                return (stays && is_quiet && !is_first).then_some(bound);
            }
        }
        None
    }
}
