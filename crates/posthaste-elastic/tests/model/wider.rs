//! The same with one more fault: millions of states, for `make test-full`.

use super::machine::Goal::{Create, Resume, RollBack};
use super::plan::{Faults, Plan};
use super::{CREATORS, holds};

#[test]
fn transfers_are_safe_under_one_more_fault() {
    let with_roll_back = &[(0, Resume, 3), (0, RollBack, 3)];
    let transfer = Plan::transfer(with_roll_back, Faults::all(2));
    holds("recovery and rollback, two faults", 600_000, transfer);
    let two = &[(0, Create, 2), (0, Resume, 2)];
    let transfer = Plan::transfer(two, Faults::all(3));
    holds("creator and recovery, three faults", 1_300_000, transfer);
}

#[test]
fn two_transfers_are_safe_under_one_more_fault() {
    let plan = Plan::funds_for_one(CREATORS, Faults::all(2));
    holds("funds for one, two faults", 900_000, plan);
    let plan = Plan::one_slot(CREATORS, Faults::all(2));
    holds("one slot, two faults", 1_100_000, plan);
    let plan = Plan::both_set(CREATORS, Faults::all(2));
    holds("set, two faults", 700_000, plan);
}

#[test]
#[ignore = "takes minutes: `make two-phase` runs it"]
fn transfers_with_all_executors_are_safe_under_two_faults() {
    let everybody = &[(0, Create, 2), (0, Resume, 2), (0, RollBack, 2)];
    let transfer = Plan::transfer(everybody, Faults::all(2));
    holds("everybody, two faults", 12_000_000, transfer);
}
