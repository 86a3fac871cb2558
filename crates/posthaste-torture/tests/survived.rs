//! A round of workers on each server, and one of relays.

use posthaste_testkit::receivers::{Receiver, are_here};
use posthaste_testkit::{PgVersion, ran};
use posthaste_torture::history::Kind;
use posthaste_torture::run::State;
use posthaste_torture::{Counts, Plan};

use crate::{Place, program};

async fn survives(version: PgVersion) {
    let counts = [
        (Kind::Kill, 2),
        (Kind::Crash, 1),
        (Kind::Termination, 2),
        (Kind::Cut, 1),
        (Kind::HalfOpen, 1),
        (Kind::HalfAnswer, 1),
        (Kind::Promotion, 1),
    ];
    let seed = fastrand::u64(..) >> 16;
    let counts = counts.into();
    let plan = Plan::new(seed, &counts, 1, version, &[]);
    play(version.name(), plan, &counts).await;
}

/// Plays the one round of a plan.
async fn play(name: &str, plan: Plan, counts: &Counts) {
    let seed = plan.seed;
    let place = Place::new(name);
    let mut state = State::resume(&place.0, plan, "tested").unwrap();
    let round = state.next(&place.0, program()).await.unwrap();
    assert!(round.is_clean(), "seed {seed}, in {:?}: {round:?}", place.0);
    assert_eq!(&round.faults, counts);
    assert!(round.load.committed > 100, "{:?}", round.load);
    for (kind, count) in counts {
        ran::count(&format!("torture-{}", kind.name()), *count);
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_arrives_as_it_must_whatever_is_killed_cut_full_and_forgotten() {
    let test = "every_message_arrives_as_it_must";
    if !are_here(test, &[Receiver::Redis, Receiver::RabbitMq]) {
        return;
    }
    let counts = [
        (Kind::RelayKill, 2),
        (Kind::RelayCut, 2),
        (Kind::RelayHalfOpen, 2),
        (Kind::RedisKill, 2),
        (Kind::RedisLoss, 2),
        (Kind::RedisFull, 1),
        (Kind::RabbitMqKill, 2),
        (Kind::HalfAnswer, 2),
    ]
    .into();
    let seed = fastrand::u64(..) >> 16;
    let plan = Plan::new(seed, &Counts::new(), 0, PgVersion::V15, &[]);
    let plan = plan.with_relays(&counts, 1, PgVersion::V15);
    play("relays", plan, &counts).await;
}
