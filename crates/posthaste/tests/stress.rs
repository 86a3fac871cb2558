//! The store under concurrency: producers of every kind, claimers with every outcome, maintenance
//! without a pause, in segments so small that dozens rotate in a run. Every job that a producer
//! committed must be claimed, by one worker at a time, and closed once.

pub mod claimer;
pub mod ledger;
pub mod maintenance;
pub mod producer;
pub mod session;
pub mod settings;
pub mod store;
pub mod verdict;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use posthaste_testkit::{PgServer, PgVersion};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::support;
use ledger::Ledger;
use maintenance::Turned;
use settings::Settings;

/// The state that all tasks of one run share.
pub struct Stress {
    pub url: String,
    pub settings: Settings,
    pub ledger: Ledger,
    pub started: Instant,
    /// How often the clock was set back.
    pub steps: AtomicU64,
    /// Everything is closed: claimers and maintenance end.
    pub quiet: CancellationToken,
    /// Producers continued for longer than they should need.
    is_slow: AtomicBool,
}

impl Stress {
    /// Whether producers continue.
    pub fn producing(&self) -> bool {
        let (elapsed, settings) = (self.started.elapsed(), &self.settings);
        let is_slow = elapsed >= settings.produce;
        if is_slow && (elapsed >= settings.longest || self.ledger.totals().0 >= settings.enough) {
            return false;
        }
        self.is_slow.fetch_or(is_slow, Ordering::SeqCst);
        !self.ledger.failed()
    }

    /// Whether claimers and maintenance continue.
    pub fn working(&self) -> bool {
        !self.quiet.is_cancelled() && !self.ledger.failed()
    }
}

/// The result of a run without a finding.
#[derive(Debug)]
pub struct Report {
    pub jobs: usize,
    pub deliveries: usize,
    pub turned: Turned,
    /// Whether the machine was too slow for the required number of jobs.
    pub is_slow: bool,
    pub steps: u64,
}

/// Runs the stress against a migrated database. The error is the finding.
pub async fn run(url: &str, settings: Settings) -> Result<Report, String> {
    let setup = session::connect(url).await?;
    setup
        .batch_execute("CREATE TABLE expected (key bigint PRIMARY KEY, expired boolean NOT NULL)")
        .await
        .map_err(|error| session::describe("preparing", &error))?;
    let stress = Arc::new(Stress {
        url: url.to_owned(),
        settings,
        ledger: Ledger::default(),
        started: Instant::now(),
        steps: AtomicU64::new(0),
        quiet: CancellationToken::new(),
        is_slow: AtomicBool::new(false),
    });
    let mut producers = JoinSet::new();
    producer::start(&stress, &mut producers);
    let mut workers = JoinSet::new();
    claimer::start(&stress, &mut workers);
    workers.spawn(maintenance::turn_ring(Arc::clone(&stress)));
    workers.spawn(maintenance::tend(Arc::clone(&stress)));

    while let Some(ended) = producers.join_next().await {
        heed(&stress, ended);
    }
    verdict::wait_until_closed(&stress, &setup).await;
    stress.quiet.cancel();
    while let Some(ended) = workers.join_next().await {
        heed(&stress, ended);
    }
    if let Some(finding) = stress.ledger.finding() {
        return Err(finding);
    }
    verdict::check(&stress, &setup).await?;
    let turned = maintenance::empty_all_slots(&setup).await?;
    let (jobs, deliveries) = stress.ledger.totals();
    Ok(Report {
        jobs,
        deliveries,
        turned,
        is_slow: stress.is_slow.load(Ordering::SeqCst),
        steps: stress.steps.load(Ordering::Relaxed),
    })
}

/// Ends the run if a task failed: no error is expected here.
fn heed(stress: &Stress, ended: Result<Result<(), String>, tokio::task::JoinError>) {
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => stress.ledger.fail(error),
        Err(error) => stress.ledger.fail(error.to_string()),
    }
}

/// Returns a server that does not wait for the disk: this tests concurrency. Other tests cover
/// crashes.
pub fn server(version: PgVersion) -> &'static PgServer {
    static SERVERS: [OnceLock<PgServer>; 2] = [OnceLock::new(), OnceLock::new()];
    SERVERS[usize::from(version == PgVersion::V18)].get_or_init(|| {
        PgServer::start(version, &[("fsync", "off"), ("full_page_writes", "off")])
            .expect("a server for the stress")
    })
}

async fn survives(version: PgVersion) {
    let database = support::migrated(server(version)).await;
    let report = run(database.url(), Settings::full())
        .await
        .unwrap_or_else(|finding| panic!("{}: {finding}", version.name()));
    println!("stress {}: {report:?}", version.name());
    assert!(report.deliveries > report.jobs, "nothing was retried");
    // An idle machine rotates several times as many.
    let turned = report.turned;
    let is_enough = report.jobs > 2_000 && turned.ready >= 12 && turned.scheduled >= 3;
    if report.is_slow && !is_enough {
        let slow = format!("nothing was found, on a machine too slow to judge: {report:?}");
        posthaste_testkit::ran::not_run(&format!("stress on {}", version.name()), &slow);
    } else {
        assert!(is_enough, "{report:?}");
    }
    posthaste_testkit::ran::count("stress", 1);
    posthaste_testkit::ran::count("segments", turned.ready.unsigned_abs());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn committed_jobs_end_once_under_stress_on_15() {
    survives(PgVersion::V15).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn committed_jobs_end_once_under_stress_on_18() {
    survives(PgVersion::V18).await;
}

/// A clock that steps back makes jobs run early and back-offs ineffective for a moment. No job is
/// lost, and none runs twice.
async fn survives_steps(version: PgVersion) {
    let database = support::migrated(server(version)).await;
    let settings = Settings {
        clock_steps: true,
        ..Settings::short()
    };
    let report = run(database.url(), settings)
        .await
        .unwrap_or_else(|finding| panic!("{}: {finding}", version.name()));
    println!("stress {}: {report:?}", version.name());
    assert!(report.steps > 0, "{report:?}");
    posthaste_testkit::ran::count("stress-clocks", 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn committed_jobs_end_once_while_the_clock_steps_back_on_15() {
    survives_steps(PgVersion::V15).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn committed_jobs_end_once_while_the_clock_steps_back_on_18() {
    survives_steps(PgVersion::V18).await;
}

/// How long a run may take beyond its time of producing.
pub const PATIENCE: Duration = Duration::from_secs(60);
