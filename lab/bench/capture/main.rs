//! A capture of posthaste in a separate process, by its public API alone, so that its memory and
//! CPU time can be measured.
//!
//! | verb | does |
//! |---|---|
//! | `install SOURCE` | creates slot and publication of the capture |
//! | `run PATH TARGET` | runs until its input ends; prints `running` |
//!
//! `SOURCE` is `outbox` or `rows`. `PATH` is `direct` (into a Redis), `jobs` (into a queue that an
//! ordered relay sends to a Redis), `file` (into a file), `rows` (into a queue; existing rows are
//! copied) or `outbox` (no capture: the relay of jobs that the writer enqueues).

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures_util::future::BoxFuture;
use posthaste::{Config, Database, Worker};
use posthaste_capture::{
    Capture, CapturedTable, Direct, Options, OutboxColumns, Running, Source, TableName, Until,
};
use posthaste_relay::{Answer, Destination, Message, Relay, Sender, Sidekiq};

/// The queue of the route.
const QUEUE: &str = "captured";
/// The queue of jobs that the writer enqueues.
const WRITERS: &str = "default";

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let database = posthaste::connect(&variable("DATABASE_URL")?)?;
    match words[..] {
        ["install", source] => {
            capture(source)?.install(&database).await?;
            Ok(())
        }
        ["run", path, target] => run(path, target, database).await,
        _ => bail!("install SOURCE, or run PATH TARGET"),
    }
}

fn variable(name: &str) -> Result<String> {
    std::env::var(name).with_context(|| format!("{name} is not set"))
}

fn capture(source: &str) -> Result<Capture> {
    let source = match source {
        "outbox" => Source::Outbox {
            table: table("public.outbox")?,
            columns: OutboxColumns::default(),
        },
        "rows" => Source::Tables(vec![CapturedTable {
            table: table("public.item")?,
            columns: Vec::new(),
            filter: None,
            operations: Vec::new(),
            key: Vec::new(),
        }]),
        other => bail!("{other} is no source"),
    };
    Ok(Capture {
        name: "bench".into(),
        queue: QUEUE.into(),
        direct: None,
        source,
        slot: "posthaste_bench".into(),
        server: None,
        options: Options {
            // There is no standby.
            failover: Some(false),
            ..Options::default()
        },
    })
}

fn table(name: &str) -> Result<TableName> {
    TableName::read(name).map_err(anyhow::Error::msg)
}

async fn run(path: &str, target: &str, database: Database) -> Result<()> {
    let (capture, relayed) = match path {
        "direct" => {
            let mut capture = capture("outbox")?;
            capture.direct = Some(direct(Sender::to(QUEUE, Sidekiq::new(target)?))?);
            (Some(capture), Some(QUEUE))
        }
        "file" => {
            let mut capture = capture("outbox")?;
            capture.direct = Some(direct(Sender::to(QUEUE, LinesFile::open(target)?))?);
            (Some(capture), None)
        }
        "jobs" => (Some(capture("outbox")?), Some(QUEUE)),
        "rows" => {
            let capture = capture("rows")?;
            capture.request_copies(&database).await?;
            (Some(capture), None)
        }
        "outbox" => (None, Some(WRITERS)),
        other => bail!("{other} is no path"),
    };
    let worker = match relayed {
        None => None,
        Some(queue) => {
            let relay = Relay::to(Sidekiq::new(target)?).ordered(true).batch(500);
            let config = Config {
                shutdown_grace: Duration::from_secs(1),
                ..Config::default()
            };
            let worker = Worker::builder(database.clone()).config(config);
            let worker = worker.consumer(queue, relay.start().await?);
            Some(worker.start().await?)
        }
    };
    let running = match capture {
        None => None,
        Some(capture) => Some(capture.start(database, Until::Stopped)?),
    };
    // The parent process waits for this line.
    let mut output = std::io::stdout();
    writeln!(output, "running")?;
    output.flush()?;
    until_input_ends().await?;
    if let Some(mut running) = running {
        stop(&mut running).await?;
    }
    if let Some(worker) = worker {
        worker.stop().await?;
    }
    Ok(())
}

async fn until_input_ends() -> Result<()> {
    let read = || {
        let mut rest = Vec::new();
        std::io::stdin().read_to_end(&mut rest)
    };
    tokio::task::spawn_blocking(read).await??;
    Ok(())
}

async fn stop(running: &mut Running) -> Result<()> {
    running.stop();
    Ok(running.ended().await?)
}

fn direct(sender: Sender) -> Result<Direct> {
    let mut direct = Direct::new(sender);
    if let Ok(bytes) = variable("SPILL_AFTER") {
        direct.spill_after = bytes.parse()?;
    }
    Ok(direct)
}

/// A file that receives each message as a line.
#[derive(Debug, Clone)]
struct LinesFile(Arc<Mutex<File>>);

impl LinesFile {
    fn open(path: &str) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self(Arc::new(Mutex::new(file))))
    }

    fn write(&self, batch: &[Message]) -> std::io::Result<()> {
        let mut text = Vec::new();
        for message in batch {
            text.extend_from_slice(message.payload().as_bytes());
            text.push(b'\n');
        }
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(&text)
    }
}

impl Destination for LinesFile {
    fn label(&self) -> String {
        "a file".into()
    }

    fn send<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Answer>> {
        Box::pin(async move {
            match self.write(batch) {
                Ok(()) => vec![Answer::Accepted; batch.len()],
                Err(error) => {
                    let reason = error.to_string().into();
                    vec![Answer::Unavailable { reason }; batch.len()]
                }
            }
        })
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}
