//! Existing rows, copied during changes of the same table.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures_util::TryStreamExt as _;
use futures_util::future::try_join_all;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::captor::{install, start};
use super::ground::{Field, Ground, SOON, statements};
use super::options::Sizes;
use crate::database::Database;
use crate::report::Bar;
use crate::rounds::{Figures, play};
use crate::statistics::greatest;
use crate::taint::Watch;
use crate::verdict::{Bound, Evidence, Requirement};

const NAME: &str = "jobs";
const WRITERS: u64 = 4;
/// The number of changes in a transaction.
const EACH: u64 = 5;
const PER_SECOND: u64 = 2_000;
const RATE: &str = "rows_per_second";
const STALE: &str = "stale_rows";
const WRONG: &str = "wrong_rows";
const SNAPSHOT: &str = "oldest_snapshot_seconds";
/// The least number of rows per second, for the limit of the copy.
const SLOWEST: u64 = 2_000;

/// Runs it once and judges it.
pub(crate) async fn measure(ground: &Ground<'_>, bar: &mut Bar, sizes: Sizes) -> Result<()> {
    bar.parameter("rows", sizes.copy_rows);
    bar.parameter("changes a second", PER_SECOND);
    play(&[NAME], 1, &mut bar.runs, async |_| {
        once(ground, sizes.copy_rows).await
    })
    .await?;
    let evidence = Evidence::from_runs(&bar.runs, 1);
    let stale = Requirement::bar("stale rows", "", Bound::AtMost(0.0));
    let wrong = Requirement::bar("rows that differ in the end", "", Bound::AtMost(0.0));
    let snapshot = Requirement::bar("oldest snapshot", "s", Bound::AtMost(1.0));
    let rate = Requirement::bar("rate", "rows/s", Bound::AtLeast(100_000.0));
    bar.judgements = vec![
        evidence.highest(stale, NAME, STALE)?,
        evidence.highest(wrong, NAME, WRONG)?,
        evidence.highest(snapshot, NAME, SNAPSHOT)?,
        evidence.median(rate, NAME, RATE)?,
    ];
    Ok(())
}

async fn once(ground: &Ground<'_>, rows: u64) -> Result<Figures> {
    let field = ground.field("items").await?;
    let fill = statements().get("fill_items")?;
    field.client.execute(fill, &[&i64::try_from(rows)?]).await?;
    let analyze = statements().get("analyze_items")?;
    field.client.batch_execute(analyze).await?;
    install(&field.database, "rows").await?;
    let is_over = Arc::new(AtomicBool::new(false));
    let (database, over) = (field.database.clone(), Arc::clone(&is_over));
    let writers = tokio::spawn(async move { change(&database, rows, &over).await });
    let watch = Watch::begin()?;
    let mut process = start(&field.database, "rows", "", None).await?;
    let limit = Duration::from_secs(120 + rows / SLOWEST);
    let (copied, snapshots) = copied(&field, limit).await?;
    let processor = watch.finish()?;
    let sender = process.processor_seconds()?;
    is_over.store(true, Ordering::Relaxed);
    let changes = writers.await??;
    field.is_read("last_change", SOON + limit).await?;
    process.end();
    process.finish().await?;
    let (stale, wrong) = compare(&field).await?;
    Ok(Figures::measured_under(processor)
        .with(RATE, rows as f64 / copied)
        .with(STALE, stale as f64)
        .with(WRONG, wrong as f64)
        .with(SNAPSHOT, greatest(&snapshots))
        .with("changes", changes as f64)
        .with("sender_us_per_row", sender * 1e6 / rows as f64))
}

/// Changes random rows until it is over; returns the number of changes.
async fn change(database: &Database, rows: u64, is_over: &AtomicBool) -> Result<u64> {
    let writers = (0..WRITERS).map(|_| async move {
        let client = database.connect().await?;
        let change = client.prepare(statements().get("change")?).await?;
        let transactions = PER_SECOND / EACH / WRITERS;
        let mut pace = interval(Duration::from_secs(1) / u32::try_from(transactions)?);
        pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut changes = 0;
        while !is_over.load(Ordering::Relaxed) {
            pace.tick().await;
            let mut keys: Vec<i64> = (0..EACH)
                .map(|_| fastrand::i64(1..=i64::try_from(rows).unwrap_or(i64::MAX)))
                .collect();
            keys.sort_unstable();
            changes += client.execute(&change, &[&keys]).await?;
        }
        anyhow::Ok(changes)
    });
    Ok(try_join_all(writers).await?.into_iter().sum())
}

/// Waits for the end of the copy; returns its seconds, and the ages of the oldest snapshots.
async fn copied(field: &Field, limit: Duration) -> Result<(f64, Vec<f64>)> {
    let (begun, mut snapshots) = (Instant::now(), Vec::new());
    loop {
        let oldest = statements().get("oldest_snapshot")?;
        snapshots.push(field.client.query_one(oldest, &[]).await?.get(0));
        let ended = statements().get("copy")?;
        if let Some(row) = field.client.query_opt(ended, &[]).await? {
            return Ok((row.get(0), snapshots));
        }
        ensure!(begun.elapsed() < limit, "the copy does not end");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Folds the jobs as a receiver does, and compares the result with the table. Returns the number of
/// older versions that came after newer ones, and of rows that differ in the end.
async fn compare(field: &Field) -> Result<(u64, u64)> {
    let none: [&str; 0] = [];
    let jobs = field.client.query_raw(statements().get("captured")?, none);
    let mut jobs = pin!(jobs.await?);
    let mut captured: Vec<(i64, i64, i64)> = Vec::new();
    while let Some(job) = jobs.try_next().await? {
        captured.push((job.get("item"), job.get("id"), job.get("version")));
    }
    // By row, in the order in which they were written.
    captured.sort_unstable();
    let (mut stale, mut last) = (0, HashMap::new());
    for (item, _, version) in captured {
        let before = last.insert(item, version);
        stale += u64::from(before.is_some_and(|before| before > version));
    }
    let rows = field.client.query_raw(statements().get("versions")?, none);
    let mut rows = pin!(rows.await?);
    let mut wrong = 0;
    while let Some(row) = rows.try_next().await? {
        let (item, version): (i64, i64) = (row.get(0), row.get(1));
        wrong += u64::from(last.remove(&item).context("a row that was not copied")? != version);
    }
    Ok((stale, wrong + last.len() as u64))
}
