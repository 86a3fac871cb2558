//! Statements of the counters (migrations/0018_counters.sql, migrations/0020_gauges.sql).

use super::link::Link;
use crate::error::Error;
use crate::tally::{Kind, Sums};

pub(crate) const COUNTS: &str = include_str!("counts.sql");
pub(crate) const OLDEST: &str = include_str!("oldest.sql");

/// Tells what this worker has done; sums of nothing are left out.
pub(crate) async fn tell(link: &Link, sums: &[(Kind, Sums)]) -> Result<(), Error> {
    let told: Vec<(&Kind, &str, i64)> = sums
        .iter()
        .flat_map(|(kind, sums)| sums.each().map(move |(what, jobs)| (kind, what, jobs)))
        .filter(|(_, _, jobs)| *jobs > 0)
        .collect();
    let queues: Vec<&str> = told.iter().map(|(kind, ..)| &*kind.queue).collect();
    let priorities: Vec<i32> = told.iter().map(|(kind, ..)| kind.priority).collect();
    let names: Vec<&str> = told.iter().map(|(kind, ..)| &*kind.name).collect();
    let tags: Vec<&str> = told.iter().map(|(kind, ..)| &*kind.tag).collect();
    let whats: Vec<&str> = told.iter().map(|(_, what, _)| *what).collect();
    let jobs: Vec<i64> = told.iter().map(|(.., jobs)| *jobs).collect();
    link.fetch(
        "cannot tell what was done",
        include_str!("tell.sql"),
        &[&queues, &priorities, &names, &tags, &whats, &jobs],
    )
    .await
    .map(drop)
}
