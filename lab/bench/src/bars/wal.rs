//! WAL of claim and acknowledgement at batches of one hundred.

use anyhow::{Context, Result};

use super::drain::{drain_posthaste, drain_rival};
use crate::bench::Bench;
use crate::contestants::posthaste::{self, Manner};
use crate::contestants::rival::Rival;
use crate::database::Database;
use crate::report::Bar;
use crate::rounds::play;
use crate::verdict::{Bound, Evidence, Requirement};

const OURS: &str = "posthaste";
const BATCH: i64 = 100;

/// Runs the rounds and judges them.
pub(crate) async fn measure(bench: &Bench<'_>, bar: &mut Bar) -> Result<()> {
    let (jobs, rounds) = (bench.plan.wal_jobs, bench.plan.rounds);
    bar.parameter("jobs", jobs);
    bar.parameter("batch", BATCH);
    let rivals = [Rival::update_shape(), Rival::skip_locked()].map(|rival| rival.at(BATCH));
    let names = [OURS, rivals[0].label.as_str(), rivals[1].label.as_str()];
    play(&names, rounds, &mut bar.runs, async |index| {
        let database = Database::fresh(bench.server).await?;
        match index.checked_sub(1) {
            None => {
                let figures =
                    drain_posthaste(&database, jobs, Manner::in_batches_of(BATCH)).await?;
                Ok(figures.with(
                    "jobs_per_claim",
                    posthaste::jobs_per_claim(&database).await?,
                ))
            }
            Some(place) => {
                drain_rival(&database, jobs, rivals.get(place).context("no such rival")?).await
            }
        }
    })
    .await?;
    let evidence = Evidence::from_runs(&bar.runs, rounds);
    let bytes = Requirement::bar(
        "WAL per job for claim and acknowledgement",
        "B",
        Bound::AtMost(200.0),
    );
    bar.judgements = vec![evidence.median(bytes, OURS, "wal_bytes_per_job")?];
    Ok(())
}
