//! Each row on a real server, with small sizes.

use anyhow::{Result, ensure};
use posthaste_testkit::PgVersion;
use posthaste_testkit::receivers::{Receiver, are_here};

use super::ground::{Ground, SETTINGS};
use super::options::Sizes;
use super::{measure, tell};
use crate::server;
use crate::verdict::Judgement;

const SIZES: Sizes = Sizes {
    rounds: 1,
    events: 2_000,
    seconds: 1,
    large_mb: 20,
    dead_seconds: 6,
    copy_rows: 5_000,
};

/// The requirements that hold at any size and on a busy machine.
const HOLDS: [&str; 6] = [
    "lost events",
    "events out of order",
    "stale rows",
    "rows that differ in the end",
    "peak memory of the process",
    "unconfirmed WAL beyond spill_after",
];

async fn is_measured(row: &str) -> Result<()> {
    if !are_here(row, &[Receiver::Redis]) {
        return Ok(());
    }
    let server = server::start_with(PgVersion::any(), &std::env::temp_dir(), &SETTINGS)?;
    let ground = Ground::prepare(&server).await?;
    let bar = measure(&ground, row, SIZES).await;
    ensure!(bar.failure.is_none(), "{:?}", bar.failure);
    ensure!(!bar.judgements.is_empty(), "nothing was judged");
    for (figure, _) in tell::figures(row) {
        let mut runs = bar.runs.iter();
        ensure!(
            runs.any(|run| run.figures.contains_key(*figure)),
            "{figure}"
        );
    }
    let holds = |one: &&Judgement| HOLDS.contains(&one.requirement.as_str());
    for judgement in bar.judgements.iter().filter(holds) {
        ensure!(
            judgement.verdict == crate::verdict::Verdict::Pass,
            "{judgement:?}"
        );
    }
    Ok(())
}

/// Defines a test for each row.
macro_rules! measured {
    ($($test:ident $row:literal,)*) => {
        mod captures_are_measured {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() -> anyhow::Result<()> {
                    super::is_measured($row).await
                }
            )*

            #[test]
            fn in_every_row() {
                assert_eq!(crate::capture::ROWS, [$($row),*]);
            }
        }
    };
}

measured! {
    with_a_backlog "capture-backlog",
    at_a_steady_rate "capture-300",
    through_a_large_transaction "capture-large",
    while_their_destination_is_dead "capture-dead",
    beside_a_copy "capture-copy",
    under_an_open_snapshot "capture-pinned",
}
