//! The rows of an outbox, and the results of its captures.

use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// The outbox of a round and its captures at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    /// Rows of the table.
    pub rows: Vec<OutboxRow>,
    /// The result of each capture.
    pub captures: Vec<CaptureEnd>,
}

/// The distance between the first keys of two writers; keys grow with the transactions of each.
pub(crate) const APART: i64 = 1_000_000_000;

/// A row of the outbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxRow {
    /// The key of the row in every log.
    pub key: i64,
    /// The end of the server's log before the row's transaction ended.
    pub from: u64,
    /// The end of the server's log soon after the COMMIT; `None` if it was not answered.
    pub until: Option<u64>,
}

/// The result of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureEnd {
    /// Its name.
    pub name: String,
    /// Whether it guarantees each event exactly once, instead of at least once.
    pub is_exact: bool,
    /// Whether its slot fails over: no promotion excuses a gap or a lost commit.
    #[serde(default)]
    pub fails_over: bool,
    /// The events in the order of their arrival.
    pub events: Vec<CapturedEvent>,
    /// Gaps in the log that it reports; without an end, it has not begun again.
    pub gaps: Vec<(u64, Option<u64>)>,
}

/// An event as it arrived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapturedEvent {
    /// The key of the row, from its content.
    pub key: i64,
    /// The delivery id.
    pub id: String,
    /// Timeline, commit, record and row, as text that sorts.
    pub position: String,
    /// Its complete content.
    pub body: String,
}

impl CapturedEvent {
    /// The server's timeline on which it was written, and the position of its commit.
    pub(crate) fn place(&self) -> Option<(u32, u64)> {
        let timeline = u32::from_str_radix(self.position.get(..8)?, 16).ok()?;
        let commit = u64::from_str_radix(self.position.get(8..24)?, 16).ok()?;
        Some((timeline, commit))
    }
}

/// The name of the file, in the folder of a round's logs.
pub(crate) const FILE: &str = "captured.json";

pub(super) fn read(folder: &Path) -> anyhow::Result<Captured> {
    let file = folder.join(FILE);
    match std::fs::read(&file) {
        Ok(text) => serde_json::from_slice(&text).context("what was captured"),
        Err(_) => Ok(Captured::default()),
    }
}
