//! Stores, workers, producers and relays that are broken on purpose, and the rules that must detect
//! each: the tests of the checker.

mod misbehavior;
mod played;

use crate::check::Rule;
use crate::history::Kind;
use crate::plan::{Pace, Processes};
pub use misbehavior::Misbehavior;
pub use played::Caught;

/// A bug.
pub struct Bug {
    /// A description of the bug; for a bug in the store, the name of its mutations in the SQL.
    pub name: &'static str,
    /// The misbehavior of a process; `None` for a bug in the store.
    pub misbehavior: Option<Misbehavior>,
    /// The processes that carry the jobs.
    pub processes: Processes,
    /// The load during the round.
    pub pace: Pace,
    /// Whether the servers have separate clocks.
    pub clocked: bool,
    /// Whether the slots of the captures fail over.
    pub fails_over: bool,
    /// The faults without which the bug would do no harm.
    pub faults: &'static [(Kind, u64)],
    /// The rules of which one must detect it.
    pub rules: &'static [Rule],
}

/// All bugs.
pub const BUGS: &[Bug] = &[
    Bug::in_store("a copy of a store may work", &[Rule::Copied]).under(&[(Kind::Copy, 1)]),
    Bug::in_store("promotion drops every seventh job", &[Rule::H1]),
    Bug::in_store("every third retry is not scheduled", &[Rule::H1]),
    Bug::in_store("the cursor steps back by a job", &[Rule::H4]),
    Bug::in_store("every fifth completed job runs again", &[Rule::H4]),
    Bug::in_store("a discarded job runs again", &[Rule::H4]),
    Bug::in_store("no dead worker is found", &[Rule::H6, Rule::H1]).under(&[(Kind::Kill, 4)]),
    Bug::in_store("rescue also takes the jobs of live workers", &[Rule::H4])
        .under(&[(Kind::Kill, 2), (Kind::Termination, 10)]),
    Bug::in_store("a dead-lettered job is not recorded", &[Rule::H1]),
    Bug::in_store(
        "a scheduled job with a unique key is ready at once",
        &[Rule::Due],
    ),
    Bug::in_store("a retry resets the number of attempts", &[Rule::Attempts]),
    Bug::in_store("claims ignore the expiry of jobs", &[Rule::Due]),
    Bug::in_store("a unique key is given twice", &[Rule::H2, Rule::Unique]),
    Bug::in_store("a claim releases the unique key", &[Rule::Unique]),
    Bug::in_store("a completed job keeps its unique key", &[Rule::H6]),
    Bug::in_store("claims replace null in arguments by 0", &[Rule::H7]),
    Bug::in_store("a confirmation is not recorded", &[Rule::H4]),
    Bug::in_store("ordering keys are never taken", &[Rule::H5]),
    Bug::in_store("the last job of a key comes first", &[Rule::H5, Rule::H6]),
    Bug::in_store("the horizon is published late", &[Rule::Prompt]).while_idle(),
    Bug::in_store(
        "a clock step back is not published",
        &[Rule::Due, Rule::Attempts],
    )
    .clocked(&[(Kind::ClockStep, 2)]),
    Bug::in_store("a retry waits by a clock that was ahead", &[Rule::Prompt])
        .clocked(&[(Kind::ClockStep, 2)]),
    Bug::in_store("a tick that was enqueued is enqueued again", &[Rule::H4])
        .clocked(&[(Kind::ClockStep, 2)]),
    Bug::in_people(
        "work is acknowledged before it is done",
        Misbehavior::AcknowledgesFirst,
        &[Rule::H1],
    )
    .under(&[(Kind::Kill, 6)]),
    Bug::in_people(
        "two workers share a fence",
        Misbehavior::SharesAFence,
        &[Rule::H8],
    ),
    Bug::in_people(
        "a producer enqueues beside its transaction",
        Misbehavior::WritesTwice,
        &[Rule::H2],
    ),
    Bug::in_people(
        "a producer takes silence for a no",
        Misbehavior::TakesSilenceForNo,
        &[Rule::H2],
    )
    .under(&[(Kind::HalfAnswer, 12)]),
    Bug::in_relays(
        "a relay acknowledges before the answer",
        Misbehavior::AnswersFirst,
        &[Rule::H1],
    )
    .under(&[(Kind::RelayKill, 6)]),
    Bug::in_relays(
        "a relay takes silence for a yes",
        Misbehavior::TakesSilenceForYes,
        &[Rule::H1],
    )
    .under(&[(Kind::RedisFull, 6), (Kind::RelayCut, 6)]),
    Bug::in_relays(
        "a relay answers for a message that it did not send",
        Misbehavior::DropsTheLast,
        &[Rule::H1],
    ),
    Bug::in_relays(
        "a relay gives a message another id each time",
        Misbehavior::NamesAnew,
        &[Rule::Identity],
    )
    .under(&[(Kind::RedisLoss, 6)]),
    Bug::in_relays(
        "a relay does not look for the message that costs it its connection",
        Misbehavior::IsolatesNothing,
        &[Rule::H1, Rule::H6],
    ),
    Bug::in_relays(
        "a relay uses up attempts while a server is away",
        Misbehavior::BlamesTheMessage,
        &[Rule::Attempts],
    )
    .under(&[(Kind::RedisFull, 4), (Kind::RedisKill, 4)]),
    Bug::in_relays(
        "ordered relays send side by side",
        Misbehavior::SendsSideBySide,
        &[Rule::H5],
    ),
    Bug::in_relays(
        "a relay closes what its receiver has not confirmed",
        Misbehavior::StopsAtAcceptance,
        &[Rule::H1],
    )
    .under(&[(Kind::RedisLoss, 6)]),
    Bug::in_people(
        "a capture loses an event",
        Misbehavior::LosesAnEvent,
        &[Rule::Captured],
    ),
    Bug::in_people(
        "a capture writes a job twice",
        Misbehavior::WritesAJobTwice,
        &[Rule::Captured],
    ),
    Bug::in_people(
        "a capture swaps events",
        Misbehavior::SwapsEvents,
        &[Rule::Captured],
    ),
    Bug::in_people(
        "captures overtake the replica",
        Misbehavior::OvertakesReplicas,
        &[Rule::Captured],
    )
    .failing_over(&[(Kind::Promotion, 1)]),
];

