//! The faults, and their implementation.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Context, bail};
use posthaste_testkit::{RequestMatcher, connect, eventually};
use tokio::time::{Instant, sleep};

use super::progress::Progress;
use super::stage::{QUIET, SOON, Stage, WORKERS};
use crate::history::{Fault, Kind, Moment, now};

/// Longer than a worker waits for an answer before it closes its connection, in microseconds.
pub(super) const SILENCE: Moment = 35_000_000;

/// Milliseconds for which a worker is paused: up to more than the time after which its jobs are
/// rescued.
pub(super) const SILENT: Range<u64> = 50..7_000;

/// A fault that was injected.
pub(super) struct Struck {
    target: Option<String>,
    /// How long its effects last after its end, in microseconds.
    beyond: Moment,
    switch: Option<u64>,
}

impl Struck {
    pub(super) fn all() -> Self {
        Self {
            target: None,
            beyond: 0,
            switch: None,
        }
    }

    pub(super) fn one(target: String) -> Self {
        Self {
            target: Some(target),
            ..Self::all()
        }
    }

    /// Sets how long its effects last after its end.
    pub(super) fn beyond(self, beyond: Moment) -> Self {
        Self { beyond, ..self }
    }
}

impl Stage {
    /// Injects the fault.
    pub(super) async fn strike(
        &mut self,
        kind: Kind,
        chance: &mut fastrand::Rng,
        progress: &Progress,
    ) -> anyhow::Result<Fault> {
        self.heed()?;
        let from = now();
        let struck = match kind {
            Kind::Kill | Kind::RelayKill => self.kill_one(chance).await,
            Kind::Crash => self.crash(),
            Kind::Termination => self.terminate_one().await,
            Kind::Cut => self.cut_one(chance).await,
            Kind::HalfOpen => self.half_open_one(chance).await,
            Kind::Freeze => self.freeze_one(chance).await,
            Kind::Unread => self.leave_unread(chance).await,
            Kind::Stall => self.stall_one(chance).await,
            Kind::HalfAnswer => self.lose_an_answer(chance).await,
            Kind::Late => self.answer_late(chance).await,
            Kind::Promotion => self.promote(chance, progress).await,
            Kind::ClockStep => self.step(),
            Kind::Copy => self.copy().await,
            kind if Kind::OF_CAPTURES.contains(&kind) => self.captures.strike(kind, chance).await,
            of_relays => match &self.behind {
                Some(behind) => behind.strike(of_relays, chance).await,
                None => bail!("there are no relays in this round"),
            },
        };
        let Struck {
            target,
            beyond,
            switch,
        } = struck.with_context(|| format!("{kind:?}"))?;
        Ok(Fault {
            kind,
            from,
            until: now() + beyond,
            target,
            switch,
        })
    }

    async fn kill_one(&mut self, chance: &mut fastrand::Rng) -> anyhow::Result<Struck> {
        let place = chance.usize(0..WORKERS);
        self.kill(place)?;
        sleep(Duration::from_millis(chance.u64(0..200))).await;
        self.spawn(place)?;
        Ok(Struck::one(format!("w{place}")))
    }

    fn crash(&self) -> anyhow::Result<Struck> {
        tokio::task::block_in_place(|| {
            self.server.stop_immediate()?;
            self.server.restart()
        })?;
        Ok(Struck::all())
    }

    async fn terminate_one(&self) -> anyhow::Result<Struck> {
        let client = self.client().await?;
        let sql = "SELECT application_name, pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND application_name ~ '^[wpk][0-9]'
               ORDER BY random() LIMIT 1";
        let mut name = String::new();
        eventually(SOON, "somebody is there", async || {
            let row = client.query_opt(sql, &[]).await?;
            let Some(row) = row.filter(|row| row.get(1)) else {
                return Ok(false);
            };
            name = row.get(0);
            Ok(true)
        })
        .await?;
        let place = name.split('.').next().unwrap_or_default();
        Ok(Struck::one(place.to_owned()))
    }

    fn name(link: usize) -> String {
        match link.checked_sub(WORKERS) {
            None => format!("w{link}"),
            Some(producer) => format!("p{producer}"),
        }
    }

    async fn cut_one(&self, chance: &mut fastrand::Rng) -> anyhow::Result<Struck> {
        let link = chance.usize(0..self.links.len());
        if chance.bool() {
            self.links[link].reset();
        } else {
            self.links[link].cut().await;
            sleep(Duration::from_millis(chance.u64(0..400))).await;
            self.links[link].restore().await?;
        }
        Ok(Struck::one(Self::name(link)))
    }

    /// Half of the half-open connections are reset later, as by a router that lost their state; the
    /// others never are.
    async fn half_open_one(&self, chance: &mut fastrand::Rng) -> anyhow::Result<Struck> {
        let link = chance.usize(0..self.links.len());
        self.links[link].half_open();
        sleep(Duration::from_millis(chance.u64(50..1_500))).await;
        self.links[link].restore().await?;
        let mut struck = Struck::one(Self::name(link));
        if chance.bool() {
            self.links[link].reset();
        } else {
            struck.beyond = SILENCE;
        }
        Ok(struck)
    }

