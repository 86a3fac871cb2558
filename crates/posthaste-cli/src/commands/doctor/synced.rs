//! What was seen of synced tables, and what it means: no IO.

use crate::commands::sync::behind::Behind;

use super::facts::Unsynced;
use super::findings::{Finding, hint, wrong};

pub(super) fn of_a_synced_table(table: &Unsynced) -> Finding {
    let name = &table.name;
    match table.is_gone {
        true => hint(
            "sync",
            &format!("the table of sync {name} was dropped: its index shows what is no more"),
            "take its section out of posthaste.toml, SELECT posthaste.unsync_table(its name), \
             cancel the jobs that are left, and remove the index",
        ),
        false => wrong(
            "sync",
            &format!(
                "triggers of sync {name} are missing, switched off or another's on {}: changes do \
                 not come into its index",
                some(&table.parts)
            ),
            "'posthaste sync install', then 'posthaste sync audit --contents --repair' for what \
             was changed meanwhile",
        ),
    }
}

/// A table may have a thousand partitions.
const SHOWN: usize = 5;

fn some(parts: &[String]) -> String {
    let shown = parts[..parts.len().min(SHOWN)].join(", ");
    match parts.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn that_fail(jobs: i64, name: &str) -> String {
    match jobs {
        1 => format!("a job of sync {name} fails"),
        jobs => format!("{jobs} jobs of sync {name} fail"),
    }
}

/// Changes wait a minute for their time, one more for the sync, and one to be seen.
const NOBODY: f64 = 600.0;

pub(super) fn of_a_sync(name: &str, behind: &Behind, older_than: f64) -> Option<Finding> {
    let failing = behind.problems.iter().filter(|one| !one.given_up);
    let worst = failing.max_by(|one, other| one.seconds.total_cmp(&other.seconds));
    if let Some(worst) = worst.filter(|one| one.seconds > older_than) {
        let (jobs, seconds, reason) = (worst.jobs, worst.seconds, &worst.reason);
        return Some(wrong(
            "sync",
            &format!("{} for {seconds:.0} s: {reason}", that_fail(jobs, name)),
            "see to what the reason names; the jobs are tried again by themselves",
        ));
    }
    if let Some(seconds) = behind.seconds.filter(|seconds| *seconds > NOBODY) {
        let due = behind.due;
        return Some(wrong(
            "sync",
            &format!(
                "{due} changes of sync {name} are due and not in its index, for {seconds:.0} s"
            ),
            "start one: 'posthaste sync run', or your own program",
        ));
    }
    let given_up = behind.problems.iter().find(|one| one.given_up)?;
    let (jobs, reason) = (given_up.jobs, &given_up.reason);
    Some(hint(
        "sync",
        &format!("{jobs} jobs of sync {name} were given up: {reason}"),
        "'posthaste sync audit' names documents that differ; when the reason is gone, 'posthaste \
         sync reindex' with their --ids, and delete the jobs",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::sync::behind::Problem;

    #[test]
    fn a_sync_that_fails_or_that_nobody_runs_is_told() {
        let behind = |seconds, given_up| Behind {
            due: 7,
            seconds: Some(seconds),
            problems: vec![Problem {
                reason: "connection refused".into(),
                jobs: 7,
                seconds,
                given_up,
            }],
        };
        let nobody = |seconds| Behind {
            problems: Vec::new(),
            ..behind(seconds, false)
        };
        for (behind, is_told) in [
            (behind(61.0, false), true),
            (behind(59.0, false), false),
            (behind(599.0, true), true),
            (nobody(601.0), true),
            (nobody(300.0), false),
        ] {
            let found = of_a_sync("page", &behind, 60.0);
            assert_eq!(found.is_some(), is_told, "{behind:?}");
        }
    }
}
