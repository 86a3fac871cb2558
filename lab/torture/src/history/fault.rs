//! Faults of the processes and servers of a round.

use serde::{Deserialize, Serialize};

use super::Moment;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// SIGKILL of a worker process.
    Kill,
    /// `stop -m immediate` and a restart of the server.
    Crash,
    /// `pg_terminate_backend` of a worker's or a producer's session.
    Termination,
    /// A worker's or a producer's connections are reset.
    Cut,
    /// A worker's or a producer's connections accept bytes and deliver none.
    HalfOpen,
    /// SIGSTOP of a worker process, and SIGCONT later: possibly after its lease has expired.
    Freeze,
    /// A worker's log is not read for a while, so that its writes block: possibly for longer than
    /// its lease.
    Unread,
    /// A worker's connections deliver nothing for a while, and lose nothing.
    Stall,
    /// A COMMIT succeeds and its answer is lost.
    HalfAnswer,
    /// A worker's or a relay's connections deliver everything late, including leases and
    /// heartbeats, but within their validity.
    Late,
    /// The server dies and a lagging replica takes its place.
    Promotion,
    /// The server's clock steps.
    ClockStep,
    /// A base backup of the server is started at another port, with a process of another site.
    Copy,
    /// SIGKILL of a relay's process.
    RelayKill,
    /// A relay's connections to a receiver's server are reset.
    RelayCut,
    /// A relay's connections to a receiver's server accept bytes and deliver none.
    RelayHalfOpen,
    /// SIGKILL of a Redis that persists what it acknowledges.
    RedisKill,
    /// A Redis loses all its data: FLUSHALL, or SIGKILL of one that does not persist.
    RedisLoss,
    /// A Redis is out of memory and evicts nothing.
    RedisFull,
    /// SIGKILL of a RabbitMQ.
    RabbitMqKill,
    /// SIGKILL of the capture process.
    CaptureKill,
    /// SIGSTOP of the capture process, and SIGCONT later.
    CaptureFreeze,
    /// The capture process's connections to the database are reset.
    CaptureCut,
    /// The capture process's connections to the database accept bytes and deliver none.
    CaptureHalfOpen,
    /// SIGKILL of the Redis that receives captured events, if there is one.
    CaptureRedisKill,
}

impl Kind {
    /// The faults of captures, in rounds of any kind.
    pub const OF_CAPTURES: [Self; 5] = [
        Self::CaptureKill,
        Self::CaptureFreeze,
        Self::CaptureCut,
        Self::CaptureHalfOpen,
        Self::CaptureRedisKill,
    ];

    /// The name in the ledger of what ran.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "kills",
            Self::Crash => "crashes",
            Self::Termination => "terminations",
            Self::Cut => "cuts",
            Self::HalfOpen => "half-opens",
            Self::Freeze => "freezes",
            Self::Unread => "unread-logs",
            Self::Stall => "stalls",
            Self::HalfAnswer => "half-answers",
            Self::Late => "late-answers",
            Self::Promotion => "promotions",
            Self::ClockStep => "clock-steps",
            Self::Copy => "copies",
            Self::RelayKill => "relay-kills",
            Self::RelayCut => "relay-cuts",
            Self::RelayHalfOpen => "relay-half-opens",
            Self::RedisKill => "redis-kills",
            Self::RedisLoss => "redis-losses",
            Self::RedisFull => "redis-fulls",
            Self::RabbitMqKill => "rabbitmq-kills",
            Self::CaptureKill => "capture-kills",
            Self::CaptureFreeze => "capture-freezes",
            Self::CaptureCut => "capture-cuts",
            Self::CaptureHalfOpen => "capture-half-opens",
            Self::CaptureRedisKill => "capture-redis-kills",
        }
    }
}

/// A fault that was injected.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fault {
    /// Its kind.
    pub kind: Kind,
    /// When it began.
    pub from: Moment,
    /// When its cause ended; its effects may last longer.
    pub until: Moment,
    /// The place of the worker or relay (`w1`) or producer (`p0`) that it hit, or the receiver's
    /// server; `None` if it hit all.
    pub target: Option<String>,
    /// For a promotion: the position up to which the replica had received the log.
    pub switch: Option<u64>,
}

/// The place of a process on a copy, which must do nothing; others are `w0` and so on.
pub(crate) const COPY: &str = "c0";
