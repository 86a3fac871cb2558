//! The report of the demo, as text and JSON.

use std::fmt;

use anyhow::bail;
use indicatif::HumanCount;
use serde::{Deserialize, Serialize};

use super::packages;
use super::run::{Figures, Run};
use super::verify::Proof;

/// The result of a run.
#[derive(Deserialize, Serialize)]
pub(super) struct Report {
    run: i64,
    folder: String,
    seconds: f64,
    listed: u64,
    committed: u64,
    worked: u64,
    bytes: u64,
    retried: u64,
    dead: u64,
    unreadable: u64,
    same: u64,
    differing: u64,
    examples: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none", skip_deserializing)]
    pub(super) packages: Option<packages::Report>,
}

impl Report {
    pub(super) fn new(run: &Run, figures: Figures, proof: Proof, seconds: f64) -> Self {
        Self {
            run: run.id,
            folder: run.folder.display().to_string(),
            seconds: (seconds * 1_000.0).round() / 1_000.0,
            listed: run.files,
            committed: figures.committed,
            worked: figures.worked,
            bytes: figures.bytes,
            retried: figures.retried,
            dead: figures.dead,
            unreadable: figures.unreadable,
            same: proof.same,
            differing: proof.differing,
            examples: proof.examples,
            packages: None,
        }
    }

    pub(super) fn verdict(&self) -> anyhow::Result<()> {
        if self.differing > 0 {
            let first = self.examples.first().map_or("", String::as_str);
            bail!(
                "the table differs from sha256sum in {} of {} files, the first being {first}. \
                 Run 'posthaste demo' again if they changed meanwhile.",
                self.differing,
                self.listed
            );
        }
        if self.dead > 0 {
            bail!(
                "{} jobs are dead. Their errors are in posthaste.dead.",
                self.dead
            );
        }
        self.packages
            .as_ref()
            .map_or(Ok(()), packages::Report::verdict)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = HumanCount;
        writeln!(
            f,
            "committed  {} rows, each with its job (run {}, {})",
            count(self.committed),
            self.run,
            self.folder
        )?;
        writeln!(
            f,
            "worked     {} files of {} bytes, in {:.1} s",
            count(self.worked),
            count(self.bytes),
            self.seconds
        )?;
        writeln!(f, "retried    {}", count(self.retried))?;
        writeln!(f, "dead       {}", count(self.dead))?;
        if self.unreadable > 0 {
            writeln!(
                f,
                "unreadable {} files, for sha256sum too",
                count(self.unreadable)
            )?;
        }
        write!(
            f,
            "proof      {} of {} listed files match sha256sum -z",
            count(self.same),
            count(self.listed)
        )?;
        match self.differing {
            0 => write!(f, "; none differs"),
            differing => write!(f, "; {} DIFFER", count(differing)),
        }?;
        for example in &self.examples {
            write!(f, "\n           {example}")?;
        }
        match &self.packages {
            Some(packages) => write!(f, "\n{packages}"),
            None => Ok(()),
        }
    }
}
