//! From a database URL to connections, and plain errors for refused
//! connections. What the URL may hold, and the TLS, are the library's (`posthaste::connect`).

use std::io;

use anyhow::anyhow;
use deadpool_postgres::{Client, Pool};
use posthaste::Database;
use tokio_postgres::Config;
use tokio_postgres::config::Host;
use tokio_postgres::error::SqlState;

use crate::failure;

/// Where the database is and how to get in.
#[derive(Clone)]
pub(crate) struct Address {
    database: Database,
    config: Config,
    private: bool,
}

impl Address {
    /// Reads a `postgres://` URL or a `key=value` string.
    pub(crate) fn parse(url: &str) -> anyhow::Result<Self> {
        Self::read(url, false)
    }

    /// The private server on this machine's loopback, which speaks no TLS.
    pub(crate) fn private(port: u16, database: &str, password: &str) -> anyhow::Result<Self> {
        let place = format!("127.0.0.1:{port}/{database}");
        let url = format!("postgres://posthaste:{password}@{place}?sslmode=disable");
        Self::read(&url, true)
    }

    fn read(url: &str, private: bool) -> anyhow::Result<Self> {
        let database = posthaste::connect(url)?;
        let config = database.config().cloned().unwrap_or_default();
        if let Some(password) = config.get_password() {
            failure::conceal(&String::from_utf8_lossy(password));
        }
        Ok(Self {
            database,
            config,
            private,
        })
    }

    /// Whether it is the private server.
    pub(crate) fn is_private(&self) -> bool {
        self.private
    }

    /// The same, for a worker.
    pub(crate) fn database(&self) -> Database {
        self.database.clone()
    }

    /// A connection of its own, driven in the background until it is dropped.
    pub(crate) async fn connect(&self) -> anyhow::Result<Client> {
        let connected = self.database.client().await;
        connected.map_err(|error| match refusal(&error) {
            Some(refusal) => self.explain(refusal),
            None => error.into(),
        })
    }

    /// As [`Address::connect`], for callers that decide by the SQLSTATE, if there is one.
    pub(crate) async fn try_connect(&self) -> Result<Client, Option<SqlState>> {
        let connected = self.database.client().await;
        connected.map_err(|error| refusal(&error).and_then(|refusal| refusal.code().cloned()))
    }

    /// A pool of at most `size` connections; nothing is connected yet.
    pub(crate) fn pool(&self, size: usize) -> anyhow::Result<Pool> {
        Ok(self.database.pool(size)?)
    }

    /// `host:port`, or the socket's directory, of the first server named.
    pub(crate) fn place(&self) -> String {
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        match (
            self.config.get_hosts().first(),
            self.config.get_hostaddrs().first(),
        ) {
            (Some(Host::Tcp(host)), _) if host.contains(':') => format!("[{host}]:{port}"),
            (Some(Host::Tcp(host)), _) => format!("{host}:{port}"),
            #[cfg(unix)]
            (Some(Host::Unix(directory)), _) => {
                format!("{}/.s.PGSQL.{port}", directory.display())
            }
            (None, Some(address)) => format!("{address}:{port}"),
            (None, None) => format!("port {port}"),
        }
    }

    /// Why the server refused the connection, in one line with the remedy.
    fn explain(&self, error: &tokio_postgres::Error) -> anyhow::Error {
        let place = self.place();
        let user = self.config.get_user().unwrap_or("(this system user)");
        let database = self.config.get_dbname().unwrap_or(user);
        if self.private {
            return anyhow!(
                "cannot reach the private Postgres at {place}: {}",
                message(error)
            );
        }
        match error.code() {
            Some(code)
                if *code == SqlState::INVALID_PASSWORD
                    || *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION =>
            {
                anyhow!(
                    "Postgres at {place} refused user \"{user}\": {}. Correct user and password in \
                     DATABASE_URL.",
                    message(error)
                )
            }
            Some(code) if *code == SqlState::INVALID_CATALOG_NAME => {
                anyhow!(
                    "Postgres at {place} has no database \"{database}\". Create it (createdb \
                     {database}), or correct DATABASE_URL."
                )
            }
            Some(code) if *code == SqlState::TOO_MANY_CONNECTIONS => {
                anyhow!(
                    "Postgres at {place} has no free connection: {}. Close some, or raise its \
                     max_connections.",
                    message(error)
                )
            }
            Some(_) => anyhow!(
                "Postgres at {place} refused the connection: {}. Correct DATABASE_URL, \
                 or try again.",
                message(error)
            ),
            None => anyhow!(
                "cannot connect to Postgres at {place}: {}. {}",
                message(error),
                remedy(error)
            ),
        }
    }
}

/// The error of the driver, if it was the driver.
fn refusal(error: &posthaste::Error) -> Option<&tokio_postgres::Error> {
    let mut cause: &(dyn std::error::Error + 'static) = error;
    loop {
        cause = cause.source()?;
        if let Some(refusal) = cause.downcast_ref() {
            return Some(refusal);
        }
    }
}

fn remedy(error: &tokio_postgres::Error) -> &'static str {
    match io_kind(error) {
        Some(io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {
            "Start it, or leave DATABASE_URL unset to let posthaste run its own."
        }
        _ if message(error).contains("certificate") => {
            "Name the file of its authority in SSL_CERT_FILE or by sslrootcert, \
             or ask for less than sslmode=verify-full."
        }
        _ => "Correct DATABASE_URL, or leave it unset to let posthaste run its own.",
    }
}

/// The innermost cause in lower case and without the number that Rust's IO errors carry.
fn message(error: &tokio_postgres::Error) -> String {
    if let Some(refusal) = error.as_db_error() {
        return refusal.message().to_owned();
    }
    if io_kind(error) == Some(io::ErrorKind::ConnectionRefused) {
        return "connection refused".to_owned();
    }
    let mut innermost: &(dyn std::error::Error + 'static) = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    failure::reason(innermost)
}

fn io_kind(error: &tokio_postgres::Error) -> Option<io::ErrorKind> {
    let cause = std::error::Error::source(error)?;
    cause.downcast_ref::<io::Error>().map(io::Error::kind)
}
