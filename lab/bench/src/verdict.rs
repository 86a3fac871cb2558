//! Verdicts of runs: each bar's requirements against the medians of the rounds that count.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::rounds::{Run, counted_rounds};
use crate::statistics::Spread;

/// The bound of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    fn admits(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(least) => figure >= least,
            Self::AtMost(most) => figure <= most,
        }
    }
}

/// The result for one requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Pass,
    Miss,
}

/// The weight of a requirement: a bar must be passed; an aim is only reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Weight {
    Bar,
    Aim,
}

/// One requirement, its figure and the verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Judgement {
    pub(crate) requirement: String,
    pub(crate) weight: Weight,
    pub(crate) unit: String,
    /// The compared figures and contestants.
    pub(crate) basis: String,
    /// The figure that is judged.
    pub(crate) figure: f64,
    /// The figure's extremes over the single rounds.
    pub(crate) lowest: f64,
    pub(crate) highest: f64,
    pub(crate) bound: Bound,
    pub(crate) verdict: Verdict,
    /// The number of rounds on which the figure is based.
    pub(crate) rounds: usize,
    /// Whether too few rounds were clean, so that tainted ones had to be used.
    pub(crate) tainted: bool,
}

/// The text, unit and bound of a requirement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Requirement<'a> {
    pub(crate) text: &'a str,
    pub(crate) unit: &'a str,
    pub(crate) bound: Bound,
    pub(crate) weight: Weight,
}

impl<'a> Requirement<'a> {
    /// A requirement that must be passed.
    pub(crate) fn bar(text: &'a str, unit: &'a str, bound: Bound) -> Self {
        Self {
            text,
            unit,
            bound,
            weight: Weight::Bar,
        }
    }

    /// A figure to aim at.
    pub(crate) fn aim(text: &'a str, unit: &'a str, bound: Bound) -> Self {
        Self {
            text,
            unit,
            bound,
            weight: Weight::Aim,
        }
    }
}

/// The runs of a bar, reduced to the rounds that count.
#[derive(Debug)]
pub(crate) struct Evidence<'a> {
    runs: &'a [Run],
    rounds: BTreeSet<u32>,
    tainted: bool,
}

impl<'a> Evidence<'a> {
    /// Takes the clean rounds if there are `wanted` of them, else all rounds, and marks that.
    pub(crate) fn from_runs(runs: &'a [Run], wanted: u32) -> Self {
        let (rounds, tainted) = counted_rounds(runs, wanted);
        Self {
            runs,
            rounds,
            tainted,
        }
    }

