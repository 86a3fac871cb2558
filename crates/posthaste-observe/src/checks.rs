//! Checks that only `posthaste doctor` reads: rights, triggers, locks, and checks that read whole
//! tables or need two connections.

use crate::facts::Server;

/// The oldest supported version of PostgreSQL, as `server_version_num` has it.
pub(crate) const MIN_SERVER_VERSION: i32 = 150_000;

/// The results of one-time checks, in addition to a [`Snapshot`](crate::Snapshot). Parts that could
/// not be read are absent.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    /// The server and the session.
    pub server: Server,
    /// Milliseconds by which the server's clock is ahead of this machine's, beyond the round trip
    /// of the query; negative if it is slow.
    pub clock_ahead: i64,
    /// Whether the connection goes through a transaction pooler.
    pub is_pooled: bool,
    /// Why the schema does not match this program; `None` if it does.
    pub schema: Option<String>,
    /// The rights of the role; `None` if they could not be read.
    pub rights: Option<Rights>,
    /// Whether job ids in use are above the sequence.
    pub ids_behind: bool,
    /// Whether the store was restored or copied, found by reading whole tables.
    pub needs_rebase: bool,
    /// Sessions with locks on the queue's tables.
    pub locks: Vec<TableLock>,
    /// Sessions, prepared transactions, slots and replicas that hold back vacuum.
    pub holders: Vec<posthaste::Holder>,
    /// Synced tables some of whose changes get no job.
    pub unsynced: Vec<UnsyncedTable>,
    /// Problems of captures that were caused outside of posthaste.
    pub captures: Vec<CaptureProblem>,
}

/// The rights of a role.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    /// Whether it may use the schema.
    pub use_schema: bool,
    /// Whether it may enqueue jobs.
    pub enqueue: bool,
    /// Whether it may run jobs.
    pub work: bool,
    /// Whether it may read everything.
    pub observe: bool,
    /// Whether it may read the table of synced tables.
    pub read_syncs: bool,
    /// Functions that a worker calls and this role may not execute.
    pub missing_functions: Vec<String>,
    /// Roles of posthaste that lack rights to a part of the schema.
    pub outdated_roles: Vec<String>,
}

/// A session with a lock on the queue's tables.
#[derive(Clone, Debug)]
pub struct TableLock {
    /// The name of the session.
    pub session: String,
    /// How long its transaction has been open, in seconds; `None` if it began before the clock
    /// stepped back.
    pub seconds: Option<i64>,
}

/// A problem that makes a capture incomplete or unsafe, in addition to its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaptureProblem {
    /// The publication of this capture was dropped or created again.
    Publication(String),
    /// A table that this capture publishes has lost its replica identity.
    Identity {
        /// The capture.
        capture: String,
        /// The table.
        table: String,
    },
    /// Slots may retain any amount of log.
    Limit,
    /// The slot of this capture is not synchronized to the standbys.
    Unsynchronized(String),
    /// No standby synchronizes slots.
    NoSynchronization,
    /// A standby may take over without the most recent captured changes.
    StandbysBehind,
    /// Captures wait for this slot, and no standby uses it.
    StandbyMissing(String),
}

/// A synced table some of whose changes get no job.
#[derive(Clone, Debug)]
pub struct UnsyncedTable {
    /// The name of the sync.
    pub name: String,
    /// Whether the table was dropped.
    pub is_dropped: bool,
    /// The table, or its partitions, without triggers.
    pub parts: Vec<String>,
}

impl Checks {
    /// Returns whether a [`Snapshot`](crate::Snapshot) can be read: the schema matches, the role
    /// has the rights, and the server is not a replica.
    pub fn can_observe(&self) -> bool {
        let rights = self.rights.as_ref();
        let may = rights.is_some_and(|one| one.observe && one.missing_functions.is_empty());
        self.schema.is_none() && may && !self.server.is_replica
    }
}
