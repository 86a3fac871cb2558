//! The model without one of its rules, and the published protocol: each must fail, or the model
//! would detect nothing.

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use super::machine::Goal::{Create, Resume, RollBack, SeedResume, SeedRollBack};
use super::plan::{Executors, Faults, Plan};
use super::property::{FUNDS, MONEY, NOTHING, TOGETHER, TRUTH};
use super::scripts::Omission;
use super::system::System;

const TWO: Executors = &[(0, Resume, 2), (0, Resume, 2)];
const WITH_ROLL_BACK: Executors = &[(0, Resume, 2), (0, RollBack, 2)];
const ONE_EACH: Executors = &[(0, Resume, 2), (1, Resume, 2)];

/// Checks that the property breaks, and returns the length of the shortest path to that.
fn breaks(name: &str, property: &'static str, plan: Plan) {
    let begun = Instant::now();
    let search = System::new(plan).checker();
    let until = HasDiscoveries::AnyOf([property].into());
    let found = search.finish_when(until).spawn_bfs().join();
    let (states, time) = (found.unique_state_count(), begun.elapsed());
    let Some(path) = found.discovery(property) else {
        panic!("{name}: in {states} states nothing breaks {property:?}");
    };
    let steps = path.into_actions();
    println!(
        "{name}: {property:?} breaks in {} steps, {states} states, {time:?}",
        steps.len()
    );
    for step in steps {
        println!("    {step:?}");
    }
}

#[test]
fn missing_or_late_marks_let_a_stalled_executor_move_money_twice() {
    for rule in [Omission::NoMarks, Omission::LateLook] {
        let name = format!("{rule:?}");
        let stalls = Faults::STALLS;
        breaks(&name, MONEY, Plan::transfer(TWO, stalls).without(rule));
        let with_roll_back = Plan::transfer(WITH_ROLL_BACK, stalls).without(rule);
        breaks(&name, NOTHING, with_roll_back);
    }
    let alone = Plan::transfer(&[(0, Resume, 3)], Faults::late()).without(Omission::NoMarks);
    breaks("NoMarks, one executor, one late request", MONEY, alone);
}

#[test]
fn skipping_the_pending_check_repeats_a_transaction() {
    let assumed = Plan::transfer(TWO, Faults::STALLS).without(Omission::NoBegin);
    breaks("NoBegin", MONEY, assumed);
    for (fault, faults) in [
        ("stale copy", Faults::stale()),
        ("dirty write", Faults::isolated()),
    ] {
        let read = Plan::transfer(WITH_ROLL_BACK, faults).without(Omission::ReadBegin);
        breaks(&format!("ReadBegin, {fault}"), NOTHING, read);
    }
}

#[test]
fn every_rule_is_needed_on_three_documents() {
    let stalls = Faults::STALLS;
    for rule in [Omission::NoMarks, Omission::LateLook, Omission::SilentUndo] {
        let plan = Plan::three_documents(WITH_ROLL_BACK, stalls).without(rule);
        breaks(&format!("{rule:?}, three documents"), NOTHING, plan);
    }
}

#[test]
fn counted_marks_admit_late_holds_after_lost_writes() {
    let executors = &[
        (0, Resume, 1),
        (0, RollBack, 1),
        (1, RollBack, 1),
        (1, Resume, 1),
    ];
    let counted = Plan::one_slot(executors, Faults::isolated()).without(Omission::CountedMarks);
    breaks("CountedMarks", NOTHING, counted);
}

#[test]
fn undo_and_settle_without_a_write_are_unsafe() {
    let undo = Plan::transfer(WITH_ROLL_BACK, Faults::STALLS).without(Omission::SilentUndo);
    breaks("SilentUndo", NOTHING, undo);
    let settle = Plan::transfer(TWO, Faults::isolated()).without(Omission::SilentSettle);
    breaks("SilentSettle", MONEY, settle);
}

#[test]
fn counting_unacknowledged_holds_loses_money() {
    let plan = Plan::transfer(TWO, Faults::isolated()).without(Omission::HeldCounts);
    breaks("HeldCounts", MONEY, plan);
}

#[test]
fn trusting_an_unconfirmed_decision_loses_it() {
    for property in [NOTHING, TRUTH] {
        let plan = Plan::transfer(TWO, Faults::isolated()).without(Omission::NoConfirm);
        breaks("NoConfirm", property, plan);
    }
}

#[test]
fn missing_exclusive_holds_mix_two_sets() {
    let plan = Plan::both_set(ONE_EACH, Faults::STALLS).without(Omission::SharedSet);
    breaks("SharedSet", TOGETHER, plan);
}

#[test]
fn missing_reservations_overspend() {
    let plan = Plan::funds_for_one(ONE_EACH, Faults::STALLS).without(Omission::SpendReserved);
    breaks("SpendReserved", FUNDS, plan);
}

#[test]
fn pruning_too_early_repeats_a_transaction() {
    let executors = &[(0, Create, 2), (0, Resume, 2)];
    let early = Plan::transfer(executors, Faults::late())
        .pruned()
        .without(Omission::EarlyPrune);
    breaks("EarlyPrune", NOTHING, early);
}

#[test]
fn the_published_elasticsearch_protocol_loses_money() {
    let go = |name: &str, property, plan: Plan| {
        breaks(
            &format!("published, {name}"),
            property,
            plan.without(Omission::Published),
        );
    };
    let two = &[(0, SeedResume, 2), (0, SeedResume, 2)];
    go("S1 a stall", MONEY, Plan::transfer(two, Faults::STALLS));
    let with_roll_back = &[(0, SeedResume, 2), (0, SeedRollBack, 2)];
    go(
        "S2 a hold after its undo",
        NOTHING,
        Plan::transfer(with_roll_back, Faults::STALLS),
    );
    let alone = &[(0, SeedResume, 3)];
    go(
        "S3 a late request",
        MONEY,
        Plan::transfer(alone, Faults::late()),
    );
    go(
        "S4 a dirty write",
        NOTHING,
        Plan::transfer(alone, Faults::isolated()),
    );
    let one_each = &[(0, SeedResume, 2), (1, SeedResume, 2)];
    go(
        "S6 funds for one",
        FUNDS,
        Plan::funds_for_one(one_each, Faults::STALLS),
    );
    let credit = &[(0, SeedResume, 2), (0, SeedRollBack, 2), (1, SeedResume, 2)];
    go(
        "S7 a credit that is undone",
        FUNDS,
        Plan::chain(credit, Faults::STALLS),
    );
}

#[test]
fn restoring_the_omitted_rule_restores_safety() {
    for plan in [
        Plan::transfer(TWO, Faults::STALLS),
        Plan::transfer(WITH_ROLL_BACK, Faults::isolated()),
        Plan::transfer(&[(0, Create, 3)], Faults::late()),
        Plan::both_set(ONE_EACH, Faults::STALLS),
        Plan::funds_for_one(ONE_EACH, Faults::STALLS),
    ] {
        System::new(plan)
            .checker()
            .spawn_bfs()
            .join()
            .assert_properties();
    }
}
