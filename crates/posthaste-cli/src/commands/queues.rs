//! `posthaste queues`: which there are; pause, resume, limit, keep what is done.

use std::fmt;
use std::time::Duration;

use clap::Subcommand;
use posthaste::Client;
use serde::Serialize;
use tokio_postgres::types::Type;

use crate::database::Database;
use crate::terminal::{Terminal, named};

/// Show queues; pause, resume and limit them, keep what is done
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the queues that are known, and what is set for them
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
    /// Let all workers together claim at most this many jobs of a queue in such a time
    Limit {
        /// Its name
        queue: String,
        /// Such as 100/s, 1000/m, 5/h or 1/d; 'none' takes the limit away
        #[arg(value_parser = rate)]
        rate: Rate,
        /// How many may start at once after a lull; as many as in the rate, unless said
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
        burst: Option<i32>,
    },
    /// Keep done jobs of a queue for a while, so that they can be looked up
    Keep {
        /// Its name
        queue: String,
        /// For how long at least, such as 24h or '7 days'; 'none': not beyond what the store needs
        how_long: String,
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
                        limit: Limit::of(row.try_get(2)?, row.try_get(3)?, row.try_get(4)?),
                        keep: row.try_get(5)?,
                    })
                })
                .collect();
            return terminal.results(&queues?, "no queues yet");
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
            let (jobs, seconds) = rate.0.unzip();
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
            let limited = Limited {
                queue: queue.clone(),
                limit: Limit::of(jobs, Some(seconds as f64), burst.or(jobs)),
            };
            return terminal.result(&limited, &limited);
        }
        Command::Keep { queue, how_long } => {
            let how_long = Some(how_long).filter(|text| *text != "none");
            let row = client
                .query_typed_one(
                    include_str!("queues/keep.sql"),
                    &[(queue, Type::TEXT), (&how_long, Type::TEXT)],
                )
                .await?;
            let kept = Kept {
                queue: queue.clone(),
                keep: how_long.cloned(),
                changed: row.try_get(0)?,
            };
            return terminal.result(&kept, &kept);
        }
    };
    let queue = Queue {
        queue: queue.clone(),
        paused,
        changed: Some(changed),
        limit: None,
        keep: None,
    };
    terminal.result(&queue, &queue)
}

/// This many jobs in this many seconds; or no limit.
#[derive(Clone)]
struct Rate(Option<(i32, i64)>);

fn rate(text: &str) -> Result<Rate, String> {
    if text == "none" {
        return Ok(Rate(None));
    }
    let parsed = text.split_once('/').and_then(|(jobs, unit)| {
        let seconds = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            "d" => 86_400,
            _ => return None,
        };
        let jobs = jobs.parse().ok().filter(|jobs| *jobs > 0)?;
        Some((jobs, seconds))
    });
    match parsed {
        Some(rate) => Ok(Rate(Some(rate))),
        None => Err("a rate is a number and s, m, h or d, such as 100/s, or 'none'".into()),
    }
}

#[derive(Serialize)]
struct Limit {
    jobs: i32,
    seconds: f64,
    burst: i32,
}

impl Limit {
    fn of(jobs: Option<i32>, seconds: Option<f64>, burst: Option<i32>) -> Option<Self> {
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
        write!(f, "at most {jobs} jobs in {seconds} s, {burst} at once")
    }
}

#[derive(Serialize)]
struct Limited {
    queue: String,
    limit: Option<Limit>,
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.limit {
            Some(limit) => write!(f, "queue {}: {limit}", named(&self.queue)),
            None => write!(f, "queue {} has no limit", named(&self.queue)),
        }
    }
}

#[derive(Serialize)]
struct Queue {
    queue: String,
    paused: bool,
    /// Whether it was otherwise before.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<Limit>,
    /// For how long its done jobs are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    keep: Option<String>,
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = named(&self.queue);
        match (self.paused, self.changed) {
            (true, Some(false)) => write!(f, "queue {queue} was paused already"),
            (true, _) => write!(f, "queue {queue} is paused"),
            (false, Some(false)) => write!(f, "queue {queue} was not paused"),
            (false, _) => write!(f, "queue {queue} is worked"),
        }?;
        if let Some(limit) = &self.limit {
            write!(f, ", {limit}")?;
        }
        match &self.keep {
            Some(keep) => write!(f, ", done jobs are kept for {keep}"),
            None => Ok(()),
        }
    }
}

#[derive(Serialize)]
struct Kept {
    queue: String,
    keep: Option<String>,
    /// Whether it was otherwise before.
    changed: bool,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = named(&self.queue);
        match &self.keep {
            Some(keep) => write!(f, "done jobs of queue {queue} are kept for {keep}"),
            None => write!(f, "done jobs of queue {queue} are not kept"),
        }
    }
}
