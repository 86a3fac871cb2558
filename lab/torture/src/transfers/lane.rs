//! Runs one executor after the other on a lane of transfers, with its link and the faults of both.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use posthaste_elastic::two_phase::{Coordinator, State};
use posthaste_testkit::{Child, Proxy, eventually};
use tokio::task::block_in_place;
use tokio::time::sleep;

use super::Plan;

/// The limit for an executor to continue, or to end.
const SOON: Duration = Duration::from_secs(300);

/// The limit for other executors to recover one's open transfers; they may be stalled or
/// disconnected as well. Less than an executor waits for an answer.
const STALLED: Duration = Duration::from_secs(8);

/// What is done to an executor or to its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Fault {
    /// SIGKILL; another one begins behind what it had begun.
    Kill,
    /// Its connections are reset, or refused for a while.
    Cut,
    /// Its connections swallow everything; half of those are never told.
    HalfOpen,
    /// Its requests arrive, and no answer does.
    Unanswered,
    /// It is held still until others have recovered what it was about, and goes on.
    Stall,
}

/// An executor's report of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) at: usize,
    pub(super) said: String,
}

/// The result of a lane.
#[derive(Debug, Default)]
pub(super) struct TransferCounts {
    pub(super) claims: Vec<Claim>,
    pub(super) struck: Vec<Fault>,
}

/// A running lane.
#[derive(Debug)]
pub(super) struct Lane<'p> {
    plan: &'p Plan,
    program: &'p Path,
    ours: &'p Coordinator,
    link: Proxy,
    process: Child,
    /// The first transfer that no process has begun.
    next: usize,
    told: TransferCounts,
}

impl<'p> Lane<'p> {
    /// Runs the lane, with each fault at its place.
    pub(super) async fn play(
        plan: &'p Plan,
        number: usize,
        faults: Vec<Fault>,
        (ours, port): (&'p Coordinator, u16),
        program: &'p Path,
    ) -> anyhow::Result<TransferCounts> {
        let mut chance = fastrand::Rng::with_seed(plan.seed ^ number as u64);
        let link = Proxy::start_raw((Ipv4Addr::LOCALHOST, port).into()).await?;
        let process = spawn(plan, program, &link, number)?;
        let mut lane = Self {
            plan,
            program,
            ours,
            link,
            process,
            next: number,
            told: TransferCounts::default(),
        };
        let (mut done, share) = (number, plan.transfers / (faults.len() + 1));
        for fault in faults {
            done += share;
            lane.reaches(done).await?;
            lane.strike(fault, &mut chance).await?;
            lane.told.struck.push(fault);
        }
        let ended = lane.process.exit(SOON).await?;
        ensure!(
            ended.success(),
            "an executor ended by itself: {ended}, {:?}",
            lane.process.stderr()
        );
        lane.listen();
        Ok(lane.told)
    }

    /// Waits until a transfer of this lane has ended that is at least this far: other transfers are
    /// then at every one of their steps.
    async fn reaches(&mut self, at: usize) -> anyhow::Result<()> {
        loop {
            let line = self.process.line("ended ", SOON).await?;
            if parsed(&line).is_some_and(|(_, ended, _)| ended >= at) {
                return Ok(());
            }
        }
    }

    async fn strike(&mut self, fault: Fault, chance: &mut fastrand::Rng) -> anyhow::Result<()> {
        match fault {
            Fault::Kill => return self.kill(chance).await,
            Fault::Cut if chance.bool() => self.link.reset(),
            Fault::Cut => {
                self.link.cut().await;
                some_time(chance, 0..400).await;
                self.link.restore().await?;
            }
            Fault::HalfOpen => {
                self.link.half_open();
                some_time(chance, 50..1_500).await;
                self.link.restore().await?;
                if chance.bool() {
                    self.link.reset();
                }
            }
            Fault::Unanswered => {
                self.link.mute();
                some_time(chance, 10..500).await;
                self.link.restore().await?;
                self.link.reset();
            }
            Fault::Stall => {
                self.process.pause()?;
                // Safety does not depend on whether they did.
                let _ = eventually(STALLED, "others go on", async || self.is_idle().await).await;
                self.process.resume()?;
            }
        }
        Ok(())
    }

    async fn kill(&mut self, chance: &mut fastrand::Rng) -> anyhow::Result<()> {
        block_in_place(|| self.process.kill())?;
        self.process.exit(SOON).await?;
        self.listen();
        some_time(chance, 0..300).await;
        self.process = spawn(self.plan, self.program, &self.link, self.next)?;
        Ok(())
    }

    /// Whether no transfer that the process has begun is open.
    async fn is_idle(&self) -> anyhow::Result<bool> {
        let said = self.process.stdout();
        let about = |word: &str| -> BTreeSet<usize> {
            let said = said.iter().filter_map(|line| parsed(line));
            let said = said.filter(|(what, ..)| *what == word);
            said.map(|(_, at, _)| at).collect()
        };
        for at in about("began").difference(&about("ended")) {
            let record = self.ours.get(&format!("t{at}")).await?;
            if record.is_some_and(|record| !State::is_final(record.transaction_state)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads the output of a process that has ended.
    fn listen(&mut self) {
        for line in self.process.stdout() {
            match parsed(&line) {
                Some(("began", at, _)) => self.next = self.next.max(at + self.plan.executors),
                Some(("ended", at, said)) if !said.is_empty() => {
                    let said = said.to_owned();
                    self.told.claims.push(Claim { at, said });
                }
                _ => {}
            }
        }
    }
}

fn spawn(plan: &Plan, program: &Path, link: &Proxy, first: usize) -> anyhow::Result<Child> {
    let mut command = Command::new(program);
    command.args(["execute", "--url", &format!("http://{}", link.address())]);
    for (name, value) in [
        ("--seed", plan.seed),
        ("--accounts", plan.accounts as u64),
        ("--first", first as u64),
        ("--step", plan.executors as u64),
        ("--end", plan.transfers as u64),
        ("--at-once", plan.at_once as u64),
    ] {
        command.args([name, &value.to_string()]);
    }
    Child::spawn(&mut command).context("an executor")
}

/// Parses a line: whether a transfer began or ended, its number, and the result. The last line of a
/// process that was killed may be incomplete.
fn parsed(line: &str) -> Option<(&str, usize, &str)> {
    let mut words = line.split(' ');
    let (what, at) = (words.next()?, words.next()?.parse().ok()?);
    Some((what, at, words.next().unwrap_or_default()))
}

async fn some_time(chance: &mut fastrand::Rng, millis: Range<u64>) {
    sleep(Duration::from_millis(chance.u64(millis))).await;
}
