//! The processes that capture: posthaste's, and Debezium's engine if it is installed.

use std::path::{Path, PathBuf};

use anyhow::Result;
use tokio::process::Command;

use super::ground::{Field, statements};
use crate::database::Database;
use crate::peers::{Adapter, example};

/// A process that sends events of an outbox to a receiver.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Captor {
    /// A capture that sends without jobs.
    Direct,
    /// A capture whose events become jobs, which an ordered relay sends.
    Jobs,
    /// A capture into a file.
    File,
    /// No capture: the writer enqueues, and an ordered relay sends.
    Outbox,
    /// Debezium's engine with its defaults.
    Debezium,
    /// Debezium's engine, which polls every ten milliseconds.
    EagerDebezium,
}

const STREAM: &str = "debezium";

impl Captor {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Jobs => "jobs",
            Self::File => "file",
            Self::Outbox => "own outbox",
            Self::Debezium => "Debezium",
            Self::EagerDebezium => "Debezium, polling every 10 ms",
        }
    }

    pub(crate) fn is_installed(self) -> bool {
        match self {
            Self::Debezium | Self::EagerDebezium => debezium().join("installed").is_file(),
            _ => true,
        }
    }

    /// Creates slot and publication.
    pub(crate) async fn install(self, field: &Field) -> Result<()> {
        match self {
            Self::Outbox => Ok(()),
            Self::Debezium | Self::EagerDebezium => {
                for name in ["debezium_publication", "debezium_slot"] {
                    field.client.execute(statements().get(name)?, &[]).await?;
                }
                Ok(())
            }
            _ => install(&field.database, "outbox").await,
        }
    }

    /// Starts the process.
    pub(crate) async fn start(self, database: &Database, target: &str) -> Result<Adapter> {
        let path = match self {
            Self::Direct => "direct",
            Self::Jobs => "jobs",
            Self::File => "file",
            Self::Outbox => "outbox",
            Self::Debezium => return engine(database, target, "500").await,
            Self::EagerDebezium => return engine(database, target, "10").await,
        };
        start(database, path, target, None).await
    }

    /// The list or stream that receives its messages.
    pub(crate) fn receiver(self) -> Receiver {
        match self {
            Self::Debezium | Self::EagerDebezium => Receiver::Stream(STREAM),
            _ => Receiver::List("queue:default"),
        }
    }
}

/// The key in Redis of the messages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Receiver {
    List(&'static str),
    Stream(&'static str),
}

/// Installs a capture of posthaste.
pub(crate) async fn install(database: &Database, source: &str) -> Result<()> {
    let mut command = ours(database)?;
    command.args(["install", source]);
    Adapter::spawn("posthaste", command)?.finish().await
}

/// Starts a capture of posthaste by its path.
pub(crate) async fn start(
    database: &Database,
    path: &str,
    target: &str,
    spill_after: Option<u64>,
) -> Result<Adapter> {
    let mut command = ours(database)?;
    command.args(["run", path, target]);
    if let Some(bytes) = spill_after {
        command.env("SPILL_AFTER", bytes.to_string());
    }
    let mut adapter = Adapter::spawn("posthaste", command)?;
    adapter.hear("running").await?;
    Ok(adapter)
}

fn ours(database: &Database) -> Result<Command> {
    let mut command = Command::new(example("posthaste-capture-process")?);
    command.env("DATABASE_URL", database.url());
    Ok(command)
}

async fn engine(database: &Database, target: &str, poll: &str) -> Result<Adapter> {
    let place = debezium();
    let classes = format!("{0}/lib/*:{0}/classes", place.display());
    let mut command = Command::new("java");
    command.args(["-Xmx512m", "-cp", &classes, "Engine"]);
    command.args([database.url(), target, STREAM, poll]);
    let mut adapter = Adapter::spawn("Debezium", command)?;
    adapter.hear("running").await?;
    Ok(adapter)
}

fn debezium() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/rivals/debezium")
}
