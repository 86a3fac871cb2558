//! `scale`: throughput against the number of worker processes, at several distances from the
//! server, on one queue and on several.
//!
//! Every process is a real worker with a few slots, and its jobs sleep. The processes together
//! demand slots / duration jobs per second, and the speed of claims decides how many they get.

mod fleet;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use posthaste_testkit::{PgServer, PgVersion, Proxy};
use serde::Serialize;
use tokio::time::sleep;
use tokio_postgres::Client;

use self::fleet::Fleet;
use crate::contestants::posthaste;
use crate::database::Database;
use crate::machine::Machine;
use crate::processes::{TICKS_PER_SECOND, tree_ticks};
use crate::server;
use crate::statements::Statements;
use crate::taint::Watch;

pub(crate) use self::fleet::{FleetWorkerOptions, work};

/// The largest number of jobs per second that are preloaded: more than two cores can work.
const MOST_JOBS_PER_SECOND: u64 = 8_000;

/// The time until claims, connections and plans are warm.
const WARM_UP: Duration = Duration::from_secs(3);

/// A pattern for claims in `pg_stat_statements`.
const CLAIMS: &str = "%posthaste.claim(%";

/// Options of a run.
#[derive(Debug, Args)]
pub(crate) struct ScaleOptions {
    /// Numbers of worker processes, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32,64")]
    pub(crate) workers: Vec<u32>,
    /// Network delays in one direction in milliseconds, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "0,1,5")]
    pub(crate) delay_ms: Vec<u64>,
    /// Numbers of queues that all processes serve, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "1,8")]
    pub(crate) queues: Vec<u32>,
    /// Number of jobs that one process runs at once, divided among its queues with at least one
    /// each
    #[arg(long, default_value_t = 10)]
    pub(crate) slots: usize,
    /// Duration of a job in milliseconds
    #[arg(long, default_value_t = 20)]
    pub(crate) takes_ms: u64,
    /// Seconds of measurement at each point
    #[arg(long, default_value_t = 8)]
    pub(crate) seconds: u64,
    /// Major version of Postgres, 15 to 18
    #[arg(long, default_value = "15")]
    pub(crate) pg: PgVersion,
    /// Directory for the data of the private server; not on a tmpfs
    #[arg(long)]
    pub(crate) data_parent: Option<PathBuf>,
    /// File to which the points are written as JSON
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
}

impl ScaleOptions {
    fn slots_per_queue(&self, queues: u32) -> usize {
        self.slots.div_ceil(queues.max(1) as usize)
    }
}

/// The result of a number of processes.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Point {
    queues: u32,
    delay_ms: u64,
    workers: u32,
    demanded_per_second: u64,
    jobs_per_second: f64,
    claims_per_second: f64,
    claim_ms: f64,
    server_cpu_us_per_job: f64,
    tainted: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    slots: usize,
    takes_ms: u64,
    points: Vec<Point>,
}

/// Measures all points and prints them.
pub(crate) async fn run(options: &ScaleOptions) -> Result<()> {
    let parent = options
        .data_parent
        .clone()
        .unwrap_or_else(std::env::temp_dir);
    let settings = [
        ("shared_preload_libraries", "pg_stat_statements"),
        ("max_connections", "700"),
    ];
    let server = server::start_with(options.pg, &parent, &settings)?;
    let mut report = Report {
        machine: Machine::describe()?,
        slots: options.slots,
        takes_ms: options.takes_ms,
        points: Vec::new(),
    };
    eprintln!("{}", Point::HEAD);
    for &queues in &options.queues {
        for &delay_ms in &options.delay_ms {
            for &workers in &options.workers {
                let point = measure(&server, options, queues, delay_ms, workers).await?;
                eprintln!("{}", point.line());
                report.points.push(point);
                if let Some(out) = &options.out {
                    fs::write(out, serde_json::to_string_pretty(&report)?)
                        .with_context(|| format!("cannot write {}", out.display()))?;
                }
            }
        }
    }
    Ok(())
}

