//! The findings, and whether they are within the bounds. Pure.

use std::fmt;
use std::time::Duration;

use super::figures::{Figures, missed, ms};

/// A part of the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Phase {
    Before,
    /// Bytes pass in neither direction, and no end is notified.
    HalfOpen,
    /// The server receives requests, and its answers are lost.
    Muted,
    /// Connections are refused.
    Stopped,
    After,
}

impl Phase {
    pub const ALL: [Self; 5] = [
        Self::Before,
        Self::HalfOpen,
        Self::Muted,
        Self::Stopped,
        Self::After,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::HalfOpen => "half open",
            Self::Muted => "no answers",
            Self::Stopped => "stopped",
            Self::After => "after",
        }
    }

    fn is_down(self) -> bool {
        !matches!(self, Self::Before | Self::After)
    }
}

/// The findings of a part of the run.
pub struct Part {
    pub phase: Phase,
    pub figures: Figures,
    /// Jobs that waited when it ended.
    pub jobs: i64,
}

/// The result.
pub struct Findings {
    pub parts: Vec<Part>,
    /// The period of the sync; jobs become due after the same time.
    pub period: Duration,
    /// The time after the end of the outage until all of its jobs were done.
    pub drained: Duration,
    pub rows: u64,
    pub documents: u64,
    pub differences: u64,
}

/// The most time that a direct write may cost a request.
const BUDGET: Duration = Duration::from_millis(300);
/// Periods within which the jobs must be done. The youngest job of the outage is due after one
/// period, checked within another, and known to be done within a third. The fourth is for the
/// checks themselves.
const DRAIN: u32 = 4;
/// Time for the checks, however short the period is.
const LOOKS: Duration = Duration::from_secs(10);

impl Findings {
    /// Returns the bounds that were not kept.
    pub fn broken(&self) -> Vec<String> {
        let failed: usize = self.parts.iter().map(|part| part.figures.failed).sum();
        let mut bounds = vec![(failed == 0, format!("{failed} requests failed"))];
        let before = self.parts.iter().find(|part| part.phase == Phase::Before);
        let before = before.map(|part| part.figures.p99).unwrap_or_default();
        for part in self.down() {
            let p99 = part.figures.p99;
            let rose = format!(
                "p99 rose from {} to {} ms where the server was down ({}), by more than the budget \
                 of 300",
                ms(before),
                ms(p99),
                part.phase.name()
            );
            bounds.push((p99 <= before + BUDGET, rose));
        }
        let (most, asked) = (self.most(), self.asked());
        let piled = format!("{most} jobs waited at the most, after {asked} requests");
        bounds.push((most >= asked && asked > 0, piled));
        let allowed = self.period * DRAIN + LOOKS;
        let drained = format!("drained after {:?}, {allowed:?} allowed", self.drained);
        bounds.push((self.drained <= allowed, drained));
        let (rows, documents) = (self.rows, self.documents);
        let differ = format!(
            "{rows} rows, {documents} documents, {} differ",
            self.differences
        );
        bounds.push((
            rows > 0 && rows == documents && self.differences == 0,
            differ,
        ));
        missed(bounds)
    }

    fn down(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|part| part.phase.is_down())
    }

    /// Returns the most jobs that waited while the content of the index was unknown.
    fn most(&self) -> i64 {
        self.down().map(|part| part.jobs).max().unwrap_or_default()
    }

    /// Returns the least number of requests that were answered until then, each with its job. Some
    /// requests of the last way arrived while the server was starting.
    fn asked(&self) -> i64 {
        let parts = self.down().filter(|part| part.phase != Phase::Stopped);
        let asked: usize = parts.map(|part| part.figures.requests).sum();
        i64::try_from(asked).unwrap_or(i64::MAX)
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        type Tell = fn(&Part) -> String;
        let lines: [(&str, Tell); 6] = [
            ("", |part| part.phase.name().to_owned()),
            ("requests", |part| part.figures.requests.to_string()),
            ("of which failed", |part| part.figures.failed.to_string()),
            ("p50, ms", |part| ms(part.figures.p50)),
            ("p99, ms", |part| ms(part.figures.p99)),
            ("jobs that wait at its end", |part| part.jobs.to_string()),
        ];
        for (what, tell) in lines {
            write!(f, "{what:<28}")?;
            for part in &self.parts {
                write!(f, "{:>12}", tell(part))?;
            }
            writeln!(f)?;
        }
        let drained = format!("{:.1}", self.drained.as_secs_f64());
        for (what, value) in [
            ("period of the sync, s", self.period.as_secs().to_string()),
            ("jobs at the most", self.most().to_string()),
            ("drained after, s", drained),
            ("rows", self.rows.to_string()),
            ("documents", self.documents.to_string()),
            ("of all these differ", self.differences.to_string()),
        ] {
            writeln!(f, "{what:<28}{value:>12}")?;
        }
        Ok(())
    }
}
