//! A new database for each run, and its sessions.
//!
//! A run never sees data of an earlier one: the database is dropped, which also writes a
//! checkpoint, and created again before anything is loaded.

use std::time::Duration;

use anyhow::{Context, Result};
use posthaste_testkit::PgServer;
use tokio_postgres::{Client, Config, NoTls};

use crate::statements::Statements;

/// The name of every database of the bench; `locking/instruments.sql` contains it too.
const NAME: &str = "bench";

/// The statements with which the bench observes the server.
pub(crate) fn instruments() -> Statements {
    Statements::parse(include_str!("../locking/instruments.sql"))
}

/// A new database.
#[derive(Debug, Clone)]
pub(crate) struct Database {
    config: Config,
    url: String,
}

/// The kind of a session.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Session {
    /// Commits wait for the disk: acknowledgements, enqueues and everything else that must be
    /// durable.
    Durable,
    /// Commits return at once: claims, which are simply repeated if they are lost.
    Hasty,
}

impl Database {
    /// Drops the database of the last run and creates an empty one.
    pub(crate) async fn fresh(server: &PgServer) -> Result<Self> {
        let instruments = instruments();
        let maintenance = connect(&server.url("postgres").parse()?).await?;
        maintenance
            .batch_execute(instruments.get("drop_database")?)
            .await?;
        maintenance
            .batch_execute(instruments.get("create_database")?)
            .await?;
        maintenance
            .batch_execute(instruments.get("checkpoint")?)
            .await?;
        Self::named(&server.url(NAME))
    }

    /// An existing database by its URL.
    pub(crate) fn named(url: &str) -> Result<Self> {
        let mut config: Config = url
            .parse()
            .context("the address of the database cannot be read")?;
        config
            .application_name("posthaste-bench")
            .connect_timeout(Duration::from_secs(10));
        Ok(Self {
            config,
            url: url.to_owned(),
        })
    }

    /// Its URL, for processes that the bench starts.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The name of the database.
    pub(crate) fn name(&self) -> Result<&str> {
        self.config
            .get_dbname()
            .context("the address names no database")
    }

    /// The connection settings, for pools.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Opens a session that waits for the disk.
    pub(crate) async fn connect(&self) -> Result<Client> {
        self.session(Session::Durable).await
    }

    /// Opens a session of one kind. All rivals are forced to use the claim's index, because
    /// otherwise a plan made on an empty table would decide a run.
    pub(crate) async fn session(&self, session: Session) -> Result<Client> {
        let mut config = self.config.clone();
        config.options(match session {
            Session::Durable => "-c synchronous_commit=on -c enable_seqscan=off",
            Session::Hasty => {
                "-c synchronous_commit=off -c enable_seqscan=off -c enable_bitmapscan=off"
            }
        });
        connect(&config).await
    }
}

async fn connect(config: &Config) -> Result<Client> {
    let (client, connection) = config
        .connect(NoTls)
        .await
        .context("cannot connect to the private server")?;
    tokio::spawn(async move {
        // The client that loses its connection reports the loss; here there is no caller to report
        // it to.
        let _ = connection.await;
    });
    Ok(client)
}
