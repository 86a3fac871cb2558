//! Steps of the server's clock, and failovers to a server with another clock.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::Context;
use posthaste_testkit::{PgServer, eventually};
use tokio::time::{Instant, sleep, sleep_until};

use super::faults::Struck;
use super::stage::Stage;
use crate::history::log::Log;
use crate::history::{Kind, Moment, Turn, now};

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const YEAR: i64 = 365 * 24 * HOUR;
/// The steps of the clock in seconds, one after the other; it returns between two of them.
const STEPS: [i64; 3] = [HOUR, -10 * MINUTE, YEAR];
/// The difference between the clocks of two servers, in seconds.
const APART: i64 = 10 * MINUTE;
/// How long a changed clock stays: a process that waited for it to return would be late. Following
/// a step back takes four seconds of it.
const STAYS: Duration = Duration::from_secs(4);
const STAYS_BEHIND: Duration = Duration::from_secs(9);
/// The same after a failover, including the time for workers to start and to elect a leader.
const STAYS_BEHIND_ANOTHER: Duration = Duration::from_secs(15);
/// The limit for following a step back on a busy machine.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(20);
/// Whether the store follows the server's clock: jobs scheduled now wait for their own time.
const IS_FOLLOWED: &str =
    "SELECT pg_sequence_last_value('posthaste.promote_horizon'::regclass) / 1000000.0
    <= extract(epoch FROM clock_timestamp()) + 1";

/// The clock of a server, with its past.
pub(super) struct ServerClock {
    log: Log,
    file: PathBuf,
    ahead: Arc<AtomicI64>,
    seconds: i64,
    /// The offset to which it returns, in seconds.
    right: i64,
    /// The furthest that it ever was ahead, in seconds.
    furthest: i64,
    steps: usize,
    /// Its last change.
    turned: Turn,
    is_back: bool,
}

impl ServerClock {
    /// The clock of a server with a separate clock; its files are in this folder.
    pub(super) fn new(folder: &Path, server: &PgServer) -> anyhow::Result<Self> {
        let from = now();
        let turned = Turn {
            from,
            until: from,
            seconds: 0,
            followed: None,
        };
        let mut clock = Self {
            log: Log::open(&folder.join("turns.log"))?,
            file: folder.join("clock"),
            ahead: Arc::default(),
            seconds: 0,
            right: 0,
            furthest: 0,
            steps: 0,
            turned,
            is_back: false,
        };
        clock.turn(server, 0)?;
        clock.note(None)?;
        Ok(clock)
    }

    /// The file with the microseconds that it is ahead of the machine's clock.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// The same value for this process.
    pub(super) fn ahead(&self) -> Arc<AtomicI64> {
        Arc::clone(&self.ahead)
    }

    fn turn(&mut self, server: &PgServer, seconds: i64) -> anyhow::Result<()> {
        let from = now();
        server.turn_clock(seconds)?;
        let mut turned = Turn {
            from,
            until: from,
            seconds,
            followed: None,
        };
        let ahead = turned.ahead();
        let next = self.file.with_extension("next");
        fs::write(&next, ahead.to_string())?;
        fs::rename(&next, &self.file)?;
        self.ahead.store(ahead, Ordering::Relaxed);
        self.is_back = seconds < self.seconds;
        self.seconds = seconds;
        self.furthest = self.furthest.max(seconds);
        turned.until = now();
        self.turned = turned;
        Ok(())
    }

    /// Records its last change, and when the store was seen to follow it.
    fn note(&mut self, followed: Option<Moment>) -> anyhow::Result<()> {
        self.turned.followed = followed;
        self.log.append(&self.turned)
    }

    /// Steps away from its normal offset, or back to it.
    fn step(&mut self, server: &PgServer) -> anyhow::Result<()> {
        if self.seconds != self.right {
            return self.turn(server, self.right);
        }
        let step = STEPS[self.steps % STEPS.len()];
        self.steps += 1;
        self.turn(server, self.right + step)
    }

    /// Fails over to a server whose clock is behind or ahead of the normal offset.
    pub(super) fn fail_over(
        &mut self,
        server: &PgServer,
        chance: &mut fastrand::Rng,
    ) -> anyhow::Result<()> {
        self.right += if chance.bool() { APART } else { -APART };
        self.turn(server, self.right)
    }
}

impl Stage {
    pub(super) fn step(&mut self) -> anyhow::Result<Struck> {
        let clock = self.clock.as_mut().context("the machine's clock")?;
        clock.step(&self.server)?;
        Ok(Struck::all())
    }

    /// Waits while a changed clock stays, independent of the progress of the work: the checker
    /// judges that. After a step back, waits until it is followed, and for a while after that.
    pub(super) async fn stay(&mut self, turned: Kind) -> anyhow::Result<()> {
        let Some(clock) = &self.clock else {
            return Ok(());
        };
        let stays = match turned {
            Kind::ClockStep if clock.is_back => STAYS_BEHIND,
            Kind::ClockStep => STAYS,
            Kind::Promotion => STAYS_BEHIND_ANOTHER,
            _ => return Ok(()),
        };
        let stays = Instant::now() + stays;
        let followed = match clock.is_back {
            true => self.followed().await?,
            false => None,
        };
        sleep_until(stays.max(Instant::now() + STAYS)).await;
        match &mut self.clock {
            Some(clock) => clock.note(followed),
            None => Ok(()),
        }
    }

    /// The time at which the store was seen to follow a step back; `None` if it was not.
    async fn followed(&self) -> anyhow::Result<Option<Moment>> {
        let client = self.client().await?;
        let followed = eventually(FOLLOWED_WITHIN, "the step back is followed", async || {
            Ok(client.query_one(IS_FOLLOWED, &[]).await?.get::<_, bool>(0))
        });
        Ok(followed.await.is_ok().then(now))
    }

    /// Makes everything due that a clock that was ahead has postponed.
    pub(super) async fn pass_all_times(&mut self) -> anyhow::Result<()> {
        let Some(clock) = &mut self.clock else {
            return Ok(());
        };
        clock.turn(&self.server, clock.furthest)?;
        clock.note(None)?;
        // The ticks that become due with it are enqueued.
        sleep(STAYS).await;
        Ok(())
    }
}
