//! What a run leaves behind: one JSON file, in the words of the rules.

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
    /// When it was written.
    pub written: String,
    /// What was tortured.
    pub commit: String,
    /// What chance began with.
    pub seed: u64,
    /// Where, without its name.
    pub machine: Machine,
    /// Versions of the servers, and rounds on each.
    pub servers: BTreeMap<String, u64>,
    /// Seconds of all rounds.
    pub seconds: f64,
    /// Faults that were done, by kind.
    pub faults: Counts,
    /// What was counted.
    pub load: Load,
    /// The rules.
    pub checks: Vec<Asked>,
    /// Nothing broke a rule.
    pub passed: bool,
    /// One after the other.
    pub rounds: Vec<Round>,
}

/// A rule, and what it said.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Asked {
    /// Which.
    pub rule: Rule,
    /// In words.
    pub promise: String,
    /// How often it was asked.
    pub examined: u64,
    /// How often it was broken.
    pub broken: u64,
}

/// As far as it bears on the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// Cores.
    pub cores: usize,
    /// Of the kernel.
    pub kernel: String,
    /// In gibibytes.
    pub memory: u64,
}

impl Report {
    /// Of a run that has come to its end.
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

    /// Writes it beside its elders, under today's name.
    pub fn keep(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        keep(self, folder, "torture")
    }
}

/// The report of a run of bugs: who judged the judge.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BugReport {
    /// When it was written.
    pub written: String,
    /// Into which store the bugs were put.
    pub commit: String,
    /// What chance began with.
    pub seed: u64,
    /// Where, without its name.
    pub machine: Machine,
    /// The version of the server.
    pub server: String,
    /// In the order of the list.
    pub bugs: Vec<BugHunt>,
    /// Each was caught.
    pub passed: bool,
}

/// A bug, and who caught it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BugHunt {
    /// What is wrong.
    pub name: String,
    /// How it was noticed; none: it slipped through.
    pub caught: Option<String>,
    /// That its round took.
    pub seconds: f64,
}

impl BugReport {
    /// Of bugs that were all hunted.
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

    /// Writes it beside its elders, under today's name.
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
