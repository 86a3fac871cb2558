//! When a relay with --once has finished, and its report.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::bail;
use posthaste::Counters;
use serde::Serialize;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::commands::status::one_line;
use crate::routes::Started;

const POLL_EVERY: Duration = Duration::from_millis(200);
/// A job that found its destination down is rescheduled for a second, and waits nowhere until then.
const RESCHEDULED_FOR: Duration = Duration::from_secs(2);
/// A destination that takes nothing for this long is not waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Jobs of a queue that a relay would take now or has, or that wait for one of their ordering key.
pub(super) fn left(counters: &Counters, queue: &str) -> i64 {
    let jobs = counters.jobs.iter().filter(|of| of.queue == queue);
    jobs.map(|of| of.available + of.blocked + of.running + of.quarantined)
        .sum()
}

/// Whether one of these relayed queues has a job that its relay would take now or has. A job that
/// is blocked counts as long as it may get its turn without anybody else: the leader has not polled
/// it yet, or the one before it is itself being sent. Whole slots are read for that only where
/// the queue has nothing else.
async fn moves(
    client: &Client,
    counters: &Counters,
    queue: &str,
    relayed: &[&str],
) -> anyhow::Result<bool> {
    let of_queue = counters.jobs.iter().filter(|of| of.queue == queue);
    let blocked: i64 = of_queue.map(|of| of.blocked).sum();
    let left = left(counters, queue);
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

/// How far a relay has come, and since when it comes no further.
struct Course {
    settled: u64,
    unavailable: u64,
    since: Instant,
}

/// Completes when no job of the routes waits or is under way. Jobs of a queue that is paused are
/// not waited for, nor are those after one of their ordering key that is not due or that no relay
/// here takes. An error when what is left is for destinations that take nothing.
pub(super) async fn until_empty(client: &Client, relays: &[Started]) -> anyhow::Result<()> {
    let mut empty_since: Option<Instant> = None;
    let mut courses: Vec<Option<Course>> = relays.iter().map(|_| None).collect();
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
            let waits =
                !is_paused(&one.queue) && moves(client, &counters, &one.queue, &relayed).await?;
            // One that is down and was asked to take nothing does not matter.
            if !waits && (status.down_since.is_none() || status.unavailable == 0) {
                *course = None;
                continue;
            }
            let settled = status.accepted + status.rejected + status.retried;
            let course = course.get_or_insert_with(|| Course {
                settled,
                unavailable: status.unavailable,
                since: Instant::now(),
            });
            if course.settled != settled {
                *course = Course {
                    settled,
                    unavailable: status.unavailable,
                    since: Instant::now(),
                };
            }
            let takes_nothing =
                status.down_since.is_some() || status.unavailable > course.unavailable;
            match takes_nothing && course.since.elapsed() > PATIENCE {
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
            if !was_down || since.elapsed() > RESCHEDULED_FOR {
                return Ok(());
            }
        }
        // A slow poll takes at most a sixth of the time.
        tokio::time::sleep(POLL_EVERY.max(begun.elapsed() * 5)).await;
    }
}

/// What a route has sent.
#[derive(Serialize)]
struct RouteTotals {
    route: String,
    accepted: u64,
    rejected: u64,
    retried: u64,
    last_error: Option<String>,
    rejections: BTreeMap<String, u64>,
}

/// What the routes have sent.
#[derive(Serialize)]
#[serde(transparent)]
pub(super) struct Report(Vec<RouteTotals>);

impl Report {
    pub(super) fn combined(relays: &[Started]) -> Self {
        Self(relays.iter().map(RouteTotals::new).collect())
    }
}

impl RouteTotals {
    fn new(one: &Started) -> Self {
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
            // One reason was just printed.
            for (reason, count) in sent.rejections.iter().filter(|_| sent.rejections.len() > 1) {
                write!(f, "\n  {count} rejected: {}", one_line(reason))?;
            }
        }
        Ok(())
    }
}
