//! The outage that started it all, as its example plays it. What gets lost is judged here. Times are not: an outage of some seconds, beside other tests on
//! the same processors, says nothing of a 99th percentile or of a share of a core. `make outage` judges those, on a machine that does nothing else.

#[path = "../examples/outage/verdict.rs"]
#[allow(dead_code, reason = "the example itself knows queues by their way")]
mod verdict;

use std::time::Duration;

use posthaste_testkit::Child;
use posthaste_testkit::receivers::{Receiver, are_here};

use crate::tidy::documents::example;
use verdict::{Figures, Findings};

/// Of the table that was printed, both numbers of a line.
fn numbers(table: &[String], what: &str) -> [u64; 2] {
    let mut lines = table.iter().filter(|line| line.starts_with(what));
    let (line, None) = (lines.next().unwrap(), lines.next()) else {
        panic!("two lines begin with {what:?}: {table:?}");
    };
    let numbers = line.split_whitespace().rev().map(|word| word.parse());
    let [new, old] = numbers.take(2).collect::<Result<Vec<u64>, _>>().unwrap()[..] else {
        panic!("{line}");
    };
    [old, new]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_the_broker_loses_what_is_published_after_the_commit_and_nothing_that_is_enqueued_in_it()
 {
    let test = "an_outage_of_the_broker_loses_what_is_published_after_the_commit_and_nothing_that_is_enqueued_in_it";
    if !are_here(test, &[Receiver::RabbitMq]) {
        return;
    }
    let mut play = Child::spawn(example("outage").arg("8")).unwrap();
    let ended = play.exit(Duration::from_secs(240)).await.unwrap();
    let said = play.stdout();
    let errors = play.stderr();
    assert!(
        ended.code().is_some_and(|code| code < 2),
        "{ended}: {said:?} {errors:?}"
    );
    let [old, new] = numbers(&said, "annotations saved");
    assert!(old > 300 && new > 300, "{said:?} {errors:?}");
    let [old, new] = numbers(&said, "of which nobody else ever heard");
    assert!(old > 0 && new == 0, "{said:?}");
    assert_eq!(numbers(&said, "of which failed")[1], 0, "{said:?}");
    posthaste_testkit::ran::note("outage");
}

/// All bounds are kept, each of them barely.
fn kept() -> Findings {
    let figures = |p99: u64| Figures {
        requests: 100,
        failed: 0,
        p99: Duration::from_millis(p99),
    };
    Findings {
        saved: [300, 300],
        lost: [200, 0],
        before: [figures(8), figures(7)],
        outage: [figures(5_000), figures(12)],
        relay_share: 0.049,
        drain_began: Some(Duration::from_secs(2)),
    }
}

#[test]
fn each_bound_is_judged_by_itself() {
    assert_eq!(kept().broken(), [""; 0]);
    type Break = fn(&mut Findings);
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
    for (break_it, told) in breaks {
        let mut findings = kept();
        break_it(&mut findings);
        let broken = findings.broken();
        assert!(
            matches!(&broken[..], [one] if one.contains(told)),
            "{told}: {broken:?}"
        );
    }
}
