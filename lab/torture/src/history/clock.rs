//! The server's separate clock, if it has one: its changes, and the ticks of the periodic job that
//! it schedules.

use serde::{Deserialize, Serialize};

use super::Moment;

/// A change of the server's clock, or a failover to a server with another clock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Turn {
    /// A time before the change.
    pub from: Moment,
    /// A time after the change.
    pub until: Moment,
    /// The seconds that it is ahead of the machine's clock from then on.
    pub seconds: i64,
    /// After a step back, the time at which the store was seen to follow it.
    #[serde(default)]
    pub followed: Option<Moment>,
}

impl Turn {
    /// The microseconds that it is ahead of the machine's clock.
    pub(crate) fn ahead(&self) -> Moment {
        self.seconds.saturating_mul(1_000_000)
    }
}

/// A run of a tick's job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tick {
    /// The tick, by the server's clock.
    pub tick: Moment,
    /// The database's ID of its job.
    pub id: i64,
    /// The worker process that ran it.
    pub worker: String,
    /// When it began.
    pub began: Moment,
}
