//! The server, the network and the processes of a round.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use posthaste::__private::migrations_sql_with_mutations;
use posthaste_testkit::{
    Child, PgServer, PgVersion, Proxy, connect, eventually, is_alive, mutations,
};
use tokio::sync::watch;
use tokio_postgres::Client;

use super::Environment;
use super::behind::Behind;
use super::captured::Captures;
use super::clock::ServerClock;
use super::copied::Copied;
use super::progress::Progress;
use crate::bugs::{Bug, Misbehavior};
use crate::history::End;
use crate::load::{JOB, PRODUCERS, QUEUES};
use crate::plan::{Processes, RoundPlan};

/// The number of worker processes.
pub(super) const WORKERS: usize = 3;
/// The name of the database, and the site of its processes: a promotion changes their addresses, as
/// a copy would.
pub(super) const DATABASE: &str = "torture";
/// Settings that promotions and captures require of all servers.
pub(super) const SETTINGS: [(&str, &str); 2] =
    [("wal_keep_size", "512MB"), ("wal_level", "logical")];
/// The limit for short waits.
pub(super) const SOON: Duration = Duration::from_secs(60);
/// The limit for everything to end without further faults: a worker without answers reconnects
/// after half a minute, and a job that killed its worker is delayed more each time.
pub(super) const QUIET: Duration = Duration::from_secs(150);
/// The same limit with a deliberate bug, with which some jobs may never end.
const QUIET_ENOUGH: Duration = Duration::from_secs(12);

pub(super) struct Stage {
    pub(super) server: PgServer,
    /// One for each worker, then one for each producer.
    pub(super) links: Vec<Proxy>,
    /// The receivers; `None` in rounds of workers.
    pub(super) behind: Option<Behind>,
    /// The server's separate clock, if it has one.
    pub(super) clock: Option<ServerClock>,
    pub(super) copies: Vec<Copied>,
    pub(super) captures: Captures,
    workers: Vec<Place>,
    urls: watch::Sender<Vec<String>>,
    folder: PathBuf,
    program: PathBuf,
    pub(super) misbehavior: Option<Misbehavior>,
    quiet: Duration,
    /// Events without a fault as cause.
    pub(super) oddities: Vec<String>,
}

/// A place for one worker process after another.
struct Place {
    process: Option<Child>,
    /// The number of processes that were started.
    starts: u64,
}

impl Stage {
    /// Creates a server with an empty store, and workers or relays.
    pub(super) async fn set(
        version: PgVersion,
        plan: &RoundPlan,
        environment: &Environment,
        bug: Option<&Bug>,
        progress: &Arc<Progress>,
    ) -> anyhow::Result<Self> {
        let start = match plan.clocked {
            true => PgServer::start_with_clock,
            false => PgServer::start,
        };
        let server = tokio::task::block_in_place(|| start(version, &SETTINGS))?;
        let clock = match plan.clocked {
            true => Some(ServerClock::new(&environment.folder, &server)?),
            false => None,
        };
        let admin = connect(&server.url("postgres")).await?;
        admin
            .batch_execute(&format!("CREATE DATABASE {DATABASE}"))
            .await?;
        let client = connect(&server.url(DATABASE)).await?;
        client.batch_execute(&schema(bug)?).await?;
        client
            .batch_execute(
                "CREATE TABLE promise (key bigint PRIMARY KEY); CREATE TABLE effect (key bigint)",
            )
            .await?;
        if plan.clocked {
            let rate = "SELECT posthaste.limit_rate($1, 2000, '1 second', burst => 4000)";
            client.execute(rate, &[&QUEUES[0]]).await?;
        }
        if plan.hostile {
            client.batch_execute(include_str!("hostile.sql")).await?;
        }
        let behind = match plan.processes {
            Processes::Workers => None,
            Processes::Relays => Some(Behind::set(&environment.folder, progress, client).await?),
        };
        let misbehavior = bug.and_then(|bug| bug.misbehavior);
        let program = &environment.program;
        let captures = Captures::set(&server, plan, program, misbehavior).await?;
        let mut stage = Self {
            behind,
            captures,
            clock,
            links: links(&server).await?,
            copies: Vec::new(),
            workers: Vec::new(),
            urls: watch::Sender::default(),
            folder: environment.folder.clone(),
            program: environment.program.clone(),
            misbehavior,
            quiet: bug.map_or(QUIET, |_| QUIET_ENOUGH),
            oddities: Vec::new(),
            server,
        };
        stage.tell_producers();
        for place in 0..WORKERS {
            stage.workers.push(Place {
                process: None,
                starts: 0,
            });
            stage.spawn(place)?;
        }
        Ok(stage)
    }

