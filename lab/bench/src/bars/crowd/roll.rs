//! Records which of very many numbers were seen, and which repeatedly.

use std::sync::atomic::{AtomicU64, Ordering};

/// The first number of a roll, above every time of a clock.
pub(super) const FIRST: u64 = 1 << 40;

/// One bit for each number from [`FIRST`].
#[derive(Debug)]
pub(super) struct Roll {
    seen: Vec<AtomicU64>,
    len: u64,
    done: AtomicU64,
    twice: AtomicU64,
}

impl Roll {
    /// Creates a roll on which no number was seen.
    pub(super) fn of(len: u64) -> Self {
        Self {
            seen: (0..=len / 64).map(|_| AtomicU64::new(0)).collect(),
            len,
            done: AtomicU64::new(0),
            twice: AtomicU64::new(0),
        }
    }

    /// Records a number; returns whether it is on the roll.
    pub(super) fn note(&self, number: u64) -> bool {
        let Some(place) = number.checked_sub(FIRST).filter(|place| *place < self.len) else {
            return false;
        };
        let bit = 1 << (place % 64);
        let Some(word) = self.seen.get((place / 64) as usize) else {
            return false;
        };
        let count = if word.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            &self.done
        } else {
            &self.twice
        };
        count.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// The length of the roll.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// The count of different numbers that were seen.
    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// How often a number was seen again.
    pub(super) fn twice(&self) -> u64 {
        self.twice.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::{FIRST, Roll};

    #[test]
    fn numbers_count_once_and_repeats_separately() {
        let roll = Roll::of(130);
        for number in [FIRST, FIRST + 129, FIRST + 64, FIRST] {
            assert!(roll.note(number));
        }
        assert_eq!((roll.done(), roll.twice()), (3, 1));
    }

    #[test]
    fn numbers_outside_the_roll_do_not_count() {
        let roll = Roll::of(130);
        assert!(!roll.note(FIRST - 1) && !roll.note(FIRST + 130));
        assert_eq!((roll.done(), roll.twice()), (0, 0));
    }
}
