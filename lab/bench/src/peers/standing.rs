//! Verdicts: posthaste against the best of the others, for each figure.

use anyhow::{Context, Result};

use super::roster::OURS;
use super::rows::Row;
use crate::rounds::Run;
use crate::verdict::{Bound, Evidence, Judgement, Requirement};

/// A figure in which posthaste should be the best.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Contest {
    figure: &'static str,
    text: &'static str,
    best: Best,
}

/// The least share of the offered load in percent; a queue with less is not compared.
const LEAST_OFFERED_PERCENT: f64 = 90.0;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Best {
    Highest,
    Lowest,
}

const RATE: Contest = Contest {
    figure: "jobs_per_second",
    text: "first in jobs per second: times the best other",
    best: Best::Highest,
};
const P50: Contest = lowest("start_p50_ms", "first in p50: share of the best other's");
const P99: Contest = lowest("start_p99_ms", "first in p99: share of the best other's");
const SERVER: Contest = lowest(
    "server_us_per_job",
    "first in server CPU: share of the best other's",
);
const STATEMENTS: Contest = lowest(
    "statements_per_job",
    "first in statements: share of the best other's",
);
const LAST_P99: Contest = lowest(
    "last_p99_ms",
    "first in p99 of the last third: share of the best other's",
);
const LAST_BLOCKS: Contest = lowest(
    "last_blocks_per_job",
    "first in blocks of the last third: share of the best other's",
);

const fn lowest(figure: &'static str, text: &'static str) -> Contest {
    Contest {
        figure,
        text,
        best: Best::Lowest,
    }
}

fn contests(row: Row) -> &'static [Contest] {
    match row {
        Row::Single | Row::Bulk | Row::Drain => &[RATE, SERVER],
        Row::Slow | Row::Fast => &[P50, P99, SERVER, STATEMENTS],
        Row::Pinned => &[LAST_P99, LAST_BLOCKS, SERVER],
    }
}

/// The verdicts of a row; none if posthaste is the only contestant.
pub(crate) fn judge(row: Row, runs: &[Run], rounds: u32) -> Result<Vec<Judgement>> {
    let mut others: Vec<&str> = Vec::new();
    for run in runs.iter().filter(|run| run.contestant != OURS) {
        if !others.contains(&run.contestant.as_str()) {
            others.push(&run.contestant);
        }
    }
    let evidence = Evidence::from_runs(runs, rounds);
    others.retain(|other| took_the_load(&evidence, other));
    if others.is_empty() {
        return Ok(Vec::new());
    }
    contests(row)
        .iter()
        .map(|contest| first(&evidence, &others, *contest))
        .collect()
}

/// Whether a queue took the load, without which its times prove nothing; rows without an offered
/// load compare all.
fn took_the_load(evidence: &Evidence<'_>, other: &str) -> bool {
    let offered = evidence.spread(other, "offered_percent");
    offered.is_ok_and(|spread| spread.median >= LEAST_OFFERED_PERCENT)
        || evidence.spread(other, "jobs_per_second").is_ok()
}

fn first(evidence: &Evidence<'_>, others: &[&str], contest: Contest) -> Result<Judgement> {
    let mut best: Option<(&str, f64)> = None;
    for other in others {
        let median = evidence.spread(other, contest.figure)?.median;
        let is_better = best.is_none_or(|(_, leader)| match contest.best {
            Best::Highest => median > leader,
            Best::Lowest => median < leader,
        });
        if is_better {
            best = Some((other, median));
        }
    }
    let (best, _) = best.context("no others")?;
    let bound = match contest.best {
        Best::Highest => Bound::AtLeast(1.0),
        Best::Lowest => Bound::AtMost(1.0),
    };
    let text = format!("{} ({best})", contest.text);
    let requirement = Requirement::bar(&text, "x", bound);
    evidence.ratio(requirement, OURS, best, contest.figure)
}

#[cfg(test)]
mod tests {
    use super::{Row, judge};
    use crate::rounds::Run;
    use crate::taint::ProcessorUse;
    use crate::verdict::Verdict;

    fn run(contestant: &str, round: u32, rate: f64, server: f64) -> Run {
        Run {
            contestant: contestant.to_owned(),
            round,
            figures: [
                ("jobs_per_second".to_owned(), rate),
                ("server_us_per_job".to_owned(), server),
            ]
            .into(),
            series: [].into(),
            processor: ProcessorUse::default(),
            tainted: None,
        }
    }

    #[test]
    fn judges_each_figure_against_the_best_of_the_others() -> anyhow::Result<()> {
        let runs = [
            run("posthaste", 1, 100.0, 20.0),
            run("river", 1, 50.0, 30.0),
            run("oban", 1, 40.0, 10.0),
        ];
        let judged = judge(Row::Drain, &runs, 1)?;
        let told: Vec<(f64, Verdict)> =
            judged.iter().map(|one| (one.figure, one.verdict)).collect();
        assert_eq!(told, [(2.0, Verdict::Pass), (2.0, Verdict::Miss)]);
        assert!(judged[0].requirement.contains("(river)"));
        assert!(judged[1].requirement.contains("(oban)"));
        Ok(())
    }

    #[test]
    fn queues_that_did_not_sustain_the_load_are_omitted() -> anyhow::Result<()> {
        let paced = |contestant: &str, offered: f64, figure: f64| {
            let mut paced = run(contestant, 1, 0.0, figure);
            paced.figures.remove("jobs_per_second");
            for name in ["start_p50_ms", "start_p99_ms", "statements_per_job"] {
                paced.figures.insert(name.to_owned(), figure);
            }
            paced.figures.insert("offered_percent".to_owned(), offered);
            paced
        };
        let runs = [
            paced("posthaste", 100.0, 2.0),
            paced("river", 99.0, 4.0),
            paced("oban", 60.0, 1.0),
        ];
        let judged = judge(Row::Fast, &runs, 1)?;
        assert!(judged.iter().all(|one| one.figure == 0.5), "{judged:?}");
        Ok(())
    }

    #[test]
    fn no_verdict_is_given_without_competitors() -> anyhow::Result<()> {
        assert!(judge(Row::Drain, &[run("posthaste", 1, 1.0, 1.0)], 1)?.is_empty());
        Ok(())
    }
}
