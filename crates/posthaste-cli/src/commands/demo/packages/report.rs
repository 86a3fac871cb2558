//! The report of the run with packages.

use std::fmt;

use anyhow::bail;
use indicatif::HumanCount;
use serde::Serialize;

use super::captured;

/// The query of the search at the end.
pub(super) const SEARCH_QUERY: &str = "message queue";

/// The result of the run.
#[derive(Serialize)]
pub(crate) struct Report {
    pub(super) packages: u64,
    pub(super) seconds: f64,
    pub(super) changed: u64,
    pub(super) deleted: u64,
    pub(super) kills: i32,
    pub(super) removed: u64,
    /// Deleted documents that no later change restored: the audit found and repaired them.
    pub(super) missing: u64,
    pub(super) rows: u64,
    pub(super) documents: u64,
    pub(super) digest: String,
    pub(super) search: Vec<String>,
    pub(super) problem: Option<String>,
    /// The captured changes of the same table, if the database supports captures.
    pub(super) captured: Option<captured::Report>,
}

impl Report {
    pub(crate) fn verdict(&self) -> anyhow::Result<()> {
        if let Some(problem) = &self.problem {
            bail!("the index differs: {problem}.");
        }
        if let Some(captured) = self.captured.as_ref().filter(|one| !self.agrees(one)) {
            let (rows, file) = (captured.rows, captured.file.display());
            bail!(
                "the captured changes differ: {rows} rows in {file}, {} in Postgres.",
                self.rows
            );
        }
        Ok(())
    }

    /// Whether the captured changes result in the rows of Postgres.
    fn agrees(&self, captured: &captured::Report) -> bool {
        (captured.rows, &captured.digest) == (self.rows, &self.digest)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = HumanCount;
        writeln!(
            f,
            "packages   {} rows, each with its index job; {} changed and {} deleted meanwhile, \
             in {:.1} s",
            count(self.packages),
            count(self.changed),
            count(self.deleted),
            self.seconds
        )?;
        writeln!(
            f,
            "killed     {} times; {} documents deleted directly in the index, {} of them still \
             missing when the audit repaired them",
            self.kills,
            count(self.removed),
            count(self.missing)
        )?;
        match &self.problem {
            None => writeln!(
                f,
                "index      equal to Postgres by id and version: {} rows, {} documents (sha256 {})",
                count(self.rows),
                count(self.documents),
                self.digest.get(..16).unwrap_or_default()
            )?,
            Some(problem) => writeln!(f, "index      DIFFERS: {problem}")?,
        }
        if let Some(captured) = &self.captured {
            writeln!(
                f,
                "captured   {} changes from the write-ahead log, {} of them sent twice under one \
                 id: {}",
                count(captured.changes),
                count(captured.repeats),
                captured.file.display()
            )?;
            let rows = count(captured.rows);
            match self.agrees(captured) {
                true => writeln!(f, "           they leave the same {rows} rows and versions")?,
                false => writeln!(f, "           they DIFFER: they leave {rows} rows")?,
            }
        }
        write!(
            f,
            "search     posthaste sync search '{SEARCH_QUERY}': {}",
            self.search.join(", ")
        )
    }
}
