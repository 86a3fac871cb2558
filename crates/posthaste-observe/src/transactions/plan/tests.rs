//! Steps against constructed transactions.

use std::time::UNIX_EPOCH;

use super::*;

fn policy(text: &str) -> Policy {
    let table: toml::Table = toml::from_str(text).unwrap();
    serde_json::from_value(serde_json::to_value(table).unwrap()).unwrap()
}

/// A policy with all steps, one minute apart.
fn strict() -> Policy {
    policy("[[rule]]\nwarn = '1m'\ncancel = '2m'\nterminate = '3m'")
}

fn session(pid: i32, seconds: f64) -> ObservedHolder {
    let mut holder = Holder::default();
    holder.pid = Some(pid);
    holder.role = Some("app".into());
    holder.state = Some("active".into());
    holder.seconds = Some(seconds);
    holder.transactions = Some(10);
    holder.transaction_start = Some(UNIX_EPOCH + Duration::from_secs(pid as u64));
    ObservedHolder {
        server: "primary".into(),
        holder,
        queue_tables: 0,
        has_enqueued: false,
        is_oldest: true,
        has_feedback: None,
    }
}

fn steps(all: &[ObservedHolder], policy: &Policy, past: &StepHistory, at: u64) -> Vec<Step> {
    let plan = plan_steps(all, policy, past, Duration::from_secs(at));
    plan.decisions.iter().map(|one| one.step).collect()
}

/// Returns the steps that are taken while a transaction of this age stays for this many passes.
fn taken_steps(one: &ObservedHolder, policy: &Policy, passes: usize) -> Vec<Step> {
    let mut past = StepHistory::default();
    let mut all = Vec::new();
    for _ in 0..passes {
        past.observe(
            std::slice::from_ref(one),
            &["primary".into()],
            Duration::ZERO,
        );
        let steps = steps(std::slice::from_ref(one), policy, &past, 0);
        for step in &steps {
            past.record_step(one.key(), *step);
        }
        all.extend(steps);
    }
    all
}

#[test]
fn steps_escalate_in_order_and_run_once() {
    use Step::{Cancel, Terminate, Warn};
    let ages = [
        (59.0, vec![]),
        (60.0, vec![Warn]),
        (120.0, vec![Warn, Cancel]),
        (9_999.0, vec![Warn, Cancel, Terminate]),
    ];
    for (age, expected) in ages {
        assert_eq!(
            taken_steps(&session(1, age), &strict(), 5),
            expected,
            "{age}"
        );
    }
}

#[test]
fn idle_sessions_are_terminated_without_a_cancel() {
    let mut one = session(1, 9_999.0);
    one.holder.state = Some("idle in transaction".into());
    let expected = [Step::Warn, Step::Terminate];
    assert_eq!(taken_steps(&one, &strict(), 5), expected);
}

#[test]
fn the_first_matching_rule_applies() {
    let allowed = "[[rule]]\nuser = 'app'\n[[rule]]\nterminate = '1s'";
    assert_eq!(taken_steps(&session(1, 9_999.0), &policy(allowed), 3), []);
    let other = "[[rule]]\nuser = 'other'\n[[rule]]\nterminate = '1s'";
    let expected = [Step::Terminate];
    assert_eq!(
        taken_steps(&session(1, 9_999.0), &policy(other), 3),
        expected
    );
}

#[test]
fn harmless_transactions_are_only_warned_about() {
    let mut one = session(1, 9_999.0);
    one.holder.transactions = None;
    assert_eq!(taken_steps(&one, &strict(), 5), [Step::Warn]);
    let rules = "[[rule]]\nharmless = true\nterminate = '1m'";
    assert_eq!(taken_steps(&one, &policy(rules), 5), [Step::Terminate]);
    one.has_enqueued = true;
    assert_eq!(taken_steps(&one, &strict(), 5).len(), 3);
}

#[test]
fn superusers_are_acted_on_only_where_a_rule_names_them() {
    let mut one = session(1, 9_999.0);
    one.holder.is_superuser = true;
    assert_eq!(taken_steps(&one, &strict(), 5), [Step::Warn]);
    let pattern = "[[rule]]\nuser = 'ap*'\nterminate = '1m'";
    assert_eq!(taken_steps(&one, &policy(pattern), 5), []);
    let named = "[[rule]]\nuser = 'app'\nterminate = '1m'";
    assert_eq!(taken_steps(&one, &policy(named), 5), [Step::Terminate]);
}

#[test]
fn prepared_transactions_slots_and_replicas_are_never_acted_on() {
    for kind in [HolderKind::Prepared, HolderKind::Slot, HolderKind::Replica] {
        let mut one = session(1, 9_999.0);
        one.holder.kind = kind;
        assert_eq!(taken_steps(&one, &strict(), 5), [Step::Warn], "{kind:?}");
    }
}

#[test]
fn inactive_slots_are_warned_about_despite_an_unknown_age() {
    let mut slot = session(1, 0.0);
    slot.holder.kind = HolderKind::Slot;
    slot.holder.seconds = None;
    assert_eq!(taken_steps(&slot, &strict(), 3), [Step::Warn]);
    slot.holder.is_read = true;
    assert_eq!(taken_steps(&slot, &strict(), 3), []);
}

#[test]
fn forward_clock_jumps_do_not_age_transactions() {
    let (mut past, policy) = (StepHistory::default(), strict());
    let young = [session(1, 1.0)];
    past.observe(&young, &["primary".into()], Duration::ZERO);
    let jumped = [session(1, 3_600.0)];
    past.observe(&jumped, &["primary".into()], Duration::from_secs(5));
    assert_eq!(steps(&jumped, &policy, &past, 5), []);
    assert_eq!(steps(&jumped, &policy, &past, 60), [Step::Warn]);
}

#[test]
fn a_new_transaction_of_the_same_pid_starts_over() {
    let (mut past, policy) = (StepHistory::default(), strict());
    let mut one = [session(1, 60.0)];
    past.record_step(one[0].key(), Step::Warn);
    assert_eq!(steps(&one, &policy, &past, 0), []);
    one[0].holder.transaction_start = Some(UNIX_EPOCH);
    assert_eq!(steps(&one, &policy, &past, 0), [Step::Warn]);
}

#[test]
fn an_ended_transaction_is_forgotten_once_its_server_answers() {
    let mut past = StepHistory::default();
    let one = [session(1, 60.0)];
    past.observe(&one, &["primary".into()], Duration::ZERO);
    past.record_step(one[0].key(), Step::Warn);
    past.observe(&[], &[], Duration::from_secs(5));
    assert!(past.has_step(&one[0].key()));
    past.observe(&[], &["primary".into()], Duration::from_secs(10));
    assert!(!past.has_step(&one[0].key()));
}

#[test]
fn terminations_within_a_minute_are_bounded() {
    let mut past = StepHistory::default();
    let policy = policy("[[rule]]\nterminate = '1m'");
    let all: Vec<ObservedHolder> = (1..=5).map(|pid| session(pid, 9_999.0)).collect();
    let first = plan_steps(&all, &policy, &past, Duration::ZERO);
    assert_eq!((first.decisions.len(), first.postponed), (3, 2));
    for _ in 0..3 {
        past.record_termination(Duration::ZERO);
    }
    assert_eq!(steps(&all, &policy, &past, 59), []);
    past.observe(&all, &[], Duration::from_secs(60));
    assert_eq!(steps(&all, &policy, &past, 60).len(), 3);
}
