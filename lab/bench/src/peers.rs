//! `peers`: posthaste and other Postgres queues, each by its own library, on one server in
//! interleaved rounds.

mod adapter;
mod ground;
mod join;
mod options;
mod roster;
mod rows;
mod standing;
mod tell;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use posthaste_testkit::PgServer;

pub(crate) use self::adapter::Adapter;
use self::ground::Ground;
pub(crate) use self::options::PeersOptions;
use self::options::Sizes;
pub(crate) use self::roster::example;
use self::roster::{OURS, Peer, ROSTER};
use self::rows::{ROWS, Row};
pub(crate) use self::tell::{about, figures, place};
use crate::bench;
use crate::report::{Archive, Bar, judgement_line};
use crate::rounds::{Run, announce, order};
use crate::server;

/// Compares the installed queues and writes the report.
pub(crate) async fn run(options: &PeersOptions) -> Result<()> {
    let peers = chosen(&options.only)?;
    let parent = options.data_parent.clone();
    let parent = parent.unwrap_or_else(std::env::temp_dir);
    let server = server::start_with(options.pg, &parent, &ground::SETTINGS)?;
    compare(&server, options, &peers).await
}

async fn compare(server: &PgServer, options: &PeersOptions, peers: &[Peer]) -> Result<()> {
    let ground = Ground::prepare(server).await?;
    let rounds = if options.quick { 1 } else { options.rounds };
    let mut report = bench::opening(server, options.quick).await?;
    let archive = Archive::below(&options.docs);
    let date = report.started_at.get(..10).unwrap_or("undated").to_owned();
    let path = archive.vacant(&date, options.quick)?;
    let sizes = Sizes::from_options(options);
    for row in ROWS {
        let bar = measure(&ground, row, peers, rounds, sizes).await;
        for judgement in &bar.judgements {
            eprintln!("  {}", judgement_line(judgement));
        }
        report.bars.push(bar);
        Archive::write(&path, &report)?;
    }
    report.finished_at = Some(Timestamp::now().to_string());
    Archive::write(&path, &report)?;
    eprintln!("{}", tell::table(&report.bars));
    eprintln!("raw rounds: {}", path.display());
    Ok(())
}

/// Posthaste and the requested queues; without a request, all installed ones.
fn chosen(only: &[String]) -> Result<Vec<Peer>> {
    for name in only {
        let peer = Peer::named(name)?;
        ensure!(peer.is_installed(), "{name} is not installed: {INSTALL}");
    }
    let is_wanted = |peer: &Peer| only.is_empty() || only.iter().any(|name| name == peer.name);
    let wanted = ROSTER
        .into_iter()
        .filter(|peer| peer.name == OURS || is_wanted(peer));
    let (here, absent): (Vec<Peer>, Vec<Peer>) = wanted.partition(Peer::is_installed);
    for peer in absent {
        eprintln!("goes on without {}: {INSTALL}", peer.name);
    }
    Ok(here)
}

const INSTALL: &str = "scripts/setup.sh bench installs what this machine can have";

/// Runs a row in interleaved rounds; the failure of a peer becomes a note.
async fn measure(ground: &Ground<'_>, row: Row, peers: &[Peer], rounds: u32, sizes: Sizes) -> Bar {
    let mut bar = Bar::new(row.name(), tell::title(row), rounds);
    eprintln!("\n{}: {}", bar.name, bar.title);
    for (name, value) in tell::parameters(row, sizes) {
        bar.parameter(name, value);
    }
    let mut versions: BTreeMap<&str, String> = BTreeMap::new();
    let mut failures: BTreeMap<&str, String> = BTreeMap::new();
    for round in 1..=rounds {
        for peer in order(peers.len(), round).filter_map(|place| peers.get(place)) {
            match once(ground, row, *peer, round, sizes).await {
                Ok((run, version)) => {
                    announce(&run);
                    versions.insert(peer.name, version);
                    bar.runs.push(run);
                }
                Err(error) => {
                    eprintln!("  round {round} {}: {error:#}", peer.name);
                    failures.insert(peer.name, format!("{error:#}"));
                }
            }
        }
    }
    if row == ROWS[0] {
        bar.notes.push(tell::contestants(peers, &versions));
    }
    for (peer, failure) in failures {
        bar.notes.push(format!("{peer} failed: {failure}."));
        if peer == OURS {
            bar.failure = Some(failure);
        }
    }
    match standing::judge(row, &bar.runs, rounds) {
        Ok(judgements) => bar.judgements = judgements,
        Err(error) => bar.failure = Some(format!("{error:#}")),
    }
    bar
}

async fn once(
    ground: &Ground<'_>,
    row: Row,
    peer: Peer,
    round: u32,
    sizes: Sizes,
) -> Result<(Run, String)> {
    let field = ground.field(peer).await?;
    let figures = row.play(ground, &field, sizes).await?;
    let run = Run {
        contestant: peer.name.to_owned(),
        round,
        tainted: figures.processor.taint(),
        figures: figures.values,
        series: figures.series,
        processor: figures.processor,
    };
    Ok((run, field.version))
}
