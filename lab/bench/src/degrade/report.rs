//! The report of a run: a self-contained page, a summary, and a few lines.

#[cfg(test)]
mod browser;
mod charts;

use anyhow::Result;
use askama::Template;
use serde::Serialize;
use serde_json::json;

use self::charts::{Charts, Table};
use super::figures::{Change, Figures, shown};
use super::gate::{Judgement, Verdict, overall};
use super::run::Outcome;
use crate::machine::Machine;

/// All results of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) title: String,
    pub(crate) started_at: String,
    pub(crate) machine: Machine,
    /// The version of Postgres.
    pub(crate) server: String,
    /// Jobs per second.
    pub(crate) rate: f64,
    pub(crate) workers: usize,
    pub(crate) played: Vec<Played>,
}

/// The results of one algorithm.
#[derive(Debug, Serialize)]
pub(crate) struct Played {
    pub(crate) outcome: Outcome,
    pub(crate) figures: Option<Figures>,
    pub(crate) judgements: Vec<Judgement>,
    /// Its statements.
    #[serde(skip)]
    pub(crate) source: &'static str,
}

#[derive(Template)]
#[template(path = "degrade.html")]
struct Page<'a> {
    report: &'a Report,
    rate: String,
    rows: Vec<Row>,
    judgements: Vec<String>,
    problems: Vec<String>,
    tables: Vec<Table>,
    data: String,
    style: &'static str,
    script: &'static str,
    chart_style: &'static str,
    chart_script: &'static str,
}

struct Row {
    algorithm: String,
    cells: Vec<String>,
}

impl Report {
    /// The gate's answer.
    pub(crate) fn verdict(&self) -> Verdict {
        overall(&self.judgements())
    }

    /// The page in one file of HTML.
    pub(crate) fn page(&self) -> Result<String> {
        let charts = Charts::draw(&self.played);
        // `</script>` in a name would end the element.
        let data = serde_json::to_string(&charts)?.replace('<', "\\u003c");
        let page = Page {
            report: self,
            rate: shown(Some(self.rate)),
            rows: self.figures().map(row).collect(),
            judgements: self.judgements().iter().map(Judgement::line).collect(),
            problems: self.played.iter().flat_map(problems).collect(),
            tables: charts.tables(),
            data,
            style: include_str!("../../templates/degrade.css"),
            script: include_str!("../../templates/degrade.js"),
            chart_style: include_str!("../../vendor/uplot/uPlot.min.css"),
            chart_script: include_str!("../../vendor/uplot/uPlot.iife.min.js"),
        };
        Ok(page.render()?)
    }

    /// The figures as JSON, without the samples.
    pub(crate) fn summary(&self) -> Result<String> {
        let summary = json!({ "verdict": self.verdict(), "report": self });
        Ok(format!("{}\n", serde_json::to_string_pretty(&summary)?))
    }

    /// The text for the terminal at the end.
    pub(crate) fn text(&self) -> String {
        let figures = self.figures().map(Figures::line);
        let judged = self.judgements();
        let judged = judged.iter().map(Judgement::line);
        let problems = self.played.iter().flat_map(problems);
        figures
            .chain(judged)
            .chain(problems)
            .collect::<Vec<_>>()
            .join("\n")
    }

    fn figures(&self) -> impl Iterator<Item = &Figures> {
        self.played.iter().filter_map(|one| one.figures.as_ref())
    }

    fn judgements(&self) -> Vec<Judgement> {
        let all = self.played.iter().flat_map(|one| &one.judgements);
        all.cloned().collect()
    }
}

fn row(figures: &Figures) -> Row {
    let change = |change: Change| format!("{} → {}", shown(change.before), shown(change.under));
    let seconds = |seconds: Option<f64>, otherwise: &str| {
        seconds.map_or_else(
            || otherwise.to_owned(),
            |it| format!("{} s", shown(Some(it))),
        )
    };
    Row {
        algorithm: figures.algorithm.clone(),
        cells: vec![
            change(figures.claim_p50_ms),
            change(figures.claim_p99_ms),
            change(figures.claim_blocks),
            change(figures.waiting),
            change(figures.dead),
            change(figures.finished_per_s),
            change(figures.start_p99_ms),
            seconds(figures.lasted_s, "the whole hold"),
            seconds(figures.recovered_s, "not in this run"),
            format!("{:.0} %", figures.tainted * 100.0),
        ],
    }
}

fn problems(played: &Played) -> Vec<String> {
    let outcome = &played.outcome;
    let name = &outcome.algorithm;
    let failure = outcome.failure.iter();
    let let_go = outcome.holds.iter().filter_map(|hold| hold.let_go.as_ref());
    let mut all: Vec<String> = failure
        .chain(let_go)
        .map(|problem| format!("{name}: {problem}"))
        .collect();
    if outcome.lost > 0 {
        all.push(format!("{name}: {} jobs are lost", outcome.lost));
    }
    all
}
