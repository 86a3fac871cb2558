//! The table [observe] of posthaste.toml, and findings as lines.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use posthaste_observe::{Finding, Level, Thresholds, grouped};

use crate::file::{self, FILE, OBSERVE};

/// Thresholds as posthaste.toml sets them; the defaults where it does not.
pub(crate) fn read() -> anyhow::Result<Thresholds> {
    read_file(Path::new(FILE))
}

/// The same by this file.
pub(crate) fn read_file(file: &Path) -> anyhow::Result<Thresholds> {
    let table = file::table(file, OBSERVE)?.unwrap_or_default();
    let thresholds = Thresholds::from_table(table).map_err(|why| anyhow!("{OBSERVE}: {why}"));
    thresholds.with_context(|| file.display().to_string())
}

/// Summary and remedy. A summary that ends with an error lacks its full stop.
pub(crate) fn sentence(finding: &Finding) -> String {
    let summary = finding.summary.trim_end_matches('.');
    format!("{summary}. {}", finding.remedy)
}

/// Errors and warnings as lines, those of a kind as one.
pub(crate) fn urgent(findings: &[Finding]) -> Vec<String> {
    let groups = grouped(findings);
    let urgent = groups.iter().filter(|one| one.level != Level::Hint);
    let line = |one: &Finding| {
        let level = one.level.name().to_uppercase();
        format!("{level} {}: {}", one.kind.id(), sentence(one))
    };
    urgent.map(line).collect()
}
