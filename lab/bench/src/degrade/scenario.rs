//! A scenario: rates, workers, holders of the horizon with their durations, and the bounds of the
//! gate.

mod bounds;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

pub(crate) use self::bounds::{Bounds, Limits};
use super::algorithm;
use super::span::Span;

/// The scenarios of the bench, by name.
pub(crate) const SHIPPED: [(&str, &str); 11] = [
    ("article", include_str!("../../scenarios/article.toml")),
    (
        "article-fast",
        include_str!("../../scenarios/article-fast.toml"),
    ),
    (
        "article-short",
        include_str!("../../scenarios/article-short.toml"),
    ),
    ("bulk-open", include_str!("../../scenarios/bulk-open.toml")),
    ("churn", include_str!("../../scenarios/churn.toml")),
    ("dump", include_str!("../../scenarios/dump.toml")),
    ("follower", include_str!("../../scenarios/follower.toml")),
    (
        "large-table",
        include_str!("../../scenarios/large-table.toml"),
    ),
    ("prepared", include_str!("../../scenarios/prepared.toml")),
    (
        "slow-sibling",
        include_str!("../../scenarios/slow-sibling.toml"),
    ),
    ("slot", include_str!("../../scenarios/slot.toml")),
];

/// A scenario file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    /// One sentence, the title of the report.
    pub(crate) about: String,
    pub(crate) algorithms: Names,
    /// A factor of rates and a divisor of durations.
    #[serde(default = "one")]
    pub(crate) speed: f64,
    #[serde(default)]
    pub(crate) server: Server,
    pub(crate) produce: Produce,
    pub(crate) work: Work,
    #[serde(default)]
    pub(crate) hold: Vec<Hold>,
    /// The time of observation after the last hold.
    #[serde(default = "ten_minutes")]
    pub(crate) after: Span,
    #[serde(default)]
    pub(crate) bound: Bounds,
}

/// Names of algorithms, or all.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Names {
    Word(String),
    Listed(Vec<String>),
}

/// The private server.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Server {
    pub(crate) version: Option<u32>,
    pub(crate) settings: BTreeMap<String, String>,
}

/// The offered load.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Produce {
    pub(crate) jobs: u32,
    pub(crate) every: Span,
    #[serde(default)]
    pub(crate) shape: Shape,
    /// Jobs that exist before the run begins and are due in a year.
    #[serde(default)]
    pub(crate) scheduled: i64,
}

/// The transactions of the jobs.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Shape {
    pub(crate) per_transaction: u32,
    /// The number of letters in addition to the number and the time.
    pub(crate) payload: usize,
    /// The share of transactions that roll back.
    pub(crate) rollback: f64,
    /// The time from the last insert to the commit.
    pub(crate) open: Span,
}

/// The work on the jobs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Work {
    pub(crate) workers: usize,
    pub(crate) takes: Span,
    #[serde(default)]
    pub(crate) slow: Slow,
    /// The number of jobs per claim of algorithms that claim many.
    #[serde(default = "hundred")]
    pub(crate) batch: i64,
    /// The pause of a worker that has found no job.
    #[serde(default = "poll")]
    pub(crate) poll: Span,
}

/// One job of this many takes longer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Slow {
    pub(crate) every: u64,
    pub(crate) takes: Span,
}

/// A holder of the horizon.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hold {
    pub(crate) kind: HoldKind,
    pub(crate) at: Span,
    #[serde(rename = "for")]
    pub(crate) lasts: Span,
    /// The number of jobs that a `bulk` inserts.
    #[serde(default)]
    pub(crate) rows: u64,
}

/// The kind of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HoldKind {
    /// An idle REPEATABLE READ transaction.
    Snapshot,
    /// An idle transaction that has written a row.
    Writer,
    /// A `pg_dump` whose output is not read.
    Reader,
    /// A prepared transaction whose session has ended.
    Prepared,
    /// A logical replication slot without a reader.
    Slot,
    /// A snapshot on a follower with `hot_standby_feedback`.
    Follower,
    /// A transaction that inserts many jobs, stays open, and rolls back.
    Bulk,
}

