//! The server's clock steps, or a server with another clock takes over.

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
/// Where the clock steps to, one after the other; it comes back between two of them.
const STEPS: [i64; 3] = [HOUR, -10 * MINUTE, YEAR];
/// How far the clocks of two servers are apart.
const APART: i64 = 10 * MINUTE;
/// How long a clock that was turned stays as it is: so long that who waits for it to come back is
/// late. What is set right behind one that was ahead takes four seconds of it.
const STAYS: Duration = Duration::from_secs(4);
const STAYS_BEHIND: Duration = Duration::from_secs(9);
/// The same after a failover, with the time that workers need to begin and to elect a leader.
const STAYS_BEHIND_ANOTHER: Duration = Duration::from_secs(15);
/// How long a step back may take to be followed on a machine that is busy with something else.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(20);
/// The store goes by the time that it is there: what is scheduled now waits for its own time.
const IS_FOLLOWED: &str =
    "SELECT pg_sequence_last_value('posthaste.promote_horizon'::regclass) / 1000000.0
    <= extract(epoch FROM clock_timestamp()) + 1";

/// The clock of a server, and what it was.
pub(super) struct ServerClock {
    log: Log,
    file: PathBuf,
    ahead: Arc<AtomicI64>,
    seconds: i64,
    /// Where it comes back to.
    right: i64,
    /// As far ahead as it ever was.
    furthest: i64,
    steps: usize,
    /// As it was turned last.
    turned: Turn,
    is_back: bool,
}

impl ServerClock {
    /// The clock of a server that has its own, in this folder.
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

    /// Says how far it is ahead of the machine's, in microseconds.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// The same, for this process.
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

    /// Writes down how it was turned last, and when that was followed, if it was seen.
    fn note(&mut self, followed: Option<Moment>) -> anyhow::Result<()> {
        self.turned.followed = followed;
        self.log.append(&self.turned)
    }

    /// Away from where it is right, or back there.
    fn step(&mut self, server: &PgServer) -> anyhow::Result<()> {
        if self.seconds != self.right {
            return self.turn(server, self.right);
        }
        let step = STEPS[self.steps % STEPS.len()];
        self.steps += 1;
        self.turn(server, self.right + step)
    }

    /// A server takes over whose clock is behind or ahead of where this one is right.
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

    /// A clock that was turned stays for a while, however far the work gets: the judge will see.
    /// One that was turned back stays until that was followed, and for a while behind it.
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

    /// When the store was seen to go by a clock that was turned back, if it was.
    async fn followed(&self) -> anyhow::Result<Option<Moment>> {
        let client = self.client().await?;
        let followed = eventually(FOLLOWED_WITHIN, "the step back is followed", async || {
            Ok(client.query_one(IS_FOLLOWED, &[]).await?.get::<_, bool>(0))
        });
        Ok(followed.await.is_ok().then(now))
    }

    /// Whatever was put off by a clock that was ahead becomes due.
    pub(super) async fn pass_all_times(&mut self) -> anyhow::Result<()> {
        let Some(clock) = &mut self.clock else {
            return Ok(());
        };
        clock.turn(&self.server, clock.furthest)?;
        clock.note(None)?;
        // The ticks that come with it are enqueued.
        sleep(STAYS).await;
        Ok(())
    }
}
