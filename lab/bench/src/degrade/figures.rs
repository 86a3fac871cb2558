//! The figures of a run: before the hold, in its last tenth, and after it.

use serde::{Deserialize, Serialize};

use super::run::Outcome;
use super::sample::Sample;
use crate::statistics::{Spread, greatest};

/// A figure before the hold and in its last tenth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) before: Option<f64>,
    pub(crate) under: Option<f64>,
}

impl Change {
    /// The ratio of the two.
    pub(crate) fn factor(self) -> Option<f64> {
        let before = self.before.filter(|before| *before > 0.0)?;
        Some(self.under? / before)
    }

    /// The difference of the two.
    pub(crate) fn growth(self) -> Option<f64> {
        Some(self.under? - self.before?)
    }
}

/// The figures of one algorithm's run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) algorithm: String,
    pub(crate) waiting: Change,
    pub(crate) claim_p50_ms: Change,
    pub(crate) claim_p99_ms: Change,
    pub(crate) claim_blocks: Change,
    pub(crate) start_p99_ms: Change,
    pub(crate) dead: Change,
    /// Jobs finished per second.
    pub(crate) finished_per_s: Change,
    /// The time from the beginning of the hold until the queue no longer keeps up.
    pub(crate) lasted_s: Option<f64>,
    /// The time from the end of the hold until no more jobs wait than before it.
    pub(crate) recovered_s: Option<f64>,
    /// The time of observation after the hold.
    pub(crate) watched_s: f64,
    /// The share of samples in which the machine was busy with other work.
    pub(crate) tainted: f64,
    /// The greatest delay of a producer.
    pub(crate) late_s: f64,
}

impl Figures {
    /// Reduces a run; `None` if nothing held the horizon, or if a phase has no sample. `limit` is
    /// the number of waiting jobs above which a queue does not keep up.
    pub(crate) fn read(outcome: &Outcome, limit: u64) -> Option<Self> {
        let starts = outcome.holds.iter().map(|hold| hold.from_s);
        let from = starts.min_by(f64::total_cmp)?;
        let ends = outcome.holds.iter().map(|hold| hold.to_s);
        let to = ends.max_by(f64::total_cmp)?;
        let samples = &outcome.samples;
        let before = between(samples, 0.0, from);
        let under = between(samples, to - (to - from) / 10.0, to);
        let after = between(samples, to, f64::INFINITY);
        if before.is_empty() || under.is_empty() {
            return None;
        }
        let change = |figure: fn(&Sample) -> Option<f64>| Change {
            before: median(&before, figure),
            under: median(&under, figure),
        };
        let calm = highest(&before, |sample| sample.waiting as f64);
        let held = between(samples, from, to);
        let tainted = samples.iter().filter(|sample| sample.tainted).count();
        Some(Self {
            algorithm: outcome.algorithm.clone(),
            waiting: Change {
                before: Some(calm),
                under: median(&under, |sample| Some(sample.waiting as f64)),
            },
            claim_p50_ms: change(|sample| sample.claim_p50_ms),
            claim_p99_ms: change(|sample| sample.claim_p99_ms),
            claim_blocks: change(|sample| sample.claim_blocks),
            start_p99_ms: change(|sample| sample.start_p99_ms),
            dead: Change {
                before: Some(highest(&before, |sample| sample.dead as f64)),
                under: Some(highest(&under, |sample| sample.dead as f64)),
            },
            finished_per_s: Change {
                before: rate(&before),
                under: rate(&under),
            },
            lasted_s: held
                .iter()
                .find(|sample| sample.waiting > limit)
                .map(|sample| sample.at_s - from),
            recovered_s: after
                .iter()
                .find(|sample| sample.waiting as f64 <= calm)
                .map(|sample| sample.at_s - to),
            watched_s: after.last().map_or(0.0, |last| last.at_s - to),
            tainted: tainted as f64 / samples.len().max(1) as f64,
            late_s: highest(&samples.iter().collect::<Vec<_>>(), |sample| sample.late_s),
        })
    }

