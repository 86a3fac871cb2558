//! What was done to the processes and servers of a round.

use serde::{Deserialize, Serialize};

use super::Moment;

/// What is done to the innocent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// SIGKILL of a worker process.
    Kill,
    /// `stop -m immediate` and a new start of the server.
    Crash,
    /// `pg_terminate_backend` of a worker's or a producer's session.
    Termination,
    /// Its connections are reset.
    Cut,
    /// Its connections take bytes and deliver none.
    HalfOpen,
    /// SIGSTOP of a worker process, and SIGCONT later: for longer than it may be silent, perhaps.
    Freeze,
    /// Nobody reads a worker's log for a while, which waits for its reader: for longer than the
    /// worker may be silent, perhaps.
    Unread,
    /// A worker's connections carry nothing for a while, and lose nothing.
    Stall,
    /// A COMMIT happens and its answer is lost.
    HalfAnswer,
    /// A worker's or a relay's connections carry everything late: its leases and its signs of life
    /// too, but not as late as they are valid.
    Late,
    /// The server dies and a replica that lagged takes its place.
    Promotion,
    /// The server's clock steps.
    ClockStep,
    /// A base backup of the server is started at another port, and a process of another site there.
    Copy,
    /// SIGKILL of a relay's process.
    RelayKill,
    /// A relay's connections to a receiver's server are reset.
    RelayCut,
    /// They take bytes and deliver none.
    RelayHalfOpen,
    /// SIGKILL of a Redis that keeps what it answers for.
    RedisKill,
    /// A Redis forgets everything: FLUSHALL, or SIGKILL of one that keeps nothing.
    RedisLoss,
    /// A Redis has no room and drops nothing.
    RedisFull,
    /// SIGKILL of a RabbitMQ.
    RabbitMqKill,
    /// SIGKILL of the process of captures.
    CaptureKill,
    /// SIGSTOP of that process, and SIGCONT later.
    CaptureFreeze,
    /// Its connections to the database are reset.
    CaptureCut,
    /// They take bytes and deliver none.
    CaptureHalfOpen,
    /// SIGKILL of the Redis that receives what is captured, where there is one.
    CaptureRedisKill,
}

impl Kind {
    /// What is done to captures, in rounds of any kind.
    pub const OF_CAPTURES: [Self; 5] = [
        Self::CaptureKill,
        Self::CaptureFreeze,
        Self::CaptureCut,
        Self::CaptureHalfOpen,
        Self::CaptureRedisKill,
    ];

    /// In the ledger of what ran.
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

/// A fault that was done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fault {
    /// Which one.
    pub kind: Kind,
    /// When it began.
    pub from: Moment,
    /// When its cause was over; its effects may last.
    pub until: Moment,
    /// The place of the worker or relay (`w1`) or producer (`p0`) that it struck, or the receiver's
    /// server; none when it struck all.
    pub target: Option<String>,
    /// Of a promotion: up to where the replica had received the log.
    pub switch: Option<u64>,
}

/// The place of a process on a copy, which does nothing; others are `w0` and so on.
pub(crate) const COPY: &str = "c0";
