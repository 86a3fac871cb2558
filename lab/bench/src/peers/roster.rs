//! The queues that can be compared, and the commands of their adapters.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tokio::process::Command;

/// A queue and its adapter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    kind: Kind,
    /// The settings of its worker that differ from its defaults.
    pub(crate) settings: &'static str,
    /// How its guarantees differ from those of others.
    pub(crate) apart: &'static str,
    /// A divisor of its backlog, because a round would take minutes otherwise.
    pub(crate) smaller: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Posthaste,
    Go,
    Node,
    Python,
}

pub(crate) const OURS: &str = "posthaste";

/// All queues, in the order of the tables.
pub(crate) const ROSTER: [Peer; 9] = [
    Peer {
        name: OURS,
        kind: Kind::Posthaste,
        settings: "32 handlers, LISTEN",
        apart: "",
        smaller: 1,
    },
    Peer {
        name: "river",
        kind: Kind::Go,
        settings: "FetchCooldown 2 ms, MaxWorkers 2000, LISTEN; bulk by COPY",
        apart: "",
        smaller: 1,
    },
    Peer {
        name: "graphile-worker",
        kind: Kind::Node,
        settings: "24 at once, localQueue 500, completeJobBatchDelay 0, LISTEN; bulk by addJobs",
        apart: "",
        smaller: 1,
    },
    Peer {
        name: "pg-boss",
        kind: Kind::Node,
        settings: "two workers, batchSize 500, burstWhenBatchFull, LISTEN; bulk by insert",
        apart: "a handler and its acknowledgement are of a batch",
        smaller: 1,
    },
    Peer {
        name: "oban",
        kind: Kind::Python,
        settings: "limit 100, LISTEN; bulk by enqueue_many, a statement a job",
        apart: "Oban for Python, not for Elixir",
        smaller: 10,
    },
    Peer {
        name: "procrastinate",
        kind: Kind::Python,
        settings: "concurrency 100, delete_jobs successful, LISTEN; bulk by batch_defer",
        apart: "retries are chosen per task",
        smaller: 50,
    },
    Peer {
        name: "pgqueuer",
        kind: Kind::Python,
        settings: "asyncpg, batch_size 100, LISTEN; bulk by enqueue of lists",
        apart: "a failed job is retried only where its handler asks for it",
        smaller: 1,
    },
    Peer {
        name: "pgmq",
        kind: Kind::Python,
        settings: "asyncpg, reads of 1,000, NOTIFY without throttle; bulk by send_batch",
        apart: "messages, not jobs: one that is not deleted is read again, without limit or delay",
        smaller: 1,
    },
    Peer {
        name: "awa",
        kind: Kind::Python,
        settings: "Python SDK, queue storage, 100 workers; bulk by COPY",
        apart: "",
        smaller: 10,
    },
];

impl Peer {
    /// Finds a queue by its name.
    pub(crate) fn named(name: &str) -> Result<Self> {
        let found = ROSTER.into_iter().find(|peer| peer.name == name);
        found.with_context(|| {
            let known: Vec<&str> = ROSTER.iter().map(|peer| peer.name).collect();
            format!("no peer named {name}; there are {}", known.join(", "))
        })
    }

    /// Whether its adapter and packages are installed.
    pub(crate) fn is_installed(&self) -> bool {
        match self.kind {
            Kind::Posthaste => ours().is_ok(),
            // The mark of a complete installation.
            _ => self.place().join("installed").is_file(),
        }
    }

    /// The command of its adapter, to which a verb is added.
    pub(crate) fn adapter(&self, url: &str) -> Result<Command> {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
        let place = self.place();
        let mut command = match self.kind {
            Kind::Posthaste => Command::new(ours()?),
            Kind::Go => Command::new(place.join("peer")),
            Kind::Node => {
                let mut node = Command::new(place.join("node"));
                node.arg(sources.join("node/peer.mjs")).arg(self.name);
                node.env("NODE_PATH", place.join("node_modules"));
                node.env("NODE_ENV", "production");
                node
            }
            Kind::Python => {
                let mut python = Command::new(place.join("bin/python"));
                python.arg("-B").arg(sources.join("python/peer.py"));
                python.arg(self.name);
                python
            }
        };
        command.env("DATABASE_URL", url);
        Ok(command)
    }

    fn place(&self) -> PathBuf {
        let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/rivals");
        tools.join(match self.kind {
            Kind::Posthaste => "posthaste",
            Kind::Go => "go",
            Kind::Node => "node",
            Kind::Python => "python",
        })
    }
}

fn ours() -> Result<PathBuf> {
    example("posthaste-peer")
}

/// A program of posthaste that cargo builds with the bench and its tests.
pub(crate) fn example(name: &str) -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let found = program
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("examples").join(name))
        .find(|adapter| adapter.is_file());
    found.with_context(|| format!("not built: cargo build -p posthaste-bench --example {name}"))
}

#[cfg(test)]
mod tests {
    use super::{Peer, ROSTER};

    #[test]
    fn rejects_unknown_peers_with_the_names_that_exist() {
        let error = Peer::named("rivers").map_err(|error| error.to_string());
        assert!(error.is_err_and(|text| text.contains("river, graphile-worker")));
        assert!(
            ROSTER
                .iter()
                .all(|peer| Peer::named(peer.name).is_ok_and(|found| found == *peer))
        );
    }
}
