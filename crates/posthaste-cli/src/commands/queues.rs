//! `posthaste queues`: lists, pauses, resumes and limits queues, and sets the retention of
//! completed jobs.

use std::fmt;
use std::time::Duration;

use clap::Subcommand;
use posthaste::Client;
use posthaste_observe::format::pluralize;
use serde::Serialize;
use tokio_postgres::types::Type;

use crate::database::Database;
use crate::options;
use crate::terminal::{Terminal, escape_name};

/// List, pause, resume and limit queues, and set the retention of completed jobs
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List queues with their settings
    List,
    /// Stop workers from claiming jobs of a queue; running jobs continue
    Pause {
        /// Name of the queue
        queue: String,
    },
    /// Let workers claim jobs of a paused queue again
    Resume {
        /// Name of the queue
        queue: String,
    },
    /// Limit the rate at which all workers together claim jobs of a queue
    Limit {
        /// Name of the queue
        queue: String,
        /// Rate, such as 100/s, 1000/m, 5/h or 1/d; 'none' removes the limit
        #[arg(value_parser = parse_limit)]
        rate: NewLimit,
        /// Number of jobs that can start at once after an idle period (default: the number in the
        /// rate)
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
        burst: Option<i32>,
    },
    /// Set the retention of completed jobs of a queue
    Keep {
        /// Name of the queue
        queue: String,
        /// Minimum time to keep completed jobs, such as 24h or 7d; 'none' keeps them no longer than
        /// needed
        #[arg(value_name = "DURATION", value_parser = parse_retention)]
        retention: Retention,
    },
}

pub(crate) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let client = database.address().connect().await?;
    let (queue, changed, paused) = match &arguments.command {
        Command::List => {
            let rows = client
                .query_typed(include_str!("queues/list.sql"), &[])
                .await?;
            let queues: Result<Vec<Queue>, tokio_postgres::Error> = rows
                .iter()
                .map(|row| {
                    Ok(Queue {
                        queue: row.try_get(0)?,
                        paused: row.try_get(1)?,
                        changed: None,
                        limit: Limit::new(row.try_get(2)?, row.try_get(3)?, row.try_get(4)?),
                        keep: row.try_get(5)?,
                    })
                })
                .collect();
            return terminal.print_results(&queues?, "no queues yet");
        }
        Command::Pause { queue } => (
            queue,
            Client::new(posthaste::Unnamed(&client))
                .pause(queue)
                .await?,
            true,
        ),
        Command::Resume { queue } => (
            queue,
            Client::new(posthaste::Unnamed(&client))
                .resume(queue)
                .await?,
            false,
        ),
        Command::Limit { queue, rate, burst } => {
            let (jobs, seconds) = rate.unzip();
            let seconds = seconds.unwrap_or(1);
            let rate = jobs.map(|jobs| {
                let time = Duration::from_secs(seconds.unsigned_abs());
                let rate = posthaste::Rate::new(jobs.unsigned_abs(), time);
                match burst {
                    Some(burst) => rate.burst(burst.unsigned_abs()),
                    None => rate,
                }
            });
            Client::new(posthaste::Unnamed(&client))
                .limit(queue, rate)
                .await?;
            let limited = LimitResult {
                queue: queue.clone(),
                limit: Limit::new(jobs, Some(seconds as f64), burst.or(jobs)),
            };
            return terminal.print_result(&limited, &limited);
        }
        Command::Keep { queue, retention } => {
            let interval = retention.as_ref();
            let interval = interval.map(|(_, time)| format!("{} s", time.as_secs()));
            let row = client
                .query_typed_one(
                    include_str!("queues/keep.sql"),
                    &[(queue, Type::TEXT), (&interval, Type::TEXT)],
                )
                .await?;
            let retention = RetentionResult {
                queue: queue.clone(),
                keep: retention.as_ref().map(|(typed, _)| typed.clone()),
                changed: row.try_get(0)?,
            };
            return terminal.print_result(&retention, &retention);
        }
    };
    let queue = Queue {
        queue: queue.clone(),
        paused,
        changed: Some(changed),
        limit: None,
        keep: None,
    };
    terminal.print_result(&queue, &queue)
}

/// This many jobs in this many seconds; `None` removes the limit.
type NewLimit = Option<(i32, i64)>;
/// The retention as typed and as a duration; `None` removes it.
type Retention = Option<(String, Duration)>;

fn parse_limit(text: &str) -> Result<NewLimit, String> {
    match text {
        "none" => Ok(None),
        _ => options::parse_rate(text).map(Some),
    }
}

fn parse_retention(text: &str) -> Result<Retention, String> {
    match text {
        "none" => Ok(None),
        _ => options::parse_duration(text).map(|time| Some((text.to_owned(), time))),
    }
}

#[derive(Serialize)]
struct Limit {
    jobs: i32,
    seconds: f64,
    burst: i32,
}

impl Limit {
    fn new(jobs: Option<i32>, seconds: Option<f64>, burst: Option<i32>) -> Option<Self> {
        Some(Self {
            jobs: jobs?,
            seconds: seconds?,
            burst: burst?,
        })
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            jobs,
            seconds,
            burst,
        } = self;
        let jobs = pluralize(*jobs, "job", "jobs");
        let per = match seconds {
            1.0 => "per second".to_owned(),
            60.0 => "per minute".to_owned(),
            3_600.0 => "per hour".to_owned(),
            86_400.0 => "per day".to_owned(),
            _ => format!("in {seconds} s"),
        };
        write!(f, "at most {jobs} {per}, in bursts of up to {burst}")
    }
}

#[derive(Serialize)]
struct LimitResult {
    queue: String,
    limit: Option<Limit>,
}

impl fmt::Display for LimitResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.limit {
            Some(limit) => write!(f, "queue {}: {limit}", escape_name(&self.queue)),
            None => write!(f, "queue {} has no limit", escape_name(&self.queue)),
        }
    }
}

#[derive(Serialize)]
struct Queue {
    queue: String,
    paused: bool,
    /// Whether the command changed the setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<Limit>,
    /// The retention of completed jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    keep: Option<String>,
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = escape_name(&self.queue);
        match (self.paused, self.changed) {
            (true, Some(false)) => write!(f, "queue {queue} is already paused"),
            (true, _) => write!(f, "queue {queue} is paused"),
            (false, Some(true)) => write!(f, "queue {queue} is resumed"),
            (false, Some(false)) => write!(f, "queue {queue} is not paused"),
            (false, None) => write!(f, "queue {queue} is active"),
        }?;
        if let Some(limit) = &self.limit {
            write!(f, ", {limit}")?;
        }
        match &self.keep {
            Some(keep) => write!(f, ", completed jobs are kept for {keep}"),
            None => Ok(()),
        }
    }
}

#[derive(Serialize)]
struct RetentionResult {
    queue: String,
    keep: Option<String>,
    /// Whether the command changed the setting.
    changed: bool,
}

impl fmt::Display for RetentionResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = escape_name(&self.queue);
        match &self.keep {
            Some(keep) => write!(f, "completed jobs of queue {queue} are kept for {keep}"),
            None => write!(f, "completed jobs of queue {queue} are not kept"),
        }
    }
}
