//! When duties are due.

use super::*;

#[test]
fn samples_wait_for_counting_for_a_bounded_time() {
    let now = Instant::now();
    let mut duties = Duties::new(&Config::default());
    assert!(duties.sample_waits(now));
    assert!(duties.sample_waits(now + MAX_SAMPLE_DELAY / 2));
    assert!(!duties.sample_waits(now + MAX_SAMPLE_DELAY));
    duties.counting = Counting::complete();
    assert!(!duties.sample_waits(now + MAX_SAMPLE_DELAY));
}

#[test]
fn slow_duties_take_a_bounded_part_of_the_time() {
    let config = Config::default();
    let duty = |name| DUTIES.iter().find(|one| one.name == name).unwrap();
    let (fast, slow) = (Duration::from_millis(1), Duration::from_secs(3));
    assert_eq!(
        duty("take_sample").pause(&config, fast),
        Duration::from_secs(5)
    );
    assert_eq!(duty("take_sample").pause(&config, slow), slow * 50);
    assert_eq!(duty("expire").pause(&config, fast), config.expire_interval);
    assert_eq!(duty("expire").pause(&config, slow), slow * 20);
    assert_eq!(duty("turn_ring").pause(&config, slow), Duration::ZERO);
}

#[test]
fn duties_that_scan_slots_start_after_a_delay() {
    let config = Config::default();
    let (duties, now) = (Duties::new(&config), Instant::now());
    let first = |name| {
        let at = DUTIES.iter().position(|one| one.name == name).unwrap();
        duties.due_at[at].saturating_duration_since(now)
    };
    for name in ["expire", "count_new_jobs", "take_sample", "log_unworked"] {
        assert!(first(name) > Duration::from_millis(500), "{name}");
    }
    assert_eq!(first("turn_ring"), Duration::ZERO);
}
