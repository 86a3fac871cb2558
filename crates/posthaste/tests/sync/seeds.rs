//! Which schedules are played.

/// So many in each run of the tests; POSTHASTE_SCHEDULES asks for more, POSTHASTE_SEED for one.
const SCHEDULES: u64 = 1_000;

/// Runs all schedules of a kind, or the one that was asked for; how many.
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