    /// The URLs for producers.
    pub(super) fn urls(&self) -> watch::Receiver<Vec<String>> {
        self.urls.subscribe()
    }

    fn tell_producers(&self) {
        let urls = (0..PRODUCERS)
            .map(|number| url(&self.links[WORKERS + number], &format!("p{number}")))
            .collect();
        self.urls.send_replace(urls);
    }

    /// Connects directly, without the proxies.
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        connect(&self.server.url(DATABASE)).await
    }

    /// Starts a worker process in this place.
    pub(super) fn spawn(&mut self, place: usize) -> anyhow::Result<()> {
        let starts = &mut self.workers[place].starts;
        *starts += 1;
        let name = format!("w{place}.{starts}");
        let mut url = url(&self.links[place], &name);
        // The sessions of one of them do not wait for the disk.
        if place == WORKERS - 1 {
            url.push_str("&options=-c%20synchronous_commit%3Doff");
        }
        let mut command = self.process(place, &name, &url);
        command.args(["--site", DATABASE]);
        self.workers[place].process = Some(Child::spawn(&mut command)?);
        Ok(())
    }

    /// The command of a worker or relay that uses this database URL, and the links of this place to
    /// the receivers.
    pub(super) fn process(&self, place: usize, name: &str, url: &str) -> Command {
        let mut command = Command::new(&self.program);
        match &self.behind {
            None => {
                command
                    .args(["work", "--url", url, "--sink"])
                    .arg(self.folder.join(format!("{name}.log")));
                if let Some(clock) = &self.clock {
                    command.arg("--clock").arg(clock.file());
                }
            }
            Some(behind) => {
                command.args(["relay", "--url", url, "--name", name]);
                behind.tell(place, &mut command);
            }
        }
        if let Some(misbehavior) = self.misbehavior {
            command.args(["--misbehavior", &misbehavior.name()]);
        }
        command
    }

    /// Kills the process in this place. The place stays empty until `spawn` is called.
    pub(super) fn kill(&mut self, place: usize) -> anyhow::Result<()> {
        if let Some(mut process) = self.workers[place].process.take() {
            process.kill()?;
        }
        Ok(())
    }

    /// Pauses the process in this place for this long.
    pub(super) async fn freeze(&mut self, place: usize, time: Duration) -> anyhow::Result<()> {
        let process = self.workers[place].process.as_mut();
        let process = process.context("nobody is in this place")?;
        process.pause()?;
        tokio::time::sleep(time).await;
        process.resume()
    }

    /// Stops reading the log of the process in this place for this long.
    pub(super) async fn leave_log_unread(
        &self,
        place: usize,
        time: Duration,
    ) -> anyhow::Result<()> {
        let process = self.workers[place].process.as_ref();
        let process = process.context("nobody is in this place")?;
        process.stop_reading_errors();
        tokio::time::sleep(time).await;
        process.read_errors_again();
        Ok(())
    }

    /// Replaces workers that ended unexpectedly, and records them.
    pub(super) fn heed(&mut self) -> anyhow::Result<()> {
        for place in 0..WORKERS {
            let Some(process) = &self.workers[place].process else {
                continue;
            };
            if !is_alive(process.pid()) {
                let said = last_lines(process);
                self.oddities
                    .push(format!("the worker w{place} ended by itself: {said}"));
                self.spawn(place)?;
            }
        }
        self.oddities.extend(self.captures.heed()?);
        Ok(())
    }

    /// Switches to another server, to which no process is connected yet, and returns the old one.
    pub(super) async fn move_to(&mut self, server: PgServer) -> anyhow::Result<PgServer> {
        self.links = links(&server).await?;
        self.tell_producers();
        self.captures.move_to(&server).await?;
        Ok(std::mem::replace(&mut self.server, server))
    }

    /// Waits until nothing is left to do, and stops the workers in order; then the readers of
    /// receivers read to the end.
    pub(super) async fn rest(&mut self) -> anyhow::Result<()> {
        for link in &self.links {
            link.restore().await?;
            link.reset();
        }
        if let Some(behind) = &self.behind {
            behind.restore().await?;
        }
        let client = self.client().await?;
        self.captures.catch_up(&client, self.quiet).await?;
        self.pass_all_times().await?;
        let open = "SELECT count(*) FROM posthaste.job WHERE state NOT IN ('completed', 'dead', \
                    'discarded', 'expired', 'cancelled') AND queue <> 'captured'";
        let waited = eventually(self.quiet, "nothing is left to do", async || {
            let client = self.client().await?;
            Ok(client.query_one(open, &[]).await?.get::<_, i64>(0) == 0)
        })
        .await;
        // The checker finds what is left.
        drop(waited);
        self.heed()?;
        self.end_copies().await?;
        self.oddities.extend(self.captures.stop().await?);
        for (number, place) in self.workers.iter_mut().enumerate() {
            let Some(mut process) = place.process.take() else {
                continue;
            };
            process.terminate()?;
            match process.exit(SOON).await {
                Ok(status) if status.success() => {}
                Ok(status) => {
                    let said = last_lines(&process);
                    self.oddities
                        .push(format!("the worker w{number} ended with {status}: {said}"));
                }
                Err(error) => self
                    .oddities
                    .push(format!("the worker w{number} did not stop: {error:#}")),
            }
        }
        match &mut self.behind {
            Some(behind) => behind.finish().await,
            None => Ok(()),
        }
    }

    /// The limit for short waits, unless there is a deliberate bug.
    pub(super) fn soon(&self) -> Duration {
        self.quiet.min(SOON)
    }

    /// Records the captured events.
    pub(super) async fn keep_captured(&self, folder: &std::path::Path) -> anyhow::Result<()> {
        self.captures.end(&self.client().await?, folder).await
    }

    /// The final state of the store.
    pub(super) async fn end(&self) -> anyhow::Result<End> {
        let client = self.client().await?;
        let promised = client.query("SELECT key FROM promise", &[]).await?;
        let shown = "SELECT (kwargs->>'key')::bigint, state FROM posthaste.job
                      WHERE name = $1 AND state <> 'completed'";
        let shown = client.query(shown, &[&JOB]).await?;
        let effects = "SELECT key, count(*) FROM effect GROUP BY key";
        let effects = client.query(effects, &[]).await?;
        let attempts = "SELECT job, count(*) FILTER (WHERE outcome <> 'crashed'),
             count(*) FILTER (WHERE outcome = 'crashed')
             FROM posthaste.attempt GROUP BY job";
        let attempts = client.query(attempts, &[]).await?;
        let mut litter = Vec::new();
        for (what, sql) in [
            ("unique keys", "SELECT count(*) FROM posthaste.unique_key"),
            ("jobs in flight", "SELECT count(*) FROM posthaste.in_flight"),
        ] {
            let left: i64 = client.query_one(sql, &[]).await?.get(0);
            if left > 0 {
                litter.push(format!("{left} {what} are left"));
            }
        }
        Ok(End {
            promised: promised.iter().map(|row| row.get(0)).collect(),
            shown: shown.iter().map(|row| (row.get(0), row.get(1))).collect(),
            effects: effects.iter().map(|row| (row.get(0), row.get(1))).collect(),
            attempts: attempts
                .iter()
                .map(|row| (row.get(0), (row.get(1), row.get(2))))
                .collect(),
            litter,
        })
    }
}

/// The end of its log.
pub(super) fn last_lines(process: &Child) -> String {
    let lines = process.stderr();
    lines[lines.len().saturating_sub(20)..].join("; ")
}

async fn links(server: &PgServer) -> anyhow::Result<Vec<Proxy>> {
    let mut links = Vec::new();
    for _ in 0..WORKERS + PRODUCERS {
        links.push(Proxy::start(server.address()).await?);
    }
    Ok(links)
}

fn url(link: &Proxy, name: &str) -> String {
    format!("{}?application_name={name}", link.url(DATABASE))
}

/// Returns the schema with the mutations of a bug.
fn schema(bug: Option<&Bug>) -> anyhow::Result<String> {
    let names = bug.filter(|bug| bug.is_in_store()).map(|bug| bug.name);
    mutations::apply(&migrations_sql_with_mutations(), names.as_slice()).map_err(anyhow::Error::msg)
}
