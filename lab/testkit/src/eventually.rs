//! Waiting for something that can be observed, within a bound.

use std::time::Duration;

use anyhow::bail;
use tokio::time::{Instant, sleep};

/// How often an observation is repeated: short beside any bound, long beside one query.
const PAUSE: Duration = Duration::from_millis(5);

/// Repeats an observation until it holds, and fails when it did not hold within the bound.
///
/// An observation that fails counts as "not yet", because tests that crash servers look at servers
/// that are down; the last failure is told when the time is over.
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
    let deadline = Instant::now() + within;
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
        sleep(PAUSE).await;
    }
}
