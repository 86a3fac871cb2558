//! Waits for an observable condition, while a number changes or within a limit.

use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::time::{Instant, sleep};

/// Time between two observations: short compared with any limit, and long compared with a query.
const PAUSE_RANGE: RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_millis(200);
/// The pause is the time waited so far divided by this. Observing takes CPU time from the observed
/// processes, and a result may be seen late by this part of the wait.
const PAUSE_DIVISOR: u32 = 10;

/// Repeats an observation until it holds, and fails if it did not hold within the limit.
///
/// An observation that fails counts as "not yet", because tests that crash servers query servers
/// that are down. The last failure is reported when the limit is reached.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::time::{Duration, Instant};
/// let start = Instant::now();
/// posthaste_testkit::eventually(Duration::from_secs(1), "ten milliseconds passed", async || {
///     Ok(start.elapsed() > Duration::from_millis(10))
/// })
/// .await
/// .unwrap();
/// # });
/// ```
pub async fn eventually(
    within: Duration,
    what: &str,
    mut holds: impl AsyncFnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    let deadline = begun + within;
    loop {
        let last_failure = match tokio::time::timeout_at(deadline, holds()).await {
            Ok(Ok(true)) => return Ok(()),
            Ok(Ok(false)) => None,
            Ok(Err(error)) => Some(error),
            Err(_) => Some(anyhow::anyhow!("the last observation did not end")),
        };
        if Instant::now() >= deadline {
            match last_failure {
                Some(error) => return Err(error.context(format!("not within {within:?}: {what}"))),
                None => bail!("not within {within:?}: {what}"),
            }
        }
        pause_after(begun).await;
    }
}

async fn pause_after(begun: Instant) {
    let pause = begun.elapsed() / PAUSE_DIVISOR;
    sleep(pause.clamp(*PAUSE_RANGE.start(), *PAUSE_RANGE.end())).await;
}

/// Repeats an observation of a number until it is the goal, and fails if the number did not change
/// for this time: other processes use the machine too, so the speed of change proves nothing. A
/// number that rises and falls counts as changing.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let mut left = 3;
/// let bound = std::time::Duration::from_secs(1);
/// posthaste_testkit::reaches(bound, "nothing is left", 0, async || {
///     left -= 1;
///     Ok(left)
/// })
/// .await
/// .unwrap();
/// # });
/// ```
pub async fn reaches(
    still: Duration,
    what: &str,
    goal: i64,
    mut observe: impl AsyncFnMut() -> anyhow::Result<i64>,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut last = None;
    loop {
        let moved = async || {
            let now = observe().await?;
            Ok(last.replace(now) != Some(now) || now == goal)
        };
        eventually(still, what, moved)
            .await
            .with_context(|| format!("{last:?} instead of {goal}, and it stands still"))?;
        if last == Some(goal) {
            return Ok(());
        }
        pause_after(begun).await;
    }
}
