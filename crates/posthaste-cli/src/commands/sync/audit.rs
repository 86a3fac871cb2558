//! `posthaste sync audit`: compares every row with its document, and every document with its row.

use std::collections::BTreeMap;
use std::fmt;

use indicatif::HumanCount;
use posthaste_observe::format::pluralize;
use posthaste_sync::{Access, Audit, AuditReport, Difference};
use serde::Serialize;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::behind::{self, Problem, SyncLag};
use crate::database::Database;
use crate::failure::{self, CommandExit};
use crate::options::parse_rate_per_second;
use crate::site;
use crate::syncs::{self, SourceAndIndex, SyncFile};
use crate::terminal::Terminal;

/// The maximum number of differences in the text output.
const MAX_SHOWN_DIFFERENCES: usize = 10;

/// The exit code if there are differences.
const DIFFERENCES_EXIT_CODE: u8 = 3;

/// Compare all rows with all documents, by ID and version and optionally by contents
///
/// Exit code 0: rows and documents are equal; 3: they differ.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Tables to audit (default: all in the file)
    #[arg(value_name = "TABLE")]
    tables: Vec<String>,

    #[command(flatten)]
    config: SyncFile,

    /// Write or delete the documents that differ, then compare again. An index in a folder must
    /// have no other writer
    #[arg(long)]
    repair: bool,

    /// Also build each document and compare it with the one in the index. This finds rows that were
    /// changed without triggers, and documents that were changed directly in the index
    #[arg(long)]
    contents: bool,

    /// Maximum rate at which rows, and documents, are read, such as 1000/s or 60000/m
    #[arg(long, value_name = "RATE", value_parser = parse_rate_per_second)]
    rate: Option<u32>,
}

pub(super) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let tables = syncs::select_tables(arguments.config.tables(database)?, &arguments.tables)?;
    let client = database.address().connect().await?;
    if arguments.repair {
        site::require_adopted(database.address()).await?;
    }
    let audit = Audit {
        repair: arguments.repair,
        rate: arguments.rate,
        contents: arguments.contents,
        ..Audit::default()
    };
    let access = match arguments.repair {
        true => Access::Write,
        false => Access::Read,
    };
    let mut reports = Vec::with_capacity(tables.len());
    for table in tables {
        syncs::require_installed(&client, &table).await?;
        let SourceAndIndex { source, index } =
            syncs::open_source_and_index(&table, database.address(), access)?;
        let found = audit.run(&*source, &*index).await?;
        if let Err(error) = record_result(&client, table.name(), &found, arguments.contents).await {
            let table = table.name();
            terminal.print_remark(&format!(
                "the audit of {table} could not be recorded for the console: {}",
                failure::error_line(&error.into())
            ));
        }
        let behind = behind::lagging_syncs(&client).await?.remove(table.name());
        reports.push(TableAudit::new(table.name(), found).with_lag(behind.unwrap_or_default()));
    }
    terminal.print_results(&reports, "no tables")?;
    let unequal: Vec<&str> = reports
        .iter()
        .filter(|one| !one.is_equal)
        .map(|one| &*one.table)
        .collect();
    if unequal.is_empty() {
        return Ok(());
    }
    let line = format!("{}: rows and documents differ.", unequal.join(", "));
    Err(CommandExit {
        code: DIFFERENCES_EXIT_CODE,
        line,
    }
    .into())
}

/// Records the result for the console.
async fn record_result(
    client: &Client,
    table: &str,
    found: &AuditReport,
    contents: bool,
) -> Result<(), tokio_postgres::Error> {
    let number = |of: u64| i64::try_from(of).unwrap_or(i64::MAX);
    let (rows, documents) = (number(found.rows), number(found.documents));
    let (differed, repaired) = (number(found.differences()), number(found.repaired));
    client
        .query_typed(
            include_str!("audited.sql"),
            &[
                (&table, Type::TEXT),
                (&rows, Type::INT8),
                (&documents, Type::INT8),
                (&differed, Type::INT8),
                (&repaired, Type::INT8),
                (&contents, Type::BOOL),
            ],
        )
        .await
        .map(drop)
}

