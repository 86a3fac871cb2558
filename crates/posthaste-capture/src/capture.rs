//! The description and the status of a capture. Pure.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use posthaste::Database;
use posthaste_relay::Sender;

use crate::error::Error;
use crate::source::Source;

/// Describes a capture: its source and its queue.
#[derive(Clone, Debug)]
pub struct Capture {
    /// The name under which the database knows it.
    pub name: String,
    /// The queue of its jobs.
    pub queue: String,
    /// Sends events without jobs; `None`: each event becomes a job.
    pub direct: Option<Direct>,
    /// The source of its events.
    pub source: Source,
    /// The name of its slot and its publication.
    pub slot: String,
    /// A direct connection to the server, if the database is reached through a pooler.
    pub server: Option<Database>,
    /// Settings with defaults.
    pub options: Options,
}

/// Settings with defaults.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether the server synchronizes the slot to its standbys, so that the capture continues
    /// after a failover. Needs PostgreSQL 17; `None`: if the server can.
    pub failover: Option<bool>,
    /// Leaves out changes that logical replication applied here. Needs PostgreSQL 16.
    pub local_only: bool,
    /// Deletes rows of the outbox once they are captured.
    pub outbox_delete: bool,
}

/// The destination of events that are sent without jobs, and when they become jobs instead.
#[derive(Clone, Debug)]
pub struct Direct {
    /// Sends to the destination.
    pub sender: Sender,
    /// Spills once this much log is unconfirmed while the destination accepts nothing, in bytes.
    pub spill_after: u64,
    /// Spills after the destination has accepted nothing for this long; `None`: never by time.
    pub spill_after_time: Option<Duration>,
    /// Stops spilling once the tables of jobs are this large, in bytes: the server keeps its log.
    pub spill_most: u64,
}

impl Direct {
    /// Sends by this sender, with the default limits.
    pub fn new(sender: Sender) -> Self {
        Self {
            sender,
            spill_after: 1 << 30,
            spill_after_time: Some(Duration::from_secs(300)),
            spill_most: 20 << 30,
        }
    }
}

/// The state of a running capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It connects.
    #[default]
    Connecting,
    /// It reads, and writes jobs.
    Running,
    /// It reads, and sends events without jobs.
    Direct,
    /// The destination accepts nothing: events wait in the server's log, and sending is retried.
    Waiting,
    /// The destination accepts nothing: events become jobs of the route's queue.
    Spilling,
    /// As spilling, and `spill_most` is reached: the server keeps its log.
    Full,
    /// Events wait until the relay has sent those jobs.
    Draining,
    /// Another process runs it.
    Standby,
    /// An operator paused it.
    Paused,
    /// It ended, or needs an operator.
    Ended,
}

impl State {
    /// The value of the column `path` for a capture that sends without jobs.
    pub(crate) const fn path_name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Spilling => "spilling",
            Self::Full => "full",
            Self::Draining => "draining",
            _ => "direct",
        }
    }
}

/// The status of a running capture.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Its state.
    pub state: State,
    /// Events that it sent or wrote as jobs since it was started.
    pub events: u64,
    /// The events among them that were spilled.
    pub spilled: u64,
    /// The last error, until it continues.
    pub last_error: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct SharedStatus(Mutex<Status>);

impl SharedStatus {
    pub(crate) fn set_state(&self, state: State) {
        let mut status = self.status();
        status.state = state;
        if matches!(state, State::Running | State::Direct) {
            status.last_error = None;
        }
    }

    pub(crate) fn count_events(&self, events: u64) {
        self.status().events += events;
    }

    pub(crate) fn count_spilled(&self, events: u64) {
        self.status().spilled += events;
    }

    pub(crate) fn record_error(&self, error: &Error) {
        self.status().last_error = Some(error.to_string());
    }

    pub(crate) fn status(&self) -> MutexGuard<'_, Status> {
        self.0.lock()
    }
}

/// When a capture ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// When it is stopped.
    Stopped,
    /// When it has captured everything committed before it began.
    Caught,
}

impl Capture {
    /// Whether a capture or its slot may have this name.
    pub fn is_valid_name(name: &str) -> bool {
        let mut bytes = name.bytes();
        let first = bytes.next();
        first.is_some_and(|first| first.is_ascii_lowercase() || first == b'_')
            && bytes.all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
            && name.len() <= 40
    }
}
