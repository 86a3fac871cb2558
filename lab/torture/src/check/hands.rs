//! How much came again, beside what those who were struck can have had in hand.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Fault, History};

/// What came again, and which faults may have been the reason of each.
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

    /// Something came again, which these explain.
    pub(super) fn again(&mut self, excuses: impl Iterator<Item = &'h Fault>) -> bool {
        let place = |fault: &Fault| self.faults.iter().position(|one| std::ptr::eq(one, fault));
        let excuses: BTreeSet<usize> = excuses.filter_map(place).collect();
        let is_excused = !excuses.is_empty();
        self.excuses.push(excuses);
        is_excused
    }

    /// How often something did.
    pub(super) fn repeats(&self) -> u64 {
        self.excuses.len() as u64
    }

    /// Whether those that were struck can have had so much in hand: each fault what nothing else
    /// explains, and all of them together everything. A fault that explains nothing adds nothing.
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
