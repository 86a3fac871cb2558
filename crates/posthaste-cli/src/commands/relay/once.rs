//! The end of a relay with --once, and its report.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::bail;
use posthaste::Counters;
use serde::Serialize;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::commands::status::one_line;
use crate::routes::StartedRoute;

const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long queues must be empty after a destination was down: a job that finds it down is
/// rescheduled by one second, and no count of waiting jobs includes it until then.
const EMPTY_FOR_AFTER_OUTAGE: Duration = Duration::from_secs(2);
/// How long a destination may accept nothing before its jobs are no longer waited for.
const MAX_REFUSAL_TIME: Duration = Duration::from_secs(10);

/// Returns the number of jobs of a queue that a relay could claim or is running, or that wait for
/// their ordering key.
pub(super) fn unfinished_jobs(counters: &Counters, queue: &str) -> i64 {
    let jobs = counters.jobs.iter().filter(|of| of.queue == queue);
    jobs.map(|of| of.available + of.blocked + of.running + of.quarantined)
        .sum()
}

/// Whether a queue has a job that its relay could claim or is running. A blocked job counts if the
/// relayed queues alone can unblock it: the leader has not promoted it yet, or the job before it is
/// being sent. The query for that reads whole slots, so it runs only if the queue has no other
/// jobs.
async fn has_processable_job(
    client: &Client,
    counters: &Counters,
    queue: &str,
    relayed: &[&str],
) -> anyhow::Result<bool> {
    let of_queue = counters.jobs.iter().filter(|of| of.queue == queue);
    let blocked: i64 = of_queue.map(|of| of.blocked).sum();
    let left = unfinished_jobs(counters, queue);
    if blocked == 0 || left > blocked {
        return Ok(left > 0);
    }
    let sql = include_str!("moves.sql");
    let rows = client
        .query_typed(sql, &[(&queue, Type::TEXT), (&relayed, Type::TEXT_ARRAY)])
        .await?;
    let moves = rows.first().map(|row| row.try_get(0)).transpose()?;
    Ok(moves.unwrap_or(false))
}

/// The progress of a relay, and the time of the last progress.
struct RelayProgress {
    settled: u64,
    unavailable: u64,
    since: Instant,
}

/// Completes when no job of the routes is waiting or running. It does not wait for jobs of a paused
/// queue, nor for jobs whose ordering key is held by a job that is not due or that no relay of this
/// process sends. Fails if the remaining jobs are for destinations that accept nothing.
pub(super) async fn wait_until_empty(
    client: &Client,
    relays: &[StartedRoute],
) -> anyhow::Result<()> {
    let mut empty_since: Option<Instant> = None;
    let mut courses: Vec<Option<RelayProgress>> = relays.iter().map(|_| None).collect();
    loop {
        let begun = Instant::now();
        let counters = posthaste::Client::new(client).counters().await?;
        let is_paused = |queue: &str| counters.paused.iter().any(|paused| paused == queue);
        let queues = relays.iter().map(|one| one.queue.as_str());
        let relayed: Vec<&str> = queues.filter(|queue| !is_paused(queue)).collect();
        let (mut is_busy, mut was_down, mut stuck) = (false, false, Vec::new());
        for (one, course) in relays.iter().zip(&mut courses) {
            let status = one.relay.status();
            was_down |= status.unavailable > 0;
            let waits = !is_paused(&one.queue)
                && has_processable_job(client, &counters, &one.queue, &relayed).await?;
            // A destination that is down and was sent nothing does not matter.
            if !waits && (status.down_since.is_none() || status.unavailable == 0) {
                *course = None;
                continue;
            }
            let settled = status.accepted + status.rejected + status.retried;
            let course = course.get_or_insert_with(|| RelayProgress {
                settled,
                unavailable: status.unavailable,
                since: Instant::now(),
            });
            if course.settled != settled {
                *course = RelayProgress {
                    settled,
                    unavailable: status.unavailable,
                    since: Instant::now(),
                };
            }
            let takes_nothing =
                status.down_since.is_some() || status.unavailable > course.unavailable;
            match takes_nothing && course.since.elapsed() > MAX_REFUSAL_TIME {
                true => stuck.push((one, status.last_error.unwrap_or_default())),
                false => is_busy = true,
            }
        }
        if !is_busy && let Some((one, reason)) = stuck.first() {
            let reason = reason.split(" (os error").next().unwrap_or_default();
            bail!(
                "route {}: {} accepts nothing: {reason}. Its jobs wait; no attempt is counted",
                one.name,
                one.label
            );
        }
        if is_busy {
            empty_since = None;
        } else {
            let since = empty_since.get_or_insert_with(Instant::now);
            if !was_down || since.elapsed() > EMPTY_FOR_AFTER_OUTAGE {
                return Ok(());
            }
        }
        // A poll takes at most a sixth of the time.
        tokio::time::sleep(POLL_INTERVAL.max(begun.elapsed() * 5)).await;
    }
}

/// The totals of a route.
#[derive(Serialize)]
struct RouteTotals {
    route: String,
    accepted: u64,
    rejected: u64,
    retried: u64,
    last_error: Option<String>,
    rejections: BTreeMap<String, u64>,
}

/// The totals of all routes.
#[derive(Serialize)]
#[serde(transparent)]
pub(super) struct Report(Vec<RouteTotals>);

impl Report {
    pub(super) fn combined(relays: &[StartedRoute]) -> Self {
        Self(relays.iter().map(RouteTotals::new).collect())
    }
}

impl RouteTotals {
    fn new(one: &StartedRoute) -> Self {
        let status = one.relay.status();
        Self {
            route: one.name.clone(),
            accepted: status.accepted,
            rejected: status.rejected,
            retried: status.retried,
            last_error: status.last_error,
            rejections: status.rejections,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, sent) in self.0.iter().enumerate() {
            let end = if n > 0 { "\n" } else { "" };
            write!(f, "{end}{}: {} sent", sent.route, sent.accepted)?;
            for (count, what) in [
                (sent.rejected, "rejected permanently"),
                (sent.retried, "to be retried"),
            ] {
                if count > 0 {
                    write!(f, ", {count} {what}")?;
                }
            }
            if let Some(error) = &sent.last_error
                && sent.rejected + sent.retried > 0
            {
                write!(f, "; the last error: {error}")?;
            }
            // A single reason is printed already.
            for (reason, count) in sent.rejections.iter().filter(|_| sent.rejections.len() > 1) {
                write!(f, "\n  {count} rejected: {}", one_line(reason))?;
            }
        }
        Ok(())
    }
}
