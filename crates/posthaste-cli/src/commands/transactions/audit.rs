//! `posthaste transactions audit`: all documents against all transactions.

use std::fmt;

use posthaste_elastic::two_phase::{Audit, Coordinator};
use serde::Serialize;

use crate::failure::Ended;
use crate::terminal::Terminal;

/// As for `doctor`.
const SOMETHING_IS_WRONG: u8 = 3;

#[derive(Serialize)]
#[serde(transparent)]
struct Report(Audit);

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
                "\n{} documents do not say what they were opened with, and their balances were not judged",
                audit.unopened
            )?;
        }
        if audit.moving > 0 {
            write!(
                f,
                "\n{} documents were written at each look, and were not judged",
                audit.moving
            )?;
        }
        Ok(())
    }
}

pub(super) async fn run(coordinator: &Coordinator, terminal: &Terminal) -> anyhow::Result<()> {
    let report = Report(coordinator.audit().await?);
    terminal.result(&report, &report)?;
    let audit = report.0;
    if !audit.agrees() {
        let wrong = audit.disagreements.len() as u64 + audit.more;
        return Err(Ended {
            code: SOMETHING_IS_WRONG,
            line: format!("{wrong} disagreements were found."),
        }
        .into());
    }
    anyhow::ensure!(
        audit.moving == 0,
        "{} documents were written at each look, and were not judged. Run it again when less is going on.",
        audit.moving
    );
    Ok(())
}
