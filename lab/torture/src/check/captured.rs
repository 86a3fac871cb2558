//! Checks the captures of an outbox: complete between two marks, in commit order, the same content
//! under an ID, and each row once as a job.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Judge, Rule};
use crate::history::{APART, CaptureEnd, CapturedEvent, History, Kind, OutboxRow};

/// The length of a commit record, which may extend over the position where a replica took over.
const RECORD: u64 = 8_192;

pub(super) fn judge(history: &History, judge: &mut Judge) {
    for capture in &history.captured.captures {
        let mut known: BTreeMap<i64, Vec<&CapturedEvent>> = BTreeMap::new();
        for event in &capture.events {
            known.entry(event.key).or_default().push(event);
        }
        complete(history, capture, &known, judge);
        unbroken(capture, judge);
        in_order(capture, judge);
        same(capture, &known, judge);
    }
}

/// Checks that each row arrived, except in gaps that the capture reports, and that nothing else
/// did.
fn complete(
    history: &History,
    capture: &CaptureEnd,
    known: &BTreeMap<i64, Vec<&CapturedEvent>>,
    judge: &mut Judge,
) {
    let mut committed = BTreeSet::new();
    for row in &history.captured.rows {
        committed.insert(row.key);
        let is_here = known.contains_key(&row.key);
        let what = "were committed into an outbox and left out by a capture";
        judge.must(
            Rule::Captured,
            is_here || may_be_left_out(row, capture),
            row.key,
            what,
        );
    }
    for (key, events) in known {
        let may_be_lost = !capture.fails_over && events.iter().all(|one| is_lost(history, one));
        let is_meant = committed.contains(key) || may_be_lost;
        let what = "were captured although nobody committed them";
        judge.must(Rule::Captured, is_meant, *key, what);
    }
}

fn may_be_left_out(row: &OutboxRow, capture: &CaptureEnd) -> bool {
    capture.gaps.iter().any(|(begins, ends)| {
        let is_before = row.until.is_some_and(|until| until < *begins);
        let is_after = ends.is_some_and(|ends| row.from > ends);
        !is_before && !is_after
    })
}

/// Whether its commit was on a server that died and whose replica had not received it.
fn is_lost(history: &History, event: &CapturedEvent) -> bool {
    let Some((timeline, commit)) = event.place() else {
        return false;
    };
    let promotions = history.faults.iter();
    let promotions = promotions.filter(|fault| fault.kind == Kind::Promotion);
    // The first promotion ends the first timeline.
    let ended = promotions.zip(1..).find(|(_, number)| *number == timeline);
    let switch = ended.and_then(|(fault, _)| fault.switch);
    switch.is_some_and(|switch| commit + RECORD >= switch)
}

/// Checks that a capture whose slot fails over reports no gap. Gaps have no keys, but places.
fn unbroken(capture: &CaptureEnd, judge: &mut Judge) {
    for (begins, _) in capture.gaps.iter().filter(|_| capture.fails_over) {
        let begins = i64::try_from(*begins).unwrap_or(i64::MAX);
        let what = "are gaps in a capture whose slot fails over";
        judge.must(Rule::Captured, false, begins, what);
    }
}

/// Checks that first arrivals are in the order of their positions, and those of one writer in the
/// order of its transactions.
fn in_order(capture: &CaptureEnd, judge: &mut Judge) {
    let (mut seen, mut position) = (BTreeSet::new(), "");
    let mut last: HashMap<i64, i64> = HashMap::new();
    for event in &capture.events {
        if !seen.insert(event.key) {
            continue;
        }
        let before = last.insert(event.key / APART, event.key);
        let is_next = before.is_none_or(|before| before < event.key);
        let is_in_order = is_next && *position < *event.position;
        let what = "were captured before one that was committed earlier";
        judge.must(Rule::Captured, is_in_order, event.key, what);
        position = &event.position;
    }
}

/// Checks that repeated events are equal under the same ID, and that a job arrived once.
fn same(capture: &CaptureEnd, known: &BTreeMap<i64, Vec<&CapturedEvent>>, judge: &mut Judge) {
    let mut of_ids: HashMap<&str, &CapturedEvent> = HashMap::new();
    for event in &capture.events {
        let first = of_ids.entry(&event.id).or_insert(event);
        let what = "have the delivery id of another event, or another content under it";
        judge.must(Rule::Captured, **first == *event, event.key, what);
    }
    for (key, events) in known {
        let is_one = events.iter().all(|event| event.id == events[0].id);
        let what = "were captured under two delivery ids";
        judge.must(Rule::Captured, is_one, *key, what);
        let is_once = !capture.is_exact || events.len() == 1;
        judge.must(Rule::Captured, is_once, *key, "were captured as two jobs");
    }
}
