//! The two-phase commit, checked in every order of events within bounds: the steps and decisions of
//! the executor itself, over a model of the store with the faults that a store over HTTP may have.
//! Each rule has a variant without it, which must fail; so must the published protocol.

mod alike;
mod cell;
mod document;
mod machine;
mod plan;
mod property;
mod scripts;
mod seed;
mod system;
mod twins;
mod wider;

use std::time::Instant;

use posthaste_testkit::ran;
use stateright::{Checker, Model};

use machine::Goal::{Create, Resume, RollBack};
use plan::{Executors, Faults, Plan};
pub use scripts::on_transaction;
use system::System;

/// Checks that every property holds in every state. Fewer states than `at_least` mean that the
/// model has shrunk.
fn holds(name: &str, at_least: usize, plan: Plan) {
    let begun = Instant::now();
    // Depth first: the frontier stays small.
    let checker = System::new(plan).checker().threads(2).spawn_dfs().join();
    let states = checker.unique_state_count();
    println!("{name}: {states} states in {:?}", begun.elapsed());
    checker.assert_properties();
    assert!(states >= at_least, "{name}: {states} states are too few");
    ran::note("model");
}

#[test]
fn transfers_are_safe_under_every_single_fault() {
    let everybody = &[(0, Create, 2), (0, Resume, 2), (0, RollBack, 2)];
    let transfer = Plan::transfer(everybody, Faults::all(1));
    holds("creator, recovery and rollback", 500_000, transfer);
    let with_roll_back = &[(0, Resume, 3), (0, RollBack, 3)];
    let transfer = Plan::transfer(with_roll_back, Faults::all(1));
    holds("recovery and rollback", 30_000, transfer);
    let two = &[(0, Create, 2), (0, Resume, 2)];
    let transfer = Plan::transfer(two, Faults::all(2));
    holds("creator and recovery, two faults", 30_000, transfer);
}

#[test]
fn transactions_on_three_documents_are_safe_under_every_single_fault() {
    let everybody = &[(0, Create, 1), (0, Resume, 1), (0, RollBack, 1)];
    let plan = Plan::three_documents(everybody, Faults::all(1));
    holds("three documents", 300_000, plan);
    let two = &[(0, Resume, 2), (0, RollBack, 2)];
    let plan = Plan::three_documents(two, Faults::all(1));
    holds("three documents, twice", 30_000, plan);
}

const CREATORS: Executors = &[(0, Create, 2), (1, Create, 2)];
const ALL_FOUR: Executors = &[
    (0, Resume, 1),
    (0, RollBack, 1),
    (1, Resume, 1),
    (1, RollBack, 1),
];

#[test]
fn concurrent_transfers_never_overspend() {
    let plan = Plan::funds_for_one(CREATORS, Faults::all(1));
    holds("funds for one", 20_000, plan);
    let plan = Plan::funds_for_one(ALL_FOUR, Faults::STALLS);
    holds("funds for one, with rollbacks", 30_000, plan);
    holds("chain", 10_000, Plan::chain(ALL_FOUR, Faults::STALLS));
    holds(
        "chain, a fault",
        2_000,
        Plan::chain(CREATORS, Faults::all(1)),
    );
    holds("opposite", 10_000, Plan::opposite(ALL_FOUR, Faults::STALLS));
    holds(
        "opposite, a fault",
        2_000,
        Plan::opposite(CREATORS, Faults::all(1)),
    );
}

#[test]
fn transactions_sharing_a_mark_slot_are_safe() {
    holds("one slot", 30_000, Plan::one_slot(CREATORS, Faults::all(1)));
    holds(
        "one slot, with rollbacks",
        30_000,
        Plan::one_slot(ALL_FOUR, Faults::STALLS),
    );
}

#[test]
fn conflicting_sets_are_decided_by_one_transaction() {
    holds("set", 30_000, Plan::both_set(CREATORS, Faults::all(1)));
    holds(
        "set, with rollbacks",
        20_000,
        Plan::both_set(ALL_FOUR, Faults::STALLS),
    );
}

#[test]
fn completed_transactions_can_be_pruned_safely() {
    let everybody = &[(0, Create, 1), (0, Resume, 2), (0, RollBack, 1)];
    let plan = Plan::transfer(everybody, Faults::all(1)).pruned();
    holds("forgotten", 50_000, plan);
    let plan = Plan::one_slot(CREATORS, Faults::all(1)).pruned();
    holds("forgotten, one slot", 50_000, plan);
}
