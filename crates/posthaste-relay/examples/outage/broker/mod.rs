//! The outage that motivated posthaste: RabbitMQ raises its disk alarm for minutes, while a web
//! service saves annotations and publishes a message for each. The old way saves, commits, and then
//! publishes. The new way enqueues in the transaction that saves, and a relay publishes.
//!
//! Both ways run side by side, in one service that is replaced in the middle of the outage, as
//! operators do in the hope that it helps.

mod listener;
pub mod relay;
pub mod service;
mod verdict;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use posthaste_testkit::receivers::RabbitMq;
use posthaste_testkit::{Child, PgServer, PgVersion, TestDb, connect, eventually};
use tokio::time::sleep;

use crate::load::Load;
use crate::process::{self, SOON, end};
use crate::{Verdict, WARM, beside, figures};
use listener::Listener;
use verdict::{Findings, Way};

/// A part of the run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Warm,
    Before,
    Outage,
    After,
}

/// The paths of the service: the old way and the new one.
const WAYS: [&str; 2] = [Way::Old.name(), Way::Posthaste.name()];

/// Runs the outage and returns its findings.
pub async fn play(outage: Duration) -> Result<Verdict> {
    println!("{} s of disk alarm at RabbitMQ", outage.as_secs());
    let findings = Stage::set().await?.play(outage).await?;
    Ok(Verdict {
        findings: findings.to_string(),
        broken: findings.broken(),
    })
}

/// The servers, and the receiver of messages.
struct Stage {
    rabbitmq: RabbitMq,
    broker: String,
    database: TestDb,
    listener: Listener,
}

impl Stage {
    async fn set() -> Result<Self> {
        let rabbitmq = RabbitMq::start()?;
        let broker = rabbitmq.url("outage")?;
        let postgres = PgServer::shared(PgVersion::any())?;
        let database = TestDb::from_template(postgres, "outage", async |url| {
            let mut client = connect(&url).await?;
            posthaste::migrate(&mut client).await?;
            Ok(client.batch_execute(include_str!("annotation.sql")).await?)
        });
        Ok(Self {
            listener: Listener::at(&broker).await?,
            database: database.await?,
            rabbitmq,
            broker,
        })
    }

    async fn play(&self, outage: Duration) -> Result<Findings> {
        let beside = beside(outage);
        let mut relay = self.child("relay")?;
        relay.line("ready", SOON).await?;
        let (mut service, address) = self.serve().await?;
        let load = Load::on(address, &WAYS)?;
        load.put(Phase::Warm, sleep(WARM)).await;
        load.put(Phase::Before, sleep(beside)).await;

        self.rabbitmq.set_disk_alarm(true)?;
        let alarm = tokio::time::timeout(SOON, listener::witness(&self.broker)).await??;
        let (begun, busy) = (Instant::now(), processor_time(&relay)?);
        let ((), replaced) = tokio::join!(load.put(Phase::Outage, sleep(outage)), async {
            sleep(outage / 2).await;
            self.replace(&mut service, &load).await
        });
        let replaced = replaced?;
        let busy = processor_time(&relay)? - busy;
        let relay_share = busy.as_secs_f64() / begun.elapsed().as_secs_f64();

        self.rabbitmq.set_disk_alarm(false)?;
        let ended = tokio::time::timeout(SOON, alarm).await??;
        load.put(Phase::After, sleep(beside)).await;
        self.settle().await?;
        end(&mut service).await?;
        end(&mut relay).await?;
        let saved = [
            self.saved(Way::Old).await?,
            self.saved(Way::Posthaste).await?,
        ];
        let [old, new] = &saved;
        Ok(Findings {
            saved: saved.each_ref().map(Vec::len),
            lost: [
                self.listener.missed(Way::Old, old),
                self.listener.missed(Way::Posthaste, new),
            ],
            before: WAYS.map(|way| load.figures(Phase::Before, way)),
            outage: WAYS.map(|way| load.figures(Phase::Outage, way)),
            relay_share,
            delay: load.delay(),
            drain_began: self.listener.first_beyond(replaced, ended),
        })
    }

    /// Starts another service in place of this one, which ends after its last request. Returns the
    /// last annotation before that.
    async fn replace(&self, service: &mut Child, load: &Load<Phase>) -> Result<i64> {
        let saved = self.saved(Way::Posthaste).await?;
        let (other, address) = self.serve().await?;
        load.turn_to(address);
        end(&mut std::mem::replace(service, other)).await?;
        saved.last().copied().context("nothing was saved")
    }

    /// Starts a service; returns it and its address.
    async fn serve(&self) -> Result<(Child, String)> {
        let mut service = self.child("service")?;
        let address = process::address(&mut service).await?;
        Ok((service, address))
    }

    fn child(&self, role: &str) -> Result<Child> {
        Child::spawn(
            process::role("broker", role)?
                .env("DATABASE_URL", self.database.url())
                .env("BROKER_URL", &self.broker),
        )
    }

    /// Waits until every message has arrived that can.
    async fn settle(&self) -> Result<()> {
        let client = self.database.client().await?;
        let relayed = async || {
            let left = "SELECT count(*) FROM posthaste.job";
            Ok(client.query_one(left, &[]).await?.get::<_, i64>(0) == 0)
        };
        eventually(SOON, "the relay has sent everything", relayed).await?;
        self.listener.until_quiet(Duration::from_secs(3)).await;
        Ok(())
    }

    /// Returns the annotations that were saved in this way, in their order.
    async fn saved(&self, way: Way) -> Result<Vec<i64>> {
        let saved = "SELECT id FROM annotation WHERE way = $1 ORDER BY id";
        let client = self.database.client().await?;
        let rows = client.query(saved, &[&way.name()]).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }
}

/// Returns the processor time that a child has used.
fn processor_time(child: &Child) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.pid()))?;
    let (_, fields) = stat.rsplit_once(')').context("no name")?;
    // User and system time in hundredths of a second; the state is the first field.
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: Vec<u64> = ticks.map(str::parse).collect::<Result<_, _>>()?;
    Ok(Duration::from_millis(ticks.iter().sum::<u64>() * 10))
}
