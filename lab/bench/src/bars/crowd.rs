//! Very many jobs that one statement schedules for the same time, on a queue with a steady load:
//! promoted and worked under a pin, while the leader of maintenance is replaced half-way.
//!
//! A claim of thousands of jobs takes longer than a claim of five. Therefore, claims of the crowd
//! are compared with those of a backlog of jobs that were due at once, which are as large: the
//! difference is the cost of promotion. The log does not contain the size of a claim, but none
//! takes more than 5,000 jobs: the slowest claims, as many as the jobs require, count as the large
//! ones, so that the small claims of the steady load, which are most, do not hide them. The effect
//! of a crowd on jobs with a higher priority is measured by how long these wait for their start.

mod roll;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio_postgres::Client;

use self::roll::Roll;
use crate::bench::Bench;
use crate::claims::{Claim, LogMark, by_time, milliseconds, slowest};
use crate::clock::{Clock, Sightings};
use crate::contestants::posthaste::{self, Crew, Manner};
use crate::database::Database;
use crate::load::Load;
use crate::pin::Pin;
use crate::report::Bar;
use crate::rounds::{Figures, play};
use crate::statistics::{greatest, percentile};
use crate::taint::Watch;
use crate::verdict::{Bound, Evidence, Requirement};

const OURS: &str = "posthaste";

/// A round takes minutes, and every figure is compared with another of the same round.
pub(super) const ROUNDS: u32 = 1;

/// The steady load runs first; crowd and backlog have priority 0.
const HIGH_PRIORITY: i32 = -1;
const STEADY_RATE: u64 = 500;

/// The largest claim (LARGEST_CLAIM in the library).
const JOBS_PER_CLAIM: u64 = 5_000;

/// The backlog has a tenth of the crowd's jobs.
const BACKLOG_SHARE: u64 = 10;

/// Scheduling a job takes longer than enqueuing one that is due, so the crowd's time is this many
/// times later than the backlog's rate requires.
const PARKING_FACTOR: f64 = 4.0;

const LIMIT: Duration = Duration::from_secs(900);
const GLANCE: Duration = Duration::from_millis(50);

/// The phases that are evaluated separately, in the order of the run: the steady load alone, with a
/// backlog, while the crowd is being enqueued, and from the crowd's due time to its last job.
const PHASES: [&str; 4] = ["steady", "backlog", "parking", "crowd"];

/// Runs the round and judges it.
pub(crate) async fn measure(bench: &Bench<'_>, bar: &mut Bar) -> Result<()> {
    let plan = &bench.plan;
    bar.parameter("jobs of one instant", plan.crowd_jobs);
    bar.parameter("jobs of the backlog", plan.crowd_jobs / BACKLOG_SHARE);
    bar.parameter("steady jobs per second", STEADY_RATE);
    play(&[OURS], ROUNDS, &mut bar.runs, async |_| crowd(bench).await).await?;
    let evidence = Evidence::from_runs(&bar.runs, ROUNDS);
    let bar_of = |text, unit, most| Requirement::bar(text, unit, Bound::AtMost(most));
    bar.judgements = vec![
        evidence.highest(
            bar_of(
                "large claims of the crowd, p99, times those of a backlog",
                "x",
                2.0,
            ),
            OURS,
            "large_claim_p99_crowd_to_backlog",
        )?,
        evidence.highest(
            bar_of(
                "large claims of the crowd, p99, last fifth / first fifth",
                "x",
                2.0,
            ),
            OURS,
            "large_claim_p99_drift",
        )?,
        evidence.highest(
            bar_of(
                "start of a high-priority job beside the crowd, p99",
                "ms",
                100.0,
            ),
            OURS,
            "crowd_start_p99_ms",
        )?,
        evidence.highest(
            bar_of("jobs of the crowd that were worked twice", "jobs", 0.0),
            OURS,
            "worked_twice",
        )?,
        evidence.highest(
            bar_of("dead tuples in the hot tables", "tuples", 0.0),
            OURS,
            "dead_tuples",
        )?,
    ];
    Ok(())
}

/// The environment of a round.
struct Stage {
    database: Database,
    observer: Client,
    clock: Clock,
    /// The time of each phase, in microseconds of the clock.
    phases: Vec<Range<u64>>,
    steady: Sightings,
}