    /// The contestant whose median of a figure is highest.
    pub(crate) fn best<'c>(&self, contestants: &[&'c str], figure: &str) -> Result<&'c str> {
        let mut best: Option<(&'c str, f64)> = None;
        for contestant in contestants {
            let median = self.spread(contestant, figure)?.median;
            if best.is_none_or(|(_, highest)| median > highest) {
                best = Some((contestant, median));
            }
        }
        best.map(|(contestant, _)| contestant)
            .context("no contestants to choose from")
    }

    /// A figure's median over the rounds that count.
    pub(crate) fn spread(&self, contestant: &str, figure: &str) -> Result<Spread> {
        Spread::of(&self.sample(contestant, figure))
            .with_context(|| format!("{contestant} has no figure {figure}"))
    }

    /// Judges the median of one figure.
    pub(crate) fn median(
        &self,
        requirement: Requirement<'_>,
        contestant: &str,
        figure: &str,
    ) -> Result<Judgement> {
        let spread = self.spread(contestant, figure)?;
        Ok(self.judge(
            requirement,
            format!("{contestant}: median {figure}"),
            spread.median,
            spread,
        ))
    }

    /// Judges the highest value that one figure took in any round.
    pub(crate) fn highest(
        &self,
        requirement: Requirement<'_>,
        contestant: &str,
        figure: &str,
    ) -> Result<Judgement> {
        let spread = self.spread(contestant, figure)?;
        Ok(self.judge(
            requirement,
            format!("{contestant}: highest {figure}"),
            spread.highest,
            spread,
        ))
    }

    /// Judges one contestant's median against another's; the spread is that of the single rounds'
    /// ratios.
    pub(crate) fn ratio(
        &self,
        requirement: Requirement<'_>,
        over: &str,
        under: &str,
        figure: &str,
    ) -> Result<Judgement> {
        let (upper, lower) = (self.spread(over, figure)?, self.spread(under, figure)?);
        let single: Vec<f64> = self
            .sample(over, figure)
            .iter()
            .zip(self.sample(under, figure))
            .map(|(upper, lower)| upper / lower)
            .collect();
        let spread = Spread::of(&single).context("no round has both contestants")?;
        let basis = format!("{over} / {under}: median {figure}");
        Ok(self.judge(requirement, basis, upper.median / lower.median, spread))
    }

    fn sample(&self, contestant: &str, figure: &str) -> Vec<f64> {
        self.runs
            .iter()
            .filter(|run| run.contestant == contestant && self.rounds.contains(&run.round))
            .filter_map(|run| run.figures.get(figure).copied())
            .collect()
    }

    fn judge(
        &self,
        requirement: Requirement<'_>,
        basis: String,
        figure: f64,
        spread: Spread,
    ) -> Judgement {
        let verdict = if requirement.bound.admits(figure) {
            Verdict::Pass
        } else {
            Verdict::Miss
        };
        Judgement {
            requirement: requirement.text.to_owned(),
            weight: requirement.weight,
            unit: requirement.unit.to_owned(),
            basis,
            figure,
            lowest: spread.lowest,
            highest: spread.highest,
            bound: requirement.bound,
            verdict,
            rounds: self.rounds.len(),
            tainted: self.tainted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bound, Evidence, Requirement, Run, Verdict};
    use crate::taint::ProcessorUse;

    fn run(contestant: &str, round: u32, rate: f64) -> Run {
        Run {
            contestant: contestant.to_owned(),
            round,
            figures: [("rate".to_owned(), rate)].into(),
            series: [].into(),
            processor: ProcessorUse::default(),
            tainted: None,
        }
    }

    fn tainted(mut run: Run) -> Run {
        run.tainted = Some("strangers".to_owned());
        run
    }

    fn five_times() -> Requirement<'static> {
        Requirement::bar("at least five times", "x", Bound::AtLeast(5.0))
    }

    #[test]
    fn a_ratio_is_that_of_the_medians_and_its_spread_that_of_the_rounds() -> anyhow::Result<()> {
        let runs = [
            run("ours", 1, 100.0),
            run("theirs", 1, 10.0),
            run("ours", 2, 60.0),
            run("theirs", 2, 15.0),
            run("ours", 3, 80.0),
            run("theirs", 3, 20.0),
        ];
        let judgement =
            Evidence::from_runs(&runs, 3).ratio(five_times(), "ours", "theirs", "rate")?;
        assert_eq!(judgement.figure, 80.0 / 15.0);
        assert_eq!((judgement.lowest, judgement.highest), (4.0, 10.0));
        assert_eq!(judgement.verdict, Verdict::Pass);
        assert!(!judgement.tainted);
        Ok(())
    }

    #[test]
    fn values_just_short_of_their_bound_are_misses() -> anyhow::Result<()> {
        let runs = [run("ours", 1, 4.999)];
        assert_eq!(
            Evidence::from_runs(&runs, 1)
                .median(five_times(), "ours", "rate")?
                .verdict,
            Verdict::Miss
        );
        let exact = [run("ours", 1, 5.0)];
        assert_eq!(
            Evidence::from_runs(&exact, 1)
                .median(five_times(), "ours", "rate")?
                .verdict,
            Verdict::Pass
        );
        Ok(())
    }

    #[test]
    fn tainted_rounds_do_not_count_while_enough_are_clean() -> anyhow::Result<()> {
        let runs = [
            run("ours", 1, 6.0),
            tainted(run("ours", 2, 1.0)),
            run("ours", 3, 8.0),
        ];
        let judgement = Evidence::from_runs(&runs, 2).median(five_times(), "ours", "rate")?;
        assert_eq!(
            (judgement.figure, judgement.rounds, judgement.tainted),
            (7.0, 2, false)
        );
        Ok(())
    }

    #[test]
    fn with_too_few_clean_rounds_all_rounds_are_judged_and_marked() -> anyhow::Result<()> {
        let runs = [run("ours", 1, 6.0), tainted(run("ours", 2, 1.0))];
        let judgement = Evidence::from_runs(&runs, 2).median(five_times(), "ours", "rate")?;
        assert_eq!(
            (judgement.figure, judgement.verdict, judgement.tainted),
            (3.5, Verdict::Miss, true)
        );
        Ok(())
    }

    #[test]
    fn rivals_are_judged_by_their_best_result() -> anyhow::Result<()> {
        let runs = [run("batch 100", 1, 10.0), run("batch 1000", 1, 12.0)];
        assert_eq!(
            Evidence::from_runs(&runs, 1).best(&["batch 100", "batch 1000"], "rate")?,
            "batch 1000"
        );
        Ok(())
    }

    #[test]
    fn forbidden_results_are_judged_by_the_worst_round() -> anyhow::Result<()> {
        let runs = [
            run("ours", 1, 0.0),
            run("ours", 2, 3.0),
            run("ours", 3, 0.0),
        ];
        let none = Requirement::bar("none", "tuples", Bound::AtMost(0.0));
        let judgement = Evidence::from_runs(&runs, 3).highest(none, "ours", "rate")?;
        assert_eq!((judgement.figure, judgement.verdict), (3.0, Verdict::Miss));
        Ok(())
    }

    #[test]
    fn a_missing_figure_is_an_error_and_never_a_pass() {
        let runs = [run("ours", 1, 10.0)];
        assert!(
            Evidence::from_runs(&runs, 1)
                .median(five_times(), "ours", "speed")
                .is_err()
        );
    }

    #[test]
    fn upper_bounds_are_inclusive() {
        assert!(Bound::AtMost(0.0).admits(0.0));
        assert!(!Bound::AtMost(0.0).admits(1.0));
    }
}