    async fn freeze_one(&mut self, chance: &mut fastrand::Rng) -> anyhow::Result<Struck> {
        let place = chance.usize(0..WORKERS);
        let time = Duration::from_millis(chance.u64(SILENT));
        self.freeze(place, time).await?;
        Ok(Struck::one(format!("w{place}")))
    }

    async fn leave_unread(&mut self, chance: &mut fastrand::Rng) -> anyhow::Result<Struck> {
        let place = chance.usize(0..WORKERS);
        let time = Duration::from_millis(chance.u64(SILENT));
        self.leave_log_unread(place, time).await?;
        Ok(Struck::one(format!("w{place}")))
    }

    async fn stall_one(&self, chance: &mut fastrand::Rng) -> anyhow::Result<Struck> {
        let place = chance.usize(0..WORKERS);
        self.links[place].stall();
        sleep(Duration::from_millis(chance.u64(SILENT))).await;
        self.links[place].restore().await?;
        Ok(Struck::one(Self::name(place)))
    }

    /// With relays, the answer is lost by a producer: no receiver can report whether a relay got an
    /// answer. Producers pause during a large backlog, which may last as long as the effects of
    /// earlier faults.
    async fn lose_an_answer(&self, chance: &mut fastrand::Rng) -> anyhow::Result<Struck> {
        let first = if self.behind.is_some() { WORKERS } else { 0 };
        let begun = Instant::now();
        while begun.elapsed() < QUIET {
            let link = chance.usize(first..self.links.len());
            let lost = self.links[link].drop_answer_to(RequestMatcher::commit());
            if lost.wait(Duration::from_millis(500)).await.is_ok() {
                return Ok(Struck::one(Self::name(link)));
            }
            // No COMMIT is sent at the moment: the interception is removed.
            self.links[link].restore().await?;
        }
        bail!("nobody commits any more")
    }

    /// Delays each direction by up to half a second for a while. Reconnecting and sending a
    /// heartbeat takes two round trips, half of the time after which a worker's jobs are rescued,
    /// so this excuses nothing.
    async fn answer_late(&mut self, chance: &mut fastrand::Rng) -> anyhow::Result<Struck> {
        let place = chance.usize(0..WORKERS);
        self.links[place].delay(Duration::from_millis(chance.u64(100..500)));
        sleep(Duration::from_millis(chance.u64(1_000..6_000))).await;
        self.links[place].restore().await?;
        Ok(Struck::one(Self::name(place)))
    }

    /// A replica receives nothing for a while, the server dies, and the replica takes its place.
    /// The old workers are ended, as the documentation requires.
    async fn promote(
        &mut self,
        chance: &mut fastrand::Rng,
        progress: &Progress,
    ) -> anyhow::Result<Struck> {
        let replica = self.start_replica().await?;
        let there = connect(&replica.url("postgres")).await?;
        let streams = "SELECT count(*) FROM pg_stat_wal_receiver WHERE status = 'streaming'";
        let receivers =
            async || -> anyhow::Result<i64> { Ok(there.query_one(streams, &[]).await?.get(0)) };
        eventually(SOON, "the replica streams", async || {
            Ok(receivers().await? == 1)
        })
        .await?;
        sleep(Duration::from_millis(chance.u64(0..500))).await;
        there
            .batch_execute("ALTER SYSTEM SET primary_conninfo = ''")
            .await?;
        there.batch_execute("SELECT pg_reload_conf()").await?;
        eventually(SOON, "the replica hears nothing", async || {
            Ok(receivers().await? == 0)
        })
        .await?;
        let enough = progress.ended() + chance.u64(20..120);
        let lag = eventually(Duration::from_secs(10), "it lags", async || {
            Ok(progress.ended() >= enough)
        });
        // However far it got.
        drop(lag.await);
        for place in 0..WORKERS {
            self.kill(place)?;
        }
        self.captures.kill()?;
        tokio::task::block_in_place(|| self.server.stop_immediate())?;
        if let Some(clock) = &mut self.clock {
            clock.fail_over(&replica, chance)?;
        }
        there.query_one("SELECT pg_promote(true, 60)", &[]).await?;
        let switch = "SELECT (pg_last_wal_replay_lsn() - '0/0')::bigint";
        let switch: i64 = there.query_one(switch, &[]).await?.get(0);
        let old = self.move_to(replica).await?;
        tokio::task::block_in_place(|| drop(old));
        for place in 0..WORKERS {
            self.spawn(place)?;
        }
        Ok(Struck {
            switch: Some(switch.unsigned_abs()),
            ..Struck::all()
        })
    }
}
