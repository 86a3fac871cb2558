//! A small history, and the findings of each rule after a change: in one file, because all tests
//! change the same history.

use serde_json::json;

use super::{Rule, check};
use crate::history::{
    CommitResult, End, Fault, History, How, Intent, JobBehavior, Kind, Meant, Moment, Run,
};

const SECOND: Moment = 1_000_000;

pub(super) fn intent(key: i64, behavior: JobBehavior) -> Intent {
    Intent {
        key,
        behavior,
        queue: "a".into(),
        priority: 0,
        due: 0,
        expires: 0,
        unique: None,
        ordering_key: None,
        undone: false,
        args: json!({ "key": key }),
    }
}

pub(super) fn run(worker: &str, key: i64, attempt: i32, began: Moment, how: Option<How>) -> Run {
    Run {
        worker: worker.into(),
        key,
        id: key,
        delivery: format!("delivery {key}"),
        fence: format!("{worker} {key} {began}"),
        attempt,
        args: json!({ "key": key }),
        began,
        ended: how.map(|how| (how, began + 1_000)),
    }
}

pub(super) fn fault(kind: Kind, at: Moment, target: Option<&str>) -> Fault {
    Fault {
        kind,
        from: at,
        until: at,
        target: target.map(Into::into),
        switch: None,
    }
}

/// Transactions of one producer, one second apart.
pub(super) fn producer(transactions: Vec<(CommitResult, Vec<Intent>)>) -> Vec<Meant> {
    let mut lines = Vec::new();
    for (tx, (result, jobs)) in (0..).zip(transactions) {
        let at = Moment::try_from(tx).unwrap_or(0) * SECOND;
        lines.push(Meant::Intent { tx, at, jobs });
        lines.push(Meant::Outcome {
            tx,
            at: at + SECOND / 10,
            result,
            absorbed: Vec::new(),
            lsn: Some(1_000 + tx),
        });
    }
    lines
}

/// 1 is done, 2 fails once and is done, 3 is rolled back, 4 has no answer and is done, 5 has no
/// answer and does not exist, 6 is discarded.
fn sound() -> History {
    History {
        captured: crate::history::Captured::default(),
        meant: vec![producer(vec![
            (
                CommitResult::Committed,
                vec![
                    intent(1, JobBehavior::Finish),
                    intent(2, JobBehavior::Fail(1)),
                ],
            ),
            (
                CommitResult::RolledBack,
                vec![intent(3, JobBehavior::Finish)],
            ),
            (
                CommitResult::Ambiguous,
                vec![intent(4, JobBehavior::Finish)],
            ),
            (
                CommitResult::Ambiguous,
                vec![intent(5, JobBehavior::Finish)],
            ),
            (
                CommitResult::Committed,
                vec![intent(6, JobBehavior::Discard)],
            ),
        ])],
        runs: vec![
            run("w0.1", 1, 0, SECOND, Some(How::Done)),
            run("w0.1", 2, 0, SECOND, Some(How::Again)),
            run("w1.1", 2, 1, 2 * SECOND, Some(How::Done)),
            run("w1.1", 4, 0, 3 * SECOND, Some(How::Done)),
            run("w1.1", 6, 0, 5 * SECOND, Some(How::Discarded)),
        ],
        faults: Vec::new(),
        turns: Vec::new(),
        ticks: Vec::new(),
        end: End {
            promised: [1, 2, 4, 6].into(),
            shown: vec![(6, "discarded".into())],
            ..End::default()
        },
    }
}

/// The rules that a changed history breaks, in their order, without duplicates.
fn broken(turn: impl FnOnce(&mut History)) -> Vec<Rule> {
    let mut history = sound();
    turn(&mut history);
    let findings = check(&history).findings;
    let mut rules: Vec<Rule> = findings.into_iter().map(|finding| finding.rule).collect();
    rules.sort();
    rules.dedup();
    rules
}

#[test]
fn sound_histories_break_no_rule_and_every_rule_is_checked() {
    let verdict = check(&sound());
    assert_eq!(verdict.findings, []);
    for rule in [
        Rule::H1,
        Rule::H2,
        Rule::H3,
        Rule::H4,
        Rule::H6,
        Rule::H7,
        Rule::H8,
    ] {
        assert!(verdict.examined[&rule] > 0, "{rule} was never asked");
    }
    let load = verdict.load;
    assert_eq!(
        (load.meant, load.committed, load.rolled_back, load.ambiguous),
        (6, 3, 1, 2)
    );
    assert_eq!((load.runs, load.repeats), (5, 0));
}

