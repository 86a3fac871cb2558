//! The possible steps. Numbers select among what exists, so that every sequence is valid, also
//! after shrinking.

use proptest::prelude::{Strategy, any as anything};
use proptest::sample::Index;
use proptest::{option, prop_oneof};

/// How a claimed job is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    Done,
    /// An attempt is counted; the next is due at once or later.
    Fail {
        later: bool,
    },
    Snooze {
        later: bool,
    },
    Discard,
    Await,
    GiveBack,
}

/// A change of the slots by maintenance, which has no visible effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Rotate,
    Seal,
    Reclaim,
    MoveToOverflow,
    TidyOverflow,
    TidyScheduled,
    Hold,
}

#[derive(Clone, Debug)]
pub enum Step {
    Enqueue {
        queue: usize,
        priority: i32,
        later: bool,
        key: Option<u8>,
        ordering_key: Option<u8>,
        most: Option<i32>,
        is_kept: bool,
    },
    EnqueueMany {
        queue: usize,
        priority: i32,
        jobs: i32,
        later: bool,
    },
    Claim {
        worker: usize,
        queue: usize,
        most: i32,
    },
    /// Claims until nothing comes: then all available jobs must have been claimed.
    ClaimAll {
        worker: usize,
        queue: usize,
    },
    ClaimQuarantined {
        worker: usize,
        queue: usize,
    },
    /// Closes some jobs of a claim, even of one that was lost.
    Settle {
        hand: Index,
        some: u8,
        how: Close,
    },
    CloseBatches {
        hand: Index,
    },
    Reschedule {
        hand: Index,
        later: bool,
    },
    /// The answer to a claim was lost.
    ReturnClaim {
        hand: Index,
    },
    Confirm {
        job: Index,
    },
    /// A job becomes due.
    Due {
        job: Index,
    },
    /// A job expires.
    Expire {
        job: Index,
    },
    /// A job was not confirmed in time.
    Overdue {
        job: Index,
    },
    Cancel {
        job: Index,
    },
    CancelAgain,
    Redrive {
        job: Index,
    },
    /// A worker dies and another takes its place.
    Kill {
        worker: usize,
    },
    Pause {
        queue: usize,
    },
    Resume {
        queue: usize,
    },
    Turn(Turn),
    /// The clock was two hours ahead for a moment.
    ClockBack,
}

pub fn any() -> impl Strategy<Value = Step> {
    let close = || {
        prop_oneof![
            3 => proptest::strategy::Just(Close::Done),
            2 => anything::<bool>().prop_map(|later| Close::Fail { later }),
            1 => anything::<bool>().prop_map(|later| Close::Snooze { later }),
            1 => proptest::strategy::Just(Close::Discard),
            2 => proptest::strategy::Just(Close::Await),
            1 => proptest::strategy::Just(Close::GiveBack),
        ]
    };
    let turn = proptest::sample::select(vec![
        Turn::Rotate,
        Turn::Seal,
        Turn::Reclaim,
        Turn::MoveToOverflow,
        Turn::TidyOverflow,
        Turn::TidyScheduled,
        Turn::Hold,
    ]);
    let index = anything::<Index>;
    let most = || proptest::sample::select(vec![Some(1), Some(2), Some(3), None]);
    prop_oneof![
        6 => (0..2usize, 0..2i32, anything::<bool>(), option::of(0..3u8), option::of(0..2u8),
              most(), 0..8u8)
            .prop_map(|(queue, priority, later, key, ordering_key, most, kept)| {
                let is_kept = kept > 0;
                Step::Enqueue { queue, priority, later, key, ordering_key, most, is_kept }
            }),
        2 => (0..2usize, 0..2i32, 1..6i32, anything::<bool>())
            .prop_map(|(queue, priority, jobs, later)| {
                Step::EnqueueMany { queue, priority, jobs, later }
            }),
        6 => (0..2usize, 0..2usize, 1..5i32)
            .prop_map(|(worker, queue, most)| Step::Claim { worker, queue, most }),
        2 => (0..2usize, 0..2usize).prop_map(|(worker, queue)| Step::ClaimAll { worker, queue }),
        3 => (0..2usize, 0..2usize)
            .prop_map(|(worker, queue)| Step::ClaimQuarantined { worker, queue }),
        8 => (index(), anything::<u8>(), close())
            .prop_map(|(hand, some, how)| Step::Settle { hand, some, how }),
        2 => index().prop_map(|hand| Step::CloseBatches { hand }),
        2 => (index(), anything::<bool>())
            .prop_map(|(hand, later)| Step::Reschedule { hand, later }),
        1 => index().prop_map(|hand| Step::ReturnClaim { hand }),
        2 => index().prop_map(|job| Step::Confirm { job }),
        4 => index().prop_map(|job| Step::Due { job }),
        2 => index().prop_map(|job| Step::Expire { job }),
        2 => index().prop_map(|job| Step::Overdue { job }),
        2 => index().prop_map(|job| Step::Cancel { job }),
        1 => proptest::strategy::Just(Step::CancelAgain),
        2 => index().prop_map(|job| Step::Redrive { job }),
        2 => (0..2usize).prop_map(|worker| Step::Kill { worker }),
        1 => (0..2usize).prop_map(|queue| Step::Pause { queue }),
        2 => (0..2usize).prop_map(|queue| Step::Resume { queue }),
        4 => turn.prop_map(Step::Turn),
        1 => proptest::strategy::Just(Step::ClockBack),
    ]
}
