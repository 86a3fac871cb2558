//! A selection of the bugs; `make torture ARGS=--bugs` runs all of them.

use std::collections::BTreeSet;

use posthaste::__private::migrations_sql_with_mutations;
use posthaste_testkit::receivers::{Receiver, are_here};
use posthaste_testkit::{PgVersion, mutations, ran};
use posthaste_torture::bugs::BUGS;

use crate::Place;

/// Two of the store, one of a worker, one of a producer.
const SOME: [&str; 4] = [
    "a copy of a store may work",
    "claims replace null in arguments by 0",
    "two workers share a fence",
    "a producer enqueues beside its transaction",
];

/// A bug that only rounds with clock steps can detect.
const OF_CLOCKS: [&str; 1] = ["a clock step back is not published"];

/// A bug that loses messages, and one that reorders them.
const OF_RELAYS: [&str; 2] = [
    "a relay answers for a message that it did not send",
    "ordered relays send side by side",
];

/// A lost event, a duplicate job, two events in the wrong order, and events of lost commits.
const OF_CAPTURES: [&str; 4] = [
    "a capture loses an event",
    "a capture writes a job twice",
    "a capture swaps events",
    "captures overtake the replica",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_stores_workers_and_producers_are_detected() {
    noticed("noticed", &SOME, 50).await;
    ran::count("torture-bugs", SOME.len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_relays_are_detected() {
    let test = "broken_relays_are_detected";
    if !are_here(test, &[Receiver::Redis, Receiver::RabbitMq]) {
        return;
    }
    noticed(test, &OF_RELAYS, 300).await;
    ran::count("torture-relay-bugs", OF_RELAYS.len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn captures_that_lose_repeat_or_swap_events_are_detected() {
    let test = "captures_that_lose_repeat_and_swap";
    if !are_here(test, &[Receiver::Redis]) {
        return;
    }
    noticed(test, &OF_CAPTURES, 50).await;
    ran::count("torture-capture-bugs", OF_CAPTURES.len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_confused_by_a_clock_are_detected() {
    noticed("clocks", &OF_CLOCKS, 0).await;
    ran::count("torture-clock-bugs", OF_CLOCKS.len() as u64);
}

async fn noticed(test: &str, names: &[&str], jobs: u64) {
    let place = Place::new(test);
    let seed = fastrand::u64(..) >> 16;
    for name in names {
        let bug = BUGS.iter().find(|bug| bug.name == *name).unwrap();
        let environment = place.environment("bug");
        let outcome = bug
            .play(&environment, PgVersion::V15, seed, jobs)
            .await
            .unwrap();
        assert!(outcome.by.is_some(), "seed {seed}: {outcome:?}");
    }
}

#[test]
fn every_bug_in_the_store_differs_from_it() {
    let script = migrations_sql_with_mutations();
    let dense = |text: &str| text.split_whitespace().collect::<String>();
    let store = dense(&posthaste::migrations_sql());
    let names = BUGS.iter().filter(|bug| bug.is_in_store());
    let names: BTreeSet<&str> = names.map(|bug| bug.name).collect();
    for name in &names {
        let mutated = mutations::apply(&script, &[name]).unwrap();
        assert_ne!(dense(&mutated), store, "{name}");
    }
    let unlisted = mutations::names(&script, "bug");
    let unlisted: Vec<&&str> = unlisted.difference(&names).collect();
    assert!(unlisted.is_empty(), "{unlisted:?}");
}
