//! Captures as an operator sees them. Pure.

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::lsn::Lsn;

/// How a capture stands, whoever runs it.
#[derive(Clone, Debug, Serialize)]
pub struct Overview {
    /// Its name.
    pub name: String,
    /// Its slot.
    pub slot: String,
    /// Its publication.
    pub publication: String,
    /// Since when it is installed.
    #[serde(serialize_with = "text")]
    pub installed_at: Timestamp,
    /// When a process last began to run it.
    #[serde(serialize_with = "optional_text")]
    pub started_at: Option<Timestamp>,
    /// Why it does not go on before somebody acts.
    pub stopped: Option<String>,
    /// Whether a process reads from its slot.
    pub is_active: bool,
    /// Whether its slot is missing.
    pub is_missing: bool,
    /// How the server keeps its log.
    pub wal_status: String,
    /// All that was committed before this place is captured.
    pub done: Option<String>,
    /// When that was written down.
    #[serde(serialize_with = "optional_text")]
    pub marked_at: Option<Timestamp>,
    /// How much log was written since.
    pub unconfirmed_bytes: Option<i64>,
    /// How much log the server keeps for it.
    pub retained_bytes: Option<i64>,
    /// Gaps that nobody has accepted.
    pub gaps: i64,
    /// Since when it is paused.
    #[serde(serialize_with = "optional_text")]
    pub paused_at: Option<Timestamp>,
    /// Events that it has sent, or written as jobs, since it was installed or begun again.
    pub events: i64,
    /// The bytes of these events, about.
    pub bytes: i64,
    /// Commits that are older than this are captured; 0 while it keeps up.
    pub lag_seconds: Option<f64>,
    /// Rows that copies have handed out that have not ended.
    pub copied_rows: Option<i64>,
    /// About how many they are to hand out.
    pub copy_rows: Option<i64>,
    /// Why a copy does not go on.
    pub copy_problem: Option<String>,
    /// Of one that sends without jobs: `direct`; `waiting` while the destination takes nothing and
    /// events wait in the server's log; `spilling` while its events become jobs all the
    /// same; `full` while there are as many jobs as there may be; `draining` while events wait
    /// until the last of those is sent.
    pub path: Option<String>,
    /// Since when its events are not sent directly.
    #[serde(serialize_with = "optional_text")]
    pub indirect_since: Option<Timestamp>,
    /// Why the destination took nothing, since then.
    pub path_problem: Option<String>,
}

impl Overview {
    /// Whether it needs somebody: it has stopped, or its slot is lost.
    pub fn is_stopped(&self) -> bool {
        self.stopped.is_some() || self.is_missing || self.wal_status == "lost"
    }

    /// What it is doing, in a word or two.
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

/// A copy of rows that were there.
#[derive(Clone, Debug, Serialize)]
pub struct Copying {
    /// Its number.
    pub id: i64,
    /// When somebody asked for it.
    #[serde(serialize_with = "text")]
    pub begun_at: Timestamp,
    /// When it ended.
    #[serde(serialize_with = "optional_text")]
    pub ended_at: Option<Timestamp>,
    /// Rows that it has handed out.
    pub rows: i64,
    /// About how many rows the table had when it began.
    pub expected: i64,
    /// Somebody ended it.
    pub is_cancelled: bool,
    /// The capture.
    pub capture: String,
    /// The table.
    pub table: String,
    /// Rows for which this SQL expression is true.
    pub filter: Option<String>,
    /// Why it does not go on.
    pub problem: Option<String>,
}

/// A part of the log that nobody captured.
#[derive(Clone, Debug, Serialize)]
pub struct Gap {
    /// Its number.
    pub id: i64,
    /// When it was found.
    #[serde(serialize_with = "text")]
    pub seen_at: Timestamp,
    /// When somebody accepted it.
    #[serde(serialize_with = "optional_text")]
    pub accepted_at: Option<Timestamp>,
    /// Where it begins.
    pub begins: String,
    /// Where it ends; nothing before the capture has begun again.
    pub ends: Option<String>,
    /// The capture.
    pub capture: String,
    /// How it came to be.
    pub reason: String,
    /// The tables of which changes may be missing.
    pub tables: Vec<String>,
    /// Who accepted it.
    pub accepted_by: Option<String>,
}

/// What an installation has made.
#[derive(Clone, Debug, Serialize)]
pub struct Installation {
    /// The capture.
    pub name: String,
    /// The slot.
    pub slot: String,
    /// Nothing was missing.
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