/// The result of the audit of a table.
#[derive(Serialize)]
pub(crate) struct TableAudit {
    table: String,
    /// Whether both sides are equal now.
    pub(crate) is_equal: bool,
    pub(crate) rows: u64,
    documents: u64,
    pub(crate) missing: u64,
    stale: u64,
    orphaned: u64,
    ahead: u64,
    altered: u64,
    unreadable: u64,
    /// Differences with a pending job, which are not counted above.
    pending: u64,
    pub(crate) repaired: u64,
    named: Vec<NamedDifference>,
    /// Reasons why this audit did not write documents, with their number.
    reasons: BTreeMap<String, u64>,
    /// Problems that block the sync itself.
    problems: Vec<Problem>,
}

#[derive(Serialize)]
struct NamedDifference {
    id: String,
    how: &'static str,
}

impl TableAudit {
    pub(crate) fn new(table: &str, found: AuditReport) -> Self {
        let named = found.named.iter().map(|(id, difference)| NamedDifference {
            id: id.clone(),
            how: difference_name(*difference),
        });
        let differ = found.differences();
        Self {
            table: table.to_owned(),
            is_equal: differ == found.repaired,
            named: named.collect(),
            rows: found.rows,
            documents: found.documents,
            missing: found.missing,
            stale: found.stale,
            orphaned: found.orphaned,
            ahead: found.ahead,
            altered: found.altered,
            unreadable: found.unreadable,
            pending: found.pending,
            repaired: found.repaired,
            reasons: found.reasons,
            problems: Vec::new(),
        }
    }

    fn with_lag(self, lag: SyncLag) -> Self {
        let problems = lag.problems;
        Self { problems, ..self }
    }
}

fn difference_name(difference: Difference) -> &'static str {
    match difference {
        Difference::Missing => "missing",
        Difference::Stale => "stale",
        Difference::Orphaned => "orphaned",
        Difference::Ahead => "ahead",
        Difference::Altered => "altered",
        Difference::Unreadable => "unreadable",
        _ => "different",
    }
}

impl fmt::Display for TableAudit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = pluralize(self.rows, "row", "rows");
        let documents = pluralize(self.documents, "document", "documents");
        write!(f, "{}: {rows}, {documents}", self.table)?;
        let kinds = [
            (self.missing, "missing"),
            (self.stale, "stale"),
            (self.orphaned, "orphaned"),
            (self.ahead, "ahead"),
            (self.altered, "altered"),
            (self.unreadable, "unreadable"),
            (self.pending, "pending"),
        ];
        for (count, kind) in kinds.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, ", {} {kind}", HumanCount(count))?;
        }
        match (self.is_equal, self.repaired) {
            (true, 0) if self.pending > 0 => write!(f, "; the others are equal"),
            (true, 0) => write!(f, "; equal"),
            (true, _) => write!(f, "; all repaired, equal now"),
            (false, 0) => write!(f, "; they DIFFER"),
            (false, repaired) => write!(f, "; {repaired} repaired, the others DIFFER"),
        }?;
        for one in self.named.iter().take(MAX_SHOWN_DIFFERENCES) {
            write!(f, "\n  {:10}  {}", one.how, one.id)?;
        }
        for (reason, count) in self.reasons.iter().take(MAX_SHOWN_DIFFERENCES) {
            let reason = reason.replace(char::is_control, " ");
            write!(f, "\n  {count} not written: {reason}")?;
        }
        for Problem { reason, jobs, .. } in self.problems.iter().take(behind::MAX_SHOWN_REASONS) {
            let jobs = pluralize(*jobs, "job", "jobs");
            write!(f, "\n  {jobs} not completed: {reason}")?;
        }
        Ok(())
    }
}
