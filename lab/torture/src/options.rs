//! Options of a run, and its plan.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use posthaste_testkit::PgVersion;
use posthaste_torture::history::Kind;
use posthaste_torture::{Counts, Plan};

/// Options of a run.
#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// SIGKILLs of worker processes
    #[arg(long, default_value_t = 200)]
    pub(crate) kills: u64,
    /// Immediate stops of the server
    #[arg(long, default_value_t = 50)]
    pub(crate) crashes: u64,
    /// Terminated sessions
    #[arg(long, default_value_t = 200)]
    pub(crate) terminations: u64,
    /// Reset connections
    #[arg(long, default_value_t = 50)]
    pub(crate) cuts: u64,
    /// Half-open connections
    #[arg(long, default_value_t = 50)]
    pub(crate) half_opens: u64,
    /// Paused worker processes, stalled links and unread logs
    #[arg(long, default_value_t = 50)]
    pub(crate) freezes: u64,
    /// Lost answers to COMMIT
    #[arg(long, default_value_t = 50)]
    pub(crate) half_answers: u64,
    /// Connections of workers with delayed answers
    #[arg(long, default_value_t = 30)]
    pub(crate) late_answers: u64,
    /// Promotions of a lagging replica
    #[arg(long, default_value_t = 10)]
    pub(crate) promotions: u64,
    /// Faults of captures, of each kind: SIGKILL, paused process, reset and half-open connections,
    /// and SIGKILL of a Redis
    #[arg(long, default_value_t = 30)]
    pub(crate) capture_faults: u64,
    /// Rounds among which these faults are divided
    #[arg(long, default_value_t = 10)]
    pub(crate) rounds: u64,
    /// SIGKILLs of relay processes
    #[arg(long, default_value_t = 50)]
    pub(crate) relay_kills: u64,
    /// Reset connections from relays to the receivers' servers
    #[arg(long, default_value_t = 50)]
    pub(crate) relay_cuts: u64,
    /// Half-open connections from relays to the receivers' servers
    #[arg(long, default_value_t = 50)]
    pub(crate) relay_half_opens: u64,
    /// SIGKILLs of a Redis that keeps its data
    #[arg(long, default_value_t = 50)]
    pub(crate) redis_kills: u64,
    /// Losses of all data of a Redis, on a route that waits for confirmation
    #[arg(long, default_value_t = 50)]
    pub(crate) redis_losses: u64,
    /// Times that a Redis is full and rejects writes
    #[arg(long, default_value_t = 50)]
    pub(crate) redis_fulls: u64,
    /// SIGKILLs of RabbitMQ
    #[arg(long, default_value_t = 50)]
    pub(crate) rabbitmq_kills: u64,
    /// Lost answers to COMMIT of producers in rounds of relays
    #[arg(long, default_value_t = 50)]
    pub(crate) relay_half_answers: u64,
    /// Connections from relays to the database with delayed answers
    #[arg(long, default_value_t = 30)]
    pub(crate) relay_late_answers: u64,
    /// Rounds of relays, among which their faults are divided
    #[arg(long, default_value_t = 5)]
    pub(crate) relay_rounds: u64,
    /// Faults of each kind in idle rounds
    #[arg(long, default_value_t = 6)]
    pub(crate) idle_faults: u64,
    /// Idle rounds, among which their faults are divided
    #[arg(long, default_value_t = 2)]
    pub(crate) idle_rounds: u64,
    /// Steps of the server's clock
    #[arg(long, default_value_t = 24)]
    pub(crate) clock_steps: u64,
    /// Promotions of a replica with a different clock; twice as many workers are killed
    #[arg(long, default_value_t = 4)]
    pub(crate) clock_promotions: u64,
    /// Rounds on servers with separate clocks, among which these faults are divided
    #[arg(long, default_value_t = 2)]
    pub(crate) clock_rounds: u64,
    /// Promotions of a replica with the slots of captures
    #[arg(long, default_value_t = 4)]
    pub(crate) failovers: u64,
    /// Rounds whose captures continue after promotions, with as many faults of captures of each
    /// kind
    #[arg(long, default_value_t = 2)]
    pub(crate) failover_rounds: u64,
    /// Server of the rounds, such as pg15; each other installed server has one more round
    #[arg(long, default_value = "pg15")]
    pub(crate) server: String,
    /// Run no rounds on other servers
    #[arg(long)]
    pub(crate) alone: bool,
    /// Seed of the random choices
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Discard an interrupted run instead of resuming it
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Check instead that every injected bug is detected
    #[arg(long)]
    pub(crate) bugs: bool,
    /// Only bugs whose name contains this text
    #[arg(long, requires = "bugs")]
    pub(crate) only: Option<String>,
    /// Folder of the state and the logs
    #[arg(long, default_value = "target/torture")]
    pub(crate) folder: PathBuf,
    /// Folder of the reports
    #[arg(long, default_value = "docs/reports")]
    pub(crate) reports: PathBuf,
}

