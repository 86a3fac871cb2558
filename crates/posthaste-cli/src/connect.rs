//! Connects to a database URL and explains refused connections. The parameters of URLs and TLS are
//! implemented by the library (`posthaste::connect`).

use std::io;

use anyhow::anyhow;
use deadpool_postgres::{Client, Pool};
use posthaste::Database;
use tokio_postgres::Config;
use tokio_postgres::config::Host;
use tokio_postgres::error::SqlState;

use crate::failure;

/// The address of a database and its credentials.
#[derive(Clone)]
pub(crate) struct Address {
    database: Database,
    config: Config,
    private: bool,
}

impl Address {
    /// Reads a `postgres://` URL or a `key=value` string.
    pub(crate) fn parse(url: &str) -> anyhow::Result<Self> {
        Self::parse_as(url, false)
    }

    /// Returns the address of the private server on the loopback interface, which has no TLS.
    pub(crate) fn private_server(
        port: u16,
        database: &str,
        password: &str,
    ) -> anyhow::Result<Self> {
        let place = format!("127.0.0.1:{port}/{database}");
        let url = format!("postgres://posthaste:{password}@{place}?sslmode=disable");
        Self::parse_as(&url, true)
    }

    fn parse_as(url: &str, private: bool) -> anyhow::Result<Self> {
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

    /// Whether this is the private server.
    pub(crate) fn is_private(&self) -> bool {
        self.private
    }

    /// Returns the library's handle of the same database.
    pub(crate) fn database(&self) -> Database {
        self.database.clone()
    }

    /// Opens a connection. A background task drives it until the client is dropped.
    pub(crate) async fn connect(&self) -> anyhow::Result<Client> {
        let connected = self.database.client().await;
        connected.map_err(|error| match driver_error(&error) {
            Some(refusal) => self.explain(refusal),
            None => error.into(),
        })
    }

    /// Like [`Address::connect`], but returns the SQLSTATE of a refusal, if there is one.
    pub(crate) async fn try_connect(&self) -> Result<Client, Option<SqlState>> {
        let connected = self.database.client().await;
        connected.map_err(|error| driver_error(&error).and_then(|refusal| refusal.code().cloned()))
    }

    /// Makes a pool of at most `size` connections. It connects when a connection is first needed.
    pub(crate) fn pool(&self, size: usize) -> anyhow::Result<Pool> {
        Ok(self.database.pool(size)?)
    }

    /// Returns `host:port` of the first server of the URL, or the path of its socket.
    pub(crate) fn host_and_port(&self) -> String {
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

    /// Explains in one line why the server refused the connection, with the remedy.
    fn explain(&self, error: &tokio_postgres::Error) -> anyhow::Error {
        let place = self.host_and_port();
        let user = self.config.get_user().unwrap_or("(this system user)");
        let database = self.config.get_dbname().unwrap_or(user);
        if self.private {
            return anyhow!(
                "cannot reach the private Postgres at {place}: {}",
                server_message(error)
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
                    server_message(error)
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
                    server_message(error)
                )
            }
            Some(_) => anyhow!(
                "Postgres at {place} refused the connection: {}. Correct DATABASE_URL, \
                 or try again.",
                server_message(error)
            ),
            None => anyhow!(
                "cannot connect to Postgres at {place}: {}. {}",
                server_message(error),
                remedy(error)
            ),
        }
    }
}

/// Returns the driver's error, if that is the cause.
fn driver_error(error: &posthaste::Error) -> Option<&tokio_postgres::Error> {
    let mut cause: &(dyn std::error::Error + 'static) = error;
    loop {
        cause = cause.source()?;
        if let Some(refusal) = cause.downcast_ref() {
            return Some(refusal);
        }
    }
}

fn remedy(error: &tokio_postgres::Error) -> &'static str {
    match io_error_kind(error) {
        Some(io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {
            "Start it, or unset DATABASE_URL to use a private Postgres."
        }
        _ if server_message(error).contains("certificate") => {
            "Set SSL_CERT_FILE or sslrootcert to the file of its certificate authority, or use a \
             weaker sslmode than verify-full."
        }
        _ => "Correct DATABASE_URL, or unset it to use a private Postgres.",
    }
}

/// Returns the message of the server, or the innermost cause in lower case, without the error
/// number that Rust appends to IO errors.
fn server_message(error: &tokio_postgres::Error) -> String {
    if let Some(refusal) = error.as_db_error() {
        return refusal.message().to_owned();
    }
    if io_error_kind(error) == Some(io::ErrorKind::ConnectionRefused) {
        return "connection refused".to_owned();
    }
    let mut innermost: &(dyn std::error::Error + 'static) = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    failure::io_error_text(innermost)
}

fn io_error_kind(error: &tokio_postgres::Error) -> Option<io::ErrorKind> {
    let cause = std::error::Error::source(error)?;
    cause.downcast_ref::<io::Error>().map(io::Error::kind)
}
