//! The generated page, made from reports alone.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::circumstances::circumstances;
use super::figures::figures;
use super::number::number;
use super::wrap::wrapped;
use super::{Bar, Report};
use crate::rounds::{clean_rounds, counted_rounds};
use crate::verdict::{Bound, Judgement, Verdict, Weight};

const HEAD: &str = "\
# Benchmarks

`make bench` measures every bar, and installs what it needs on Debian and Ubuntu. Drain, enqueue,
latency, idle and wal took 20 minutes. A *bar* is a measurement with bounds; an aim is not required.
Each stands here as its newest full report has it. **Compare within a bar only:** reports are of
[different machines](#how-it-was-measured). Contestants ran in interleaved rounds on one server. A
figure is the median of the rounds that count, with their lowest and highest in brackets.

`posthaste-bench report` writes this page; do not edit it.

";

/// Generates the page; `reports` are full reports, the newest last, each with its file's name.
pub(crate) fn page(reports: &[(String, Report)]) -> String {
    let mut text = HEAD.to_owned();
    let shown = newest_bars(reports);
    overview(&mut text, &shown);
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

/// One judgement in the format of the terminal.
pub(crate) fn judgement_line(judgement: &Judgement) -> String {
    let Judgement {
        requirement, basis, ..
    } = judgement;
    format!(
        "{}: {requirement}: {} (bound {}; single rounds {}; {basis})",
        verdict(judgement).replace('*', ""),
        measure(judgement.figure, &judgement.unit),
        bound(judgement, &judgement.unit),
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
        let bar = crate::bars::ORDER.iter().position(|known| *known == name);
        let capture = crate::capture::place(name).map(|row| 100 + row);
        let peer = crate::peers::place(name).map(|row| 200 + row);
        bar.or(capture).or(peer).unwrap_or(usize::MAX)
    };
    shown.sort_by_key(|(_, _, bar)| place(&bar.name));
    shown
}

/// Writes how many bounds and aims were reached, which were missed, and links to each bar.
fn overview(text: &mut String, shown: &[(&str, &Report, &Bar)]) {
    let counted = |weight: Weight| {
        let all = shown.iter().flat_map(|(_, _, bar)| &bar.judgements);
        let judged: Vec<&Judgement> = all.filter(|one| one.weight == weight).collect();
        let passed = judged
            .iter()
            .filter(|one| one.verdict == Verdict::Pass)
            .count();
        format!("{passed} of {}", judged.len())
    };
    let links = |wanted: &dyn Fn(&Bar) -> bool| {
        let bars = shown
            .iter()
            .map(|(_, _, bar)| *bar)
            .filter(|bar| wanted(bar));
        let links = bars.map(|bar| format!("[{}](#{})", bar.name, anchor(&heading(bar))));
        links.collect::<Vec<String>>().join(", ")
    };
    let told = format!(
        "Bounds passed: {}. Aims reached: {}. Bars: {}.",
        counted(Weight::Bar),
        counted(Weight::Aim),
        links(&|_| true)
    );
    let _ = writeln!(text, "{}", wrapped(&told, ""));
    let missed = links(&|bar| !bar.passed());
    if !missed.is_empty() {
        let _ = writeln!(text, "\n{}", wrapped(&format!("**MISSED**: {missed}."), ""));
    }
}

fn heading(bar: &Bar) -> String {
    format!("{}: {}", bar.name, bar.title)
}

fn section(text: &mut String, file: &str, bar: &Bar) {
    let _ = writeln!(text, "\n## {}\n", heading(bar));
    let _ = writeln!(text, "{}\n", wrapped(&about(&bar.name), ""));
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
    let tainted = match tainted {
        0 => String::new(),
        some => format!(", tainted {some}"),
    };
    let (rounds, _) = counted_rounds(&bar.runs, bar.rounds_wanted);
    let origin = format!(
        "`make bench ARGS=\"{}\"`; {parameters}rounds {}{tainted}; {}.",
        arguments(&bar.name),
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

/// The description of a bar or of a row of `capture` or `peers`.
fn about(name: &str) -> String {
    let (bar, capture) = (crate::bars::about(name), crate::capture::about(name));
    [bar, capture, crate::peers::about(name)].concat()
}

/// The figures of a table, with their labels.
pub(super) fn columns(name: &str) -> Vec<(&'static str, &'static str)> {
    let (bar, capture) = (crate::bars::figures(name), crate::capture::figures(name));
    [bar, capture, crate::peers::figures(name)].concat()
}

/// The arguments with which the bench measures it.
fn arguments(name: &str) -> String {
    match (crate::capture::place(name), crate::peers::place(name)) {
        (Some(_), _) => format!("capture --only {name}"),
        (_, Some(_)) => "peers".to_owned(),
        _ => format!("--only {name}"),
    }
}

fn requirements(text: &mut String, bar: &Bar) {
    if let Some(failure) = &bar.failure {
        let _ = writeln!(text, "**MISS**: could not be measured: {failure}");
    }
    if bar.judgements.is_empty() {
        return;
    }
    if bar.failure.is_some() {
        text.push('\n');
    }
    text.push_str("| requirement | figure | bound | verdict |\n|---|---|---|---|\n");
    for judgement in &bar.judgements {
        let range = range(judgement.lowest, judgement.highest, judgement.rounds);
        let _ = writeln!(
            text,
            "| {} | {}{range} | {} | {} |",
            judgement.requirement,
            measure(judgement.figure, &judgement.unit),
            bound(judgement, ""),
            verdict(judgement),
        );
    }
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

/// Formats the bound with a unit, or without one next to a figure that has it.
fn bound(judgement: &Judgement, unit: &str) -> String {
    match judgement.bound {
        Bound::AtLeast(least) => format!("≥ {}", measure(least, unit)),
        Bound::AtMost(most) => format!("≤ {}", measure(most, unit)),
    }
}

fn measure(value: f64, unit: &str) -> String {
    match unit {
        "" => number(value),
        "x" | "%" => format!("{} {unit}", number(value)).replace(" x", "×"),
        _ => format!("{} {unit}", number(value)),
    }
}

/// The extremes of a figure, if there was more than one round.
pub(super) fn range(lowest: f64, highest: f64, rounds: usize) -> String {
    if rounds > 1 {
        let between = if lowest < 0.0 { " to " } else { "–" };
        format!(" ({}{between}{})", number(lowest), number(highest))
    } else {
        String::new()
    }
}

pub(super) fn link(file: &str) -> String {
    format!("[{file}](../benchmarks/{file})")
}

/// The anchor of a heading.
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
