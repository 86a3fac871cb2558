//! A small history of relays, and the findings of each rule after a change.

use super::super::tests::{fault, intent, producer, run};
use super::super::{Rule, check_relays};
use crate::history::{CommitResult, End, History, How, Intent, JobBehavior, Kind, Moment, Run};

const SECOND: Moment = 1_000_000;

fn to(queue: &str, key: i64) -> Intent {
    Intent {
        queue: queue.into(),
        ..intent(key, JobBehavior::Finish)
    }
}

fn arrived(queue: &str, key: i64, at: Moment) -> Run {
    Run {
        fence: format!("{queue} 1"),
        ended: Some((How::Done, at)),
        ..run("w0.1", key, 0, at, None)
    }
}

/// 1 and 2 go to Sidekiq, 3 to asynq, 4 to 6 through the ordered relay, 5 and 6 in one transaction;
/// 7 is rolled back, and the COMMIT of 8, which the database has, was not answered.
fn sound() -> History {
    History {
        captured: crate::history::Captured::default(),
        meant: vec![producer(vec![
            (
                CommitResult::Committed,
                vec![to("a", 1), to("a", 2), to("b", 3)],
            ),
            (CommitResult::Committed, vec![to("c", 4)]),
            (CommitResult::Committed, vec![to("c", 5), to("c", 6)]),
            (CommitResult::RolledBack, vec![to("a", 7)]),
            (CommitResult::Ambiguous, vec![to("a", 8)]),
        ])],
        runs: vec![
            arrived("a", 1, SECOND),
            arrived("a", 2, SECOND),
            arrived("b", 3, SECOND),
            arrived("c", 4, 4 * SECOND),
            arrived("c", 5, 5 * SECOND),
            arrived("c", 6, 6 * SECOND),
            arrived("a", 8, 5 * SECOND),
        ],
        faults: Vec::new(),
        turns: Vec::new(),
        ticks: Vec::new(),
        end: End {
            promised: [1, 2, 3, 4, 5, 6, 8].into(),
            ..End::default()
        },
    }
}

fn broken(turn: impl FnOnce(&mut History)) -> Vec<Rule> {
    let mut history = sound();
    turn(&mut history);
    let findings = check_relays(&history).findings;
    let mut rules: Vec<Rule> = findings.into_iter().map(|finding| finding.rule).collect();
    rules.sort();
    rules.dedup();
    rules
}

#[test]
fn sound_relay_histories_break_no_rule_and_every_rule_is_checked() {
    let verdict = check_relays(&sound());
    assert_eq!(verdict.findings, []);
    for rule in [
        Rule::H1,
        Rule::H2,
        Rule::H3,
        Rule::H4,
        Rule::H5,
        Rule::H6,
        Rule::H7,
        Rule::Due,
        Rule::Attempts,
        Rule::Identity,
    ] {
        assert!(verdict.examined[&rule] > 0, "{rule} was never asked");
    }
}

#[test]
fn committed_messages_arrive_and_rolled_back_ones_do_not() {
    assert_eq!(broken(|h| drop(h.runs.remove(1))), [Rule::H1]);
    let back = |h: &mut History| h.runs.push(arrived("a", 7, 4 * SECOND));
    assert_eq!(broken(back), [Rule::H2]);
    // A job whose COMMIT was not answered arrives if and only if the database has it.
    assert_eq!(broken(|h| drop(h.runs.remove(6))), [Rule::H3]);
    let rolled_back = |h: &mut History| {
        h.end.promised.remove(&8);
    };
    assert_eq!(broken(rolled_back), [Rule::H3]);
    let left = |h: &mut History| h.end.shown.push((2, "available".into()));
    assert_eq!(broken(left), [Rule::H1, Rule::H6]);
}

#[test]
fn messages_repeat_only_after_a_fault_of_their_relay_or_server() {
    let again = |h: &mut History| h.runs.push(arrived("a", 1, 4 * SECOND));
    assert_eq!(broken(again), [Rule::H4]);
    let with = |kind: Kind, at: Moment, target: &str| {
        broken(|h| {
            again(h);
            h.faults.push(fault(kind, at, Some(target)));
        })
    };
    for kind in [Kind::RelayKill, Kind::RelayCut, Kind::RelayHalfOpen] {
        assert_eq!(with(kind, 2 * SECOND, "w0"), [], "{kind:?}");
        assert_eq!(with(kind, 2 * SECOND, "w1"), [Rule::H4], "{kind:?}");
        assert_eq!(with(kind, 9 * SECOND, "w0"), [Rule::H4], "{kind:?}");
    }
    assert_eq!(with(Kind::RedisKill, 2 * SECOND, "kept"), []);
    for kind in [Kind::RedisFull, Kind::RedisLoss, Kind::RabbitMqKill] {
        assert_eq!(with(kind, 2 * SECOND, "another"), [Rule::H4], "{kind:?}");
    }
}

