//! The findings, side by side, and whether posthaste kept its bounds. Pure.

use std::fmt;
use std::time::Duration;

use super::figures::{Figures, missed, ms};

/// How an annotation is saved and published.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    Old,
    Posthaste,
}

impl Way {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Old => "old",
            Self::Posthaste => "posthaste",
        }
    }

    /// Returns the queue of its messages.
    pub fn queue(self) -> &'static str {
        match self {
            Self::Old => "annotations.old",
            Self::Posthaste => "annotations.posthaste",
        }
    }
}

/// The result; of each pair, the first is the old way's.
pub struct Findings {
    pub saved: [usize; 2],
    pub lost: [usize; 2],
    pub before: [Figures; 2],
    pub outage: [Figures; 2],
    /// The relay's share of one core during the outage.
    pub relay_share: f64,
    /// The longest time for which a due request was not sent, because no processor was free.
    pub delay: Duration,
    /// The time after the end of the alarm; `None`: never.
    pub drain_began: Option<Duration>,
}

/// Requests may take this much longer during the outage.
const RISE: Duration = Duration::from_millis(5);
const SHARE: f64 = 0.05;
const DRAIN: Duration = Duration::from_secs(2);

impl Findings {
    /// Returns the bounds that posthaste did not keep.
    pub fn broken(&self) -> Vec<String> {
        let [_, lost] = self.lost;
        let ([_, before], [_, outage]) = (self.before, self.outage);
        missed([
            (lost == 0, format!("nobody heard of {lost} annotations")),
            (
                outage.failed == 0,
                format!("{} requests failed during the outage", outage.failed),
            ),
            (
                outage.p99 <= before.p99 + RISE,
                format!(
                    "p99 rose from {} to {} ms, by more than 5",
                    ms(before.p99),
                    ms(outage.p99)
                ),
            ),
            (
                self.relay_share < SHARE,
                format!(
                    "the relay used {:.1} % of a core, of which 5 are allowed",
                    self.relay_share * 100.0
                ),
            ),
            (
                self.drain_began.is_some_and(|began| began <= DRAIN),
                format!("draining began after {:?}, 2 s allowed", self.drain_began),
            ),
        ])
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |counts: [usize; 2]| counts.map(|count| count.to_string());
        let of = |figures: [Figures; 2], tell: fn(Figures) -> String| figures.map(tell);
        let only = |what: String| ["-".to_owned(), what];
        let began = self.drain_began.map(|began| began.as_secs_f64());
        let lines = [
            ("", ["the old way", "posthaste"].map(str::to_owned)),
            ("annotations saved", count(self.saved)),
            ("of which nobody else ever heard", count(self.lost)),
            (
                "requests before",
                of(self.before, |one| one.requests.to_string()),
            ),
            ("p99 of them, ms", of(self.before, |one| ms(one.p99))),
            (
                "requests in the outage",
                of(self.outage, |one| one.requests.to_string()),
            ),
            (
                "of which failed",
                of(self.outage, |one| one.failed.to_string()),
            ),
            (
                "had no answer in 20 s",
                of(self.outage, |one| one.late.to_string()),
            ),
            ("p99 of them, ms", of(self.outage, |one| ms(one.p99))),
            (
                "sent late by up to, ms",
                [self.delay; 2].map(|delay| delay.as_millis().to_string()),
            ),
            (
                "relay in the outage, % of a core",
                only(format!("{:.2}", self.relay_share * 100.0)),
            ),
            (
                "draining began after, s",
                only(began.map_or("never".into(), |began| format!("{began:.2}"))),
            ),
        ];
        for (what, [old, new]) in lines {
            writeln!(f, "{what:<36}{old:>14}{new:>14}")?;
        }
        Ok(())
    }
}