#[test]
fn committed_jobs_that_never_ended_are_lost() {
    assert_eq!(broken(|h| drop(h.runs.remove(0))), [Rule::H1]);
    assert_eq!(broken(|h| h.runs[0].ended = None), [Rule::H1]);
    assert_eq!(broken(|h| h.end.shown.clear()), [Rule::H1]);
    let lost = |h: &mut History| {
        h.end.promised.remove(&1);
        h.runs.remove(0);
    };
    assert_eq!(broken(lost), [Rule::H1]);
}

#[test]
fn rolled_back_jobs_never_appear() {
    let ran = |h: &mut History| h.runs.push(run("w0.1", 3, 0, 2 * SECOND, Some(How::Done)));
    assert_eq!(broken(ran), [Rule::H2]);
    let kept = |h: &mut History| h.end.promised.extend([3]);
    assert_eq!(broken(kept), [Rule::H2]);
    let unknown_key = |h: &mut History| h.runs.push(run("w0.1", 99, 0, 2 * SECOND, None));
    assert_eq!(broken(unknown_key), [Rule::H2]);
}

#[test]
fn unanswered_transactions_are_applied_completely_or_not_at_all() {
    let half = |h: &mut History| h.runs.push(run("w0.1", 5, 0, 4 * SECOND, Some(How::Done)));
    assert_eq!(broken(half), [Rule::H3]);
    assert_eq!(broken(|h| drop(h.runs.remove(3))), [Rule::H3]);
}

#[test]
fn repeats_need_a_lost_worker() {
    let again = |h: &mut History| h.runs.push(run("w1.1", 1, 0, 4 * SECOND, Some(How::Done)));
    assert_eq!(broken(again), [Rule::H4]);
    for kind in [Kind::Kill, Kind::Crash, Kind::HalfOpen] {
        let excused = |h: &mut History| {
            again(h);
            h.faults.push(fault(kind, 2 * SECOND, Some("w0")));
        };
        assert_eq!(broken(excused), [], "{kind:?}");
    }
    // Neither the death of another worker, nor a cut connection, nor a later fault.
    for (kind, at, target) in [
        (Kind::Kill, 2 * SECOND, "w1"),
        (Kind::Cut, 2 * SECOND, "w0"),
        (Kind::HalfAnswer, 2 * SECOND, "w0"),
        (Kind::Kill, 9 * SECOND, "w0"),
    ] {
        let not_excused = |h: &mut History| {
            again(h);
            h.faults.push(fault(kind, at, Some(target)));
        };
        assert_eq!(broken(not_excused), [Rule::H4], "{kind:?}");
    }
}

#[test]
fn paused_workers_may_start_claimed_jobs_late() {
    let late = |kind: Kind| {
        broken(|h: &mut History| {
            h.runs.push(run("w1.1", 1, 1, 4 * SECOND, Some(How::Done)));
            h.faults.push(fault(kind, 3 * SECOND, Some("w1")));
        })
    };
    assert!(!late(Kind::Freeze).contains(&Rule::H4));
    assert!(!late(Kind::Stall).contains(&Rule::H4));
    assert!(!late(Kind::Unread).contains(&Rule::H4));
    assert!(late(Kind::Cut).contains(&Rule::H4));
}

#[test]
fn jobs_are_never_run_twice_at_once() {
    let slow = |h: &mut History| {
        h.runs[0].ended = Some((How::Again, 9 * SECOND));
        h.runs.push(run("w1.1", 1, 1, 4 * SECOND, Some(How::Done)));
    };
    assert!(broken(slow).contains(&Rule::H4));
}