impl Scenario {
    /// Reads a shipped scenario by its name, or a file.
    pub(crate) fn find(name: &str) -> Result<Self> {
        if let Some((_, text)) = SHIPPED.iter().find(|(shipped, _)| *shipped == name) {
            return Self::parse(text).with_context(|| name.to_owned());
        }
        let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
        let text = std::fs::read_to_string(Path::new(name)).with_context(|| {
            format!(
                "{name} is neither a file nor a scenario that comes with the bench ({})",
                names.join(", ")
            )
        })?;
        Self::parse(&text).with_context(|| name.to_owned())
    }

    /// Reads a scenario, and refuses one that cannot be run.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let scenario: Self = toml::from_str(text)?;
        scenario.check()?;
        Ok(scenario)
    }

    fn check(&self) -> Result<()> {
        ensure!(
            self.speed.is_finite() && (1.0..=1_000.0).contains(&self.speed),
            "speed: from 1 to 1000"
        );
        ensure!(
            self.produce.jobs > 0 && !self.produce.every.0.is_zero(),
            "produce: jobs and every must be more than nothing"
        );
        let shape = self.produce.shape;
        ensure!(
            shape.per_transaction > 0,
            "produce.shape.per_transaction: at least 1"
        );
        ensure!(
            (0.0..1.0).contains(&shape.rollback),
            "produce.shape.rollback: from 0 to less than 1"
        );
        ensure!(
            (1..=32).contains(&self.work.workers),
            "work.workers: from 1 to 32"
        );
        ensure!(self.work.batch > 0, "work.batch: at least 1");
        ensure!(self.produce.scheduled >= 0, "produce.scheduled: at least 0");
        for hold in &self.hold {
            ensure!(
                (hold.rows > 0) == (hold.kind == HoldKind::Bulk),
                "hold.rows: the number of jobs of a bulk, and of nothing else"
            );
        }
        self.names().map(drop)
    }

    /// The algorithms that run, in their order.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let names = match &self.algorithms {
            Names::Word(word) if word == "all" => algorithm::names().map(str::to_owned).collect(),
            Names::Word(word) => bail!("algorithms: \"all\" or a list of names, not {word:?}"),
            Names::Listed(names) => names.clone(),
        };
        for name in &names {
            ensure!(
                algorithm::is_shipped(name),
                "algorithms: {name} is none of {}",
                algorithm::names().collect::<Vec<_>>().join(", ")
            );
        }
        Ok(names)
    }

    /// Changes the speed.
    pub(crate) fn with_speed(self, speed: Option<f64>) -> Result<Self> {
        let scenario = Self {
            speed: speed.unwrap_or(self.speed),
            ..self
        };
        scenario.check()?;
        Ok(scenario)
    }

    /// A duration of the scenario in this run.
    pub(crate) fn real(&self, span: Span) -> Duration {
        span.at_speed(self.speed)
    }

    /// Jobs per second in this run.
    pub(crate) fn rate(&self) -> f64 {
        f64::from(self.produce.jobs) / self.real(self.produce.every).as_secs_f64()
    }

    /// The beginning of the first hold and the end of the last one; `None` without holds.
    pub(crate) fn held(&self) -> Option<(Duration, Duration)> {
        let begins = self.hold.iter().map(|hold| self.real(hold.at)).min()?;
        let ends = self
            .hold
            .iter()
            .map(|hold| self.real(hold.at) + self.real(hold.lasts));
        Some((begins, ends.max()?))
    }

    /// The duration of one algorithm's run.
    pub(crate) fn lasts(&self) -> Duration {
        self.held().map_or(Duration::ZERO, |(_, end)| end) + self.real(self.after)
    }

    /// The bounds of one algorithm in this run.
    pub(crate) fn limits(&self, name: &str) -> Limits {
        let limits = self.bound.limits(name);
        let recovers_within = limits.recovers_within.map(|span| Span(self.real(span)));
        Limits {
            recovers_within,
            ..limits
        }
    }

    /// The title of its report.
    pub(crate) fn title(&self) -> String {
        if self.speed == 1.0 {
            return self.about.clone();
        }
        format!("{} (at {} times the speed)", self.about, self.speed)
    }
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            per_transaction: 1,
            payload: 64,
            rollback: 0.0,
            open: Span::default(),
        }
    }
}

fn one() -> f64 {
    1.0
}

fn hundred() -> i64 {
    100
}

fn poll() -> Span {
    Span(Duration::from_millis(100))
}

fn ten_minutes() -> Span {
    Span::seconds(600)
}

#[cfg(test)]
mod tests;
