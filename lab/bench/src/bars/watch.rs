//! The cost of observation: ten open consoles and a scrape every five seconds, during a drain and
//! on an idle server.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use posthaste_testkit::Child;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use super::drain::{drain_posthaste, drain_preloaded};
use crate::bench::Bench;
use crate::contestants::posthaste::{self, Manner};
use crate::database::{Database, instruments};
use crate::processes::{TICKS_PER_SECOND, own_ticks, tree_ticks};
use crate::report::Bar;
use crate::rounds::{Figures, play};
use crate::taint::Watch;
use crate::verdict::{Bound, Evidence, Requirement};

const ALONE: &str = "a drain";
const WATCHED: &str = "a drain, watched";
const IDLE: &str = "nothing, watched";
const RATE: &str = "jobs_per_second";
const CONSOLES: u64 = 10;
const SCRAPES: Duration = Duration::from_secs(5);
/// The time in which connections are opened and plans are made.
const SETTLES: Duration = Duration::from_secs(10);
/// A multiple of the bar's jobs: a drain lasts for several scrapes.
const TIMES: u64 = 5;
const STARTS: Duration = Duration::from_secs(60);

/// Runs the rounds and judges them.
pub(crate) async fn measure(bench: &Bench<'_>, bar: &mut Bar) -> Result<()> {
    let (jobs, rounds) = (bench.plan.drain_jobs * TIMES, bench.plan.rounds);
    bar.parameter("jobs", jobs);
    bar.parameter("consoles", CONSOLES);
    bar.parameter("seconds between scrapes", SCRAPES.as_secs());
    let seconds = bench.plan.idle_seconds;
    bar.parameter("seconds of nothing", seconds);
    play(
        &[ALONE, WATCHED, IDLE],
        rounds,
        &mut bar.runs,
        async |index| {
            let database = Database::fresh(bench.server).await?;
            match index {
                0 => alone(&database, jobs).await,
                1 => watched(&database, jobs).await,
                _ => idle(&database, seconds).await,
            }
        },
    )
    .await?;
    let evidence = Evidence::from_runs(&bar.runs, rounds);
    let share = Requirement::bar(
        "share of the drain that nobody watches",
        "x",
        Bound::AtLeast(0.98),
    );
    let beside = Requirement::bar(
        "of the drain's processor time, in those who watch and their sessions",
        "%",
        Bound::AtMost(2.0),
    );
    let idle = Requirement::bar("of one core of the server, idle", "%", Bound::AtMost(1.0));
    bar.judgements = vec![
        evidence.ratio(share, WATCHED, ALONE, RATE)?,
        evidence.median(beside, WATCHED, "watching_percent")?,
        evidence.median(idle, IDLE, "server_percent")?,
    ];
    Ok(())
}

/// Drains without observers, after the same delay since the creation of the database as with them.
async fn alone(database: &Database, jobs: u64) -> Result<Figures> {
    posthaste::prepare(database).await?;
    sleep(SETTLES).await;
    drain_posthaste(database, jobs, Manner::fast()).await
}

async fn watched(database: &Database, jobs: u64) -> Result<Figures> {
    posthaste::prepare(database).await?;
    let watchers = Watchers::start(database).await?;
    let sessions = watchers.sessions(database).await?;
    posthaste::preload(database, jobs).await?;
    let spent = Spent::begin(&watchers, sessions)?;
    let figures = drain_preloaded(database, jobs, Manner::fast()).await?;
    let (server, own) = spent.since(&watchers)?;
    let (events, scrapes) = watchers.stop().await?;
    let all = figures.processor.own_seconds;
    Ok(figures
        .with("watching_percent", (server + own) / all * 100.0)
        .with("events", events)
        .with("scrapes", scrapes))
}

async fn idle(database: &Database, seconds: u64) -> Result<Figures> {
    posthaste::prepare(database).await?;
    let watchers = Watchers::start(database).await?;
    let spent = Spent::begin(&watchers, watchers.sessions(database).await?)?;
    let watch = Watch::begin()?;
    sleep(Duration::from_secs(seconds)).await;
    let (server, own) = spent.since(&watchers)?;
    let processor = watch.finish()?;
    let sessions = spent.sessions.len() as f64;
    let (events, scrapes) = watchers.stop().await?;
    let percent = |spent: f64| spent / seconds as f64 * 100.0;
    Ok(Figures::measured_under(processor)
        .with("sessions", sessions)
        .with("server_percent", percent(server))
        .with("watchers_percent", percent(own))
        .with("events", events)
        .with("scrapes", scrapes))
}

/// The CPU time of the observers up to a time.
struct Spent {
    /// Their server processes, which stay the same.
    sessions: Vec<u32>,
    server: u64,
    own: u64,
}

