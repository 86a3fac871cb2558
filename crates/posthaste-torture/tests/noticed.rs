//! Some of the bugs; `make torture ARGS=--bugs` plays them all.

use posthaste_testkit::{PgVersion, ran};
use posthaste_torture::bugs::BUGS;

use crate::Place;

/// One of the store, one of a worker, one of a producer.
const SOME: [&str; 3] = [
    "arguments are written as text and back",
    "two workers share a fence",
    "a producer enqueues beside its transaction",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_store_a_broken_worker_and_a_broken_producer_are_noticed() {
    let place = Place::new("noticed");
    let seed = fastrand::u64(..) >> 16;
    for name in SOME {
        let bug = BUGS.iter().find(|bug| bug.name == name).unwrap();
        let ground = place.ground("bug");
        let fate = bug.play(&ground, PgVersion::V15, seed, 50).await.unwrap();
        assert!(fate.by.is_some(), "seed {seed}: {fate:?}");
    }
    ran::count("torture-bugs", SOME.len() as u64);
}

#[test]
fn every_bug_in_the_store_still_differs_from_it() {
    assert!(BUGS.len() >= 12);
    let script = posthaste::migrations_sql();
    for bug in BUGS {
        for (from, _) in bug.edits {
            assert!(script.contains(from), "{}: stale: {from:?}", bug.name);
        }
    }
}
