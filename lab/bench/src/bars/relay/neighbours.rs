//! Two relays in one worker: the effect on one if the destination of the other is dead or slow.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use ::posthaste_testkit::Proxy;
use anyhow::{Context, Result, ensure};

use super::LIMIT;
use crate::bench::Bench;
use crate::contestants::posthaste::{self, Carrier};
use crate::contestants::receiver::Receiver;
use crate::rounds::Figures;
use crate::taint::Watch;
use crate::verdict::{Bound, Evidence, Judgement, Requirement};

const ALONE: &str = "alone";
const DEAD: &str = "beside a dead one";
const SLOW: &str = "beside a slow one";
const RATE: &str = "relayed_per_second";
/// The queue of the neighbour's jobs.
const QUEUE: &str = "neighbour";
/// The delay of the neighbour's answers in each direction.
const DELAY: Duration = Duration::from_millis(500);
/// A multiple of the bar's jobs: a run of less than a second would prove little about a relay with
/// a neighbour.
const TIMES: u64 = 5;

pub(super) const NAMES: [&str; 3] = [ALONE, DEAD, SLOW];

pub(super) fn judge(evidence: &Evidence<'_>) -> Result<Vec<Judgement>> {
    let beside = |name: &str| {
        let text = format!("{name}: share of the rate alone");
        let share = Requirement::bar(&text, "x", Bound::AtLeast(0.9));
        evidence.ratio(share, name, ALONE, RATE)
    };
    Ok(vec![beside(DEAD)?, beside(SLOW)?])
}

pub(super) async fn once(bench: &Bench<'_>, name: &str, neighbours: u64) -> Result<Figures> {
    let jobs = TIMES * neighbours;
    let database = super::filled(bench, jobs).await?;
    posthaste::preload_queue(&database, neighbours, QUEUE).await?;
    let (mine, theirs) = (
        Receiver::Sidekiq.start().await?,
        Receiver::Sidekiq.start().await?,
    );
    let proxy = slowed(&theirs.url()?).await?;
    let neighbour = match name {
        ALONE => None,
        DEAD => Some(format!("redis://127.0.0.1:{}/0", vacant()?)),
        _ => Some(format!("redis://{}/0", proxy.address())),
    };
    let watch = Watch::begin()?;
    let neighbour = neighbour.as_deref().map(|url| (QUEUE, url));
    let carrier = Carrier::beside(&database, &mine.url()?, neighbour).await?;
    carrier.reach(jobs, LIMIT).await?;
    let taken = carrier.age();
    let processor = watch.finish()?;
    carrier.stop().await?;
    let (received, strayed) = (mine.received().await?, theirs.received().await?);
    ensure!(received == jobs, "{received} of {jobs} messages arrived");
    ensure!(
        (strayed > 0) == (name == SLOW),
        "{strayed} went the slow way"
    );
    Ok(Figures::measured_under(processor)
        .with(RATE, jobs as f64 / taken.as_secs_f64())
        .with("neighbours_messages", strayed as f64))
}

/// Starts a proxy that delays this Redis.
async fn slowed(url: &str) -> Result<Proxy> {
    let address = url.trim_start_matches("redis://").trim_end_matches("/0");
    let address: SocketAddr = address.parse().context("no address")?;
    let proxy = Proxy::start_raw(address).await?;
    proxy.delay(DELAY);
    Ok(proxy)
}

/// A port on which no process listens.
fn vacant() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
