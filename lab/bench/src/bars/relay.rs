//! A backlog relayed by one process: its speed, its effect on other relays, and its memory.

mod hook;
mod neighbours;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::bench::Bench;
use crate::contestants::posthaste::{self, Carrier};
use crate::contestants::receiver::{BATCHES, RECEIVERS, Receiver};
use crate::database::Database;
use crate::report::Bar;
use crate::rounds::{Figures, play};
use crate::taint::Watch;
use crate::verdict::{Bound, Evidence, Requirement};

const SHARE: &str = "percent_of_the_sum";
const LIMIT: Duration = Duration::from_secs(600);

/// Runs the rounds and judges them.
pub(crate) async fn measure(bench: &Bench<'_>, bar: &mut Bar) -> Result<()> {
    let (plan, rounds) = (&bench.plan, bench.plan.rounds);
    bar.parameter("jobs", plan.relay_jobs);
    bar.parameter("jobs to the webhook", plan.hook_jobs);
    for receiver in RECEIVERS {
        let name = format!("messages per batch, {}", receiver.name());
        bar.parameter(&name, receiver.batch());
    }
    bar.parameter("batches under way", BATCHES);
    let mut names = RECEIVERS.map(Receiver::name).to_vec();
    names.extend(neighbours::NAMES);
    names.push(hook::NAME);
    play(&names, rounds, &mut bar.runs, async |index| {
        if let Some(receiver) = RECEIVERS.get(index) {
            return share(bench, *receiver, plan.relay_jobs).await;
        }
        match neighbours::NAMES.get(index - RECEIVERS.len()) {
            Some(name) => neighbours::once(bench, name, plan.relay_jobs).await,
            None => hook::once(bench, plan.hook_jobs).await,
        }
    })
    .await?;
    let evidence = Evidence::from_runs(&bar.runs, rounds);
    bar.judgements = RECEIVERS
        .into_iter()
        .map(|receiver| {
            let text = format!("of 1/(1/a + 1/b), {}", receiver.name());
            let share = Requirement::bar(&text, "%", Bound::AtLeast(80.0));
            evidence.median(share, receiver.name(), SHARE)
        })
        .collect::<Result<_>>()?;
    bar.judgements.extend(neighbours::judge(&evidence)?);
    bar.judgements.extend(hook::judge(&evidence)?);
    Ok(())
}

/// Measures draining alone, sending alone, and the relay.
async fn share(bench: &Bench<'_>, receiver: Receiver, jobs: u64) -> Result<Figures> {
    let watch = Watch::begin()?;
    let drained = drain(bench, jobs).await?;
    let server = receiver.start().await?;
    let sent = server.send_bare(jobs).await?;
    server.empty().await?;
    let relayed = relay(bench, receiver, &server.url()?, jobs).await?;
    let received = server.received().await?;
    ensure!(received == jobs, "{received} of {jobs} messages arrived");
    let rate = |taken: Duration| jobs as f64 / taken.as_secs_f64();
    let sum = 1.0 / (1.0 / rate(drained) + 1.0 / rate(sent));
    Ok(Figures::measured_under(watch.finish()?)
        .with("drained_per_second", rate(drained))
        .with("bare_per_second", rate(sent))
        .with("relayed_per_second", rate(relayed))
        .with(SHARE, rate(relayed) / sum * 100.0))
}

async fn drain(bench: &Bench<'_>, jobs: u64) -> Result<Duration> {
    let database = filled(bench, jobs).await?;
    let begun = Instant::now();
    let carrier = Carrier::to_nobody(&database).await?;
    carry(&database, carrier, begun, jobs).await
}

async fn relay(bench: &Bench<'_>, receiver: Receiver, url: &str, jobs: u64) -> Result<Duration> {
    let database = filled(bench, jobs).await?;
    let begun = Instant::now();
    let carrier = Carrier::to(&database, receiver, url).await?;
    carry(&database, carrier, begun, jobs).await
}

/// Measures from the start of the worker to its end, when all jobs are acknowledged.
async fn carry(
    database: &Database,
    carrier: Carrier,
    begun: Instant,
    jobs: u64,
) -> Result<Duration> {
    carrier.reach(jobs, LIMIT).await?;
    carrier.stop().await?;
    let taken = begun.elapsed();
    posthaste::ensure_nothing_remains(database).await?;
    Ok(taken)
}

async fn filled(bench: &Bench<'_>, jobs: u64) -> Result<Database> {
    let database = Database::fresh(bench.server).await?;
    posthaste::prepare(&database).await?;
    posthaste::preload(&database, jobs).await?;
    Ok(database)
}
