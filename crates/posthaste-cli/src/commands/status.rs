//! `posthaste status`: every queue with its jobs by state.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::database::Database;
use crate::terminal::Terminal;

/// Show every queue with its jobs by state
#[derive(clap::Args)]
pub(crate) struct Arguments {}

/// All states of the view `posthaste.job`, in the order of a job's life.
const STATES: [&str; 10] = [
    "claimable",
    "scheduled",
    "retrying",
    "running",
    "awaiting",
    "suspect",
    "expired",
    "dead",
    "discarded",
    "cancelled",
];

#[derive(Debug, Default, Serialize)]
struct Status {
    queues: BTreeMap<String, BTreeMap<String, i64>>,
}

pub(crate) async fn run(database: &Database, terminal: &Terminal) -> anyhow::Result<()> {
    let client = database.address().connect().await?;
    let mut status = Status::default();
    for row in client.query(include_str!("status.sql"), &[]).await? {
        let states = status
            .queues
            .entry(row.try_get("queue")?)
            .or_insert_with(|| {
                STATES
                    .iter()
                    .map(|state| ((*state).to_owned(), 0))
                    .collect()
            });
        states.insert(row.try_get("state")?, row.try_get("jobs")?);
    }
    terminal.result(&status, &status)
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.queues.is_empty() {
            return write!(f, "no jobs: everything that was enqueued is done");
        }
        let shown: Vec<&str> = STATES
            .into_iter()
            .filter(|state| self.queues.values().any(|jobs| jobs.get(*state) > Some(&0)))
            .collect();
        let wide = self
            .queues
            .keys()
            .map(|queue| queue.chars().count())
            .max()
            .unwrap_or(0)
            .max(5);
        write!(f, "{:wide$}", "queue")?;
        for state in &shown {
            write!(f, "  {state:>10}")?;
        }
        for (queue, jobs) in &self.queues {
            write!(f, "\n{queue:wide$}")?;
            for state in &shown {
                write!(f, "  {:>10}", jobs.get(*state).copied().unwrap_or(0))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_states_that_occur_get_a_column() {
        let jobs = BTreeMap::from([("claimable".to_owned(), 12), ("dead".to_owned(), 0)]);
        let status = Status {
            queues: BTreeMap::from([("mail".to_owned(), jobs)]),
        };
        assert_eq!(status.to_string(), "queue   claimable\nmail           12");
        assert_eq!(
            Status::default().to_string(),
            "no jobs: everything that was enqueued is done"
        );
    }
}
