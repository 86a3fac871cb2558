//! Compares the number of repeats with the number of jobs that the affected processes can have
//! claimed.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Fault, History};

/// The repeats, each with the faults that may have caused it.
pub(super) struct Hands<'h> {
    faults: &'h [Fault],
    excuses: Vec<BTreeSet<usize>>,
}

impl<'h> Hands<'h> {
    pub(super) fn of(history: &'h History) -> Self {
        Self {
            faults: &history.faults,
            excuses: Vec::new(),
        }
    }

    /// Records a repeat that these faults may explain; returns whether any does.
    pub(super) fn again(&mut self, excuses: impl Iterator<Item = &'h Fault>) -> bool {
        let place = |fault: &Fault| self.faults.iter().position(|one| std::ptr::eq(one, fault));
        let excuses: BTreeSet<usize> = excuses.filter_map(place).collect();
        let is_excused = !excuses.is_empty();
        self.excuses.push(excuses);
        is_excused
    }

    /// The number of repeats.
    pub(super) fn repeats(&self) -> u64 {
        self.excuses.len() as u64
    }

    /// Whether the affected processes can have had this many claimed: each fault those that only it
    /// explains, and all faults together all repeats. A fault that explains nothing adds nothing.
    pub(super) fn can_hold(&self, in_hand: impl Fn(&Fault) -> u64) -> bool {
        let mut alone: BTreeMap<usize, u64> = BTreeMap::new();
        for excuses in self.excuses.iter().filter(|excuses| excuses.len() == 1) {
            for fault in excuses {
                *alone.entry(*fault).or_default() += 1;
            }
        }
        let hand = |fault: usize| self.faults.get(fault).map_or(0, &in_hand);
        let all: BTreeSet<usize> = self.excuses.iter().flatten().copied().collect();
        let together: u64 = all.into_iter().map(hand).sum();
        self.repeats() <= together && alone.into_iter().all(|(fault, count)| count <= hand(fault))
    }
}
