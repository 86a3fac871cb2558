//! The server's clock, if it has a separate one: how far it was ahead, and how long a step back has
//! effects.

#[cfg(test)]
mod tests;

use crate::history::{Fault, History, Kind, Moment, Turn};

/// The limit for following a step back, in microseconds: it takes four seconds, and a machine may
/// be busy.
const FOLLOWED_IN: Moment = 5_000_000;
/// The longest time between the end of a run and its acknowledgement, in microseconds.
const ACKNOWLEDGED_IN: Moment = 2_000_000;
/// How long a fault has effects, in microseconds: until another leader is elected, and jobs of dead
/// workers are rescued.
const FELT: Moment = 10_000_000;

/// The clock with its changes.
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

    /// Whether the server has a separate clock.
    pub(super) fn is_own(&self) -> bool {
        !self.turns.is_empty()
    }

    /// The furthest that it may have been ahead of the machine's clock between two times.
    pub(super) fn furthest(&self, from: Moment, until: Moment) -> Moment {
        let stretches = self.stretches().filter(|(turn, next)| {
            turn.from <= until && next.is_none_or(|next| next.until >= from)
        });
        let ahead = stretches.map(|(turn, _)| turn.ahead());
        ahead.max().unwrap_or(0)
    }

    /// Each setting of the clock, with the next one.
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

    /// Whether it stepped forward between two times.
    pub(super) fn jumped(&self, from: Moment, until: Moment) -> bool {
        let mut jumps = self.steps(|before, after| after.seconds > before.seconds);
        jumps.any(|turn| turn.until >= from && turn.from <= until)
    }

    /// Whether it stepped back between two times.
    pub(super) fn stepped_back(&self, from: Moment, until: Moment) -> bool {
        let mut steps = self.steps_back();
        steps.any(|turn| turn.until >= from && turn.from <= until)
    }

    /// The time at which a step back was followed: as observed, but not before its deadline.
    fn followed(&self, turn: &Turn) -> Moment {
        let must = self.must_be_followed(turn);
        turn.followed.map_or(must, |seen| seen.max(must))
    }

    /// For each step back that was observed to be followed, whether it was in time.
    pub(super) fn followings(&self) -> impl Iterator<Item = bool> {
        self.steps_back()
            .filter_map(|turn| Some(turn.followed? <= self.must_be_followed(turn)))
    }

    /// The deadline for following a step back: [`FOLLOWED_IN`] after it, or the end of the effects
    /// of other faults in that time.
    fn must_be_followed(&self, turn: &Turn) -> Moment {
        let mut followed = turn.until + FOLLOWED_IN;
        for fault in &self.faults {
            if fault.from <= followed && fault.until + FELT >= turn.from {
                followed = followed.max(fault.until + FELT);
            }
        }
        followed
    }

    /// The time from which on a clock counts for a process that writes at this time or soon after
    /// it. Before a step back that was not followed yet, the process may still use the earlier
    /// clock.
    pub(super) fn in_force_since(&self, at: Moment) -> Moment {
        self.unfollowed(at).map_or(at, |turn| turn.from.min(at))
    }

    /// Whether a process that wrote at this time, or soon after it, may have used an earlier clock.
    pub(super) fn is_unfollowed(&self, at: Moment) -> bool {
        self.unfollowed(at).is_some()
    }

    fn unfollowed(&self, at: Moment) -> Option<&'h Turn> {
        let mut steps = self.steps_back();
        steps.find(|turn| turn.from <= at + ACKNOWLEDGED_IN && at <= self.followed(turn))
    }

    /// The time by which a job must have begun that waited only for `due` since `since`: the first
    /// time at which it was certainly due and the clock stayed for long enough, unless it began
    /// before. `None` if there was another fault, or before the clock was first set.
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
