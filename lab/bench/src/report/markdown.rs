//! The page that people read, made from reports alone: nothing in it is typed by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::circumstances::circumstances;
use super::number::number;
use super::wrap::wrapped;
use super::{Bar, Report};
use crate::rounds::{Run, clean_rounds, counted_rounds};
use crate::statistics::Spread;
use crate::verdict::{Bound, Judgement, Verdict, Weight};

const HEAD: &str = "\
# Benchmarks

`posthaste-bench report` writes this page from the files in `docs/benchmarks`; do not edit it. A
*bar* is a measurement with a bound. Each bar is shown from the newest full report that measured it:
all its contestants ran in interleaved rounds on one server. A figure is the median of the rounds
that count, with the lowest and the highest of them in brackets. An aim is not required.

`make bench` measures all bars on your machine.

| bar | what is measured | bounds | aims |
|---|---|---|---|
";

/// The whole page; `reports` are full reports, the newest last, each with its file's name.
pub(crate) fn page(reports: &[(String, Report)]) -> String {
    let mut text = HEAD.to_owned();
    let shown = newest_bars(reports);
    for (_, _, bar) in &shown {
        overview(&mut text, bar);
    }
    for (file, _, bar) in &shown {
        section(&mut text, file, bar);
    }
    let used: BTreeSet<&str> = shown.iter().map(|(file, _, _)| *file).collect();
    let used: Vec<&(String, Report)> = reports
        .iter()
        .filter(|(file, _)| used.contains(file.as_str()))
        .collect();
    circumstances(&mut text, &used);
    text
}

/// One judgement as the bench prints it while it runs.
pub(crate) fn judgement_line(judgement: &Judgement) -> String {
    let Judgement {
        requirement, basis, ..
    } = judgement;
    format!(
        "{}: {requirement}: {} (bound {}; single rounds {}; {basis})",
        verdict(judgement).replace('*', ""),
        measure(judgement.figure, &judgement.unit),
        bound(judgement),
        format_args!(
            "{} to {}",
            number(judgement.lowest),
            number(judgement.highest)
        ),
    )
}

fn newest_bars(reports: &[(String, Report)]) -> Vec<(&str, &Report, &Bar)> {
    let mut shown: Vec<(&str, &Report, &Bar)> = Vec::new();
    for (file, report) in reports {
        for bar in &report.bars {
            shown.retain(|(_, _, other)| other.name != bar.name);
            shown.push((file, report, bar));
        }
    }
    let place = |name: &str| {
        crate::bars::ORDER
            .iter()
            .position(|known| *known == name)
            .unwrap_or(usize::MAX)
    };
    shown.sort_by_key(|(_, _, bar)| place(&bar.name));
    shown
}

fn overview(text: &mut String, bar: &Bar) {
    let told = |weight: Weight, word: &str| {
        let judged = || bar.judgements.iter().filter(|one| one.weight == weight);
        let held = judged().filter(|one| one.verdict == Verdict::Pass).count();
        match (judged().count(), &bar.failure) {
            (_, Some(_)) if weight == Weight::Bar => "**MISS**".to_owned(),
            (0, _) => String::new(),
            (all, _) => format!("{held} of {all} {word}"),
        }
    };
    let heading = format!("{}: {}", bar.name, bar.title);
    let _ = writeln!(
        text,
        "| [{}](#{}) | {} | {} | {} |",
        bar.name,
        anchor(&heading),
        bar.title,
        told(Weight::Bar, "passed"),
        told(Weight::Aim, "reached"),
    );
}

fn section(text: &mut String, file: &str, bar: &Bar) {
    let _ = writeln!(text, "\n## {}: {}\n", bar.name, bar.title);
    let _ = writeln!(text, "{}\n", wrapped(crate::bars::about(&bar.name), ""));
    let parameters: String = bar
        .parameters
        .iter()
        .map(|(name, value)| format!("{name} {value}; "))
        .collect();
    let tainted = bar
        .runs
        .iter()
        .map(|run| run.round)
        .collect::<BTreeSet<_>>()
        .len()
        - clean_rounds(&bar.runs).len();
    let (rounds, _) = counted_rounds(&bar.runs, bar.rounds_wanted);
    let origin = format!(
        "`make bench ARGS=\"--only {}\"`; {parameters}rounds: {}, tainted: {tainted}; from {}.",
        bar.name,
        rounds.len(),
        link(file)
    );
    let _ = writeln!(text, "{}\n", wrapped(&origin, ""));
    for note in &bar.notes {
        let _ = writeln!(text, "{}\n", wrapped(note, ""));
    }
    requirements(text, bar);
    figures(text, bar);
}

