//! posthaste as a peer of the bench, by its public API alone: the verbs are those of
//! `lab/bench/peers/README.md`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use futures_util::future::try_join_all;
use posthaste::{
    Config, Context, Job, NewJob, Outcome, Worker, WorkerHandle, enqueue, enqueue_copy,
    enqueue_many, migrate,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_postgres::NoTls;

const NAME: &str = "noop";
/// The number of concurrent handlers.
const CONCURRENCY: usize = 32;
/// The distance between the first numbers of two connections, and of a bulk.
const APART: u64 = 1_000_000_000;

#[derive(Serialize, Deserialize)]
struct Arguments {
    n: u64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["setup"] => setup().await,
        ["single", conns, seconds] => single(conns.parse()?, seconds.parse()?).await,
        ["bulk", rows] => bulk(rows.parse()?).await,
        ["drain", jobs] => drain(jobs.parse()?).await,
        ["work", file] => work(file).await,
        ["offer", rate, seconds, each, conns, file] => {
            let offer = Offer {
                rate: rate.parse()?,
                seconds: seconds.parse()?,
                each: each.parse()?,
                conns: conns.parse()?,
            };
            offer.run(file).await
        }
        _ => bail!("setup, single, bulk, drain, work or offer"),
    }
}

async fn setup() -> Result<()> {
    migrate(&mut *pool(1)?.get().await?).await?;
    say(&format!("version {}", env!("CARGO_PKG_VERSION")));
    Ok(())
}

async fn single(conns: u64, seconds: u64) -> Result<()> {
    let (pool, count) = (pool(conns)?, AtomicU64::new(0));
    say("begin");
    let end = Instant::now() + Duration::from_secs(seconds);
    try_join_all((0..conns).map(|_| async {
        let client = pool.get().await?;
        while Instant::now() < end {
            let number = count.fetch_add(1, Ordering::Relaxed);
            enqueue(&client, &job(number)?).await?;
        }
        anyhow::Ok(())
    }))
    .await?;
    say(&format!("end {}", count.into_inner()));
    Ok(())
}

async fn bulk(rows: u64) -> Result<()> {
    let mut client = pool(1)?.get().await?;
    say("begin");
    let transaction = client.transaction().await?;
    enqueue_copy(&transaction, (1..=rows).map(job).map_while(Result::ok)).await?;
    transaction.commit().await?;
    say(&format!("end {rows}"));
    Ok(())
}

async fn drain(wanted: u64) -> Result<()> {
    let (count, reached) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    let (counted, told) = (Arc::clone(&count), Arc::clone(&reached));
    say("begin");
    let worker = start(move |_| {
        if counted.fetch_add(1, Ordering::Relaxed) + 1 == wanted {
            told.notify_one();
        }
    })
    .await?;
    reached.notified().await;
    say("reached");
    worker.stop().await?;
    say(&format!("end {}", count.load(Ordering::Relaxed)));
    Ok(())
}

async fn work(file: &str) -> Result<()> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let worker = start(move |job| {
        if let Ok(Arguments { n }) = job.kwargs() {
            let sight = (n, now());
            noted
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(sight);
        }
    })
    .await?;
    say("ready");
    let until_end = || std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    tokio::task::spawn_blocking(until_end).await??;
    worker.stop().await?;
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let mut text = String::new();
    for (number, at) in &*seen {
        writeln!(text, "{number} {at}")?;
    }
    Ok(std::fs::write(file, text)?)
}

struct Offer {
    rate: u64,
    seconds: u64,
    each: u64,
    conns: u64,
}

impl Offer {
    async fn run(&self, file: &str) -> Result<()> {
        let pool = pool(self.conns)?;
        let begun = Instant::now();
        let lines = try_join_all((0..self.conns).map(|place| self.insert(&pool, begun, place)));
        let text = lines.await?.concat();
        say(&format!("end {}", text.lines().count()));
        Ok(std::fs::write(file, text)?)
    }

    async fn insert(&self, pool: &Pool, begun: Instant, place: u64) -> Result<String> {
        let period = Duration::from_secs(1) * u32::try_from(self.each * self.conns)?
            / u32::try_from(self.rate)?;
        let end = begun + Duration::from_secs(self.seconds);
        let mut due = begun + period * u32::try_from(place)? / u32::try_from(self.conns)?;
        let client = pool.get().await?;
        let (mut text, mut first) = (String::new(), (place + 1) * APART + 1);
        while due < end {
            sleep_until(due).await;
            if Instant::now() >= end {
                break;
            }
            let numbers = first..first + self.each;
            let began = now();
            if self.each == 1 {
                enqueue(&client, &job(first)?).await?;
            } else {
                let jobs: Vec<NewJob> = numbers.clone().map(job).collect::<Result<_>>()?;
                enqueue_many(&client, &jobs).await?;
            }
            let committed = now();
            for number in numbers {
                writeln!(text, "{number} {began} {committed}")?;
            }
            first += self.each;
            due += period;
        }
        Ok(text)
    }
}

async fn start(started: impl Fn(&Job) + Send + Sync + 'static) -> Result<WorkerHandle> {
    let started = Arc::new(started);
    let worker = Worker::builder(pool(8)?)
        .config(Config::default())
        .queue("default", CONCURRENCY)
        .notifier(url()?.parse()?, NoTls)
        .handler(NAME, move |_: Context, job: Arc<Job>| {
            started(&job);
            async { Ok(Outcome::Done) }
        });
    Ok(worker.start().await?)
}

fn job(number: u64) -> Result<NewJob> {
    Ok(NewJob::new(NAME, &Arguments { n: number })?)
}

fn pool(size: u64) -> Result<Pool> {
    let config = ManagerConfig {
        recycling_method: RecyclingMethod::Fast,
    };
    let manager = Manager::from_config(url()?.parse()?, NoTls, config);
    Ok(Pool::builder(manager)
        .max_size(usize::try_from(size)?)
        .build()?)
}

fn url() -> Result<String> {
    std::env::var("DATABASE_URL").context("DATABASE_URL is not set")
}

fn now() -> u128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_micros()
}

fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
