//! One run: the server, the bars in their order, and the report that grows with each of them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use jiff::Timestamp;
use posthaste_testkit::PgServer;

use crate::bars;
use crate::database::{Database, instruments};
use crate::machine::Machine;
use crate::options::{Plan, RunOptions};
use crate::report::{Archive, Bar, Report, ServerFacts, judgement_line};
use crate::server::file_system;
use crate::taint;

/// What every bar needs.
#[derive(Debug)]
pub(crate) struct Bench<'a> {
    pub(crate) server: &'a PgServer,
    pub(crate) plan: Plan,
}

/// Measures the requested bars and writes the report; a bar that fails does not stop the others.
pub(crate) async fn run(server: &PgServer, options: &RunOptions) -> Result<()> {
    let bench = Bench {
        server,
        plan: Plan::from_options(options),
    };
    let archive = Archive::below(&options.docs);
    let mut report = opening(server, bench.plan.quick).await?;
    let path = archive.vacant(
        report.started_at.get(..10).unwrap_or("undated"),
        bench.plan.quick,
    )?;
    for name in bars::ORDER
        .into_iter()
        .filter(|name| options.only.is_empty() || options.only.iter().any(|only| only == name))
    {
        let bar = bars::measure(&bench, name).await;
        announce(&bar);
        report.bars.push(bar);
        Archive::write(&path, &report)?;
    }
    report.finished_at = Some(Timestamp::now().to_string());
    Archive::write(&path, &report)?;
    eprintln!("\n{}\nraw rounds: {}", summary(&report), path.display());
    if !bench.plan.quick {
        eprintln!("page: {}", archive.write_page()?.display());
    }
    Ok(())
}

/// A report without bars.
pub(crate) async fn opening(server: &PgServer, quick: bool) -> Result<Report> {
    let instruments = instruments();
    let client = Database::named(&server.url("postgres"))?.connect().await?;
    let mut settings = BTreeMap::new();
    for row in client.query(instruments.get("settings")?, &[]).await? {
        settings.insert(row.get(0), row.get(1));
    }
    // The port is random and has no influence on the figures.
    settings.remove("port");
    let version = client
        .query_one(instruments.get("version")?, &[])
        .await?
        .get(0);
    Ok(Report {
        format: 1,
        started_at: Timestamp::now().to_string(),
        finished_at: None,
        quick,
        revision: revision(),
        machine: Machine::describe()?,
        server: ServerFacts {
            version,
            file_system: file_system(&server.data())?,
            settings,
        },
        taint_rule: taint::rule(),
        bars: Vec::new(),
    })
}

/// The measured commit, marked if the working tree differs from it.
fn revision() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = std::process::Command::new("git")
            .args(arguments)
            .current_dir(repository())
            .output()
            .ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&[
        "status",
        "--porcelain",
        "--untracked-files=no",
        "crates",
        "lab",
    ])
    .is_none_or(|text| !text.is_empty());
    Some(if changed {
        format!("{commit} with changes")
    } else {
        commit
    })
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn announce(bar: &Bar) {
    if let Some(failure) = &bar.failure {
        eprintln!("  MISS: could not be measured: {failure}");
    }
    for judgement in &bar.judgements {
        eprintln!("  {}", judgement_line(judgement));
    }
}

fn summary(report: &Report) -> String {
    let missed: Vec<&str> = report
        .bars
        .iter()
        .filter(|bar| !bar.passed())
        .map(|bar| bar.name.as_str())
        .collect();
    let passed = report.bars.len() - missed.len();
    let smoke = if report.quick {
        "smoke run, sizes too small to judge: "
    } else {
        ""
    };
    if missed.is_empty() {
        return format!("{smoke}{passed} bars, all passed");
    }
    format!(
        "{smoke}{passed} of {} bars passed; MISSED: {}",
        report.bars.len(),
        missed.join(", ")
    )
}
