//! The outage that started it all, played again: a web service saves annotations and tells RabbitMQ of each, and RabbitMQ raises its disk alarm for
//! minutes. The old way saves, commits, and then publishes. The new way enqueues in the transaction that saves, and a relay publishes.
//!
//! Both ways are played side by side in one run, by one service, which is replaced in the middle of the outage, as people do who hope that it
//! helps. `make outage` runs it with a private Postgres and a private RabbitMQ; `ARGS=600` makes the alarm last ten minutes. It prints both
//! results, and ends well only if posthaste lost nothing and kept its bounds.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    unreachable_pub,
    reason = "an example talks to people and has no callers"
)]

mod listener;
mod load;
mod relay;
mod service;
mod verdict;

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use posthaste_testkit::receivers::RabbitMq;
use posthaste_testkit::{Child, PgServer, PgVersion, TestDb, connect, eventually};

use listener::Listener;
use load::{Load, Phase};
use verdict::{Findings, Way};

const SOON: Duration = Duration::from_secs(60);
/// How long the alarm lasts where nothing is said.
const OUTAGE: Duration = Duration::from_secs(120);
/// The first requests pay for connections and caches.
const WARM: Duration = Duration::from_secs(3);
/// The load goes on for so long before and after, at most.
const BESIDE: Duration = Duration::from_secs(20);

#[tokio::main]
async fn main() -> Result<ExitCode> {
    // The client of HTTP asks for one, whatever it calls.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let argument = std::env::args().nth(1);
    match argument.as_deref() {
        Some("service") => service::run().await.map(|()| ExitCode::SUCCESS),
        Some("relay") => relay::run().await.map(|()| ExitCode::SUCCESS),
        Some(seconds) => play(Duration::from_secs(seconds.parse()?)).await,
        None => play(OUTAGE).await,
    }
}

/// Plays the outage and says how it went.
async fn play(outage: Duration) -> Result<ExitCode> {
    println!("{} s of disk alarm at RabbitMQ", outage.as_secs());
    let findings = Stage::set().await?.play(outage).await?;
    println!("{findings}");
    let broken = findings.broken();
    broken.iter().for_each(|bound| println!("MISSED: {bound}"));
    Ok(match broken.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// The servers, and who listens at the other side.
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
        let postgres = PgServer::shared(PgVersion::V15)?;
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
        let beside = (outage / 6).clamp(WARM, BESIDE);
        let mut relay = self.child("relay")?;
        relay.line("ready", SOON).await?;
        let (mut service, address) = self.serve().await?;
        let load = Load::on(address)?;
        load.put(Phase::Warm, WARM).await;
        load.put(Phase::Before, beside).await;

        self.rabbitmq.set_disk_alarm(true)?;
        let alarm = tokio::time::timeout(SOON, listener::witness(&self.broker)).await??;
        let (begun, busy) = (Instant::now(), processor_time(&relay)?);
        let ((), replaced) = tokio::join!(load.put(Phase::Outage, outage), async {
            tokio::time::sleep(outage / 2).await;
            self.replace(&mut service, &load).await
        });
        let replaced = replaced?;
        let busy = processor_time(&relay)? - busy;
        let relay_share = busy.as_secs_f64() / begun.elapsed().as_secs_f64();

        self.rabbitmq.set_disk_alarm(false)?;
        let ended = tokio::time::timeout(SOON, alarm).await??;
        load.put(Phase::After, beside).await;
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
            before: load.figures(Phase::Before),
            outage: load.figures(Phase::Outage),
            relay_share,
            drain_began: self.listener.first_beyond(replaced, ended),
        })
    }

    /// Another service takes over from this one, which ends when it has served whom it serves. The last annotation before that.
    async fn replace(&self, service: &mut Child, load: &Load) -> Result<i64> {
        let saved = self.saved(Way::Posthaste).await?;
        let (other, address) = self.serve().await?;
        load.turn_to(address);
        end(&mut std::mem::replace(service, other)).await?;
        saved.last().copied().context("nothing was saved")
    }

    /// A service, and where it listens.
    async fn serve(&self) -> Result<(Child, String)> {
        let mut service = self.child("service")?;
        let said = service.line("listens at ", SOON).await?;
        let address = said.trim_start_matches("listens at ").to_owned();
        Ok((service, address))
    }

    /// This program in another role.
    fn child(&self, role: &str) -> Result<Child> {
        Child::spawn(
            Command::new(std::env::current_exe()?)
                .arg(role)
                .env("DATABASE_URL", self.database.url())
                .env("BROKER_URL", &self.broker),
        )
    }

    /// Waits until everything has arrived that ever will.
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

    /// What was saved in this way, in its order.
    async fn saved(&self, way: Way) -> Result<Vec<i64>> {
        let saved = "SELECT id FROM annotation WHERE way = $1 ORDER BY id";
        let client = self.database.client().await?;
        let rows = client.query(saved, &[&way.name()]).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }
}

/// Has a child end in order.
async fn end(child: &mut Child) -> Result<()> {
    child.terminate()?;
    let status = child.exit(SOON).await?;
    ensure!(status.success(), "{status}: {:?}", child.stderr());
    Ok(())
}

/// What a child has used of a processor.
fn processor_time(child: &Child) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.pid()))?;
    let (_, fields) = stat.rsplit_once(')').context("no name")?;
    // Its own and the kernel's, in hundredths of a second; the state comes first.
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: Vec<u64> = ticks.map(str::parse).collect::<Result<_, _>>()?;
    Ok(Duration::from_millis(ticks.iter().sum::<u64>() * 10))
}
