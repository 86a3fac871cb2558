//! `posthaste queues`: which there are; pause and resume.

use std::fmt;

use clap::Subcommand;
use serde::Serialize;

use crate::database::Database;
use crate::terminal::Terminal;

/// Show queues, pause and resume them
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the queues that are known, and which are paused
    List,
    /// Let workers claim nothing of a queue any more; what runs goes on
    Pause {
        /// Its name
        queue: String,
    },
    /// Let workers claim from a queue again
    Resume {
        /// Its name
        queue: String,
    },
}

pub(crate) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let client = database.address().connect().await?;
    let (sql, queue, paused) = match &arguments.command {
        Command::List => {
            let rows = client.query(include_str!("queues/list.sql"), &[]).await?;
            let queues: Result<Vec<Queue>, tokio_postgres::Error> = rows
                .iter()
                .map(|row| {
                    Ok(Queue {
                        queue: row.try_get(0)?,
                        paused: row.try_get(1)?,
                        changed: None,
                    })
                })
                .collect();
            let queues = Queues(queues?);
            return terminal.result(&queues, &queues);
        }
        Command::Pause { queue } => (include_str!("queues/pause.sql"), queue, true),
        Command::Resume { queue } => (include_str!("queues/resume.sql"), queue, false),
    };
    let changed = client.query_one(sql, &[queue]).await?.try_get(0)?;
    let queue = Queue {
        queue: queue.clone(),
        paused,
        changed: Some(changed),
    };
    terminal.result(&queue, &queue)
}

#[derive(Serialize)]
struct Queue {
    queue: String,
    paused: bool,
    /// Whether it was otherwise before.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<bool>,
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = &self.queue;
        match (self.paused, self.changed) {
            (true, Some(false)) => write!(f, "queue {queue} was paused already"),
            (true, _) => write!(f, "queue {queue} is paused"),
            (false, Some(false)) => write!(f, "queue {queue} was not paused"),
            (false, _) => write!(f, "queue {queue} is worked"),
        }
    }
}

#[derive(Serialize)]
#[serde(transparent)]
struct Queues(Vec<Queue>);

impl fmt::Display for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return write!(f, "no queues yet");
        }
        let lines: Vec<String> = self.0.iter().map(Queue::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}
