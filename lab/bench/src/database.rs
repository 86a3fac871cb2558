//! One fresh database per run, and sessions in it.
//!
//! A run never meets what an earlier one left behind: the database is dropped, which also writes a
//! checkpoint, and made again before anything is loaded.

use std::time::Duration;

use anyhow::{Context, Result};
use posthaste_testkit::PgServer;
use tokio_postgres::{Client, Config, NoTls};

use crate::statements::Statements;

/// The only name a database of the bench has; `locking/instruments.sql` spells it too.
const NAME: &str = "bench";

/// The statements with which the bench looks at the server.
pub(crate) fn instruments() -> Statements {
    Statements::parse(include_str!("../locking/instruments.sql"))
}

/// A fresh database.
#[derive(Debug, Clone)]
pub(crate) struct Database {
    config: Config,
    url: String,
}

/// How a session of the bench behaves.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Session {
    /// Commits wait for the disk: acknowledgements, enqueues, everything that somebody relies on.
    Durable,
    /// Commits return at once: claims, which are only made again when they are lost.
    Hasty,
}

impl Database {
    /// Drops what the last run left and makes an empty database.
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

    /// An existing database by its address.
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

    /// Its address, for processes that the bench starts.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The name of the database.
    pub(crate) fn name(&self) -> Result<&str> {
        self.config
            .get_dbname()
            .context("the address names no database")
    }

    /// The way in, for pools.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// A session that waits for the disk.
    pub(crate) async fn connect(&self) -> Result<Client> {
        self.session(Session::Durable).await
    }

    /// A session of one kind. Plans are fixed to the claim's index for all rivals alike, because a
    /// plan made on an empty table would otherwise decide a run.
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
        // The client that loses its connection reports the loss; nobody is left to tell it to here.
        let _ = connection.await;
    });
    Ok(client)
}
