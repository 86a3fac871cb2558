//! The two outages that the example plays. Losses are judged here, times are not: an outage of some
//! seconds, beside other tests on the same processors, is no measure of a 99th percentile or of a
//! share of a core. `make outage` judges times, on an idle machine.

#[path = "../examples/outage/broker/verdict.rs"]
#[allow(dead_code, reason = "the example itself knows queues by their way")]
mod broker;
#[path = "../examples/outage/figures.rs"]
#[allow(dead_code, reason = "the example itself makes figures")]
mod figures;
#[path = "../examples/outage/search/verdict.rs"]
mod search;

use std::time::Duration;

use posthaste_testkit::Child;
use posthaste_testkit::receivers::{Receiver, are_here};

use crate::examples::example;
use figures::Figures;
use search::{Part, Phase};

/// Plays one of the outages for this many seconds; returns the printed table.
async fn played(play: &str, seconds: &str) -> Vec<String> {
    let mut child = Child::spawn(example("outage").args([play, seconds])).unwrap();
    let ended = child.exit(Duration::from_secs(300)).await.unwrap();
    let (error, errors) = (child.stdout(), child.stderr());
    println!("{error:?} {errors:?}");
    assert!(ended.code().is_some_and(|code| code < 2), "{ended}");
    error
}

/// Returns all numbers of a line of the printed table.
fn numbers<const N: usize>(table: &[String], what: &str) -> [u64; N] {
    let mut lines = table.iter().filter(|line| line.starts_with(what));
    let (Some(line), None) = (lines.next(), lines.next()) else {
        panic!("not one line begins with {what:?}: {table:?}");
    };
    let words = line[what.len()..].split_whitespace();
    let numbers: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
    let fail = || panic!("{line}: {table:?}");
    numbers.try_into().unwrap_or_else(|_| fail())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_outage_loses_messages_published_after_commit_and_no_jobs() {
    let test = "an_outage_of_the_broker_loses_what_is_published_after_the_commit_and_nothing_\
                enqueued_in_it";
    if !are_here(test, &[Receiver::RabbitMq]) {
        return;
    }
    let error = played("broker", "8").await;
    let [old, new] = numbers(&error, "annotations saved");
    assert!(old > 300 && new > 300, "{error:?}");
    let [old, new] = numbers(&error, "of which nobody else ever heard");
    assert!(old > 0 && new == 0, "{error:?}");
    let [failed, late] = ["of which failed", "had no answer in 20 s"];
    let [failed, late] = [failed, late].map(|what| numbers::<2>(&error, what)[1]);
    assert_eq!(failed - late, 0, "{error:?}");
    if late > 0 {
        let [delay, _] = numbers(&error, "sent late by up to, ms");
        assert!(delay > 1_000, "the machine had time to answer: {error:?}");
        let why = "the machine was too slow to judge: requests that were due waited to be sent";
        return posthaste_testkit::ran::not_run(test, why);
    }
    posthaste_testkit::ran::note("outage");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_server_outage_fails_no_request_and_jobs_drain_later() {
    let test = "a_search_server_outage_fails_no_request_and_jobs_drain_later";
    if !are_here(test, &[Receiver::OpenSearch]) {
        return;
    }
    let error = played("search", "9").await;
    let requests = numbers::<5>(&error, "requests");
    assert!(
        requests.iter().all(|requests| *requests > 50),
        "a request every 25 ms, in each part: {error:?}"
    );
    assert_eq!(numbers(&error, "of which failed"), [0; 5], "{error:?}");
    let [_, half_open, muted, stopped, _] = numbers(&error, "jobs that wait at its end");
    assert!(half_open < muted && muted < stopped, "{error:?}");
    assert!(stopped >= requests[1] + requests[2], "{error:?}");
    let [rows] = numbers(&error, "rows");
    assert!(rows > 300, "{error:?}");
    assert_eq!(numbers(&error, "documents"), [rows], "{error:?}");
    assert_eq!(numbers(&error, "of all these differ"), [0], "{error:?}");
    posthaste_testkit::ran::note("search-outage");
}

fn figures(p99: u64) -> Figures {
    let p99 = Duration::from_millis(p99);
    Figures {
        requests: 100,
        failed: 0,
        late: 0,
        p50: p99 / 2,
        p99,
    }
}

/// Findings that barely keep every bound.
fn within_bounds() -> broker::Findings {
    broker::Findings {
        saved: [300, 300],
        lost: [200, 0],
        before: [figures(8), figures(7)],
        outage: [figures(5_000), figures(12)],
        relay_share: 0.049,
        delay: Duration::ZERO,
        drain_began: Some(Duration::from_secs(2)),
    }
}

fn kept_with_search() -> search::Findings {
    let part = |phase| Part {
        phase,
        figures: figures(if phase == Phase::Before { 8 } else { 308 }),
        jobs: if phase == Phase::Stopped { 200 } else { 100 },
    };
    search::Findings {
        parts: Phase::ALL.map(part).into(),
        period: Duration::from_secs(60),
        drained: Duration::from_secs(250),
        rows: 400,
        documents: 400,
        differences: 0,
    }
}

/// Asserts that one broken bound is reported, in these words.
fn only(broken: &[String], text: &str) {
    assert!(
        matches!(broken, [one] if one.contains(text)),
        "{text}: {broken:?}"
    );
}

#[test]
fn broker_outage_bounds_are_checked_independently() {
    assert_eq!(within_bounds().broken(), [""; 0]);
    type Break = fn(&mut broker::Findings);
    let breaks: [(Break, &str); 6] = [
        (|one| one.lost[1] = 1, "nobody heard of 1"),
        (|one| one.outage[1].failed = 1, "1 requests failed"),
        (
            |one| one.outage[1].p99 += Duration::from_micros(1),
            "p99 rose",
        ),
        (|one| one.relay_share = 0.05, "5.0 % of a core"),
        (
            |one| one.drain_began = Some(Duration::from_millis(2_001)),
            "draining began",
        ),
        (|one| one.drain_began = None, "draining began"),
    ];
    for (break_it, text) in breaks {
        let mut findings = within_bounds();
        break_it(&mut findings);
        only(&findings.broken(), text);
    }
}

#[test]
fn search_outage_bounds_are_checked_independently() {
    assert_eq!(kept_with_search().broken(), [""; 0]);
    let little = Duration::from_micros(1);
    for at in 1..4 {
        let mut findings = kept_with_search();
        findings.parts[at].figures.p99 += little;
        only(&findings.broken(), "p99 rose");
    }
    type Break = fn(&mut search::Findings);
    let breaks: [(Break, &str); 7] = [
        (|one| one.parts[0].figures.failed = 1, "1 requests failed"),
        (|one| one.parts[4].figures.failed = 2, "2 requests failed"),
        (|one| one.parts[3].jobs = 199, "199 jobs waited"),
        (|one| one.drained += Duration::from_micros(1), "drained"),
        (|one| one.differences = 1, "1 differ"),
        (|one| one.documents = 399, "399 documents"),
        (|one| (one.rows, one.documents) = (0, 0), "0 rows"),
    ];
    for (break_it, text) in breaks {
        let mut findings = kept_with_search();
        break_it(&mut findings);
        only(&findings.broken(), text);
    }
}
