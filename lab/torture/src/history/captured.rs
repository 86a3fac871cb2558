//! What was written into an outbox, and what captures made of it.

use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// The outbox of a round, and its captures, as they are found in the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    /// Rows that are in the table.
    pub rows: Vec<OutboxRow>,
    /// What each capture made of them.
    pub captures: Vec<CaptureEnd>,
}

/// The distance between the first keys of two writers; keys grow with the transactions of each.
pub(crate) const APART: i64 = 1_000_000_000;

/// A row of the outbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxRow {
    /// Names it in every log.
    pub key: i64,
    /// Where the server's log ended before its transaction did.
    pub from: u64,
    /// Where it ended soon after the COMMIT; without an answer nobody knows.
    pub until: Option<u64>,
}

/// What a capture has made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureEnd {
    /// Its name.
    pub name: String,
    /// It promises each event once, not once or more.
    pub is_exact: bool,
    /// In the order of their arrival.
    pub events: Vec<CapturedEvent>,
    /// Parts of the log that it says nobody captured; without an end it has not begun again.
    pub gaps: Vec<(u64, Option<u64>)>,
}

/// An event as it arrived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapturedEvent {
    /// Of the row, by its content.
    pub key: i64,
    /// The delivery id.
    pub id: String,
    /// Timeline, commit, record and row, as text that sorts.
    pub position: String,
    /// All of its content.
    pub body: String,
}

impl CapturedEvent {
    /// The server's timeline on which it was written, and its commit.
    pub(crate) fn place(&self) -> Option<(u32, u64)> {
        let timeline = u32::from_str_radix(self.position.get(..8)?, 16).ok()?;
        let commit = u64::from_str_radix(self.position.get(8..24)?, 16).ok()?;
        Some((timeline, commit))
    }
}

/// The file beside the logs of a round.
pub(crate) const FILE: &str = "captured.json";

pub(super) fn read(folder: &Path) -> anyhow::Result<Captured> {
    let file = folder.join(FILE);
    match std::fs::read(&file) {
        Ok(text) => serde_json::from_slice(&text).context("what was captured"),
        Err(_) => Ok(Captured::default()),
    }
}
