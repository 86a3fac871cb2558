//! What a run is going to do: how many faults of each kind, on which servers, in how many rounds.

use std::collections::BTreeMap;

use posthaste_testkit::PgVersion;
use serde::{Deserialize, Serialize};

use crate::history::Kind;

/// Faults by kind.
pub type Counts = BTreeMap<Kind, u64>;

/// A whole run. The same seed makes the same faults in the same order; when exactly they strike is
/// the machine's to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// What chance begins with.
    pub seed: u64,
    /// One after the other.
    pub rounds: Vec<RoundPlan>,
}

/// Who carries the jobs of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Processes {
    /// Workers, which run them.
    #[default]
    Workers,
    /// Relays, which send them to Redis and RabbitMQ.
    Relays,
}

/// How much there is to do in a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// Always something.
    #[default]
    Busy,
    /// A transaction now and then, each after the jobs of the last have ended: every hand-over has
    /// to wake somebody who sleeps.
    Idle,
}

/// A round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundPlan {
    /// Who carries its jobs.
    #[serde(default)]
    pub processes: Processes,
    /// How much there is to do.
    #[serde(default)]
    pub pace: Pace,
    /// Its database has settings and functions that disturb who relies on the usual ones.
    #[serde(default)]
    pub hostile: bool,
    /// Its servers have clocks of their own, which step.
    #[serde(default)]
    pub clocked: bool,
    /// Its server, such as `pg15`.
    pub server: String,
    /// Its share.
    pub faults: Counts,
    /// Jobs that are to end behind the last of them.
    pub jobs: u64,
}

impl Plan {
    /// This many faults on one server, shared evenly among this many rounds, the odd ones going to
    /// the first; then one more round of the same size on each of the other servers.
    pub fn new(
        seed: u64,
        counts: &Counts,
        rounds: u64,
        server: PgVersion,
        others: &[PgVersion],
    ) -> Self {
        let of = |round, server| RoundPlan::share(counts, round, rounds, server);
        let mut all: Vec<RoundPlan> = (0..rounds).map(|round| of(round, server)).collect();
        all.extend(others.iter().map(|other| of(0, *other)));
        Self { seed, rounds: all }
    }

    /// This many rounds of relays more, which share these faults.
    pub fn with_relays(mut self, counts: &Counts, rounds: u64, server: PgVersion) -> Self {
        let of = |round: u64| RoundPlan {
            processes: Processes::Relays,
            ..RoundPlan::share(counts, round, rounds, server)
        };
        self.rounds.extend((0..rounds).map(of));
        self
    }

    /// Rounds of workers more in which there is little to do, which share these faults.
    pub fn with_idle(mut self, counts: &Counts, rounds: u64, server: PgVersion) -> Self {
        let of = |round: u64| RoundPlan {
            pace: Pace::Idle,
            ..RoundPlan::share(counts, round, rounds, server)
        };
        self.rounds.extend((0..rounds).map(of));
        self
    }

    /// Rounds of workers more on servers with clocks of their own, which share these faults.
    pub fn with_clocks(mut self, counts: &Counts, rounds: u64, server: PgVersion) -> Self {
        let of = |round: u64| RoundPlan {
            clocked: true,
            ..RoundPlan::share(counts, round, rounds, server)
        };
        self.rounds.extend((0..rounds).map(of));
        self
    }

    /// How many faults of each kind there are in all.
    pub fn counts(&self) -> Counts {
        sum(self.rounds.iter().map(|round| &round.faults))
    }
}

/// What one of this many rounds has of these faults: as many as any other, the odd ones going to
/// the first.
fn share(counts: &Counts, round: u64, rounds: u64) -> Counts {
    let part = |count: u64| count / rounds + u64::from(round < count % rounds);
    let parts = counts.iter().map(|(kind, count)| (*kind, part(*count)));
    parts.collect()
}

impl RoundPlan {
    /// What one of this many rounds has of these faults, and a copy; every second one is under
    /// hostile settings.
    fn share(counts: &Counts, round: u64, rounds: u64, server: PgVersion) -> Self {
        let mut faults = share(counts, round, rounds);
        faults.insert(Kind::Copy, 1);
        Self {
            processes: Processes::default(),
            pace: Pace::default(),
            hostile: round % 2 == 1,
            clocked: false,
            server: server.name().to_owned(),
            faults,
            jobs: 50,
        }
    }

    /// Its faults, shuffled, but copies are made in the middle.
    pub(crate) fn order(&self, seed: u64) -> Vec<Kind> {
        let all = self.faults.iter();
        let all = all.flat_map(|(kind, count)| (0..*count).map(|_| *kind));
        let (copies, mut order): (Vec<Kind>, Vec<Kind>) = all.partition(|kind| *kind == Kind::Copy);
        fastrand::Rng::with_seed(seed).shuffle(&mut order);
        let middle = order.len() / 2;
        order.splice(middle..middle, copies);
        order
    }
}

/// Counts, kind by kind.
pub(crate) fn sum<'c>(all: impl Iterator<Item = &'c Counts>) -> Counts {
    let mut sum = Counts::new();
    for counts in all {
        for (kind, count) in counts {
            *sum.entry(*kind).or_default() += count;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::{Counts, Pace, Plan, Processes};
    use crate::history::Kind;
    use posthaste_testkit::PgVersion;

    #[test]
    fn every_fault_has_its_round_and_the_other_servers_have_one_more() {
        let counts: Counts = [(Kind::Kill, 200), (Kind::Crash, 7)].into();
        let plan = Plan::new(1, &counts, 3, PgVersion::V15, &[PgVersion::V18]);
        let kills: Vec<u64> = plan
            .rounds
            .iter()
            .map(|round| round.faults[&Kind::Kill])
            .collect();
        assert_eq!(kills, [67, 67, 66, 67]);
        let crashes: Vec<u64> = plan
            .rounds
            .iter()
            .map(|round| round.faults[&Kind::Crash])
            .collect();
        assert_eq!(crashes, [3, 2, 2, 3]);
        assert_eq!(plan.counts()[&Kind::Kill], 267);
        assert_eq!(plan.rounds[3].server, "pg18");
        let relays: Counts = [(Kind::RelayKill, 3)].into();
        let both = plan.clone().with_relays(&relays, 2, PgVersion::V15);
        let processes: Vec<Processes> = both.rounds.iter().map(|round| round.processes).collect();
        assert_eq!(
            (&processes[..4], &processes[4..]),
            (&[Processes::Workers; 4][..], &[Processes::Relays; 2][..])
        );
        assert_eq!(both.rounds[4].faults[&Kind::RelayKill], 2);
        let idle = plan.clone().with_idle(&relays, 2, PgVersion::V15);
        let paces: Vec<Pace> = idle.rounds.iter().map(|round| round.pace).collect();
        assert_eq!(paces[3..], [Pace::Busy, Pace::Idle, Pace::Idle]);
        // Every second round of a kind is played under hostile settings.
        assert!(idle.rounds[5].hostile && !idle.rounds[4].hostile);
        let clocked = plan.clone().with_clocks(&counts, 1, PgVersion::V15);
        assert!(clocked.rounds[4].clocked && !clocked.rounds[3].clocked);
        let order = plan.rounds[0].order(5);
        assert_eq!((order.len(), order[35]), (71, Kind::Copy));
        assert_eq!(order, plan.rounds[0].order(5));
    }
}
