//! Captures, copies and gaps as an operator sees them. Pure.

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::lsn::Lsn;

/// What pausing or resuming a capture did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseOutcome {
    /// It is paused or resumed now.
    Changed,
    /// It was so already.
    Unchanged,
    /// No capture of this name is installed.
    NoCapture,
}

/// The state of a capture, from the database.
#[derive(Clone, Debug, Serialize)]
pub struct Overview {
    /// Its name.
    pub name: String,
    /// Its slot.
    pub slot: String,
    /// Its publication.
    pub publication: String,
    /// When it was installed.
    #[serde(serialize_with = "text")]
    pub installed_at: Timestamp,
    /// When a process last started it.
    #[serde(serialize_with = "optional_text")]
    pub started_at: Option<Timestamp>,
    /// Why it is stopped until an operator acts.
    pub stopped: Option<String>,
    /// Whether a process reads from its slot.
    pub is_active: bool,
    /// Whether its slot is missing.
    pub is_missing: bool,
    /// `wal_status` of the slot.
    pub wal_status: String,
    /// Everything committed before this place is captured.
    pub done: Option<String>,
    /// When that was recorded.
    #[serde(serialize_with = "optional_text")]
    pub marked_at: Option<Timestamp>,
    /// Bytes of log since then.
    pub unconfirmed_bytes: Option<i64>,
    /// Bytes of log that the server keeps for it.
    pub retained_bytes: Option<i64>,
    /// Gaps that are not accepted.
    pub gaps: i64,
    /// When it was paused.
    #[serde(serialize_with = "optional_text")]
    pub paused_at: Option<Timestamp>,
    /// Events that it sent or wrote as jobs since it was installed or begun again.
    pub events: i64,
    /// The approximate bytes of these events.
    pub bytes: i64,
    /// The lag in seconds: older commits are captured. 0 while it keeps up.
    pub lag_seconds: Option<f64>,
    /// Rows that the running copies have delivered.
    pub copied_rows: Option<i64>,
    /// The approximate rows of the running copies.
    pub copy_rows: Option<i64>,
    /// Why a copy is stopped.
    pub copy_problem: Option<String>,
    /// The path of a capture that sends without jobs: `direct`; `waiting` while the destination
    /// accepts nothing and events wait in the server's log; `spilling` while events become jobs;
    /// `full` while `spill_most` is reached; `draining` while events wait until the last of those
    /// jobs is sent.
    pub path: Option<String>,
    /// Since when its events are not sent directly.
    #[serde(serialize_with = "optional_text")]
    pub indirect_since: Option<Timestamp>,
    /// Why the destination accepts nothing.
    pub path_problem: Option<String>,
}

impl Overview {
    /// Whether it needs an operator: it is stopped, or its slot is lost.
    pub fn is_stopped(&self) -> bool {
        self.stopped.is_some() || self.is_missing || self.wal_status == "lost"
    }

    /// Its state in a word or two.
    pub fn state(&self) -> &'static str {
        if self.is_stopped() {
            "stopped"
        } else if self.paused_at.is_some() {
            "paused"
        } else if self.is_active {
            match self.path.as_deref() {
                Some("direct") => "direct",
                Some("waiting") => "waiting",
                Some("spilling") => "spilling",
                Some("full") => "full",
                Some("draining") => "draining",
                _ if self.copied_rows.is_some() && self.copy_problem.is_none() => "copying",
                _ => "running",
            }
        } else {
            "not running"
        }
    }
}

/// A copy of the existing rows of a table.
#[derive(Clone, Debug, Serialize)]
pub struct CopyOverview {
    /// Its id.
    pub id: i64,
    /// When it was requested.
    #[serde(serialize_with = "text")]
    pub begun_at: Timestamp,
    /// When it ended.
    #[serde(serialize_with = "optional_text")]
    pub ended_at: Option<Timestamp>,
    /// Rows that it delivered.
    pub rows: i64,
    /// The approximate rows of the table when it began.
    pub expected: i64,
    /// It was cancelled.
    pub is_cancelled: bool,
    /// The capture.
    pub capture: String,
    /// The table.
    pub table: String,
    /// It copies rows for which this SQL expression is true.
    pub filter: Option<String>,
    /// Why it is stopped.
    pub problem: Option<String>,
}

/// A part of the log that was not captured.
#[derive(Clone, Debug, Serialize)]
pub struct Gap {
    /// Its id.
    pub id: i64,
    /// When it was found.
    #[serde(serialize_with = "text")]
    pub seen_at: Timestamp,
    /// When it was accepted.
    #[serde(serialize_with = "optional_text")]
    pub accepted_at: Option<Timestamp>,
    /// Where it begins.
    pub begins: String,
    /// Where it ends; `None` until the capture begins again.
    pub ends: Option<String>,
    /// The capture.
    pub capture: String,
    /// Its cause.
    pub reason: String,
    /// The tables whose changes may be missing.
    pub tables: Vec<String>,
    /// Who accepted it.
    pub accepted_by: Option<String>,
}

/// The result of an installation.
#[derive(Clone, Debug, Serialize)]
pub struct Installation {
    /// The capture.
    pub name: String,
    /// The slot.
    pub slot: String,
    /// Whether everything existed.
    pub was_there: bool,
    /// Where it begins.
    #[serde(serialize_with = "text")]
    pub begins: Lsn,
}

fn text<T: std::fmt::Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

fn optional_text<S: Serializer>(value: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => to.collect_str(value),
        None => to.serialize_none(),
    }
}