impl Bug {
    /// Whether the bug is in the store.
    pub fn is_in_store(&self) -> bool {
        self.misbehavior.is_none()
    }

    const fn in_store(name: &'static str, rules: &'static [Rule]) -> Self {
        Self {
            name,
            misbehavior: None,
            processes: Processes::Workers,
            pace: Pace::Busy,
            clocked: false,
            fails_over: false,
            faults: &[],
            rules,
        }
    }

    const fn in_people(
        name: &'static str,
        misbehavior: Misbehavior,
        rules: &'static [Rule],
    ) -> Self {
        Self {
            name,
            misbehavior: Some(misbehavior),
            processes: Processes::Workers,
            pace: Pace::Busy,
            clocked: false,
            fails_over: false,
            faults: &[],
            rules,
        }
    }

    const fn in_relays(
        name: &'static str,
        misbehavior: Misbehavior,
        rules: &'static [Rule],
    ) -> Self {
        Self {
            processes: Processes::Relays,
            ..Self::in_people(name, misbehavior, rules)
        }
    }

    const fn under(mut self, faults: &'static [(Kind, u64)]) -> Self {
        self.faults = faults;
        self
    }

    const fn clocked(mut self, faults: &'static [(Kind, u64)]) -> Self {
        self.clocked = true;
        self.under(faults)
    }

    const fn failing_over(mut self, faults: &'static [(Kind, u64)]) -> Self {
        self.fails_over = true;
        self.under(faults)
    }

    const fn while_idle(mut self) -> Self {
        self.pace = Pace::Idle;
        self
    }
}
