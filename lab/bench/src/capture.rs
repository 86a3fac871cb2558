//! `capture`: captures of posthaste, each in a separate process, compared with Debezium's engine
//! and posthaste's outbox, on one server whose WAL can be decoded.

mod backlog;
mod captor;
mod copy;
mod dead;
mod events;
mod ground;
mod large;
mod options;
mod paced;
mod pinned;
mod tell;
#[cfg(test)]
mod tests;

use anyhow::Result;
use jiff::Timestamp;

use self::ground::Ground;
pub(crate) use self::options::CaptureOptions;
use self::options::Sizes;
pub(crate) use self::tell::{about, figures, place};
use crate::bench;
use crate::report::{Archive, Bar, judgement_line};
use crate::server;

/// The rows, in the order of the page.
pub(crate) const ROWS: [&str; 6] = [
    "capture-backlog",
    "capture-300",
    "capture-large",
    "capture-dead",
    "capture-copy",
    "capture-pinned",
];

/// Measures the requested rows and writes the report.
pub(crate) async fn run(options: &CaptureOptions) -> Result<()> {
    let parent = options.data_parent.clone();
    let parent = parent.unwrap_or_else(std::env::temp_dir);
    let server = server::start_with(options.pg, &parent, &ground::SETTINGS)?;
    let ground = Ground::prepare(&server).await?;
    let mut report = bench::opening(&server, options.quick).await?;
    let archive = Archive::below(&options.docs);
    let date = report.started_at.get(..10).unwrap_or("undated").to_owned();
    let path = archive.vacant(&date, options.quick)?;
    let sizes = Sizes::from_options(options);
    for row in ROWS {
        if !options.only.is_empty() && !options.only.iter().any(|only| only == row) {
            continue;
        }
        let bar = measure(&ground, row, sizes).await;
        for judgement in &bar.judgements {
            eprintln!("  {}", judgement_line(judgement));
        }
        report.bars.push(bar);
        Archive::write(&path, &report)?;
    }
    report.finished_at = Some(Timestamp::now().to_string());
    Archive::write(&path, &report)?;
    eprintln!("raw rounds: {}", path.display());
    if !options.quick {
        eprintln!("page: {}", archive.write_page()?.display());
    }
    Ok(())
}

/// Measures one row; an error becomes a part of it.
async fn measure(ground: &Ground<'_>, row: &str, sizes: Sizes) -> Bar {
    let rounds = match row {
        "capture-backlog" | "capture-300" => sizes.rounds,
        _ => 1,
    };
    let mut bar = Bar::new(row, tell::title(row), rounds);
    eprintln!("\n{row}: {}", bar.title);
    let measured = match row {
        "capture-backlog" => backlog::measure(ground, &mut bar, sizes).await,
        "capture-300" => paced::measure(ground, &mut bar, sizes).await,
        "capture-large" => large::measure(ground, &mut bar, sizes).await,
        "capture-dead" => dead::measure(ground, &mut bar, sizes).await,
        "capture-copy" => copy::measure(ground, &mut bar, sizes).await,
        _ => pinned::measure(ground, &mut bar, sizes).await,
    };
    if let Err(error) = measured {
        eprintln!("  could not be measured: {error:#}");
        bar.failure = Some(format!("{error:#}"));
    }
    bar
}
