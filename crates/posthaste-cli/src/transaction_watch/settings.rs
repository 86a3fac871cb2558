//! Reads `[txwatch]` of posthaste.toml.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use posthaste_observe::transactions::Policy;
use serde_json::Value;

use crate::file::{self, TXWATCH_SECTION};
use crate::thresholds;

/// Reads the section; the defaults if the file or the section does not exist.
pub(crate) fn read(path: &Path) -> anyhow::Result<Policy> {
    let warn_after = thresholds::read_file(path)?.long_transaction;
    let policy = read_section(path)?;
    Ok(policy.unwrap_or_else(|| Policy::default().or_warn_after(warn_after)))
}

/// Reads the section, `None` if it does not exist.
pub(super) fn read_section(path: &Path) -> anyhow::Result<Option<Policy>> {
    let Some(table) = file::read_section(path, TXWATCH_SECTION)? else {
        return Ok(None);
    };
    let warn_after = thresholds::read_file(path)?.long_transaction;
    let table = Value::Object(table.into_iter().collect());
    let policy = Policy::read(table, warn_after).map_err(|why| anyhow!("{TXWATCH_SECTION}: {why}"));
    Ok(Some(policy.with_context(|| path.display().to_string())?))
}
