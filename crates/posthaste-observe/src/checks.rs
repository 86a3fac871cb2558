//! What only `posthaste doctor` reads: rights, triggers, locks, and whatever reads whole tables or
//! needs two connections.

use crate::facts::Server;

/// The oldest version of Postgres that is supported.
pub(crate) const OLDEST: i32 = 150_000;

/// What was checked once, beside a [`Snapshot`](crate::Snapshot). Parts that could not be read are
/// absent.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    /// The server and the session.
    pub server: Server,
    /// Milliseconds by which the server's clock is ahead of this machine's, beyond what the time of
    /// the question explains.
    pub clock_ahead: i64,
    /// The connection goes through a transaction pooler.
    pub is_pooled: bool,
    /// Why the schema does not match this program.
    pub schema: Option<String>,
    /// What the role may do.
    pub rights: Option<Rights>,
    /// Job ids in use are above the sequence.
    pub ids_behind: bool,
    /// It was restored or copied, by a thorough search.
    pub needs_rebase: bool,
    /// Sessions with locks on the queue's tables.
    pub locks: Vec<Lock>,
    /// Those that hold back vacuum.
    pub holders: Vec<posthaste::Holder>,
    /// Synced tables whose changes do not all get jobs.
    pub unsynced: Vec<UnsyncedTable>,
    /// What others did to captures.
    pub captures: Vec<CaptureProblem>,
}

/// What the role may do.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    /// Use the schema.
    pub use_schema: bool,
    /// Enqueue jobs.
    pub enqueue: bool,
    /// Run jobs.
    pub work: bool,
    /// Read everything.
    pub observe: bool,
    /// Read the table of synced tables.
    pub read_syncs: bool,
    /// Functions that a worker calls and the role may not.
    pub missing_functions: Vec<String>,
    /// Roles of posthaste that lack rights.
    pub outdated_roles: Vec<String>,
}

/// A session with a lock on the queue's tables.
#[derive(Clone, Debug)]
pub struct Lock {
    /// The session.
    pub session: String,
    /// For how long; nothing where it began before the clock stepped back.
    pub seconds: Option<i64>,
}

/// What keeps a capture from being complete or safe, beside its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaptureProblem {
    /// The publication of this capture was dropped, or made anew.
    Publication(String),
    /// A table that this capture publishes has lost its replica identity.
    Identity {
        /// The capture.
        capture: String,
        /// The table.
        table: String,
    },
    /// Slots may keep any amount of log.
    Limit,
    /// The slot of this capture is not synchronized to the standbys.
    Unsynchronized(String),
    /// No standby synchronizes slots.
    NoSynchronization,
    /// A standby may lack what was captured when it takes over.
    StandbysBehind,
    /// Captures wait for this slot, which no standby uses.
    StandbyMissing(String),
}

/// A synced table whose changes do not all get jobs.
#[derive(Clone, Debug)]
pub struct UnsyncedTable {
    /// The sync.
    pub name: String,
    /// The table was dropped.
    pub is_dropped: bool,
    /// The table, or those of its partitions, that lack triggers.
    pub parts: Vec<String>,
}

impl Checks {
    /// Whether a [`Snapshot`](crate::Snapshot) can be read.
    pub fn can_observe(&self) -> bool {
        let rights = self.rights.as_ref();
        let may = rights.is_some_and(|one| one.observe && one.missing_functions.is_empty());
        self.schema.is_none() && may && !self.server.is_replica
    }
}