impl RunOptions {
    /// The plan of these self.
    pub(crate) fn plan(&self) -> anyhow::Result<Plan> {
        let mut counts: Counts = [
            (Kind::Kill, self.kills),
            (Kind::Crash, self.crashes),
            (Kind::Termination, self.terminations),
            (Kind::Cut, self.cuts),
            (Kind::HalfOpen, self.half_opens),
            (Kind::Freeze, self.freezes),
            (Kind::Stall, self.freezes),
            (Kind::Unread, self.freezes),
            (Kind::HalfAnswer, self.half_answers),
            (Kind::Late, self.late_answers),
            (Kind::Promotion, self.promotions),
        ]
        .into();
        counts.extend(Kind::OF_CAPTURES.map(|kind| (kind, self.capture_faults)));
        let of_relays: Counts = [
            (Kind::RelayKill, self.relay_kills),
            (Kind::RelayCut, self.relay_cuts),
            (Kind::RelayHalfOpen, self.relay_half_opens),
            (Kind::RedisKill, self.redis_kills),
            (Kind::RedisLoss, self.redis_losses),
            (Kind::RedisFull, self.redis_fulls),
            (Kind::RabbitMqKill, self.rabbitmq_kills),
            (Kind::HalfAnswer, self.relay_half_answers),
            (Kind::Late, self.relay_late_answers),
        ]
        .into();
        let server = server(&self.server)?;
        let others: Vec<PgVersion> = PgVersion::PROMISED
            .into_iter()
            .filter(|other| {
                !self.alone && self.rounds > 0 && *other != server && other.bin().is_ok()
            })
            .collect();
        let seed = self.seed.unwrap_or_else(|| fastrand::u64(..) >> 16);
        let plan = Plan::new(seed, &counts, self.rounds, server, &others);
        let of_clocks: Counts = [
            (Kind::ClockStep, self.clock_steps),
            (Kind::Promotion, self.clock_promotions),
            (Kind::Kill, 2 * self.clock_promotions),
        ]
        .into();
        // Older servers synchronize no slots.
        let failing = match server {
            PgVersion::V15 | PgVersion::V16 => PgVersion::V18,
            newer => newer,
        };
        let failover_rounds = match failing.bin() {
            Ok(_) => self.failover_rounds,
            Err(_) => 0,
        };
        let of_idle = [Kind::Kill, Kind::Termination, Kind::Cut, Kind::Late];
        let of_idle: Counts = of_idle.map(|kind| (kind, self.idle_faults)).into();
        Ok(plan
            .with_relays(&of_relays, self.relay_rounds, server)
            .with_idle(&of_idle, self.idle_rounds, server)
            .with_clocks(&of_clocks, self.clock_rounds, server)
            .with_failovers(&self.failover_counts(), failover_rounds, failing))
    }

    fn failover_counts(&self) -> Counts {
        let kinds = [Kind::Promotion, Kind::Crash, Kind::Kill].into_iter();
        let kinds = kinds.chain(Kind::OF_CAPTURES);
        kinds.map(|kind| (kind, self.failovers)).collect()
    }
}

/// The server of this name.
pub(crate) fn server(name: &str) -> anyhow::Result<PgVersion> {
    let mut all = PgVersion::PROMISED.into_iter();
    all.find(|version| version.name() == name)
        .with_context(|| format!("no such server: {name}"))
}
