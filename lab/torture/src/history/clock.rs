//! The server's own clock, where it has one: when it was turned, and the ticks of the periodic job
//! that goes by it.

use serde::{Deserialize, Serialize};

use super::Moment;

/// The server's clock was turned, or another server with another clock took over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Turn {
    /// Before it was.
    pub from: Moment,
    /// When it had been.
    pub until: Moment,
    /// How far it is ahead of the machine's from then on.
    pub seconds: i64,
    /// When the store was seen to go by it, where it was turned back.
    #[serde(default)]
    pub followed: Option<Moment>,
}

impl Turn {
    /// How far it is ahead of the machine's, in microseconds.
    pub(crate) fn ahead(&self) -> Moment {
        self.seconds.saturating_mul(1_000_000)
    }
}

/// A run of a tick's job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tick {
    /// Which one, by the server's clock.
    pub tick: Moment,
    /// The database's number of its job.
    pub id: i64,
    /// The worker process that ran it.
    pub worker: String,
    /// When.
    pub began: Moment,
}
