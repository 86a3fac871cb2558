//! How relays go: each tells the database, and whoever asks reads it there.

use std::fmt;

use jiff::Timestamp;
use tokio_postgres::Client;

use crate::error::Error;
use crate::store::relay as store;

/// How a relay goes, since it was started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RelayStatus {
    /// Messages that the destination has.
    pub accepted: u64,
    /// Messages refused for good.
    pub refused: u64,
    /// Messages refused for now.
    pub later: u64,
    /// Messages without an answer, or that a destination took no room for, each time.
    pub unanswered: u64,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// Since when the destination does not answer, by this machine's clock; nothing while it does.
    pub down_since: Option<Timestamp>,
}

/// What a relay is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RelayState {
    /// It sends what comes.
    Up,
    /// Its destination does not answer; the jobs wait in Postgres.
    Down,
    /// Another relay drains the queue; it would take over.
    Standby,
    /// Nobody relays this queue now: its last relay has ended, or died.
    Stopped,
}

impl RelayState {
    /// As the database has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Standby => "standby",
            Self::Stopped => "stopped",
        }
    }

    /// One that a newer version wrote is not known.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let all = [Self::Up, Self::Down, Self::Standby, Self::Stopped];
        all.into_iter().find(|state| state.name() == name)
    }
}

impl fmt::Display for RelayState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a relay told last.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RelayReport {
    /// Its route, by name; empty where it has none.
    pub route: String,
    /// The queue that it relays.
    pub queue: String,
    /// The destination's kind and address, without secrets.
    pub destination: String,
    /// The worker whose relay it is, as in `posthaste.worker`.
    pub worker: i64,
    /// What it is at.
    pub state: RelayState,
    /// What it had done.
    pub status: RelayStatus,
    /// When it told, by the server's clock.
    pub told_at: Timestamp,
}

/// What the relays of all processes told last: a few seconds ago at most when something changed, half a minute ago when nothing did. Of a queue that nobody
/// relays any more the last that did is there for an hour or so.
///
/// ```no_run
/// # async fn example(client: &tokio_postgres::Client) -> Result<(), posthaste::Error> {
/// for relay in posthaste::relay::relays(client).await? {
///     println!("{} to {}: {}", relay.queue, relay.destination, relay.state);
/// }
/// # Ok(()) }
/// ```
pub async fn relays(client: &Client) -> Result<Vec<RelayReport>, Error> {
    store::relays(client).await
}
