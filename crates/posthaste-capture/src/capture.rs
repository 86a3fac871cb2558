//! A capture as a program describes it, and how it goes. Pure.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use posthaste::Database;
use posthaste_relay::Sender;

use crate::error::Error;
use crate::source::Source;

/// Describes a capture: what becomes jobs of which queue.
#[derive(Clone, Debug)]
pub struct Capture {
    /// Its name, by which the database knows it.
    pub name: String,
    /// The queue of its jobs.
    pub queue: String,
    /// Sends without jobs; nothing: each event becomes a job.
    pub direct: Option<Direct>,
    /// What is captured.
    pub source: Source,
    /// The slot, and the publication of the same name.
    pub slot: String,
    /// The server itself, where the database of the jobs is reached through a pooler.
    pub server: Option<Database>,
    /// What may be left as it is.
    pub options: Options,
}

/// What most captures leave as it is.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether servers from version 17 on synchronize the slot to their standbys, so that the
    /// capture goes on after a failover; nothing: where they can.
    pub failover: Option<bool>,
    /// What logical replication brought here is left out. It needs version 16.
    pub local_only: bool,
    /// The rows of an outbox are deleted once they are captured.
    pub outbox_delete: bool,
}

/// Where events go without jobs, and when they become jobs of the sender's queue all the same.
#[derive(Clone, Debug)]
pub struct Direct {
    /// Sends to the destination.
    pub sender: Sender,
    /// While the destination accepts nothing: once this much log is unconfirmed.
    pub spill_after: u64,
    /// While it takes nothing: after this time; nothing: however long it takes.
    pub spill_after_time: Option<Duration>,
    /// Once the tables of jobs are this large, no more events become jobs: the server keeps its
    /// log.
    pub spill_most: u64,
}

impl Direct {
    /// By this sender, with the default limits.
    pub fn new(sender: Sender) -> Self {
        Self {
            sender,
            spill_after: 1 << 30,
            spill_after_time: Some(Duration::from_secs(300)),
            spill_most: 20 << 30,
        }
    }
}

/// What a capture is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It connects.
    #[default]
    Connecting,
    /// It reads, and writes jobs.
    Running,
    /// It reads, and sends without jobs.
    Direct,
    /// The destination takes nothing: events wait in the server's log, and it tries again.
    Waiting,
    /// The destination takes nothing: it writes jobs of the route's queue.
    Spilling,
    /// The same, while there are as many jobs as there may be: the server keeps its log.
    Full,
    /// It waits until those jobs are sent, to send without jobs again.
    Draining,
    /// Another process runs it.
    Standby,
    /// Somebody has paused it.
    Paused,
    /// It ended; or it waits for an operator.
    Ended,
}

impl State {
    /// The path of events of a capture that sends without jobs, as the database has it.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Spilling => "spilling",
            Self::Full => "full",
            Self::Draining => "draining",
            _ => "direct",
        }
    }
}

/// How a capture goes.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// What it is doing.
    pub state: State,
    /// Events that it has sent, or written as jobs, since it was started.
    pub events: u64,
    /// Those of them that became jobs although it sends without jobs.
    pub spilled: u64,
    /// Why it did not go on the last time, while it does not.
    pub last_error: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Shared(Mutex<Status>);

impl Shared {
    pub(crate) fn set(&self, state: State) {
        let mut status = self.status();
        status.state = state;
        if matches!(state, State::Running | State::Direct) {
            status.last_error = None;
        }
    }

    pub(crate) fn count(&self, events: u64) {
        self.status().events += events;
    }

    pub(crate) fn count_spilled(&self, events: u64) {
        self.status().spilled += events;
    }

    pub(crate) fn fail(&self, error: &Error) {
        self.status().last_error = Some(error.to_string());
    }

    pub(crate) fn status(&self) -> MutexGuard<'_, Status> {
        self.0.lock()
    }
}

/// How long a capture runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Until it is stopped.
    Stopped,
    /// Until all is captured that was committed when it began.
    Caught,
}

impl Capture {
    /// Whether a name is one that a capture or its slot may have.
    pub fn is_name(name: &str) -> bool {
        let mut bytes = name.bytes();
        let first = bytes.next();
        first.is_some_and(|first| first.is_ascii_lowercase() || first == b'_')
            && bytes.all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
            && name.len() <= 40
    }
}
