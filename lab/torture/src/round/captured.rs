//! The captures of a round: their outbox with its writers, their Redis, their process and its
//! faults.

mod writer;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use posthaste_capture::list_gaps;
use posthaste_testkit::receivers::{Receiver, Redis};
use posthaste_testkit::{Child, PgServer, Proxy, connect, eventually, is_alive};
use serde_json::Value;
use tokio::task::block_in_place;
use tokio::time::sleep;
use tokio_postgres::Client;

use super::faults::{SILENCE, SILENT, Struck};
use super::stage::{DATABASE, SOON, last_lines};
use crate::bugs::Misbehavior;
use crate::capture::{BY_JOBS, CAPTURED, DIRECT, begin_again, install};
use crate::history::{CaptureEnd, Captured, CapturedEvent, FILE, Kind};
use crate::plan::{Pace, RoundPlan};
use writer::Writers;

/// The place of the process; those of workers are `w0` and so on.
pub(super) const PLACE: &str = "k0";
/// Settings with which Redis keeps acknowledged data when it is killed.
const KEEPS: [(&str, &str); 2] = [("appendonly", "yes"), ("appendfsync", "always")];
/// Receivers need no key columns: a capture creates the IDs.
const OUTBOX: &str = "CREATE TABLE public.outbox (key bigint PRIMARY KEY,
     type text NOT NULL DEFAULT 'event', payload text NOT NULL,
     at pg_lsn NOT NULL DEFAULT pg_catalog.pg_current_wal_insert_lsn())";

pub(super) struct Captures {
    redis: Option<Redis>,
    link: Proxy,
    process: Option<Child>,
    /// The number of processes that were started.
    starts: u64,
    program: std::path::PathBuf,
    misbehavior: Option<Misbehavior>,
    writers: Writers,
    /// Their slots fail over.
    pub(super) fail_over: bool,
}

impl Captures {
    /// Creates an outbox, its writers and a process that captures. Nothing is sent directly if this
    /// machine has no Redis, or if the server's clock steps past the ends of jobs.
    pub(super) async fn set(
        server: &PgServer,
        plan: &RoundPlan,
        program: &Path,
        misbehavior: Option<Misbehavior>,
    ) -> anyhow::Result<Self> {
        let url = server.url(DATABASE);
        connect(&url).await?.batch_execute(OUTBOX).await?;
        let sends = !plan.clocked && Receiver::Redis.find().is_ok();
        let redis = match sends {
            true => Some(block_in_place(|| Redis::start(&KEEPS))?),
            false => None,
        };
        // Rows that are written before this need not be captured.
        let redis_url = redis.as_ref().map(Redis::url);
        install(&url, redis_url.as_deref(), plan.fails_over).await?;
        let mut captures = Self {
            link: Proxy::start_raw(server.address()).await?,
            process: None,
            starts: 0,
            program: program.to_owned(),
            misbehavior,
            writers: Writers::start(&url, plan.pace == Pace::Idle),
            fail_over: plan.fails_over,
            redis,
        };
        captures.spawn()?;
        Ok(captures)
    }

    fn redis_url(&self) -> Option<String> {
        self.redis.as_ref().map(|redis| redis.url())
    }

    fn spawn(&mut self) -> anyhow::Result<()> {
        self.starts += 1;
        let (address, starts) = (self.link.address(), self.starts);
        let url =
            format!("postgres://postgres@{address}/{DATABASE}?application_name={PLACE}.{starts}");
        let mut command = Command::new(&self.program);
        command.args(["capture", "--url", &url, "--site", DATABASE]);
        if let Some(redis) = self.redis_url() {
            command.args(["--redis", &redis]);
        }
        if self.fail_over {
            command.arg("--failover");
        }
        if let Some(misbehavior) = self.misbehavior {
            command.args(["--misbehavior", &misbehavior.name()]);
        }
        self.process = Some(Child::spawn(&mut command)?);
        Ok(())
    }

    fn process(&mut self) -> anyhow::Result<&mut Child> {
        self.process.as_mut().context("nobody captures")
    }

    /// Replaces a process that ended unexpectedly, and returns its last lines.
    pub(super) fn heed(&mut self) -> anyhow::Result<Option<String>> {
        let process = self.process()?;
        if is_alive(process.pid()) {
            return Ok(None);
        }
        let said = last_lines(process);
        self.spawn()?;
        Ok(Some(format!("the captures ended by themselves: {said}")))
    }

