//! The source of a worker's connections: a pool of the program, or settings for connections.

#[cfg(any(feature = "sqlx", feature = "rustls"))]
mod address;
pub(crate) mod replication;
#[cfg(feature = "sqlx")]
mod sqlx;
#[cfg(feature = "rustls")]
mod sslmode;
#[cfg(feature = "rustls")]
mod tls;
#[cfg(feature = "rustls")]
pub(crate) mod url;
#[cfg(feature = "rustls")]
mod verifier;

use std::fmt;

use deadpool_postgres::{Client, Pool};

use crate::error::{Error, ErrorCause, ErrorKind};
use crate::store::place::server_location;
use crate::store::session::Listen;
#[cfg(any(feature = "sqlx", feature = "rustls"))]
use address::Address;

/// The database of a worker, with the settings of its connections.
///
/// | made from | by | the worker listens |
/// |---|---|---|
/// | a `deadpool_postgres::Pool` | `Database::from(pool)` | if you call [`notifier`](crate::WorkerBuilder::notifier) or [`notifier_at`](Self::notifier_at) |
/// | a `sqlx::PgPool` (feature `sqlx`) | `Database::from(&pool)` | by itself |
/// | a URL (feature `rustls`) | `posthaste::connect(url)` | by itself |
///
/// [`Worker::builder`](crate::Worker::builder) accepts any of these. A worker makes its own
/// connections, separate from the pool, with the pool's settings. Changes that a pool makes to its
/// connections after it has opened them (`after_connect` of sqlx, hooks of deadpool) do not apply
/// to them.
///
/// The address, user, password, TLS settings, `application_name` and `options` of a `sqlx::PgPool`
/// are read once, by the conversion. TLS needs the feature `rustls`, whichever TLS sqlx was built
/// with: without it, a pool whose ssl mode is `require`, `verify-ca` or `verify-full` is rejected
/// when the worker starts, and one with `prefer` or `allow` is not encrypted. With it the modes
/// have the same meaning as in `posthaste::connect`.
///
/// A conversion does not fail. Invalid settings are the error of the first call that connects:
/// [`WorkerBuilder::start`](crate::WorkerBuilder::start), [`client`](Self::client) or
/// [`pool`](Self::pool).
///
/// A worker that listens needs a dedicated session ([notifier](crate::WorkerBuilder::notifier)). If
/// the pool connects through a pooler in transaction mode, name the server itself with
/// [`notifier_at`](Self::notifier_at), or turn the notifier off with
/// [`without_notifier`](Self::without_notifier).
#[cfg_attr(
    feature = "sqlx",
    doc = "
```no_run
use posthaste::{Database, Outcome, Worker};

# async fn example() -> Result<(), Box<dyn std::error::Error>> {
let pool = sqlx::PgPool::connect(\"postgres://app@db.example.org/app\").await?;
posthaste::migrate(&mut *Database::from(&pool).client().await?).await?;
let worker = Worker::builder(&pool)
    .queue(\"default\", 16)
    .handler(\"mail.welcome\", |_context, _job| async { Ok(Outcome::Done) })
    .start()
    .await?;
worker.run_until_signal().await?;
# Ok(()) }
```"
)]
#[derive(Clone)]
pub struct Database {
    source: Source,
    notifier: Notifier,
}

#[derive(Clone)]
enum Source {
    Pool(Pool),
    #[cfg(any(feature = "sqlx", feature = "rustls"))]
    Address(Box<Address>),
    /// An invalid pool, with the reason.
    #[cfg(feature = "sqlx")]
    Refused(String),
}

/// The connections over which a worker listens, unless its builder has a notifier.
#[derive(Clone, Default)]
enum Notifier {
    /// Those of this database, if its settings are known.
    #[default]
    Own,
    Off,
    At(Box<Database>),
}

impl Database {
    /// Turns the worker's notifier off: the worker polls for jobs, ten times a second unless
    /// [`Config::poll_interval`](crate::Config::poll_interval) has another value. A notifier set by
    /// [`WorkerBuilder::notifier`](crate::WorkerBuilder::notifier) stays on.
    #[must_use]
    pub fn without_notifier(self) -> Self {
        Self {
            notifier: Notifier::Off,
            ..self
        }
    }

