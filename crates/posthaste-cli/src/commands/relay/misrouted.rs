//! Detects jobs that are in queues without a route.

use posthaste_observe::format::pluralize;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::once::unfinished_jobs;

/// The queue of jobs whose name matches no pattern.
const DEFAULT_QUEUE: &str = "default";

/// A route, and the number of jobs that its relay has received.
pub(super) struct RouteInput<'a> {
    pub(super) route: &'a str,
    pub(super) queue: &'a str,
    pub(super) came: u64,
}

/// Returns a line for each route whose jobs are in a paused queue or probably in the default queue.
pub(super) async fn misrouted_lines(
    client: &Client,
    routes: &[RouteInput<'_>],
) -> anyhow::Result<Vec<String>> {
    let counters = posthaste::Client::new(client).counters().await?;
    let mut lines = Vec::new();
    let in_default = unfinished_jobs(&counters, DEFAULT_QUEUE);
    let is_relayed = routes.iter().any(|one| one.queue == DEFAULT_QUEUE);
    for (one, is_led_to) in routes.iter().zip(have_patterns(client, routes).await?) {
        let (name, queue) = (one.route, one.queue);
        let left = unfinished_jobs(&counters, queue);
        if left > 0 && counters.paused.iter().any(|paused| paused == queue) {
            lines.push(format!(
                "route {name}: {} in queue {queue}, which is paused",
                waiting_text(left)
            ));
        }
        if one.came == 0 && left == 0 && in_default > 0 && !is_led_to && !is_relayed {
            lines.push(format!(
                "route {name}: queue {queue} is empty and no pattern in posthaste.route maps to \
                 it, while {} in queue {DEFAULT_QUEUE}. If new jobs belong to this route, run \
                 INSERT INTO posthaste.route (pattern, queue) VALUES ('…', '{queue}'). Existing \
                 jobs stay in their queue",
                waiting_text(in_default)
            ));
        }
    }
    Ok(lines)
}

fn waiting_text(jobs: i64) -> String {
    pluralize(jobs, "job waits", "jobs wait")
}

/// Returns for each route whether a pattern of posthaste.route leads to its queue.
async fn have_patterns(client: &Client, routes: &[RouteInput<'_>]) -> anyhow::Result<Vec<bool>> {
    let queues: Vec<&str> = routes.iter().map(|one| one.queue).collect();
    let sql = include_str!("is_led_to.sql");
    let rows = client
        .query_typed(sql, &[(&queues, Type::TEXT_ARRAY)])
        .await?;
    let read: Result<Vec<bool>, _> = rows.iter().map(|row| row.try_get(0)).collect();
    Ok(read?)
}