    /// Kills the process before a replica takes over.
    pub(super) fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
        }
        Ok(())
    }

    /// Continues on the server that took over. If it has none of the slots, begins again, as an
    /// operator does.
    pub(super) async fn move_to(&mut self, server: &PgServer) -> anyhow::Result<()> {
        let url = server.url(DATABASE);
        self.link = Proxy::start_raw(server.address()).await?;
        if !self.fail_over {
            begin_again(&url, self.redis_url().as_deref()).await?;
        }
        self.writers.move_to(&url);
        self.spawn()
    }

    pub(super) async fn strike(
        &mut self,
        kind: Kind,
        chance: &mut fastrand::Rng,
    ) -> anyhow::Result<Struck> {
        let struck = Struck::one(PLACE.into());
        match kind {
            Kind::CaptureKill => {
                self.kill()?;
                sleep(millis(chance, 0..300)).await;
                self.spawn()?;
            }
            Kind::CaptureFreeze => {
                self.process()?.pause()?;
                sleep(millis(chance, SILENT)).await;
                self.process()?.resume()?;
            }
            Kind::CaptureCut => {
                self.link.cut().await;
                sleep(millis(chance, 0..400)).await;
                self.link.restore().await?;
            }
            Kind::CaptureHalfOpen => {
                self.link.half_open();
                sleep(millis(chance, 50..1_500)).await;
                self.link.restore().await?;
                return Ok(struck.beyond(SILENCE));
            }
            // A machine without a Redis has none to kill.
            _ => {
                if let Some(redis) = &self.redis {
                    block_in_place(|| redis.kill9())?;
                    sleep(millis(chance, 0..3_000)).await;
                    block_in_place(|| redis.restart())?;
                }
            }
        }
        Ok(struck)
    }

    /// Stops the writers, and waits until everything that they wrote was captured.
    pub(super) async fn catch_up(
        &mut self,
        client: &Client,
        within: Duration,
    ) -> anyhow::Result<()> {
        self.writers.stop().await;
        self.link.restore().await?;
        self.link.reset();
        let end = "SELECT pg_catalog.pg_current_wal_insert_lsn()::text";
        let end: String = client.query_one(end, &[]).await?.get(0);
        // Marks are written with events.
        self.writers.write_last(client).await?;
        let is_read = "SELECT bool_and(confirmed_flush_lsn >= $1::text::pg_lsn)
             FROM pg_catalog.pg_replication_slots WHERE slot_name LIKE 'posthaste%'";
        let waited = eventually(within, "all is captured", async || {
            let row = client.query_one(is_read, &[&end]).await?;
            Ok(row.get::<_, Option<bool>>(0) == Some(true))
        });
        // The checker finds what is missing.
        drop(waited.await);
        Ok(())
    }

    /// Stops the process in order; returns why it did not stop.
    pub(super) async fn stop(&mut self) -> anyhow::Result<Option<String>> {
        let Some(mut process) = self.process.take() else {
            return Ok(None);
        };
        process.terminate()?;
        Ok(match process.exit(SOON).await {
            Ok(status) if status.success() => None,
            Ok(status) => {
                let said = last_lines(&process);
                Some(format!("the captures ended with {status}: {said}"))
            }
            Err(error) => Some(format!("the captures did not stop: {error:#}")),
        })
    }

    /// Records the final results.
    pub(super) async fn end(&self, client: &Client, folder: &Path) -> anyhow::Result<()> {
        let mut captures = vec![CaptureEnd {
            name: BY_JOBS.into(),
            is_exact: true,
            fails_over: self.fail_over,
            events: read_jobs(client).await?,
            gaps: Vec::new(),
        }];
        if let Some(redis) = &self.redis {
            captures.push(CaptureEnd {
                name: DIRECT.into(),
                is_exact: false,
                fails_over: self.fail_over,
                events: block_in_place(|| read_list(redis))?,
                gaps: Vec::new(),
            });
        }
        for gap in list_gaps(client, None).await? {
            for capture in captures.iter_mut().filter(|one| one.name == gap.capture) {
                let ends = gap.ends.as_deref().map(lsn).transpose()?;
                capture.gaps.push((lsn(&gap.begins)?, ends));
            }
        }
        let rows = self.writers.rows(client).await?;
        let captured = serde_json::to_vec(&Captured { rows, captures })?;
        Ok(std::fs::write(folder.join(FILE), captured)?)
    }
}

async fn read_jobs(client: &Client) -> anyhow::Result<Vec<CapturedEvent>> {
    let jobs = "SELECT kwargs OPERATOR(pg_catalog.->) 'posthaste.outbox'::text
         FROM posthaste.job WHERE queue = $1 ORDER BY id";
    let jobs = client.query(jobs, &[&CAPTURED]).await?;
    let event = |job: &tokio_postgres::Row| {
        let row: Value = job.get(0);
        let body = row["text"].as_str().context("a job without a body")?;
        event(&row["id"], &row["headers"]["position"], body)
    };
    jobs.iter().map(event).collect()
}

fn read_list(redis: &Redis) -> anyhow::Result<Vec<CapturedEvent>> {
    let list = format!("queue:{CAPTURED}");
    let list = redis.ask(&["LRANGE", &list, "0", "-1"])?;
    let list = list.as_array().context("a list")?;
    let read = |one: &Value| {
        let job: Value = serde_json::from_str(one.as_str().context("a text")?)?;
        let body = job["args"][0].to_string();
        event(&job["delivery_id"], &job["position"], &body)
    };
    // The newest element is the first.
    list.iter().rev().map(read).collect()
}

fn event(id: &Value, position: &Value, body: &str) -> anyhow::Result<CapturedEvent> {
    let content: Value = serde_json::from_str(body)?;
    Ok(CapturedEvent {
        key: content["key"].as_i64().context("an event without a key")?,
        id: id.as_str().context("an event without an id")?.into(),
        position: position.as_str().context("no position")?.into(),
        body: content.to_string(),
    })
}

/// Parses a position in the log.
pub(super) fn lsn(text: &str) -> anyhow::Result<u64> {
    let (high, low) = text.split_once('/').context("a place in the log")?;
    Ok((u64::from_str_radix(high, 16)? << 32) | u64::from_str_radix(low, 16)?)
}

fn millis(chance: &mut fastrand::Rng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(chance.u64(range))
}