#[test]
fn repeats_are_bounded_by_the_jobs_of_lost_workers() {
    let flood = |repeats: Moment, others: &[(Kind, Option<&str>)]| {
        broken(|h| {
            h.faults.push(fault(Kind::Kill, 2 * SECOND, Some("w0")));
            for (kind, target) in others {
                h.faults.push(fault(*kind, 2 * SECOND, *target));
            }
            for n in 1..=repeats {
                h.runs.push(run("w0.1", 1, 0, 2 * SECOND + n, None));
            }
        })
    };
    assert!(!flood(72, &[]).contains(&Rule::H4));
    assert!(flood(73, &[]).contains(&Rule::H4));
    // Faults that explain nothing add nothing.
    let elsewhere = [(Kind::Kill, Some("w1")), (Kind::Cut, Some("w0"))];
    assert!(flood(73, &elsewhere).contains(&Rule::H4));
    assert!(!flood(73, &[(Kind::Crash, None)]).contains(&Rule::H4));
    assert!(flood(73 + 3 * 72, &[(Kind::Crash, None)]).contains(&Rule::H4));
}

#[test]
fn effects_within_complete_in_happen_once() {
    let twice = |h: &mut History| {
        h.meant.push(producer(vec![(
            CommitResult::Committed,
            vec![intent(7, JobBehavior::Complete)],
        )]));
        h.runs.push(run("w0.1", 7, 0, SECOND, Some(How::Done)));
        h.end.promised.insert(7);
        h.end.effects.insert(7, 2);
    };
    assert_eq!(broken(twice), [Rule::H4]);
}

#[test]
fn nothing_remains_after_a_run() {
    assert_eq!(
        broken(|h| h.end.litter.push("a key is left".into())),
        [Rule::H6]
    );
    let left = |h: &mut History| h.end.shown.push((1, "running".into()));
    assert!(broken(left).contains(&Rule::H6));
    assert!(broken(|h| h.end.shown.push((6, "discarded".into()))).contains(&Rule::H6));
}

#[test]
fn arguments_arrive_unchanged() {
    assert_eq!(
        broken(|h| h.runs[0].args = json!({"key": 1, "more": 1})),
        [Rule::H7]
    );
}

#[test]
fn fences_belong_to_one_worker_and_one_run() {
    let shared = |h: &mut History| h.runs[3].fence = h.runs[0].fence.clone();
    assert_eq!(broken(shared), [Rule::H8]);
    let again = |h: &mut History| h.runs[2].fence = h.runs[1].fence.clone();
    assert_eq!(broken(again), [Rule::H8]);
    // One claim returns many jobs.
    let batch = |h: &mut History| h.runs[1].fence = h.runs[0].fence.clone();
    assert_eq!(broken(batch), []);
}

#[test]
fn jobs_run_neither_early_nor_expired() {
    let early = |h: &mut History| {
        let Meant::Intent { jobs, .. } = &mut h.meant[0][0] else {
            return;
        };
        jobs[0].due = 2 * SECOND;
    };
    assert_eq!(broken(early), [Rule::Due]);
    let expired = |h: &mut History| {
        let Meant::Intent { jobs, .. } = &mut h.meant[0][0] else {
            return;
        };
        jobs[0].behavior = JobBehavior::Expire;
    };
    assert_eq!(broken(expired), [Rule::H1, Rule::Due]);
}

#[test]
fn snoozes_hold_unless_the_server_or_worker_died_first() {
    let again_after = |until, crash: Option<Moment>| {
        broken(|h| {
            let job = intent(8, JobBehavior::Snooze(until));
            h.meant
                .push(producer(vec![(CommitResult::Committed, vec![job])]));
            h.end.promised.insert(8);
            h.runs.push(run("w0.1", 8, 0, SECOND, Some(How::Later)));
            h.runs.push(run("w1.1", 8, 0, 2 * SECOND, Some(How::Done)));
            let crash = crash.map(|at| fault(Kind::Crash, at, None));
            h.faults.extend(crash);
        })
    };
    assert_eq!(again_after(2 * SECOND, None), []);
    assert_eq!(again_after(3 * SECOND, None), [Rule::Due]);
    assert_eq!(again_after(3 * SECOND, Some(SECOND + SECOND / 2)), []);
    assert_eq!(again_after(3 * SECOND, Some(SECOND / 2)), [Rule::Due]);
}

#[test]
fn attempts_are_counted() {
    assert_eq!(broken(|h| h.runs[2].attempt = 0), [Rule::Attempts]);
    assert_eq!(broken(|h| h.runs[0].attempt = 1), [Rule::Attempts]);
    let counted = |h: &mut History| {
        h.runs[0].attempt = 1;
        h.faults.push(fault(Kind::Kill, SECOND / 2, Some("w2")));
    };
    assert_eq!(broken(counted), []);
}

