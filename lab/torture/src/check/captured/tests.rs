//! Two captures of a small outbox, and the findings after a change of their results.

use crate::check::tests::fault;
use crate::check::{Finding, Rule, check};
use crate::history::{APART, CaptureEnd, Captured, CapturedEvent, Fault, History, Kind, OutboxRow};

/// Two writers in turns; the log grows by 0x100 with each.
const KEYS: [i64; 4] = [1, APART + 1, 2, APART + 2];

fn commit(place: usize) -> u64 {
    0x10_000 * (place as u64 + 1)
}

fn event(timeline: u32, place: usize) -> CapturedEvent {
    let (key, commit) = (KEYS[place], commit(place));
    CapturedEvent {
        key,
        id: format!("id {key}"),
        position: format!("{timeline:08x}{commit:016x}{:016x}0000", commit - 1),
        body: format!("body {key}"),
    }
}

fn capture(name: &str, is_exact: bool) -> CaptureEnd {
    CaptureEnd {
        name: name.into(),
        is_exact,
        events: (0..KEYS.len()).map(|place| event(1, place)).collect(),
        fails_over: false,
        gaps: Vec::new(),
    }
}

fn history() -> History {
    let rows = KEYS.iter().enumerate().map(|(place, key)| OutboxRow {
        key: *key,
        from: commit(place) - 1,
        until: Some(commit(place) + 1),
    });
    History {
        captured: Captured {
            rows: rows.collect(),
            captures: vec![capture("by_jobs", true), capture("direct", false)],
        },
        ..History::default()
    }
}

fn found(history: &History) -> Vec<(Rule, Vec<i64>)> {
    let findings = check(history).findings.into_iter();
    let told = |Finding { rule, some, .. }: Finding| (rule, some);
    findings.map(told).collect()
}

fn turned(turn: impl FnOnce(&mut Captured)) -> Vec<(Rule, Vec<i64>)> {
    let mut history = history();
    turn(&mut history.captured);
    found(&history)
}

#[test]
fn complete_captures_and_their_repeats_have_no_findings() {
    assert!(found(&history()).is_empty());
    assert!(check(&history()).examined[&Rule::Captured] > 20);
    let again = turned(|all| {
        let events = &mut all.captures[1].events;
        events.extend([event(1, 1), event(1, 2)]);
    });
    assert!(again.is_empty(), "{again:?}");
}

#[test]
fn lost_repeated_and_swapped_events_are_found() {
    let lost = turned(|all| drop(all.captures[1].events.remove(2)));
    assert_eq!(lost, [(Rule::Captured, vec![KEYS[2]])]);
    let repeated = turned(|all| all.captures[0].events.push(event(1, 3)));
    assert_eq!(repeated, [(Rule::Captured, vec![KEYS[3]])]);
    let swapped = turned(|all| all.captures[1].events.swap(0, 1));
    assert_eq!(swapped, [(Rule::Captured, vec![KEYS[0]])]);
}

#[test]
fn contradictory_positions_and_numbers_are_found() {
    let swapped = turned(|all| {
        let events = &mut all.captures[1].events;
        let (one, two) = (events[0].position.clone(), events[2].position.clone());
        events.swap(0, 2);
        events[0].position = one;
        events[2].position = two;
    });
    assert_eq!(swapped, [(Rule::Captured, vec![KEYS[0]])]);
}

#[test]
fn changed_contents_and_ids_are_found() {
    let content = turned(|all| {
        let mut other = event(1, 0);
        other.body.push('!');
        all.captures[1].events.push(other);
    });
    assert_eq!(content, [(Rule::Captured, vec![KEYS[0]])]);
    let id = turned(|all| {
        let mut other = event(1, 0);
        other.id.push('!');
        all.captures[1].events.push(other);
    });
    assert_eq!(id, [(Rule::Captured, vec![KEYS[0]])]);
}

#[test]
fn only_events_in_named_gaps_are_excused() {
    let gap = |begins, ends| {
        turned(|all| {
            let capture = &mut all.captures[1];
            capture.events.remove(2);
            capture.gaps.push((begins, ends));
        })
    };
    assert!(gap(commit(1) + 1, Some(commit(2) + 1)).is_empty());
    assert!(gap(commit(2), None).is_empty());
    assert_eq!(gap(commit(2) + 2, None).len(), 1);
    assert_eq!(gap(0, Some(commit(1))).len(), 1);
}

#[test]
fn events_lost_with_a_server_before_replication_are_excused() {
    let mut history = history();
    let phantom = |timeline| {
        let mut phantom = event(timeline, 3);
        (phantom.key, phantom.id) = (3, "id 3".into());
        phantom
            .position
            .replace_range(8..24, &format!("{:016x}", commit(3) + 9));
        phantom
    };
    history.captured.captures[1].events.push(phantom(1));
    assert_eq!(found(&history), [(Rule::Captured, vec![3])]);
    let promotion = |switch| Fault {
        switch: Some(switch),
        ..fault(Kind::Promotion, 0, None)
    };
    history.faults = vec![promotion(commit(3) + 5)];
    assert!(found(&history).is_empty());
    // The replica had received it.
    history.faults = vec![promotion(commit(9))];
    assert_eq!(found(&history).len(), 1);
    // A later timeline has not ended.
    history.faults = vec![promotion(commit(3) + 5)];
    history.captured.captures[1].events.pop();
    history.captured.captures[1].events.push(phantom(2));
    assert_eq!(found(&history).len(), 1);
}

#[test]
fn a_capture_whose_slot_fails_over_may_neither_gap_nor_outlive_a_lost_commit() {
    let failing = |turn: fn(&mut CaptureEnd)| {
        let mut history = history();
        history.faults = vec![Fault {
            switch: Some(commit(3) - 1),
            ..fault(Kind::Promotion, 0, None)
        }];
        history.captured.rows.truncate(3);
        let capture = &mut history.captured.captures[1];
        capture.fails_over = true;
        turn(capture);
        history.captured.captures.remove(0);
        found(&history)
    };
    let phantom = failing(|_| ());
    assert_eq!(phantom, [(Rule::Captured, vec![KEYS[3]])]);
    let gap = failing(|capture| {
        capture.events.truncate(3);
        capture.gaps = vec![(7, Some(8))];
    });
    assert_eq!(gap, [(Rule::Captured, vec![7])]);
}
