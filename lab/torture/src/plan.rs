//! The plan of a run: the number of faults of each kind, the servers and the rounds.

use std::collections::BTreeMap;

use posthaste_testkit::PgVersion;
use serde::{Deserialize, Serialize};

use crate::history::Kind;

/// The number of faults by kind.
pub type Counts = BTreeMap<Kind, u64>;

/// The plan of a whole run. The same seed gives the same faults in the same order; their exact
/// times depend on the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// The rounds, one after the other.
    pub rounds: Vec<RoundPlan>,
}

/// The processes that carry the jobs of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Processes {
    /// Workers, which run them.
    #[default]
    Workers,
    /// Relays, which send them to Redis and RabbitMQ.
    Relays,
}

/// The load of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// There is always work.
    #[default]
    Busy,
    /// Single transactions, each after the jobs of the last have ended: every hand-over must wake a
    /// sleeping process.
    Idle,
}

/// A round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundPlan {
    /// The processes that carry its jobs.
    #[serde(default)]
    pub processes: Processes,
    /// Its load.
    #[serde(default)]
    pub pace: Pace,
    /// Whether its database has settings and functions that break code which depends on the
    /// defaults.
    #[serde(default)]
    pub hostile: bool,
    /// Whether its servers have separate clocks, which step.
    #[serde(default)]
    pub clocked: bool,
    /// Whether the slots of its captures fail over, so that captures continue on promoted replicas.
    #[serde(default)]
    pub fails_over: bool,
    /// Its server, such as `pg15`.
    pub server: String,
    /// Its share of the faults.
    pub faults: Counts,
    /// The number of jobs that must end after the last fault.
    pub jobs: u64,
}

impl Plan {
    /// Plans this many faults on one server, shared evenly among this many rounds, with the
    /// remainder in the first ones; then one more round of the same size on each of the other
    /// servers.
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

    /// Adds this many rounds of relays, which share these faults.
    pub fn with_relays(mut self, counts: &Counts, rounds: u64, server: PgVersion) -> Self {
        let of = |round: u64| RoundPlan {
            processes: Processes::Relays,
            ..RoundPlan::share(counts, round, rounds, server)
        };
        self.rounds.extend((0..rounds).map(of));
        self
    }

    /// Adds rounds of workers with little load, which share these faults.
    pub fn with_idle(mut self, counts: &Counts, rounds: u64, server: PgVersion) -> Self {
        let of = |round: u64| RoundPlan {
            pace: Pace::Idle,
            ..RoundPlan::share(counts, round, rounds, server)
        };
        self.rounds.extend((0..rounds).map(of));
        self
    }

    /// Adds rounds of workers on servers with separate clocks, which share these faults.
    pub fn with_clocks(mut self, counts: &Counts, rounds: u64, server: PgVersion) -> Self {
        let of = |round: u64| RoundPlan {
            clocked: true,
            ..RoundPlan::share(counts, round, rounds, server)
        };
        self.rounds.extend((0..rounds).map(of));
        self
    }

    /// Adds rounds of workers whose captures continue after promotions, which share these faults.
    pub fn with_failovers(mut self, counts: &Counts, rounds: u64, server: PgVersion) -> Self {
        let of = |round: u64| RoundPlan {
            fails_over: true,
            ..RoundPlan::share(counts, round, rounds, server)
        };
        self.rounds.extend((0..rounds).map(of));
        self
    }

    /// The total number of faults of each kind.
    pub fn counts(&self) -> Counts {
        sum(self.rounds.iter().map(|round| &round.faults))
    }
}

/// The share of these faults for one of this many rounds: evenly, with the remainder in the first
/// ones.
fn share(counts: &Counts, round: u64, rounds: u64) -> Counts {
    let part = |count: u64| count / rounds + u64::from(round < count % rounds);
    let parts = counts.iter().map(|(kind, count)| (*kind, part(*count)));
    parts.collect()
}

impl RoundPlan {
    /// A round with its share of these faults and a copy; every second one has hostile settings.
    fn share(counts: &Counts, round: u64, rounds: u64, server: PgVersion) -> Self {
        let mut faults = share(counts, round, rounds);
        faults.insert(Kind::Copy, 1);
        Self {
            processes: Processes::default(),
            pace: Pace::default(),
            hostile: round % 2 == 1,
            clocked: false,
            fails_over: false,
            server: server.name().to_owned(),
            faults,
            jobs: 50,
        }
    }

    /// Its faults, shuffled, with copies in the middle.
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

/// Adds up counts by kind.
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
    fn every_fault_has_a_round_and_other_servers_have_one_more() {
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
        // Every second round of a kind has hostile settings.
        assert!(idle.rounds[5].hostile && !idle.rounds[4].hostile);
        let clocked = plan.clone().with_clocks(&counts, 1, PgVersion::V15);
        assert!(clocked.rounds[4].clocked && !clocked.rounds[3].clocked);
        let failing = plan.clone().with_failovers(&counts, 1, PgVersion::V18);
        assert!(failing.rounds[4].fails_over && !failing.rounds[3].fails_over);
        let order = plan.rounds[0].order(5);
        assert_eq!((order.len(), order[35]), (71, Kind::Copy));
        assert_eq!(order, plan.rounds[0].order(5));
    }
}
