//! What was seen around a queue.

use crate::commands::status::periodic::Failed;
use crate::commands::sync::behind::Behind;

/// What was seen. Parts that could not be looked at, because of what was found before them, are
/// absent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) server: Server,
    pub(crate) pooled: bool,
    /// Why the schema is not the one that this program knows.
    pub(crate) schema: Option<String>,
    pub(crate) rights: Option<Rights>,
    pub(crate) store: Option<Store>,
    pub(crate) holders: Vec<Holder>,
    pub(crate) unsynced: Vec<Unsynced>,
    /// Syncs with changes that are due, by their names.
    pub(crate) behind: Vec<(String, Behind)>,
    /// What fails for more seconds than this is told.
    pub(crate) older_than: f64,
}

/// A synced table whose changes do not all get jobs.
#[derive(Clone, Debug)]
pub(crate) struct Unsynced {
    pub(crate) name: String,
    /// It was dropped.
    pub(crate) is_gone: bool,
    /// The table, or those of its partitions, that lack triggers.
    pub(crate) parts: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    pub(crate) version: i32,
    pub(crate) version_name: String,
    pub(crate) fsync: bool,
    pub(crate) synchronous_commit: String,
    pub(crate) max_prepared: i32,
    pub(crate) is_replica: bool,
    /// How full its queue of notifications is, in percent.
    pub(crate) notifications: i32,
    /// Milliseconds by which its clock is ahead of ours, beyond what the way may explain.
    pub(crate) clock_ahead: i64,
    pub(crate) me: String,
    pub(crate) encoding: String,
    /// What the sessions of others do is shown to us.
    pub(crate) sees_sessions: bool,
    pub(crate) roles_missing: Vec<String>,
    /// Of our search_path: those in which everybody may create.
    pub(crate) open_schemas: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Rights {
    pub(crate) may_look: bool,
    pub(crate) may_enqueue: bool,
    pub(crate) may_work: bool,
    pub(crate) may_observe: bool,
    /// What a worker calls and this user may not.
    pub(crate) functions_lacking: Vec<String>,
    pub(crate) roles_lacking: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) needs_rebase: bool,
    pub(crate) workers: i64,
    pub(crate) has_leader: bool,
    pub(crate) has_waiting: bool,
    pub(crate) ids_behind: bool,
    /// By how much the newest time of the past is ahead of the server's clock.
    pub(crate) seconds_ahead: i64,
    /// By how much the clock is ahead of the one that old things are forgotten by.
    pub(crate) seconds_jumped: i64,
    /// Queues in which jobs wait, and on which no worker works.
    pub(crate) unworked: Vec<String>,
    pub(crate) periodic: Failed,
}

/// Somebody who keeps space from coming back.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) seconds: Option<i64>,
}
