//! Interleaved rounds: every contestant once per round, each round beginning with a different one.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::taint::ProcessorUse;

/// The limit for repeating tainted rounds, per requested round.
const EXTRA_ROUNDS_PER_WANTED: u32 = 1;

/// The figures of one run of a contestant.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Figures {
    /// Single figures by name; the unit is part of the name.
    pub(crate) values: BTreeMap<String, f64>,
    /// Figures over time, in order.
    pub(crate) series: BTreeMap<String, Vec<f64>>,
    /// The CPU time during the measurement.
    pub(crate) processor: ProcessorUse,
}

impl Figures {
    /// Creates figures with only the CPU time.
    pub(crate) fn measured_under(processor: ProcessorUse) -> Self {
        Self {
            processor,
            ..Self::default()
        }
    }

    /// Adds one figure.
    pub(crate) fn with(mut self, name: &str, value: f64) -> Self {
        self.values.insert(name.to_owned(), value);
        self
    }

    /// Adds one figure over time.
    pub(crate) fn with_series(mut self, name: &str, values: Vec<f64>) -> Self {
        self.series.insert(name.to_owned(), values);
        self
    }
}

/// One contestant's run in one round, as stored in the report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) contestant: String,
    pub(crate) round: u32,
    pub(crate) figures: BTreeMap<String, f64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) series: BTreeMap<String, Vec<f64>>,
    pub(crate) processor: ProcessorUse,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tainted: Option<String>,
}

/// Runs rounds until `wanted` of them are clean, or until the extra ones are used up as well. Runs
/// are stored as they end, so that a failure keeps the earlier ones.
pub(crate) async fn play(
    contestants: &[&str],
    wanted: u32,
    runs: &mut Vec<Run>,
    mut once: impl AsyncFnMut(usize) -> Result<Figures>,
) -> Result<()> {
    let most = wanted.saturating_mul(1 + EXTRA_ROUNDS_PER_WANTED);
    for round in 1..=most {
        for index in order(contestants.len(), round) {
            let contestant = contestants.get(index).copied().unwrap_or_default();
            let figures = once(index)
                .await
                .with_context(|| format!("{contestant}, round {round}"))?;
            let run = Run {
                contestant: contestant.to_owned(),
                round,
                tainted: figures.processor.taint(),
                figures: figures.values,
                series: figures.series,
                processor: figures.processor,
            };
            announce(&run);
            runs.push(run);
        }
        if clean_rounds(runs).len() >= wanted as usize {
            break;
        }
    }
    Ok(())
}

/// The rounds in which no run is tainted.
pub(crate) fn clean_rounds(runs: &[Run]) -> BTreeSet<u32> {
    let tainted: BTreeSet<u32> = runs
        .iter()
        .filter(|run| run.tainted.is_some())
        .map(|run| run.round)
        .collect();
    runs.iter()
        .map(|run| run.round)
        .filter(|round| !tainted.contains(round))
        .collect()
}

/// The rounds on which figures are based: the clean ones if there are `wanted` of them, else all.
/// The flag is true if tainted rounds had to be used.
pub(crate) fn counted_rounds(runs: &[Run], wanted: u32) -> (BTreeSet<u32>, bool) {
    let clean = clean_rounds(runs);
    if clean.len() >= wanted as usize {
        return (clean, false);
    }
    (runs.iter().map(|run| run.round).collect(), true)
}

/// The order in which contestants run in a round.
pub(crate) fn order(contestants: usize, round: u32) -> impl Iterator<Item = usize> {
    (0..contestants).map(move |place| (place + round as usize - 1) % contestants)
}

/// Prints the figures of a run.
pub(crate) fn announce(run: &Run) {
    let figures: Vec<String> = run
        .figures
        .iter()
        .map(|(name, value)| format!("{name} {value:.2}"))
        .collect();
    let taint = run
        .tainted
        .as_deref()
        .map(|reason| format!("  [tainted: {reason}]"))
        .unwrap_or_default();
    eprintln!(
        "  round {} {}: {}{taint}",
        run.round,
        run.contestant,
        figures.join(", ")
    );
}

#[cfg(test)]
mod tests {
    use super::{Figures, Run, clean_rounds, order, play};
    use crate::taint::ProcessorUse;

    #[test]
    fn each_round_begins_with_another_contestant_and_meets_all() {
        assert_eq!(order(3, 1).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(order(3, 2).collect::<Vec<_>>(), [1, 2, 0]);
        assert_eq!(order(3, 3).collect::<Vec<_>>(), [2, 0, 1]);
        assert_eq!(order(3, 4).collect::<Vec<_>>(), [0, 1, 2]);
    }

    fn disturbed() -> ProcessorUse {
        ProcessorUse {
            stolen: 0.5,
            ..ProcessorUse::default()
        }
    }

    async fn rounds_played(wanted: u32, tainted_runs: &[usize]) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut count = 0;
        let played = play(&["one", "two"], wanted, &mut runs, async |_| {
            let processor = if tainted_runs.contains(&count) {
                disturbed()
            } else {
                ProcessorUse::default()
            };
            count += 1;
            Ok(Figures::measured_under(processor))
        });
        assert!(played.await.is_ok());
        runs
    }

    #[tokio::test]
    async fn a_tainted_run_taints_its_round_and_one_more_round_is_played() {
        let runs = rounds_played(3, &[2]).await;
        assert_eq!(runs.len(), 8);
        assert_eq!(
            clean_rounds(&runs).into_iter().collect::<Vec<_>>(),
            [1, 3, 4]
        );
    }

    #[tokio::test]
    async fn rounds_end_on_a_machine_that_is_never_quiet() {
        let runs = rounds_played(2, &[0, 1, 2, 3, 4, 5, 6, 7]).await;
        assert_eq!(runs.len(), 8);
        assert!(clean_rounds(&runs).is_empty());
    }

    #[tokio::test]
    async fn failures_keep_earlier_measurements() {
        let mut runs = Vec::new();
        let mut count = 0;
        let played = play(&["one", "two"], 2, &mut runs, async |_| {
            count += 1;
            anyhow::ensure!(count < 3, "the pin was not held");
            Ok(Figures::default())
        });
        assert!(played.await.is_err());
        assert_eq!(runs.len(), 2);
    }
}
