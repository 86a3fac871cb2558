//! A history in which the clock is an hour ahead for ten seconds, and the findings after a change.

use super::super::tests::{fault, intent, producer, run};
use super::super::{Rule, check_clocked};
use crate::history::{
    CommitResult, End, History, How, Intent, JobBehavior, Kind, Meant, Moment, Run, Tick, Turn,
};

const SECOND: Moment = 1_000_000;
const HOUR: i64 = 3600;
const MINUTE: Moment = 60 * SECOND;

fn turn(at: Moment, seconds: i64) -> Turn {
    Turn {
        from: at - 1,
        until: at,
        seconds,
        followed: None,
    }
}

/// From 20 s to 30 s the clock is ahead. Each second a job is enqueued that fails once and is
/// retried after half a second.
fn sound() -> History {
    let jobs = 60;
    let transactions = (1..=jobs)
        .map(|key| {
            (
                CommitResult::Committed,
                vec![intent(key, JobBehavior::Fail(1))],
            )
        })
        .collect();
    let runs = |key| {
        let at = (key - 1) * SECOND + SECOND / 5;
        [
            run("w0.1", key, 0, at, Some(How::Again)),
            run("w0.1", key, 1, at + SECOND / 2, Some(How::Done)),
        ]
    };
    History {
        meant: vec![producer(transactions)],
        runs: (1..=jobs).flat_map(runs).collect(),
        turns: vec![turn(0, 0), turn(20 * SECOND, HOUR), turn(30 * SECOND, 0)],
        ticks: (1..=60).map(tick).collect(),
        end: End {
            promised: (1..=jobs).collect(),
            ..End::default()
        },
        ..History::default()
    }
}

/// A tick that was run, for a minute of the hour.
fn tick(minute: i64) -> Tick {
    Tick {
        tick: minute * MINUTE,
        id: 1000 + minute,
        worker: "w1.1".into(),
        began: 21 * SECOND + minute,
    }
}

fn job(history: &mut History, key: i64) -> &mut Intent {
    let producer = &mut history.meant[0];
    let mut intents = producer.iter_mut().filter_map(|line| match line {
        Meant::Intent { jobs, .. } => jobs.first_mut(),
        Meant::Outcome { .. } => None,
    });
    intents.find(|intent| intent.key == key).unwrap()
}

fn second_run(history: &mut History, key: i64) -> &mut Run {
    let mut runs = history.runs.iter_mut();
    runs.rfind(|run| run.key == key).unwrap()
}

fn broken(turn: impl FnOnce(&mut History)) -> Vec<Rule> {
    let mut history = sound();
    turn(&mut history);
    let findings = check_clocked(&history).findings;
    let mut rules: Vec<Rule> = findings.into_iter().map(|finding| finding.rule).collect();
    rules.sort();
    rules.dedup();
    rules
}

#[test]
fn sound_histories_with_clock_steps_break_no_rule() {
    let verdict = check_clocked(&sound());
    assert_eq!(verdict.findings, []);
    assert!(verdict.examined[&Rule::Prompt] > 60, "{verdict:?}");
}

#[test]
fn jobs_run_early_only_if_the_clock_was_ahead() {
    let due_in_an_hour =
        |key| broken(|history| job(history, key).due = HOUR * SECOND + (key - 1) * SECOND);
    assert_eq!(due_in_an_hour(16), [Rule::Due]);
    assert_eq!(due_in_an_hour(25), []);
    // A process that schedules a job may not have noticed the step back yet.
    assert_eq!(due_in_an_hour(33), []);
    assert_eq!(due_in_an_hour(41), [Rule::Due]);
}

#[test]
fn counted_attempts_respect_back_off_unless_the_clock_jumped() {
    let at_once = |key, counted| {
        broken(|history| {
            let run = second_run(history, key);
            run.began -= 2 * SECOND / 5;
            run.attempt = counted;
        })
    };
    assert_eq!(at_once(10, 1), [Rule::Due]);
    assert_eq!(at_once(10, 0), [Rule::Attempts]);
    // Job 32 failed immediately after the step back.
    assert_eq!(at_once(32, 0), []);
    assert_eq!(at_once(32, 1), [Rule::Due]);
    assert_eq!(at_once(41, 0), [Rule::Attempts]);
    let jumped = broken(|history| {
        second_run(history, 10).began -= 2 * SECOND / 5;
        history.turns[1] = turn(9 * SECOND + SECOND / 4, HOUR);
    });
    assert_eq!(jumped, []);
}

#[test]
fn late_reactions_to_a_step_back_are_late_and_excuse_earlier_times() {
    let followed = |after: Moment, edit: fn(&mut History)| {
        broken(|history| {
            edit(history);
            history.turns[2].followed = Some(30 * SECOND + after);
        })
    };
    // Job 38 failed seven seconds after the step back, and its attempt was not counted.
    let uncounted = |history: &mut History| second_run(history, 38).attempt = 0;
    assert_eq!(followed(4 * SECOND, |_| ()), []);
    assert_eq!(followed(4 * SECOND, uncounted), [Rule::Attempts]);
    assert_eq!(followed(8 * SECOND, uncounted), [Rule::Prompt]);
}

#[test]
fn jobs_that_wait_for_a_clock_that_was_ahead_are_late() {
    let carried_over = |at: Moment| {
        broken(|history| {
            for key in 28..=30 {
                let mut runs = history.runs.iter_mut().filter(|run| run.key == key);
                let (first, second) = (runs.next().unwrap(), runs.next().unwrap());
                first.began = 29 * SECOND + SECOND / 2;
                first.ended = Some((How::Again, first.began + 1_000));
                second.began = at;
                second.ended = Some((How::Done, at + 1_000));
            }
        })
    };
    assert_eq!(carried_over(31 * SECOND), []);
    assert_eq!(carried_over(37 * SECOND), []);
    assert_eq!(carried_over(39 * SECOND), [Rule::Prompt]);
}

#[test]
fn ticks_are_enqueued_exactly_once() {
    let twice = |id| {
        broken(|history| {
            history.ticks.push(Tick {
                id,
                began: 40 * SECOND,
                ..tick(30)
            });
        })
    };
    assert_eq!(twice(5), [Rule::H4]);
    assert_eq!(twice(1030), [Rule::H4]);
    let killed = broken(|history| {
        history.ticks.push(Tick {
            began: 40 * SECOND,
            ..tick(30)
        });
        let kill = fault(Kind::Kill, 39 * SECOND, Some("w1"));
        history.faults.push(kill);
    });
    assert_eq!(killed, []);
    let left_out = broken(|history| {
        history.ticks.remove(30);
    });
    assert_eq!(left_out, [Rule::H1]);
    let none_came = broken(|history| {
        history.turns.push(turn(50 * SECOND, 2 * HOUR));
    });
    assert_eq!(none_came, [Rule::H1]);
}
