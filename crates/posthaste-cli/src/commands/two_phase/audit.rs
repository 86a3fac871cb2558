//! `posthaste two-phase audit`: compares all documents with all transactions.

use std::fmt;

use posthaste_elastic::two_phase::{AuditReport, Coordinator};
use posthaste_observe::format::pluralize;
use serde::Serialize;

use crate::failure::CommandExit;
use crate::terminal::Terminal;

/// The exit code if there are inconsistencies, as of `doctor`.
const INCONSISTENT_EXIT_CODE: u8 = 3;

#[derive(Serialize)]
#[serde(transparent)]
struct Report(AuditReport);

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let audit = &self.0;
        for one in &audit.disagreements {
            writeln!(f, "{one}")?;
        }
        if audit.more > 0 {
            writeln!(f, "and {} more", audit.more)?;
        }
        let states: Vec<String> = audit
            .transactions
            .iter()
            .map(|(state, count)| format!("{count} {state}"))
            .collect();
        writeln!(
            f,
            "transactions: {}",
            if states.is_empty() {
                "none".to_owned()
            } else {
                states.join(", ")
            }
        )?;
        write!(
            f,
            "documents: {}; opened with {}, settled {:+}, balances {}, of which {} reserved",
            audit.documents, audit.opened, audit.settled, audit.balances, audit.reserved
        )?;
        if audit.unopened > 0 {
            write!(
                f,
                "\n{} without an opening balance: balances not checked",
                pluralize(audit.unopened, "document", "documents")
            )?;
        }
        for document in &audit.not_judged {
            write!(
                f,
                "\nnot checked: document {document}, written during each read"
            )?;
        }
        let unnamed = audit.moving - audit.not_judged.len() as u64;
        if unnamed > 0 {
            write!(f, "\nnot checked: {unnamed} more")?;
        }
        Ok(())
    }
}

pub(super) async fn run(coordinator: &Coordinator, terminal: &Terminal) -> anyhow::Result<()> {
    let report = Report(coordinator.audit().await?);
    terminal.print_result(&report, &report)?;
    require_consistent(&report.0)
}

/// Fails with exit code 3 if the audit found inconsistencies.
fn require_consistent(audit: &AuditReport) -> anyhow::Result<()> {
    if !audit.agrees() {
        let wrong = audit.disagreements.len() as u64 + audit.more;
        return Err(CommandExit {
            code: INCONSISTENT_EXIT_CODE,
            line: format!(
                "{} found.",
                pluralize(wrong, "inconsistency was", "inconsistencies were")
            ),
        }
        .into());
    }
    anyhow::ensure!(
        audit.moving == 0,
        "{} not checked because of writes during each read. Run it again when there are fewer \
         writes.",
        pluralize(audit.moving, "document was", "documents were")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use posthaste_elastic::two_phase::{Disagreement, Fault};

    use super::*;
    use crate::failure;

    #[test]
    fn audits_with_unchecked_records_exit_with_1() {
        assert!(require_consistent(&AuditReport::default()).is_ok());
        let moving = AuditReport {
            moving: 1_001,
            not_judged: vec!["hot".into(); 1_000],
            ..AuditReport::default()
        };
        let text = Report(moving.clone()).to_string();
        assert!(text.contains("not checked: document hot,"), "{text}");
        assert!(text.ends_with("not checked: 1 more"), "{text}");
        let ended = require_consistent(&moving).unwrap_err();
        assert_eq!(failure::exit_code(&ended), 1, "{ended}");
        let ghost = Disagreement {
            document: Some("a".into()),
            transaction: Some("ghost".into()),
            fault: Fault::Unknown,
        };
        let wrong = AuditReport {
            disagreements: vec![ghost],
            ..moving
        };
        assert_eq!(
            failure::exit_code(&require_consistent(&wrong).unwrap_err()),
            3
        );
    }
}
