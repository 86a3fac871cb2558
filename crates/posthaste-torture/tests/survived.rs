//! A round on each server.

use posthaste_testkit::{PgVersion, ran};
use posthaste_torture::history::Kind;
use posthaste_torture::run::State;
use posthaste_torture::{Counts, Plan};

use crate::{Place, program};

async fn survives(version: PgVersion) {
    let counts: Counts = [
        (Kind::Kill, 2),
        (Kind::Crash, 1),
        (Kind::Termination, 2),
        (Kind::Cut, 1),
        (Kind::HalfOpen, 1),
        (Kind::HalfAnswer, 1),
        (Kind::Promotion, 1),
    ]
    .into();
    let seed = fastrand::u64(..) >> 16;
    let place = Place::new(version.name());
    let plan = Plan::new(seed, &counts, 1, version, &[]);
    let mut state = State::resume(&place.0, plan, "tested").unwrap();
    let round = state.next(&place.0, program()).await.unwrap();
    assert!(round.is_clean(), "seed {seed}, in {:?}: {round:?}", place.0);
    assert_eq!(round.faults, counts);
    assert!(round.load.committed > 100, "{:?}", round.load);
    for (kind, count) in counts {
        ran::count(&format!("torture-{}", kind.name()), count);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_job_ends_as_it_must_whatever_is_killed_cut_and_promoted_on_15() {
    survives(PgVersion::V15).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_job_ends_as_it_must_whatever_is_killed_cut_and_promoted_on_18() {
    survives(PgVersion::V18).await;
}