    /// Lets the worker listen over a connection to another address of the same database: the server
    /// itself, if the worker connects through a pooler in transaction mode. A database made from a
    /// deadpool pool cannot be the other one, because such a pool does not expose its settings; the
    /// worker's start rejects it.
    #[cfg_attr(
        feature = "rustls",
        doc = "
```
# use posthaste::{Worker, WorkerBuilder};
# fn worker() -> Result<WorkerBuilder, posthaste::Error> {
let pooler = posthaste::connect(\"postgres://app@pooler.example.org:6432/app\")?;
let server = posthaste::connect(\"postgres://app@db.example.org/app\")?;
Ok(Worker::builder(pooler.notifier_at(server)))
# }
```"
    )]
    #[must_use]
    pub fn notifier_at(self, direct: impl Into<Self>) -> Self {
        Self {
            notifier: Notifier::At(Box::new(direct.into())),
            ..self
        }
    }

    /// Returns a connection, for [`migrate`](crate::migrate),
    /// [`check_schema`](crate::check_schema), [`grant_roles`](crate::grant_roles),
    /// [`rebase`](crate::rebase) and other statements. A connection of a deadpool pool returns to
    /// the pool when you drop it; any other one is closed. Fails if the settings are invalid or the
    /// database cannot be reached.
    ///
    /// ```no_run
    /// # async fn example(database: posthaste::Database) -> Result<(), posthaste::Error> {
    /// let mut client = database.client().await?;
    /// posthaste::migrate(&mut client).await?;
    /// # Ok(()) }
    /// ```
    pub async fn client(&self) -> Result<Client, Error> {
        let pool = self.pool(1)?;
        let client = pool.get().await;
        client
            .map_err(|error| Error::from(ErrorKind::Connect(ErrorCause::from_error(error))))
            .map_err(|error| error.at(|| server_location(&pool)))
    }

    /// Returns a pool of at most `size` connections, for other statements and for libraries that
    /// take a deadpool-postgres pool. It does not connect yet. A database made from such a pool
    /// returns that pool, which keeps its size. Fails if the settings are invalid.
    #[cfg_attr(
        not(any(feature = "sqlx", feature = "rustls")),
        expect(unused_variables, reason = "a pool keeps its size")
    )]
    pub fn pool(&self, size: usize) -> Result<Pool, Error> {
        match &self.source {
            Source::Pool(pool) => Ok(pool.clone()),
            #[cfg(any(feature = "sqlx", feature = "rustls"))]
            Source::Address(address) => address.pool(size),
            #[cfg(feature = "sqlx")]
            Source::Refused(reason) => Err(ErrorKind::Config(reason.clone()).into()),
        }
    }

    /// Returns the settings of its connections, including the password; `None` if a deadpool pool
    /// does not expose them, or if they are invalid.
    pub fn config(&self) -> Option<&tokio_postgres::Config> {
        match &self.source {
            #[cfg(any(feature = "sqlx", feature = "rustls"))]
            Source::Address(address) => Some(&address.config),
            _ => None,
        }
    }

    /// Returns how a worker listens by default.
    pub(crate) fn listen(&self) -> Result<Option<Listen>, Error> {
        let at = match &self.notifier {
            Notifier::Off => return Ok(None),
            Notifier::Own => return self.source.listen(),
            Notifier::At(other) => other,
        };
        let unknown = "the database of the notifier was made from a pool of deadpool-postgres, \
                       which does not expose its settings: use WorkerBuilder::notifier";
        match at.source.listen()? {
            None => Err(ErrorKind::Config(unknown.into()).into()),
            listen => Ok(listen),
        }
    }
}

impl Source {
    fn listen(&self) -> Result<Option<Listen>, Error> {
        match self {
            Self::Pool(_) => Ok(None),
            #[cfg(any(feature = "sqlx", feature = "rustls"))]
            Self::Address(address) => Ok(Some(address.listen())),
            #[cfg(feature = "sqlx")]
            Self::Refused(reason) => Err(ErrorKind::Config(reason.clone()).into()),
        }
    }
}

impl From<Source> for Database {
    fn from(source: Source) -> Self {
        Self {
            source,
            notifier: Notifier::default(),
        }
    }
}

impl From<Pool> for Database {
    fn from(pool: Pool) -> Self {
        Source::Pool(pool).into()
    }
}

impl From<&Pool> for Database {
    fn from(pool: &Pool) -> Self {
        pool.clone().into()
    }
}

/// Writes only the address.
impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.pool(1).ok().and_then(|pool| server_location(&pool));
        f.debug_tuple("Database").field(&place).finish()
    }
}