async fn crowd(bench: &Bench<'_>) -> Result<Figures> {
    let jobs = bench.plan.crowd_jobs;
    let backlog = jobs / BACKLOG_SHARE;
    let database = Database::fresh(bench.server).await?;
    posthaste::prepare(&database).await?;
    let pin = Pin::snapshot(&database).await?;
    let mark = LogMark::here(&bench.server.log_file())?;
    let (roll, clock) = (Arc::new(Roll::of(backlog + jobs)), Clock::start());
    let mut stage = Stage {
        observer: database.connect().await?,
        database,
        clock,
        phases: Vec::new(),
        steady: Sightings::default(),
    };
    let first = stage.crew("first", &roll).await?;
    stage.led_by("first").await?;
    let second = stage.crew("second", &roll).await?;

    let watch = Watch::begin()?;
    let over = Arc::new(AtomicBool::new(false));
    let (ends, loaded) = (Arc::clone(&over), stage.database.clone());
    let load = tokio::spawn(async move {
        let load = Load::churn(STEADY_RATE).at(HIGH_PRIORITY);
        load.offer_while(&loaded, clock, |_| !ends.load(Ordering::Relaxed))
            .await
    });
    stage.alone(bench.plan.quick).await?;
    let rate = stage.backlog(&roll, backlog).await?;
    let due = stage.park(backlog, jobs, rate).await?;
    ensure!(
        roll.done() == backlog,
        "jobs were worked before their instant"
    );
    let worked = stage.work(&roll, backlog, due, first).await?;
    over.store(true, Ordering::Relaxed);
    let offered = load.await??;
    let processor = watch.finish()?;
    stage.led_by("second").await?;
    stage.all_started(offered).await?;
    second.stop().await?;
    let tuples = posthaste::hot_tuples(&stage.observer).await?;
    pin.release().await?;
    posthaste::ensure_nothing_remains(&stage.database).await?;
    let figures = Figures::measured_under(processor)
        .with("worked_twice", roll.twice() as f64)
        .with("dead_tuples", tuples.dead as f64)
        .with("updated_or_deleted_tuples", tuples.changed as f64);
    stage.figures(worked.told(jobs, figures), jobs, &mark.claims_since()?)
}

/// The result for the crowd.
struct Worked {
    taken: Duration,
    /// When its last job was promoted, as far as polling shows.
    promoted: Duration,
    /// The longest time in which none of its jobs was started.
    longest_pause: Duration,
}

impl Worked {
    fn told(&self, jobs: u64, figures: Figures) -> Figures {
        figures
            .with("worked_per_second", jobs as f64 / self.taken.as_secs_f64())
            .with(
                "promoted_per_second",
                jobs as f64 / self.promoted.as_secs_f64(),
            )
            .with(
                "longest_pause_ms",
                self.longest_pause.as_secs_f64() * 1_000.0,
            )
    }
}

impl Stage {
    /// Starts a worker. Numbers on the roll are the crowd's and the backlog's; other numbers are
    /// the times of their transactions.
    async fn crew(&self, name: &'static str, roll: &Arc<Roll>) -> Result<Crew> {
        let (roll, steady, clock) = (Arc::clone(roll), self.steady.clone(), self.clock);
        let manner = Manner::fast().logged().named(name);
        Crew::start(&self.database, manner, move |number| {
            if !roll.note(number) {
                steady.note(number, clock.now());
            }
        })
        .await
    }