#[test]
fn repeats_are_bounded_by_the_messages_in_flight() {
    // This many messages to Sidekiq, each of which was repeated, with a cut and with other faults.
    let again = |messages: i64, also: &[(Kind, &str)]| {
        broken(|h| {
            let jobs = (10..10 + messages).map(|key| to("a", key)).collect();
            h.meant
                .push(producer(vec![(CommitResult::Committed, jobs)]));
            for key in 10..10 + messages {
                h.end.promised.insert(key);
                h.runs.push(arrived("a", key, SECOND));
                h.runs.push(arrived("a", key, 4 * SECOND));
            }
            h.faults.push(fault(Kind::RelayCut, 2 * SECOND, Some("w0")));
            for (kind, target) in also {
                h.faults.push(fault(*kind, 2 * SECOND, Some(target)));
            }
        })
    };
    assert_eq!(again(40, &[]), []);
    assert_eq!(again(41, &[]), [Rule::H4]);
    // Faults that explain nothing add nothing.
    let others = [
        (Kind::RelayKill, "w1"),
        (Kind::RabbitMqKill, "rabbitmq"),
        (Kind::RedisFull, "kept"),
    ];
    assert_eq!(again(41, &others), [Rule::H4]);
    assert_eq!(again(41, &[(Kind::RedisKill, "kept")]), []);
    assert_eq!(again(161, &[(Kind::RedisKill, "kept")]), [Rule::H4]);
}

#[test]
fn receivers_accept_duplicates_only_after_forgetting_them() {
    let again = |h: &mut History, life: &str| {
        h.faults
            .push(fault(Kind::RedisLoss, 2 * SECOND, Some("forgetful")));
        let fence = format!("b {life}");
        let arrived = arrived("b", 3, 4 * SECOND);
        h.runs.push(Run { fence, ..arrived });
    };
    assert_eq!(broken(|h| again(h, "2")), []);
    assert_eq!(broken(|h| again(h, "1")), [Rule::H4]);
}

#[test]
fn ordered_relays_keep_the_order_of_and_within_transactions() {
    let late = |key: usize, at: Moment| {
        broken(move |h| (h.runs[key].began, h.runs[key].ended) = (at, Some((How::Done, at))))
    };
    assert_eq!(late(3, 7 * SECOND), [Rule::H5]);
    assert_eq!(late(4, 7 * SECOND), [Rule::H5]);
    // Relative to the arrivals before it and after it.
    assert_eq!(late(4, 4 * SECOND + 1), []);
    let refused = |attempts: (i64, i64)| {
        broken(|h| {
            h.runs[3].began = 7 * SECOND;
            h.end.attempts.insert(4, attempts);
            h.faults.push(fault(Kind::RabbitMqKill, SECOND, None));
        })
    };
    assert_eq!(refused((1, 0)), []);
    assert_eq!(refused((0, 2)), []);
    assert_eq!(refused((0, 1)), [Rule::H5]);
}

#[test]
fn messages_have_the_arguments_times_names_and_attempts_of_their_job() {
    let early = |h: &mut History| {
        h.meant[0][0] = producer(vec![(CommitResult::Committed, due())])[0].clone()
    };
    assert_eq!(broken(early), [Rule::Due]);
    let other = |h: &mut History| h.runs[0].args = serde_json::json!({});
    assert_eq!(broken(other), [Rule::H7]);
    let named = |h: &mut History| h.runs[0].delivery = h.runs[1].delivery.clone();
    assert_eq!(broken(named), [Rule::Identity]);
    let counted = |h: &mut History| {
        h.end.attempts.insert(1, (1, 0));
    };
    assert_eq!(broken(counted), [Rule::Attempts]);
    let unheard = |h: &mut History| {
        counted(h);
        h.faults.push(fault(Kind::HalfAnswer, SECOND, Some("p0")));
    };
    assert_eq!(broken(unheard), [Rule::Attempts]);
}

fn due() -> Vec<Intent> {
    let due = 2 * SECOND;
    vec![Intent { due, ..to("a", 1) }, to("a", 2), to("b", 3)]
}
