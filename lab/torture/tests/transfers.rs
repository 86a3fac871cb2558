//! A short run of transfers; `make two-phase` makes ten thousand of them.

use std::collections::BTreeMap;

use posthaste_testkit::ran;
use posthaste_testkit::receivers::{OpenSearch, Receiver, are_here};
use posthaste_torture::transfers::{Broken, Fault, MARKS_IGNORED, Outcome, Plan, play};

use crate::program;

async fn played(test: &str, plan: &Plan, broken: Option<Broken>) -> Option<Outcome> {
    if !are_here(test, &[Receiver::OpenSearch]) {
        return None;
    }
    let server = tokio::task::block_in_place(|| OpenSearch::start(&[])).unwrap();
    let outcome = play(plan, server.port(), program(), broken).await;
    let outcome = outcome.unwrap_or_else(|error| panic!("seed {}: {error:#}", plan.seed));
    println!("seed {}: {outcome:?}", plan.seed);
    Some(outcome)
}

fn plan(transfers: usize, faults: BTreeMap<Fault, usize>) -> Plan {
    Plan {
        seed: fastrand::u64(..) >> 16,
        transfers,
        accounts: 20,
        executors: 3,
        at_once: 16,
        faults,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfers_end_and_conserve_money_under_faults() {
    let faults = BTreeMap::from([
        (Fault::Kill, 3),
        (Fault::Cut, 2),
        (Fault::HalfOpen, 1),
        (Fault::Unanswered, 2),
        (Fault::Stall, 2),
    ]);
    let plan = plan(600, faults);
    let Some(outcome) = played("transfers_end_and_money_stays", &plan, None).await else {
        return;
    };
    assert!(outcome.findings.is_empty(), "seed {}", plan.seed);
    assert_eq!(outcome.faults, plan.faults);
    let load = outcome.load;
    assert!(load.finished > 100 && load.rolled_back > 20, "{load:?}");
    assert!(load.claims > plan.transfers / 2, "{load:?}");
    ran::count("two-phase-transfers", plan.transfers as u64);
    ran::count("two-phase-kills", 3);
    ran::count("two-phase-cuts", 5);
    ran::count("two-phase-stalls", 2);
}

/// Without this, the transfers above would prove nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfers_detect_a_server_that_accepts_late_holds() {
    let plan = Plan {
        at_once: 40,
        ..plan(300, [(Fault::Stall, 3)].into())
    };
    let test = "a_server_that_takes_late_holds_is_noticed";
    let Some(outcome) = played(test, &plan, Some(MARKS_IGNORED)).await else {
        return;
    };
    let noticed = outcome.findings.iter();
    let noticed = noticed.filter(|finding| finding.contains("still holds"));
    assert!(noticed.count() > 0, "seed {}", plan.seed);
    ran::count("two-phase-bugs", 1);
}
