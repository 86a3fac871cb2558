//! `posthaste doctor`: checks the database, the queues and their surroundings, and suggests fixes.

use std::fmt;
use std::time::Duration;

use posthaste::__private::{DUTIES, Duty};
use posthaste::Config;
use posthaste_observe::format::{age, pluralize};
use posthaste_observe::{Checks, Finding, Level, Snapshot, check_findings, group_by_kind};
use serde::Serialize;

use crate::database::Database;
use crate::failure::CommandExit;
use crate::options::parse_duration;
use crate::site;
use crate::terminal::Terminal;
use crate::thresholds;

/// Find problems in the database, the queues and their environment, and show how to fix them
///
/// Exit code 0: no errors (warnings and hints do not count); 3: at least one error; 1: the check
/// failed.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Report transactions and locks older than this, and syncs that have failed for longer
    /// (default: from [observe] in posthaste.toml)
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    older_than: Option<Duration>,

    /// Only list the periodic duties of the leading worker, with their intervals
    #[arg(long, conflicts_with = "older_than")]
    duties: bool,
}

/// The exit code if there is an error.
const ERRORS_EXIT_CODE: u8 = 3;

/// A duty of the leader.
#[derive(Serialize)]
struct DutyRow {
    name: &'static str,
    /// The minimum pause; `None`: in each round.
    every_seconds: Option<f64>,
    /// The duty takes at most one part in this many of the time.
    share: Option<u32>,
}

#[derive(Serialize)]
struct Report {
    findings: Vec<Finding>,
}

pub(crate) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    if arguments.duties {
        return terminal.print_results(&duties(), "");
    }
    let report = Report {
        findings: check(arguments, database).await?,
    };
    terminal.print_result(&report, &report)?;
    let errors = report.findings.iter();
    let errors = errors.filter(|one| one.level == Level::Error).count();
    if errors > 0 {
        let line = format!(
            "{} among {}.",
            pluralize(errors, "error", "errors"),
            pluralize(report.findings.len(), "finding", "findings")
        );
        return Err(CommandExit {
            code: ERRORS_EXIT_CODE,
            line,
        }
        .into());
    }
    Ok(())
}

fn duties() -> Vec<DutyRow> {
    let config = Config::default();
    let row = |duty: &Duty| DutyRow {
        name: duty.name,
        every_seconds: Some(duty.every(&config).as_secs_f64()).filter(|every| *every > 0.0),
        share: duty.share,
    };
    DUTIES.iter().map(row).collect()
}

async fn check(arguments: &Arguments, database: &Database) -> anyhow::Result<Vec<Finding>> {
    let mut thresholds = thresholds::read()?;
    if let Some(older_than) = arguments.older_than {
        thresholds.long_transaction = older_than;
        thresholds.sync_failing = older_than;
    }
    let client = database.address().connect().await?;
    let second = database.address().connect().await?;
    let checks = Checks::read(&client, &second, &thresholds).await?;
    let snapshot = match checks.can_observe() {
        true => {
            let mut snapshot = Snapshot::read(&client).await?;
            snapshot.read_syncs(&client).await?;
            site::record_refusal(database.address(), &mut snapshot.store.refused).await?;
            Some(snapshot)
        }
        false => None,
    };
    Ok(check_findings(&checks, snapshot.as_ref(), &thresholds))
}

impl fmt::Display for DutyRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let every = match self.every_seconds {
            Some(every) => format!("every {}", age(every)),
            None => "in each round".to_owned(),
        };
        write!(f, "{:15} {every}", self.name)?;
        match self.share {
            Some(share) => write!(f, ", at most 1/{share} of the time"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.findings.is_empty() {
            return write!(f, "no problems found");
        }
        for (at, one) in group_by_kind(&self.findings).iter().enumerate() {
            let gap = if at > 0 { "\n" } else { "" };
            let level = one.level.as_str().to_uppercase();
            let (id, summary, remedy) = (one.kind.id(), &one.summary, &one.remedy);
            write!(f, "{gap}{level:7}  {id}: {summary}\n         {remedy}")?;
        }
        Ok(())
    }
}
