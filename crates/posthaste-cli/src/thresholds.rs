//! The section `[observe]` of posthaste.toml, and findings as lines.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use posthaste_observe::{Finding, Level, Thresholds, group_by_kind};

use crate::file::{self, DEFAULT_FILE, OBSERVE_SECTION};

/// Reads the thresholds of posthaste.toml, with defaults for the others.
pub(crate) fn read() -> anyhow::Result<Thresholds> {
    read_file(Path::new(DEFAULT_FILE))
}

/// Reads the thresholds of this file.
pub(crate) fn read_file(file: &Path) -> anyhow::Result<Thresholds> {
    let table = file::read_section(file, OBSERVE_SECTION)?.unwrap_or_default();
    let thresholds =
        Thresholds::from_table(table).map_err(|why| anyhow!("{OBSERVE_SECTION}: {why}"));
    thresholds.with_context(|| file.display().to_string())
}

/// Returns summary and remedy. A summary that ends with an error lacks its full stop.
pub(crate) fn finding_sentence(finding: &Finding) -> String {
    let summary = finding.summary.trim_end_matches('.');
    format!("{summary}. {}", finding.remedy)
}

/// Returns errors and warnings as lines, one for each kind.
pub(crate) fn urgent_lines(findings: &[Finding]) -> Vec<String> {
    let groups = group_by_kind(findings);
    let urgent = groups.iter().filter(|one| one.level != Level::Hint);
    let line = |one: &Finding| {
        let level = one.level.as_str().to_uppercase();
        format!("{level} {}: {}", one.kind.id(), finding_sentence(one))
    };
    urgent.map(line).collect()
}