fn requirements(text: &mut String, bar: &Bar) {
    if let Some(failure) = &bar.failure {
        let _ = writeln!(text, "**MISS**: could not be measured: {failure}\n");
    }
    if bar.judgements.is_empty() {
        return;
    }
    text.push_str("| requirement | compared | bound | figure | verdict |\n|---|---|---|---|---|\n");
    for judgement in &bar.judgements {
        let range = range(judgement.lowest, judgement.highest, judgement.rounds);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {}{range} | {} |",
            judgement.requirement,
            judgement.basis.replace('_', " "),
            bound(judgement),
            measure(judgement.figure, &judgement.unit),
            verdict(judgement),
        );
    }
    text.push('\n');
}

/// A table with a line for each figure and a column for each contestant, or the other way round
/// where that has fewer columns.
fn figures(text: &mut String, bar: &Bar) {
    let contestants = contestants(&bar.runs);
    let measured: BTreeMap<&str, BTreeMap<&str, Spread>> = contestants
        .iter()
        .map(|contestant| (*contestant, spreads(bar, contestant)))
        .collect();
    let names: BTreeSet<&str> = measured
        .values()
        .flat_map(BTreeMap::keys)
        .copied()
        .collect();
    if names.is_empty() {
        return;
    }
    let rounds = counted_rounds(&bar.runs, bar.rounds_wanted).0.len();
    let cell = |contestant: &str, name: &str| {
        let spread = measured.get(contestant).and_then(|all| all.get(name));
        spread.map_or_else(String::new, |spread| {
            let range = range(spread.lowest, spread.highest, rounds);
            format!("{}{range}", number(spread.median))
        })
    };
    let names: Vec<&str> = names.into_iter().collect();
    if contestants.len() <= names.len() {
        table(text, &contestants, &names, |column, line| {
            cell(column, line)
        });
    } else {
        table(text, &names, &contestants, |column, line| {
            cell(line, column)
        });
    }
}

fn table(text: &mut String, columns: &[&str], lines: &[&str], cell: impl Fn(&str, &str) -> String) {
    let head: String = columns
        .iter()
        .map(|column| format!(" {} |", column.replace('_', " ")))
        .collect();
    let _ = writeln!(text, "| |{head}\n|---|{}", "---|".repeat(columns.len()));
    for line in lines {
        let cells: String = columns
            .iter()
            .map(|column| format!(" {} |", cell(column, line)))
            .collect();
        let _ = writeln!(text, "| {} |{cells}", line.replace('_', " "));
    }
}

fn contestants(runs: &[Run]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for run in runs {
        if !names.contains(&run.contestant.as_str()) {
            names.push(&run.contestant);
        }
    }
    names
}

fn spreads<'a>(bar: &'a Bar, contestant: &str) -> BTreeMap<&'a str, Spread> {
    let (rounds, _) = counted_rounds(&bar.runs, bar.rounds_wanted);
    let counted: Vec<&Run> = bar
        .runs
        .iter()
        .filter(|run| run.contestant == contestant && rounds.contains(&run.round))
        .collect();
    let names: BTreeSet<&str> = counted
        .iter()
        .flat_map(|run| run.figures.keys().map(String::as_str))
        .collect();
    names
        .into_iter()
        .filter_map(|name| {
            let sample: Vec<f64> = counted
                .iter()
                .filter_map(|run| run.figures.get(name).copied())
                .collect();
            Some((name, Spread::of(&sample)?))
        })
        .collect()
}

fn verdict(judgement: &Judgement) -> String {
    let word = match (judgement.weight, judgement.verdict) {
        (Weight::Bar, Verdict::Pass) => "pass",
        (Weight::Bar, Verdict::Miss) => "**MISS**",
        (Weight::Aim, Verdict::Pass) => "aim reached",
        (Weight::Aim, Verdict::Miss) => "aim not reached",
    };
    if judgement.tainted {
        format!("{word} (tainted)")
    } else {
        word.to_owned()
    }
}

fn bound(judgement: &Judgement) -> String {
    match judgement.bound {
        Bound::AtLeast(least) => format!("≥ {}", measure(least, &judgement.unit)),
        Bound::AtMost(most) => format!("≤ {}", measure(most, &judgement.unit)),
    }
}

