//! Turns findings, and problems of actions by filter, into sentences for the overview. No IO, no
//! clock.

use posthaste_observe::{Finding, Kind, Level as Urgency, Snapshot, group_by_kind};

use crate::action::{Action, Progress};
use crate::address;
use crate::format::{self, count, one_line, pluralize};

/// The level of a verdict, which determines its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Bad,
    Warn,
    Good,
}

impl Level {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Bad => "bad",
            Self::Warn => "warn",
            Self::Good => "good",
        }
    }
}

/// A sentence at the top of the overview.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) level: Level,
    /// The id of the finding; empty for a verdict without one.
    pub(crate) id: &'static str,
    pub(crate) what: String,
    /// The remedy.
    pub(crate) then: String,
    /// The address of the page with details; empty for none.
    pub(crate) link: String,
}

/// Returns errors and warnings, grouped by kind, the most urgent first; or that there is no
/// problem.
pub(crate) fn verdicts(
    snapshot: &Snapshot,
    findings: &[Finding],
    actions: &[Action],
) -> Vec<Verdict> {
    let mut all: Vec<Verdict> = group_by_kind(findings)
        .iter()
        .filter_map(finding_verdict)
        .collect();
    all.extend(actions.iter().filter_map(failed_verdict));
    all.sort_by_key(|one| one.level);
    if all.is_empty() {
        all.push(no_problems_verdict(snapshot));
    }
    all.extend(actions.iter().filter_map(running_verdict));
    all
}

fn finding_verdict(finding: &Finding) -> Option<Verdict> {
    let level = match finding.level {
        Urgency::Error => Level::Bad,
        Urgency::Warning => Level::Warn,
        Urgency::Hint => return None,
    };
    Some(Verdict {
        level,
        id: finding.kind.id(),
        what: format::isolate_right_to_left(&finding.summary),
        then: format::isolate_right_to_left(&finding.remedy),
        link: details_address(finding),
    })
}

/// Returns the address of the page with details of a finding.
fn details_address(finding: &Finding) -> String {
    let subject = &finding.subject;
    match finding.kind {
        Kind::QueueNoWorker | Kind::QueueLate if !subject.is_empty() => {
            address::queue_jobs(subject)
        }
        Kind::QueueFailing if !subject.is_empty() => address::queue_page(subject),
        Kind::QueueNoWorker | Kind::QueueLate | Kind::QueueFailing | Kind::QueuePaused => {
            "/queues".to_owned()
        }
        Kind::WorkerSilent | Kind::WorkerNoLeader | Kind::WorkerFailing => "/workers".to_owned(),
        Kind::RelayStopped | Kind::RelaySilent | Kind::RelayDown | Kind::RelayFailing => {
            "/destinations".to_owned()
        }
        Kind::SyncNoWorker | Kind::SyncFailing | Kind::SyncLate => "/sync".to_owned(),
        Kind::JobsDead => "/dead".to_owned(),
        Kind::JobsExpired => address::filtered_jobs("/dead", &"state:expired"),
        Kind::TransactionLong | Kind::TransactionPrepared | Kind::StoreSegments => {
            "/transactions".to_owned()
        }
        _ => String::new(),
    }
}

fn action_verdict(action: &Action, level: Level, what: String, then: String) -> Verdict {
    Verdict {
        level,
        id: "",
        what,
        then,
        link: address::bulk_action(action.id),
    }
}

fn running_verdict(action: &Action) -> Option<Verdict> {
    let jobs = pluralize(action.jobs, "job", "jobs");
    let what = format!("{} is running: {jobs} so far.", action.kind.title());
    let is_running = action.progress == Progress::Running;
    is_running.then(|| action_verdict(action, Level::Good, what, String::new()))
}

fn failed_verdict(action: &Action) -> Option<Verdict> {
    let error = action.last_error.as_ref()?;
    let jobs = pluralize(action.jobs, "job", "jobs");
    let what = format!("{} stopped after {jobs}.", action.kind.title());
    let then = format!("{}. Continue or stop it.", one_line(error, 200));
    let has_failed = action.progress == Progress::Failed;
    has_failed.then(|| action_verdict(action, Level::Warn, what, then))
}

fn no_problems_verdict(snapshot: &Snapshot) -> Verdict {
    let sums = snapshot.sums();
    let what = match sums.pending() {
        0 => "No problems: all jobs are completed.".to_owned(),
        _ => format!(
            "No problems: {} available, {} running, {} in other states.",
            count(sums.available),
            count(sums.running),
            count(sums.pending() - sums.available - sums.running)
        ),
    };
    Verdict {
        level: Level::Good,
        id: "",
        what,
        then: String::new(),
        link: String::new(),
    }
}
