//! The cost of a worker without jobs: its own, and that of its sessions on the server.

use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use crate::bench::Bench;
use crate::contestants::posthaste::{self, Crew, Manner};
use crate::database::{Database, instruments};
use crate::processes::{TICKS_PER_SECOND, own_ticks};
use crate::report::Bar;
use crate::rounds::{Figures, play};
use crate::taint::Watch;
use crate::verdict::{Bound, Evidence, Requirement};

const ONE: &str = "1 queue";
const MANY: &str = "100 queues of 10 priorities";
const PRIORITIES: i32 = 10;

/// Runs the rounds and judges them.
pub(crate) async fn measure(bench: &Bench<'_>, bar: &mut Bar) -> Result<()> {
    let (seconds, rounds) = (bench.plan.idle_seconds, bench.plan.rounds);
    bar.parameter("seconds", seconds);
    play(&[ONE, MANY], rounds, &mut bar.runs, async |index| {
        let queues = if index == 0 { 1 } else { 100 };
        idle(bench, queues, seconds).await
    })
    .await?;
    let evidence = Evidence::from_runs(&bar.runs, rounds);
    bar.judgements = [ONE, MANY]
        .into_iter()
        .map(|contestant| {
            let text = format!("of one core, {contestant}");
            let share = Requirement::bar(&text, "%", Bound::AtMost(1.0));
            evidence.median(share, contestant, "percent_of_a_core")
        })
        .collect::<Result<_>>()?;
    Ok(())
}

async fn idle(bench: &Bench<'_>, queues: u32, seconds: u64) -> Result<Figures> {
    let database = Database::fresh(bench.server).await?;
    posthaste::prepare(&database).await?;
    let crew = Crew::start(&database, Manner::fast().on(queues), |_| {}).await?;
    let lanes = posthaste::touch_lanes(&database, queues, PRIORITIES).await?;
    crew.reach(lanes, Duration::from_secs(60)).await?;
    let observer = database.connect().await?;
    sleep(Duration::from_secs(5)).await;
    let watch = Watch::begin()?;
    let sessions: Vec<u32> = observer
        .query(instruments().get("other_backends")?, &[])
        .await?
        .iter()
        .filter_map(|row| u32::try_from(row.get::<_, i32>(0)).ok())
        .collect();
    let ticks = || -> (u64, u64) {
        let of = |pid: &u32| own_ticks(*pid).unwrap_or_default();
        let worker = of(&std::process::id());
        (worker, sessions.iter().map(of).sum())
    };
    let before = ticks();
    sleep(Duration::from_secs(seconds)).await;
    let after = ticks();
    let processor = watch.finish()?;
    crew.stop().await?;
    let percent = |ticks: u64| ticks as f64 / TICKS_PER_SECOND / seconds as f64 * 100.0;
    let (worker, server) = (after.0 - before.0, after.1 - before.1);
    Ok(Figures::measured_under(processor)
        .with("sessions", sessions.len() as f64)
        .with("worker_percent", percent(worker))
        .with("server_percent", percent(server))
        .with("percent_of_a_core", percent(worker + server)))
}
