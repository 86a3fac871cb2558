//! The database of a command: that of `DATABASE_URL`, or the private Postgres.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::connect::Address;
use crate::local_postgres::{FOLDER_NAME, IfAbsent, LocalPostgres, QuickStopper};

/// Options for the database of a command.
#[derive(clap::Args)]
pub(crate) struct DatabaseOptions {
    /// URL of the database (default: a private Postgres in .posthaste/)
    #[arg(
        long,
        global = true,
        env = "DATABASE_URL",
        hide_env_values = true,
        value_name = "URL",
        help_heading = "Global options"
    )]
    database_url: Option<String>,

    /// Directory of the programs of the private Postgres
    #[arg(
        long,
        global = true,
        env = "POSTHASTE_PG_BIN",
        help_heading = "Global options",
        value_name = "DIRECTORY"
    )]
    pg_bin: Option<PathBuf>,
}

/// The address of a reachable database, and the private server if that serves it.
pub(crate) struct Database {
    address: Address,
    url: String,
    private: Option<LocalPostgres>,
}

impl Database {
    pub(crate) async fn open(choice: &DatabaseOptions, absent: IfAbsent) -> anyhow::Result<Self> {
        // An empty variable counts as unset: shells write `DATABASE_URL= posthaste …`.
        if let Some(url) = choice.database_url.as_deref().filter(|url| !url.is_empty()) {
            let address = Address::parse(url).context("DATABASE_URL")?;
            return Ok(Self {
                address,
                url: url.to_owned(),
                private: None,
            });
        }
        let private = LocalPostgres::open(choice.pg_bin.as_deref(), absent).await?;
        Ok(Self {
            address: private.address().clone(),
            url: private.url().to_owned(),
            private: Some(private),
        })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) fn private(&self) -> Option<&LocalPostgres> {
        self.private.as_ref()
    }

    /// The folder of the private server, which holds no files of the user.
    pub(crate) fn private_folder(&self) -> Option<&Path> {
        self.private.as_ref().map(LocalPostgres::folder)
    }

    /// The folder for files that belong to this database.
    pub(crate) fn folder(&self) -> &Path {
        self.private_folder().unwrap_or(Path::new(FOLDER_NAME))
    }

    /// The URL with its password, for other programs.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Resolves to an error once the private server has ended. Never resolves for another server:
    /// that one may restart.
    pub(crate) async fn wait_until_gone(&self) -> anyhow::Error {
        match &self.private {
            Some(private) => private.wait_until_gone().await,
            None => std::future::pending().await,
        }
    }

    pub(crate) fn quick_stopper(&self) -> anyhow::Result<Option<QuickStopper>> {
        self.private
            .as_ref()
            .map(LocalPostgres::quick_stopper)
            .transpose()
    }

    /// Stops the private server, if this process is its last user.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        match self.private {
            Some(private) => private.close().await,
            None => Ok(()),
        }
    }
}
