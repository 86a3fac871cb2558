//! The report of a run: one JSON file, in the terms of the rules.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::check::{Load, Rule};
use crate::plan::{Counts, sum};
use crate::round::Round;
use crate::run::State;

/// The report of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The time at which it was written.
    pub written: String,
    /// The tested commit.
    pub commit: String,
    /// The seed.
    pub seed: u64,
    /// The machine, without its name.
    pub machine: Machine,
    /// The number of rounds by server version.
    pub servers: BTreeMap<String, u64>,
    /// The duration of all rounds in seconds.
    pub seconds: f64,
    /// Injected faults by kind.
    pub faults: Counts,
    /// The counts.
    pub load: Load,
    /// The results of the rules.
    pub checks: Vec<Asked>,
    /// Whether no rule was violated.
    pub passed: bool,
    /// The rounds, one after the other.
    pub rounds: Vec<Round>,
}

/// The result of a rule.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Asked {
    /// The rule.
    pub rule: Rule,
    /// Its guarantee in words.
    pub promise: String,
    /// How often it was checked.
    pub examined: u64,
    /// How often it was violated.
    pub broken: u64,
}

/// The properties of the machine that matter for the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// The number of cores.
    pub cores: usize,
    /// The version of the kernel.
    pub kernel: String,
    /// The memory in GiB.
    pub memory: u64,
}

impl Report {
    /// Creates the report of a completed run.
    pub fn of(state: &State) -> anyhow::Result<Self> {
        let rounds = state.rounds.clone();
        let mut servers = BTreeMap::new();
        let mut load = Load::default();
        for round in &rounds {
            *servers.entry(round.server.clone()).or_default() += 1;
            load += round.load;
        }
        let checks = Rule::ALL.map(|rule| {
            let examined = rounds.iter().filter_map(|round| round.examined.get(&rule));
            let findings = rounds.iter().flat_map(|round| &round.findings);
            let broken = findings.filter(|finding| finding.rule == rule);
            Asked {
                rule,
                promise: rule.promise().to_owned(),
                examined: examined.sum(),
                broken: broken.map(|finding| finding.jobs.max(1)).sum(),
            }
        });
        Ok(Self {
            written: now(),
            commit: state.commit.clone(),
            seed: state.plan.seed,
            machine: Machine::describe()?,
            servers,
            seconds: rounds.iter().map(|round| round.seconds).sum(),
            faults: sum(rounds.iter().map(|round| &round.faults)),
            load,
            checks: checks.into(),
            passed: rounds.iter().all(Round::is_clean),
            rounds,
        })
    }

    /// Writes it to the folder of reports, with today's date in its name.
    pub fn keep(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        keep(self, folder, "torture")
    }
}

/// The report of a run of bugs, which tests the checker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BugReport {
    /// The time at which it was written.
    pub written: String,
    /// The commit into whose store the bugs were put.
    pub commit: String,
    /// The seed.
    pub seed: u64,
    /// The machine, without its name.
    pub machine: Machine,
    /// The version of the server.
    pub server: String,
    /// The bugs in the order of the list.
    pub bugs: Vec<BugHunt>,
    /// Whether every bug was detected.
    pub passed: bool,
}

/// The result for a bug.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BugHunt {
    /// A description of what is broken.
    pub name: String,
    /// The finding that detected it; `None` if it was not detected.
    pub caught: Option<String>,
    /// The duration of its round in seconds.
    pub seconds: f64,
}

impl BugReport {
    /// Creates the report of a completed run of bugs.
    pub fn of(commit: String, seed: u64, server: &str, bugs: &[BugHunt]) -> anyhow::Result<Self> {
        Ok(Self {
            written: now(),
            commit,
            seed,
            machine: Machine::describe()?,
            server: server.to_owned(),
            bugs: bugs.to_vec(),
            passed: bugs.iter().all(|bug| bug.caught.is_some()),
        })
    }

    /// Writes it to the folder of reports, with today's date in its name.
    pub fn keep(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        keep(self, folder, "bugs")
    }
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%F %T UTC").to_string()
}

fn keep(report: &impl Serialize, folder: &Path, kind: &str) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let day = jiff::Timestamp::now().strftime("%F").to_string();
    let names = std::iter::once(format!("{kind}-{day}.json"))
        .chain((2..).map(|number| format!("{kind}-{day}-{number}.json")));
    let free = names
        .map(|name| folder.join(name))
        .find(|path| !path.exists());
    let path = free.context("a free name")?;
    std::fs::write(&path, serde_json::to_string_pretty(report)? + "\n")?;
    Ok(path)
}

impl Machine {
    fn describe() -> anyhow::Result<Self> {
        let memory = std::fs::read_to_string("/proc/meminfo")?;
        let total = memory.lines().find_map(|line| {
            let rest = line.strip_prefix("MemTotal:")?;
            rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        });
        Ok(Self {
            cores: std::thread::available_parallelism()?.get(),
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")?
                .trim()
                .to_owned(),
            memory: total.unwrap_or(0).div_ceil(1 << 20),
        })
    }
}
