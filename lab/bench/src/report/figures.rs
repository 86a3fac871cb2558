//! The figures of a bar besides its requirements.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::Bar;
use super::markdown::range;
use super::number::number;
use super::wrap::wrapped;
use crate::rounds::{Run, counted_rounds};
use crate::statistics::Spread;

/// Writes the figures of a bar on the page: a table with the fewest columns, or a sentence if there
/// was one contestant.
pub(crate) fn figures(text: &mut String, bar: &Bar) {
    let rounds = counted_rounds(&bar.runs, bar.rounds_wanted).0.len();
    let contestants = contestants(&bar.runs);
    let measured: BTreeMap<&str, BTreeMap<&str, Spread>> = contestants
        .iter()
        .map(|contestant| (*contestant, spreads(bar, contestant)))
        .collect();
    let cell = |contestant: &str, name: &str| {
        let spread = measured.get(contestant).and_then(|all| all.get(name));
        spread.map_or_else(String::new, |spread| {
            let range = range(spread.lowest, spread.highest, rounds);
            format!("{}{range}", number(spread.median))
        })
    };
    let shown: Vec<(&str, &str)> = super::markdown::columns(&bar.name)
        .into_iter()
        .filter(|(name, _)| measured.values().any(|all| all.contains_key(name)))
        .collect();
    let has_figures = |one: &&str| shown.iter().any(|(name, _)| !cell(one, name).is_empty());
    let contestants: Vec<&str> = contestants.into_iter().filter(has_figures).collect();
    if contestants.is_empty() {
        return;
    }
    if let [alone] = contestants[..] {
        let told: Vec<String> = shown
            .iter()
            .map(|(name, label)| format!("{label} {}", cell(alone, name)))
            .collect();
        let told = format!("Also measured: {}.", told.join("; "));
        let _ = writeln!(text, "\n{}", wrapped(&told, ""));
    } else if contestants.len() < shown.len() {
        let lines: Vec<(&str, &str)> = shown;
        let columns: Vec<(&str, &str)> = contestants.iter().map(|one| (*one, *one)).collect();
        table(text, &columns, &lines, |column, line| cell(column, line));
    } else {
        let lines: Vec<(&str, &str)> = contestants.iter().map(|one| (*one, *one)).collect();
        table(text, &shown, &lines, |column, line| cell(line, column));
    }
}

/// Writes a table of columns and lines, each with the name that finds its cells and its label.
fn table(
    text: &mut String,
    columns: &[(&str, &str)],
    lines: &[(&str, &str)],
    cell: impl Fn(&str, &str) -> String,
) {
    let row = |first: &str, cells: &mut dyn Iterator<Item = String>| {
        [first.to_owned()]
            .into_iter()
            .chain(cells)
            .map(|cell| format!("| {cell} ").replace("  ", " "))
            .collect::<String>()
            + "|"
    };
    let labels = &mut columns.iter().map(|(_, label)| label.replace('_', " "));
    let _ = writeln!(
        text,
        "\n{}\n|---|{}",
        row("", labels),
        "---|".repeat(columns.len())
    );
    for (line, label) in lines {
        let cells = &mut columns.iter().map(|(column, _)| cell(column, line));
        let _ = writeln!(text, "{}", row(&label.replace('_', " "), cells));
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
