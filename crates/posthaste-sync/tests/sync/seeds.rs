//! Which schedules run, and that a seed determines a schedule.

use super::schedules::{in_memory, run};
use super::world::{Twin, World};

/// The number of schedules in each run; POSTHASTE_SCHEDULES sets another, POSTHASTE_SEED runs a
/// single one.
const SCHEDULES: u64 = 250;

/// Runs all schedules of a kind, or the selected one, and returns how many ran.
pub fn all(kind: &str, run: impl Fn(u64) -> Result<(), String>) -> u64 {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    if let Some(seed) = number("POSTHASTE_SEED") {
        run(seed).unwrap();
        return 1;
    }
    let schedules = number("POSTHASTE_SCHEDULES").unwrap_or(SCHEDULES);
    for seed in 0..schedules {
        if let Err(problem) = run(seed) {
            panic!("POSTHASTE_SEED={seed} ({kind}): {problem}");
        }
    }
    schedules
}

#[test]
fn schedules_are_reproducible_by_seed() {
    let trace = |seed: u64| {
        let mut world = World::default();
        let played = run(seed, Twin::None, |made, _| {
            world = made.clone();
            in_memory(made, seed)
        });
        let inner = world.inner();
        // Everything that the index ever stored, in order, with the tokens of the passes that wrote
        // it.
        format!(
            "{played:?} {:?} {:?} {:?} {}",
            inner.old, inner.index, inner.rows, inner.jobs_ever
        )
    };
    let seeds = 0..50;
    let traces: Vec<String> = seeds.clone().map(trace).collect();
    assert!(seeds.map(trace).eq(traces.iter().cloned()));
    let mut others = traces.clone();
    others.sort();
    others.dedup();
    assert_eq!(others.len(), traces.len());
}