impl Spent {
    fn begin(watchers: &Watchers, sessions: Vec<u32>) -> Result<Self> {
        Ok(Self {
            server: ticks_of(&sessions)?,
            own: watchers.ticks()?,
            sessions,
        })
    }

    /// The seconds used since then, in the server and in the observers.
    fn since(&self, watchers: &Watchers) -> Result<(f64, f64)> {
        let seconds = |ticks: u64| ticks as f64 / TICKS_PER_SECOND;
        let server = ticks_of(&self.sessions)? - self.server;
        Ok((seconds(server), seconds(watchers.ticks()? - self.own)))
    }
}

/// Fails if a session has ended: another process might be counted for it, or none.
fn ticks_of(sessions: &[u32]) -> Result<u64> {
    let of = |pid: &u32| own_ticks(*pid).context("a session of those who look has ended");
    sessions.iter().map(of).sum()
}

/// A process of the command that serves.
pub(super) struct Served {
    child: Child,
    pub(super) root: String,
}

impl Served {
    /// Starts the command, which was built with this program, and waits until it reports its
    /// address.
    pub(super) async fn start(database: &Database, command: &str) -> Result<Self> {
        let program = program()?;
        let mut started = posthaste_testkit::command(program);
        started.args([command, "--listen", "127.0.0.1:0"]);
        started.env("DATABASE_URL", database.url());
        let mut child = Child::spawn(&mut started)?;
        let line = child.error_line("http://", STARTS).await?;
        let url = line.split("http://").nth(1).context("no address")?;
        let address = url.split(['/', ',']).next().context("no address")?;
        let root = format!("http://{address}");
        Ok(Self { child, root })
    }

    pub(super) async fn stop(mut self) -> Result<()> {
        self.child.terminate()?;
        let status = self.child.exit(STARTS).await?;
        ensure!(status.success(), "{:?}", self.child.stderr());
        Ok(())
    }
}

fn program() -> Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name("posthaste");
    ensure!(
        program.is_file(),
        "there is no {}: cargo build --release -p posthaste-cli",
        program.display()
    );
    Ok(program)
}

pub(super) fn client() -> Result<reqwest::Client> {
    Ok(reqwest::Client::builder().no_proxy().build()?)
}

/// All observers.
struct Watchers {
    console: Served,
    exporter: Served,
    looks: JoinSet<Result<()>>,
    events: Arc<AtomicU64>,
    scrapes: Arc<AtomicU64>,
}

impl Watchers {
    async fn start(database: &Database) -> Result<Self> {
        let console = Served::start(database, "console").await?;
        let exporter = Served::start(database, "exporter").await?;
        let (client, mut looks) = (client()?, JoinSet::new());
        let (events, scrapes) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        for _ in 0..CONSOLES {
            let asked = client
                .get(format!("{}/events", console.root))
                .send()
                .await?;
            let mut page = asked.error_for_status()?;
            let events = Arc::clone(&events);
            looks.spawn(async move {
                while page.chunk().await?.is_some() {
                    events.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            });
        }
        let (url, counted) = (format!("{}/metrics", exporter.root), Arc::clone(&scrapes));
        looks.spawn(async move {
            let mut pace = interval(SCRAPES);
            loop {
                pace.tick().await;
                let text = client.get(&url).send().await?.text().await?;
                ensure!(text.contains("posthaste_database_up 1"), "{text}");
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Ok(Self {
            console,
            exporter,
            looks,
            events,
            scrapes,
        })
    }

    /// Their server processes; no other session exists yet.
    async fn sessions(&self, database: &Database) -> Result<Vec<u32>> {
        let observer = database.connect().await?;
        sleep(SETTLES).await;
        let rows = observer.query(instruments().get("other_backends")?, &[]);
        let pids = rows.await?.into_iter().map(|row| row.get::<_, i32>(0));
        let sessions: Vec<u32> = pids.filter_map(|pid| u32::try_from(pid).ok()).collect();
        ensure!(!sessions.is_empty(), "nobody looks");
        Ok(sessions)
    }

    fn ticks(&self) -> Result<u64> {
        let both = [&self.console, &self.exporter];
        both.iter().map(|one| tree_ticks(one.child.pid())).sum()
    }

    /// Returns the numbers of console events and of scrapes; fails if an observer ended early.
    async fn stop(mut self) -> Result<(f64, f64)> {
        if let Some(ended) = self.looks.try_join_next() {
            ended??;
            anyhow::bail!("a console was closed");
        }
        let (events, scrapes) = (&self.events, &self.scrapes);
        let (events, scrapes) = (
            events.load(Ordering::Relaxed),
            scrapes.load(Ordering::Relaxed),
        );
        ensure!(
            events >= CONSOLES && scrapes > 0,
            "{events} events, {scrapes} scrapes"
        );
        self.looks.shutdown().await;
        self.console.stop().await?;
        self.exporter.stop().await?;
        Ok((events as f64, scrapes as f64))
    }
}