    /// The figures in one line for the terminal.
    pub(crate) fn line(&self) -> String {
        let ms = |change: Change| format!("{} → {}", shown(change.before), shown(change.under));
        format!(
            "{:<19} claim {} ms, {} blocks; waiting {}; dead {}; {}; {}",
            self.algorithm,
            ms(self.claim_p50_ms),
            ms(self.claim_blocks),
            ms(self.waiting),
            ms(self.dead),
            self.lasted_s.map_or_else(
                || "kept up".to_owned(),
                |lasted| format!("kept up for {lasted:.0} s")
            ),
            self.recovered_s.map_or_else(
                || "not recovered".to_owned(),
                |recovered| format!("recovered in {recovered:.1} s")
            ),
        )
    }
}

/// Formats a figure with three digits.
pub(crate) fn shown(figure: Option<f64>) -> String {
    match figure {
        None => "–".to_owned(),
        Some(figure) if figure.abs() >= 100.0 || figure == 0.0 => format!("{figure:.0}"),
        Some(figure) if figure.abs() >= 10.0 => format!("{figure:.1}"),
        Some(figure) => format!("{figure:.2}"),
    }
}

fn between(samples: &[Sample], from: f64, to: f64) -> Vec<&Sample> {
    samples
        .iter()
        .filter(|sample| sample.at_s >= from && sample.at_s < to)
        .collect()
}

fn median(samples: &[&Sample], figure: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
    let all: Vec<f64> = samples.iter().filter_map(|sample| figure(sample)).collect();
    Spread::of(&all).map(|spread| spread.median)
}

fn highest(samples: &[&Sample], figure: impl Fn(&Sample) -> f64) -> f64 {
    greatest(
        &samples
            .iter()
            .map(|sample| figure(sample))
            .collect::<Vec<_>>(),
    )
}

fn rate(samples: &[&Sample]) -> Option<f64> {
    let (first, last) = (samples.first()?, samples.last()?);
    let seconds = last.at_s - first.at_s;
    (seconds > 0.0).then(|| (last.finished - first.finished) as f64 / seconds)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Change, Figures, shown};
    use crate::degrade::run::{Held, Outcome};
    use crate::degrade::sample::Sample;

    /// A run of 100 seconds, held from 20 to 80, with a modification of each second.
    pub(crate) fn run(mut each: impl FnMut(f64, &mut Sample)) -> Outcome {
        let samples = (0..100).map(|second| {
            let mut sample = Sample {
                at_s: f64::from(second),
                claim_blocks: Some(10.0),
                claim_p50_ms: Some(1.0),
                finished: second as u64 * 50,
                ..Sample::default()
            };
            each(sample.at_s, &mut sample);
            sample
        });
        Outcome {
            algorithm: "mine".to_owned(),
            holds: vec![Held {
                kind: "snapshot".to_owned(),
                from_s: 20.0,
                to_s: 80.0,
                let_go: None,
            }],
            failure: None,
            lost: 0,
            samples: samples.collect(),
        }
    }

    #[test]
    fn the_minutes_before_are_set_against_the_last_tenth_of_the_hold() {
        let outcome = run(|at, sample| {
            sample.claim_blocks = Some(if (74.0..80.0).contains(&at) {
                40.0
            } else {
                10.0
            });
            sample.waiting = match at {
                ..20.0 => 3,
                ..60.0 => 50,
                ..90.0 => 500,
                _ => 2,
            };
        });
        let figures = Figures::read(&outcome, 100);
        let Some(figures) = figures else {
            panic!("the run has all phases");
        };
        assert_eq!(figures.claim_blocks.factor(), Some(4.0));
        assert_eq!(figures.claim_p50_ms.factor(), Some(1.0));
        assert_eq!(figures.waiting.growth(), Some(497.0));
        assert_eq!(figures.lasted_s, Some(40.0));
        assert_eq!(figures.recovered_s, Some(10.0));
        assert_eq!(figures.finished_per_s.under, Some(50.0));
    }

    #[test]
    fn empty_runs_are_not_compared() {
        assert_eq!(Change::default().factor(), None);
        let zero = Change {
            before: Some(0.0),
            under: Some(1.0),
        };
        assert_eq!((zero.factor(), zero.growth()), (None, Some(1.0)));
        let mut outcome = run(|_, _| {});
        outcome.holds.clear();
        assert_eq!(Figures::read(&outcome, 100), None);
        assert_eq!(shown(None), "–");
        assert_eq!(
            [0.0, 0.034, 12.34, 1234.5].map(|it| shown(Some(it))),
            ["0", "0.03", "12.3", "1234"]
        );
    }
}