#[test]
fn unique_keys_belong_to_one_job_at_a_time() {
    let second = |began: Moment| {
        move |h: &mut History| {
            let mut jobs = [
                intent(8, JobBehavior::Finish),
                intent(9, JobBehavior::Finish),
            ];
            jobs[0].unique = Some("u".into());
            jobs[1].unique = Some("u".into());
            let [first, second] = jobs;
            h.meant.push(producer(vec![
                (CommitResult::Committed, vec![first]),
                (CommitResult::Committed, vec![second]),
            ]));
            h.end.promised.extend([8, 9]);
            h.runs.push(run("w0.1", 8, 0, began, Some(How::Done)));
            h.runs.push(run("w0.1", 9, 0, 3 * SECOND, Some(How::Done)));
        }
    };
    // The second is committed after 1.1 seconds.
    assert_eq!(broken(second(SECOND)), []);
    assert_eq!(broken(second(2 * SECOND)), [Rule::Unique]);
}

#[test]
fn ordered_jobs_run_one_at_a_time_in_commit_order() {
    let ordered = |runs: [(i64, Moment); 3]| {
        move |h: &mut History| {
            let mut jobs = [7, 8, 9].map(|key| intent(key, JobBehavior::Finish));
            for job in &mut jobs {
                job.ordering_key = Some("k".into());
            }
            let [first, second, third] = jobs;
            h.meant.push(producer(vec![
                (CommitResult::Committed, vec![first, second]),
                (CommitResult::Committed, vec![third]),
            ]));
            h.end.promised.extend([7, 8, 9]);
            for (key, began) in runs {
                h.runs.push(run("w0.1", key, 0, began, Some(How::Done)));
            }
        }
    };
    let (one, two, three) = (2 * SECOND, 3 * SECOND, 4 * SECOND);
    assert_eq!(broken(ordered([(7, one), (8, two), (9, three)])), []);
    // Neither within a transaction nor across two of them.
    assert_eq!(
        broken(ordered([(8, one), (7, two), (9, three)])),
        [Rule::H5]
    );
    assert_eq!(
        broken(ordered([(7, one), (9, two), (8, three)])),
        [Rule::H5]
    );
    // Nor concurrently.
    assert_eq!(
        broken(ordered([(7, one), (8, one + 10), (9, three)])),
        [Rule::H5]
    );
    let unordered = |h: &mut History| {
        ordered([(7, one), (8, one + 10), (9, three)])(h);
        let Meant::Intent { at, .. } = &mut h.meant[1][2] else {
            return;
        };
        *at = 0;
    };
    assert_eq!(broken(unordered), [Rule::H5]);
}

#[test]
fn delivery_ids_belong_to_one_job() {
    let shared = |h: &mut History| h.runs[3].delivery = h.runs[0].delivery.clone();
    assert_eq!(broken(shared), [Rule::Identity]);
    let changed = |h: &mut History| h.runs[2].delivery = "another".into();
    assert_eq!(broken(changed), [Rule::Identity]);
}

#[test]
fn promoted_replicas_lose_only_unreceived_changes() {
    let promoted = |switch: u64| {
        move |h: &mut History| {
            h.end.promised.remove(&6);
            h.end.shown.clear();
            h.faults.push(Fault {
                switch: Some(switch),
                ..fault(Kind::Promotion, 6 * SECOND, None)
            });
        }
    };
    // The commit of 6 was in the log by 1004.
    assert_eq!(broken(promoted(1_003)), []);
    assert_eq!(broken(promoted(1_004)), [Rule::H1, Rule::H3]);
    let mut history = sound();
    promoted(1_003)(&mut history);
    assert_eq!(check(&history).load.lost_with_the_primary, 1);
    // A lost job is not run again.
    let revived = |h: &mut History| {
        promoted(1_003)(h);
        h.runs
            .push(run("w1.2", 6, 0, 7 * SECOND, Some(How::Discarded)));
    };
    assert_eq!(broken(revived), [Rule::H3]);
    // A part of it must not exist either.
    let half = |h: &mut History| {
        promoted(1_003)(h);
        h.end.shown.push((6, "discarded".into()));
    };
    assert_eq!(broken(half), [Rule::H3]);
}
