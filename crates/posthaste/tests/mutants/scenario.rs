//! Short histories with a known outcome, each for moments that the stress meets only by luck.

mod batch;
mod clock;
mod fence;
mod lanes;
mod order;
mod promotion;
mod ready_log;
mod site;
mod tick;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use crate::counters::agreement;
use crate::stress;
use crate::stress::settings::Settings;

/// A history to be played against a fresh store; the error is the deviation.
pub struct Scenario {
    pub name: &'static str,
    /// The mutations by which sessions can be made to wait.
    pub gates: &'static [&'static str],
    pub play: fn(String) -> LocalBoxFuture<'static, anyhow::Result<()>>,
}

impl Scenario {
    const fn new(
        name: &'static str,
        play: fn(String) -> LocalBoxFuture<'static, anyhow::Result<()>>,
    ) -> Self {
        Self {
            name,
            gates: &[],
            play,
        }
    }

    const fn gated(self, gates: &'static [&'static str]) -> Self {
        Self { gates, ..self }
    }
}

/// The stress, shortened.
pub const STRESS: Scenario = Scenario::new("the stress", |url| {
    async move { stressed(url, Settings::short()).await }.boxed_local()
});

/// The stress with claims in REPEATABLE READ, which the store itself rejects.
pub const REPEATABLE_READ: Scenario = Scenario::new("claims in REPEATABLE READ", |url| {
    async move {
        stressed(
            url,
            Settings {
                claim_isolation: "REPEATABLE READ",
                ..Settings::short()
            },
        )
        .await
    }
    .boxed_local()
});

/// The stress, while one task counts in small steps and another compares the counters with the
/// view.
pub const COUNTED: Scenario = Scenario::new("the counters under stress", |url| {
    async move {
        let compared = agreement::under_stress(&url, Settings::short()).await;
        compared.map(drop).map_err(anyhow::Error::msg)
    }
    .boxed_local()
});

/// Jobs that are cancelled where they wait, before or after they were counted.
pub const CLOSED_UNCLAIMED: Scenario = Scenario::new("counted and closed unclaimed", |url| {
    async move {
        agreement::after_closes_of_unclaimed_jobs(&url)
            .await
            .map_err(anyhow::Error::msg)
    }
    .boxed_local()
});

/// A lane that is counted and claimed alternately, with a late commit.
pub const COUNTED_LATE: Scenario = Scenario::new("counted and committed late", |url| {
    async move {
        agreement::after_a_late_commit(&url)
            .await
            .map_err(anyhow::Error::msg)
    }
    .boxed_local()
});

/// Jobs of one ordering key, counted while they wait for their turns.
pub const COUNTED_TURNS: Scenario = Scenario::new("counted and in turn", |url| {
    async move {
        agreement::after_turns(&url)
            .await
            .map_err(anyhow::Error::msg)
    }
    .boxed_local()
});

async fn stressed(url: String, settings: Settings) -> anyhow::Result<()> {
    match stress::run(&url, settings).await {
        Ok(_) => Ok(()),
        Err(finding) => Err(anyhow::anyhow!(finding)),
    }
}

pub use batch::*;
pub use clock::*;
pub use fence::*;
pub use lanes::*;
pub use order::*;
pub use promotion::*;
pub use ready_log::*;
pub use site::*;
pub use tick::*;

/// All scenarios that the store itself must pass in an ordinary test run; the plain stress has a
/// separate test.
pub const ALL: &[Scenario] = &[
    SEALED_BEFORE_THE_LOCK,
    SEALED_BEFORE_THE_ROW,
    SEALED_UNDER_AN_OPEN_TRANSACTION,
    FULL_READY_LOG,
    SPLIT_BATCH,
    SPLITTING_BATCH,
    BATCH_CLOSED_AGAIN,
    MOVED_TO_OVERFLOW,
    FOREIGN_ACKNOWLEDGEMENT,
    REUSED_NUMBER,
    CLAIM_AND_SETTLE_AT_ONCE,
    IN_FLIGHT_AND_RELEASED,
    FRESH_HEARTBEAT,
    LONG_NAMES,
    LONG_WINDOW,
    SLOW_EMPTY_SCAN,
    LATE_TO_THE_LOCK,
    STALE_CURSOR_SNAPSHOT,
    CLOSED_SCHEDULED_SEGMENT,
    LOST_TRUNCATION,
    ONE_INSTANT,
    LATE_COMMITS,
    UNEVEN_SLOT,
    DUE_AFTER_PUBLISHING,
    XID_BEFORE_PROMOTER,
    CLOCK_STEPS_BACK,
    CLOCK_WAS_AHEAD,
    EXPIRED_AHEAD_OF_TIME,
    ORDERING,
    CLOSED_UNCLAIMED,
    COUNTED_LATE,
    COUNTED_TURNS,
    TICK,
    SITES,
    ADOPTED,
];