    async fn led_by(&self, name: &str) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(30);
        while posthaste::leader(&self.observer).await?.as_deref() != Some(name) {
            ensure!(Instant::now() < deadline, "the {name} worker does not lead");
            tokio::time::sleep(GLANCE).await;
        }
        Ok(())
    }

    /// Runs the steady load alone, once its lane is known to the workers.
    async fn alone(&mut self, quick: bool) -> Result<()> {
        self.all_started(1).await?;
        let begun = self.clock.now();
        tokio::time::sleep(Duration::from_secs(if quick { 2 } else { 15 })).await;
        self.phases.push(begun..self.clock.now());
        Ok(())
    }

    /// Enqueues jobs that are due at once by one statement, and works them. Returns the rate at
    /// which they were enqueued.
    async fn backlog(&mut self, roll: &Roll, jobs: u64) -> Result<f64> {
        let client = self.database.connect().await?;
        let begun = Instant::now();
        posthaste::numbered(&client, 0.0, roll::FIRST, jobs).await?;
        let rate = jobs as f64 / begun.elapsed().as_secs_f64();
        let worked = self.clock.now();
        let deadline = Instant::now() + LIMIT;
        while roll.done() < jobs {
            ensure!(Instant::now() < deadline, "the backlog was not worked");
            tokio::time::sleep(GLANCE).await;
        }
        self.phases.push(worked..self.clock.now());
        Ok(rate)
    }

    /// Schedules the crowd for a time at which its statement has certainly ended; returns that time
    /// by the clock.
    async fn park(&mut self, backlog: u64, jobs: u64, rate: f64) -> Result<u64> {
        let begun = self.clock.now();
        let ahead = 3.0 + jobs as f64 / rate * PARKING_FACTOR;
        let due = begun + (ahead * 1e6) as u64;
        let client = self.database.connect().await?;
        let epoch = self.clock.epoch_seconds(due);
        posthaste::numbered(&client, epoch, roll::FIRST + backlog, jobs).await?;
        let ended = self.clock.now();
        ensure!(ended < due, "the crowd's instant came before its commit");
        self.phases.push(begun..ended);
        tokio::time::sleep(Duration::from_micros(due - ended)).await;
        Ok(due)
    }

    /// Watches the crowd from its due time to its end; `first` is stopped half-way.
    async fn work(&mut self, roll: &Roll, backlog: u64, due: u64, first: Crew) -> Result<Worked> {
        let since = Instant::now();
        let (mut first, half, all) = (Some(first), backlog.midpoint(roll.len()), roll.len());
        let (mut done, mut moved_at) = (backlog, since);
        let (mut promoted, mut promoted_at) = (0, since);
        let mut longest_pause = Duration::ZERO;
        while done < all {
            ensure!(since.elapsed() < LIMIT, "{done} of {all} jobs were worked");
            let now = Instant::now();
            if roll.done() > done {
                done = roll.done();
                moved_at = now;
            }
            longest_pause = longest_pause.max(now - moved_at);
            let seen = posthaste::promoted(&self.observer).await?;
            if seen > promoted {
                promoted = seen;
                promoted_at = now;
            }
            if done >= half
                && let Some(first) = first.take()
            {
                first.stop().await?;
            }
            tokio::time::sleep(GLANCE).await;
        }
        self.phases.push(due..self.clock.now());
        Ok(Worked {
            taken: since.elapsed(),
            promoted: promoted_at - since,
            longest_pause,
        })
    }

    async fn all_started(&self, offered: u64) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(30);
        while (self.steady.all().len() as u64) < offered {
            ensure!(
                Instant::now() < deadline,
                "the steady jobs were not started"
            );
            tokio::time::sleep(GLANCE).await;
        }
        Ok(())
    }

    fn figures(&self, mut figures: Figures, jobs: u64, claims: &[Claim]) -> Result<Figures> {
        for (phase, span) in PHASES.iter().zip(&self.phases) {
            let took = milliseconds(&self.within(claims, span));
            ensure!(!took.is_empty(), "no claim was logged in the phase {phase}");
            let waited = self.waits(span);
            figures = figures
                .with(
                    &format!("{phase}_seconds"),
                    (span.end - span.start) as f64 / 1e6,
                )
                .with(&format!("{phase}_claims"), took.len() as f64)
                .with(&format!("{phase}_claim_p50_ms"), percentile(&took, 0.5))
                .with(&format!("{phase}_claim_p99_ms"), percentile(&took, 0.99))
                .with(&format!("{phase}_start_p50_ms"), percentile(&waited, 0.5))
                .with(&format!("{phase}_start_p99_ms"), percentile(&waited, 0.99))
                .with(&format!("{phase}_start_slowest_ms"), greatest(&waited));
        }
        let [_, backlog, _, crowd] = &self.phases[..] else {
            anyhow::bail!("a phase is missing")
        };
        let of_backlog = slowest(self.within(claims, backlog), large(jobs / BACKLOG_SHARE));
        let of_crowd = slowest(self.within(claims, crowd), large(jobs));
        let (under, over) = (milliseconds(&of_backlog), milliseconds(&of_crowd));
        let fifths: Vec<f64> = by_time(&of_crowd, 5)
            .iter()
            .map(|fifth| percentile(fifth, 0.99))
            .collect();
        let drift = fifths.last().context("no fifths")? / fifths.first().context("no fifths")?;
        let ratio = percentile(&over, 0.99) / percentile(&under, 0.99);
        Ok(figures
            .with("backlog_large_claim_p50_ms", percentile(&under, 0.5))
            .with("backlog_large_claim_p99_ms", percentile(&under, 0.99))
            .with("crowd_large_claim_p50_ms", percentile(&over, 0.5))
            .with("crowd_large_claim_p99_ms", percentile(&over, 0.99))
            .with("large_claim_p99_crowd_to_backlog", ratio)
            .with("large_claim_p99_drift", drift)
            .with_series("crowd_large_claim_p99_ms", fifths))
    }

    /// The claims of this period that were logged and found jobs.
    fn within(&self, claims: &[Claim], span: &Range<u64>) -> Vec<Claim> {
        let (from, to) = (
            self.clock.epoch_seconds(span.start),
            self.clock.epoch_seconds(span.end),
        );
        claims
            .iter()
            .filter(|claim| claim.found && (from..to).contains(&claim.at))
            .copied()
            .collect()
    }

    /// How long the steady jobs of this period waited for their start.
    fn waits(&self, span: &Range<u64>) -> Vec<f64> {
        self.steady
            .all()
            .iter()
            .filter(|(begun, _)| span.contains(begun))
            .map(|(begun, at)| at.saturating_sub(*begun) as f64 / 1_000.0)
            .collect()
    }
}

/// The least number of claims for this many jobs.
fn large(jobs: u64) -> usize {
    usize::try_from(jobs.div_ceil(JOBS_PER_CLAIM)).unwrap_or(usize::MAX)
}