async fn measure(
    server: &PgServer,
    options: &ScaleOptions,
    queues: u32,
    delay_ms: u64,
    workers: u32,
) -> Result<Point> {
    let database = Database::fresh(server).await?;
    posthaste::prepare(&database).await?;
    let demanded_per_second = demand(options, queues, workers);
    let seconds = options.seconds + 2 * WARM_UP.as_secs();
    let jobs = demanded_per_second.min(MOST_JOBS_PER_SECOND) * seconds;
    posthaste::preload_queues(&database, jobs.div_ceil(queues.into()), queues).await?;
    let proxy = Proxy::start_raw(server.address()).await?;
    proxy.delay(Duration::from_millis(delay_ms));
    let observer = database.connect().await?;
    observer
        .batch_execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        .await?;
    let url = proxy.url(database.name()?);
    let mut fleet = Fleet::start(&url, workers, options, queues).await?;
    sleep(WARM_UP).await;
    let postmaster = server.pid().context("the server has ended")?;
    let watch = Watch::begin()?;
    let (claims, ticks, done) = (
        claims(&observer).await?,
        tree_ticks(postmaster)?,
        fleet.finished().await?,
    );
    let begun = std::time::Instant::now();
    sleep(Duration::from_secs(options.seconds)).await;
    let done = fleet.finished().await? - done;
    let taken = begun.elapsed().as_secs_f64();
    let ticks = tree_ticks(postmaster)? - ticks;
    let claims = claims.until(self::claims(&observer).await?);
    let tainted = watch.finish()?.taint().is_some();
    fleet.stop().await?;
    ensure!(done < jobs, "all {jobs} jobs were worked before the end");
    Ok(Point {
        queues,
        delay_ms,
        workers,
        demanded_per_second,
        jobs_per_second: done as f64 / taken,
        claims_per_second: claims.calls / taken,
        claim_ms: claims.milliseconds / claims.calls.max(1.0),
        server_cpu_us_per_job: ticks as f64 / TICKS_PER_SECOND * 1e6 / done.max(1) as f64,
        tainted,
    })
}

/// Jobs per second that all slots together can run.
fn demand(options: &ScaleOptions, queues: u32, workers: u32) -> u64 {
    let slots = options.slots_per_queue(queues) as u64 * u64::from(queues) * u64::from(workers);
    slots * 1_000 / options.takes_ms.max(1)
}

/// Claims since the server's statistics began.
#[derive(Debug, Clone, Copy)]
struct Claims {
    calls: f64,
    milliseconds: f64,
}

impl Claims {
    fn until(self, later: Self) -> Self {
        Self {
            calls: later.calls - self.calls,
            milliseconds: later.milliseconds - self.milliseconds,
        }
    }
}

async fn claims(observer: &Client) -> Result<Claims> {
    let statements = Statements::parse(include_str!("../locking/degrade.sql"));
    let row = observer
        .query_one(statements.get("claim_cost")?, &[&CLAIMS])
        .await?;
    Ok(Claims {
        calls: row.get::<_, i64>("calls") as f64,
        milliseconds: row.get("milliseconds"),
    })
}

impl Point {
    const HEAD: &str = "queues  delay  workers  demanded/s     jobs/s  claims/s  claim ms  \
                        server µs/job";

    fn line(&self) -> String {
        let tainted = if self.tainted { "  [busy machine]" } else { "" };
        format!(
            "{:>6} {:>3} ms {:>8} {:>11} {:>10.0} {:>9.0} {:>9.2} {:>14.0}{tainted}",
            self.queues,
            self.delay_ms,
            self.workers,
            self.demanded_per_second,
            self.jobs_per_second,
            self.claims_per_second,
            self.claim_ms,
            self.server_cpu_us_per_job,
        )
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::demand;
    use crate::options::{Command, CommandLine};

    fn options(line: &str) -> anyhow::Result<super::ScaleOptions> {
        let words = ["bench", "scale"]
            .into_iter()
            .chain(line.split_whitespace());
        match CommandLine::try_parse_from(words)?.command {
            Some(Command::Scale(options)) => Ok(options),
            _ => anyhow::bail!("another command"),
        }
    }

    #[test]
    fn the_demand_is_the_sum_of_all_slots() -> anyhow::Result<()> {
        let options = options("--slots 10 --takes-ms 20")?;
        assert_eq!(demand(&options, 1, 1), 500);
        assert_eq!(demand(&options, 8, 32), 25_600);
        Ok(())
    }
}
