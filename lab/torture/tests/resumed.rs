//! A run that is interrupted.

use posthaste_testkit::PgVersion;
use posthaste_torture::history::Kind;
use posthaste_torture::run::State;
use posthaste_torture::{Counts, Plan, Report};

use crate::{Place, program};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_runs_resume_and_their_counts_add_up() {
    let place = Place::new("resumed");
    let counts: Counts = [(Kind::Termination, 3)].into();
    let plan = |seed| Plan::new(seed, &counts, 2, PgVersion::V15, &[]);
    let mut state = State::resume(&place.0, plan(1), "this").unwrap();
    state.next(&place.0, program()).await.unwrap();
    drop(state);

    // The run continues with its own seed.
    let mut state = State::resume(&place.0, plan(2), "this").unwrap();
    assert_eq!((state.missing(), state.plan.seed), (1, 1));
    state.next(&place.0, program()).await.unwrap();
    let report = Report::of(&state).unwrap();
    assert!(report.passed, "{report:?}");
    let done = [(Kind::Termination, 3), (Kind::Copy, 2)];
    assert_eq!(report.faults, done.into());
    assert_eq!(report.rounds.len(), 2);
    let ran: u64 = report.rounds.iter().map(|round| round.load.runs).sum();
    assert_eq!(report.load.runs, ran);

    // The run does not continue with another plan or another commit.
    let other = Plan::new(1, &counts, 3, PgVersion::V15, &[]);
    assert!(State::resume(&place.0, other, "this").is_err());
    assert!(State::resume(&place.0, plan(1), "that").is_err());
    State::forget(&place.0).unwrap();
    assert_eq!(
        State::resume(&place.0, plan(3), "that").unwrap().missing(),
        2
    );
}