fn measure(value: f64, unit: &str) -> String {
    match unit {
        "" => number(value),
        "x" | "%" => format!("{} {unit}", number(value)).replace(" x", "×"),
        _ => format!("{} {unit}", number(value)),
    }
}

/// The extremes behind a figure, where there was more than one round.
fn range(lowest: f64, highest: f64, rounds: usize) -> String {
    if rounds > 1 {
        format!(" ({} to {})", number(lowest), number(highest))
    } else {
        String::new()
    }
}

pub(super) fn link(file: &str) -> String {
    format!("[{file}](../benchmarks/{file})")
}

/// The name by which a heading is linked to.
fn anchor(heading: &str) -> String {
    heading
        .chars()
        .filter(|one| one.is_alphanumeric() || " -_".contains(*one))
        .map(|one| {
            if one == ' ' {
                '-'
            } else {
                one.to_ascii_lowercase()
            }
        })
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::page;
    use crate::machine::Machine;
    use crate::report::{Bar, Report, ServerFacts};
    use crate::rounds::Run;
    use crate::taint::ProcessorUse;
    use crate::verdict::{Bound, Evidence, Requirement};

    /// A report of two bars: one passed with an aim not reached, one that failed.
    pub(crate) fn sample() -> Report {
        let mut drain = Bar::new("drain", "a backlog through the library", 1);
        drain.parameter("jobs", 300_000);
        drain.notes.push("A rival was not installed.".to_owned());
        drain.runs = vec![
            run("posthaste", 1, 120_000.0, None),
            run("update_shape at 1000", 1, 20_000.5, None),
            run(
                "posthaste",
                2,
                5_000.0,
                Some("30 % of the processor went to strangers"),
            ),
            run("update_shape at 1000", 2, 20_100.0, None),
        ];
        drain.judgements = judgements(&drain.runs).unwrap_or_default();
        let mut churn = Bar::new("churn", "a steady load after spent jobs", 1);
        churn.failure = Some("the pin was | not held".to_owned());
        Report {
            format: 1,
            started_at: "2026-11-20T10:00:00Z".to_owned(),
            finished_at: Some("2026-11-20T11:00:00Z".to_owned()),
            quick: false,
            revision: Some("0123abc".to_owned()),
            machine: Machine {
                cores: 2,
                processor: "A processor".to_owned(),
                kernel: "6.1".to_owned(),
                memory_bytes: 24 << 30,
                nice: 0,
            },
            server: ServerFacts {
                version: "15.18".to_owned(),
                file_system: "ext4".to_owned(),
                settings: [("fsync".to_owned(), "on".to_owned())].into(),
            },
            taint_rule: "a round is tainted by strangers".to_owned(),
            bars: vec![drain, churn],
        }
    }

    fn judgements(runs: &[Run]) -> anyhow::Result<Vec<crate::verdict::Judgement>> {
        let evidence = Evidence::from_runs(runs, 1);
        let times = Requirement::bar("times the update shape", "x", Bound::AtLeast(5.0));
        let rate = Requirement::aim("rate", "jobs/s", Bound::AtLeast(150_000.0));
        Ok(vec![
            evidence.ratio(
                times,
                "posthaste",
                "update_shape at 1000",
                "jobs_per_second",
            )?,
            evidence.median(rate, "posthaste", "jobs_per_second")?,
        ])
    }

    fn run(contestant: &str, round: u32, rate: f64, tainted: Option<&str>) -> Run {
        Run {
            contestant: contestant.to_owned(),
            round,
            figures: [("jobs_per_second".to_owned(), rate)].into(),
            series: [].into(),
            processor: ProcessorUse::default(),
            tainted: tainted.map(str::to_owned),
        }
    }

    #[test]
    fn the_page_is_made_from_the_report_alone() {
        let made = page(&[("2026-11-20.json".to_owned(), sample())]);
        assert_eq!(made, include_str!("golden.md"));
    }

    #[test]
    fn a_newer_report_replaces_only_the_bars_that_it_measured() {
        let mut newer = sample();
        newer.started_at = "2026-11-21T10:00:00Z".to_owned();
        newer.bars.truncate(1);
        let made = page(&[
            ("old.json".to_owned(), sample()),
            ("new.json".to_owned(), newer),
        ]);
        let section = |name: &str| made.split("\n## ").find(|part| part.starts_with(name));
        assert!(section("drain").is_some_and(|part| part.contains("[new.json]")));
        assert!(section("churn").is_some_and(|part| part.contains("[old.json]")));
    }
}
