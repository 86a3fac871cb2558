//! Each installed adapter works jobs on a real server.

use std::fs;

use anyhow::{Result, ensure};
use posthaste_testkit::PgVersion;
use tempfile::TempDir;

use super::adapter::{self, Adapter};
use super::ground::{Field, Ground, SETTINGS};
use super::join::join;
use super::options::Sizes;
use super::roster::{OURS, Peer, ROSTER};
use super::rows::{ROWS, Row};
use super::tell;
use crate::server;

/// The number of jobs for each adapter.
const JOBS: u64 = 1_000;

const SIZES: Sizes = Sizes {
    seconds: 1,
    rows: 100,
    backlog: JOBS,
    pinned_seconds: 3,
};

/// A running worker starts every job once: none is lost, none repeated without a failure.
async fn works_a_thousand_jobs(field: &Field) -> Result<()> {
    let folder = TempDir::new()?;
    let (worked, offered) = (folder.path().join("worked"), folder.path().join("offered"));
    let words = ["work", &worked.to_string_lossy()];
    let mut worker = Adapter::start(field.peer, &field.database, &words)?;
    worker.hear("ready").await?;
    adapter::fill(field.peer, &field.database, JOBS).await?;
    let words = ["offer", "100", "1", "5", "2", &offered.to_string_lossy()];
    let offer = Adapter::start(field.peer, &field.database, &words)?;
    offer.finish().await?;
    field.is_empty().await?;
    worker.end();
    worker.finish().await?;
    let filled: String = (1..=JOBS).map(|number| format!("{number} 0 0\n")).collect();
    let all = filled + &fs::read_to_string(&offered)?;
    let joined = join(&all, &fs::read_to_string(&worked)?)?;
    ensure!(joined.waited_ms.len() as u64 > JOBS, "nothing was offered");
    let astray = (joined.lost, joined.surplus, joined.unknown);
    ensure!(astray == (0, 0, 0), "lost, repeated, unknown: {astray:?}");
    Ok(())
}

async fn is_measured(ground: &Ground<'_>, peer: Peer, row: Row) -> Result<()> {
    let field = ground.field(peer).await?;
    ensure!(!field.version.is_empty(), "it says no version");
    let figures = row.play(ground, &field, SIZES).await?;
    for (figure, _) in tell::figures(row.name()) {
        let value = figures.values.get(*figure).copied();
        ensure!(value.is_some_and(f64::is_finite), "{figure} is {value:?}");
    }
    Ok(())
}

async fn is_compared(name: &str) -> Result<()> {
    let peer = Peer::named(name)?;
    if !peer.is_installed() {
        ensure!(name != OURS, "cargo builds its adapter with the tests");
        eprintln!("not tried: {name} is not installed");
        return Ok(());
    }
    let server = server::start_with(PgVersion::any(), &std::env::temp_dir(), &SETTINGS)?;
    let ground = Ground::prepare(&server).await?;
    works_a_thousand_jobs(&ground.field(peer).await?).await?;
    for row in ROWS {
        // For the others, the row with a verb that no other row uses is enough.
        if name == OURS || row == Row::Drain {
            is_measured(&ground, peer, row).await?;
        }
    }
    Ok(())
}

/// Defines a test for each adapter.
macro_rules! compared {
    ($($test:ident $name:literal,)*) => {
        mod a_thousand_jobs_are_worked_once_by {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() -> anyhow::Result<()> {
                    super::is_compared($name).await
                }
            )*

            #[test]
            fn every_peer() {
                let tried = [$($name),*];
                assert_eq!(super::ROSTER.map(|peer| peer.name), tried);
            }
        }
    };
}

compared! {
    posthaste "posthaste",
    river "river",
    graphile_worker "graphile-worker",
    pg_boss "pg-boss",
    oban "oban",
    procrastinate "procrastinate",
    pgqueuer "pgqueuer",
    pgmq "pgmq",
    awa "awa",
}
