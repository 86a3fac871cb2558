//! A connection of the engine. It connects lazily, and reconnects after any ambiguous answer. Each
//! statement is one short READ COMMITTED transaction, whatever the database's default, in one round
//! trip.
//!
//! The most frequent statements are sent without a block, as one message each: their functions set
//! what they need, and reject an isolation level that they cannot change. If the server's settings
//! end such a statement, it is sent again within a block, as are all later ones of the connection.
//!
//! These have names on a connection that ends at the server process: it parses and plans them once.
//! Through a pooler in transaction mode, a name is unknown or that of another process's statement.

use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool_postgres::{ClientWrapper, Pool};
use postgres_types::{ToSql, Type};
use tokio::sync::Mutex;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use super::copied_database::Site;
use super::direct_connection::is_direct;
use super::parameter::{Parameter, typed};
use super::place::server_location;
use crate::error::{Error, ErrorKind};

/// The longest timeout. If no answer arrives within the timeout, the connection is taken for dead
/// (a half-open one never answers) and the outcome of the statement is unknown. A server may be
/// slow too, so the timeout doubles each time in a row, up to this.
pub(crate) const MAX_TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout for claims and acknowledgements, which block others of the process while they wait.
pub(crate) const WORK_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout for polls, which delay the next poll while they wait.
pub(crate) const POLL_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout for the promoter and the lease of maintenance, which must be renewed before it
/// expires.
pub(crate) const PROMOTER_TIMEOUT: Duration = Duration::from_secs(2);

/// Settings that statements depend on, whatever the settings of the role and the database. They are
/// local to the transaction, because a pooler shares the settings of a session.
///
/// - The lock timeout is short: a lock that is held for long belongs to a user's transaction, and
///   the statement is retried later.
/// - Names resolve in `pg_catalog` (sql/README.md).
/// - Compiling a plan takes longer than any of these statements.
/// - The statement timeout is off: a limit for an application's statements would end the duties
///   again and again.
///
/// A database that is set to be read only stays so: operators use this to freeze a store.
const BEGIN_BLOCK: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; \
    SELECT pg_catalog.set_config('lock_timeout', '1s', true), \
    pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true), \
    pg_catalog.set_config('jit', 'off', true), \
    pg_catalog.set_config('statement_timeout', '0', true)";

/// The first delay after a refused connection, before which no task connects over this client. It
/// doubles each time in a row: tasks that retry constantly would open hundreds of connections per
/// second to a server that stops or starts.
const FIRST_RECONNECT_DELAY: Duration = Duration::from_millis(50);
/// The longest delay. It applies at once if no work may be done there: each new connection may
/// reach another server.
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(1);

pub(crate) struct ReconnectingClient {
    pool: Pool,
    /// The first timeout: as long as the callers that share this connection can afford.
    patience: Duration,
    site: Arc<Site>,
    connection: Mutex<ConnectionState>,
}

/// A statement with its parameters.
#[derive(Clone, Copy)]
pub(crate) struct Statement<'a> {
    pub(crate) sql: &'static str,
    pub(crate) parameters: &'a [&'a dyn Parameter],
}

/// How a statement is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// Within a block that begins with [`BEGIN_BLOCK`].
    Block,
    /// As one message.
    Bare,
    /// As one message that names a statement, which was prepared before.
    Named,
}

/// The answers of a statement and of an optional second one.
type Answers = (Vec<Row>, Option<Result<Vec<Row>, Error>>);

struct ConnectionState {
    client: Option<ClientWrapper>,
    /// Whether the server's settings ended a statement that was sent without a block.
    needs_blocks: bool,
    /// Whether statements without a block have names.
    has_names: bool,
    patience: Duration,
    /// The delay after the last refused connection.
    refused_for: Duration,
}

impl ReconnectingClient {
    /// Creates a connection beside the pool: it is made by the pool's manager, with its address and
    /// TLS, but on the runtime that uses it.
    pub(crate) fn new(pool: Pool, patience: Duration, site: Arc<Site>) -> Self {
        let patience = patience.min(MAX_TIMEOUT);
        let connection = ConnectionState {
            client: None,
            needs_blocks: false,
            has_names: false,
            patience,
            refused_for: Duration::ZERO,
        };
        Self {
            pool,
            patience,
            site,
            connection: Mutex::new(connection),
        }
    }

    /// Creates another connection of the same kind.
    pub(crate) fn another(&self) -> Self {
        Self::new(self.pool.clone(), self.patience, Arc::clone(&self.site))
    }

    /// Runs one statement. If it fails with an error for which [`Error::is_connection`] holds, the
    /// outcome is unknown.
    pub(crate) async fn fetch(
        &self,
        what: &'static str,
        sql: &'static str,
        parameters: &[&dyn Parameter],
    ) -> Result<Vec<Row>, Error> {
        let first = Statement { sql, parameters };
        let (rows, _) = self
            .run_statements(what, Framing::Block, first, None)
            .await?;
        Ok(rows)
    }

    /// Runs one call of a function without a block. The function, or
    /// `posthaste.begin_single_statement()` beside it, sets what it depends on, and fails with
    /// SQLSTATE 25000 in any isolation level other than READ COMMITTED. Every name in the
    /// statement is qualified.
    pub(crate) async fn call(
        &self,
        what: &'static str,
        sql: &'static str,
        parameters: &[&dyn Parameter],
    ) -> Result<Vec<Row>, Error> {
        let first = Statement { sql, parameters };
        let (rows, _) = self
            .run_statements(what, Framing::Bare, first, None)
            .await?;
        Ok(rows)
    }

    /// Runs such a call and any statement after it, each as a separate transaction, in one round
    /// trip. The error is that of the call; the second statement has a separate result.
    pub(crate) async fn call_and_fetch(
        &self,
        what: &'static str,
        first: Statement<'_>,
        second: Statement<'_>,
    ) -> Result<(Vec<Row>, Result<Vec<Row>, Error>), Error> {
        let second = Some(second);
        let (rows, more) = self
            .run_statements(what, Framing::Bare, first, second)
            .await?;
        Ok((rows, more.unwrap_or_else(|| Ok(Vec::new()))))
    }

    async fn run_statements(
        &self,
        what: &'static str,
        framing: Framing,
        first: Statement<'_>,
        second: Option<Statement<'_>>,
    ) -> Result<Answers, Error> {
        let mut connection = self.connection.lock().await;
        let (begun, patience) = (Instant::now(), connection.patience);
        // Taken out while in use: if this future is dropped before it completes, so is the
        // connection.
        let client = match connection.client.take() {
            Some(client) if !client.is_closed() => client,
            _ => match tokio::time::timeout(patience, self.connect()).await {
                Ok(Ok((client, is_direct))) => {
                    connection.refused_for = Duration::ZERO;
                    connection.needs_blocks = false;
                    connection.has_names = is_direct;
                    client
                }
                Ok(Err(error)) => {
                    connection.back_off(&error);
                    tokio::time::sleep(connection.refused_for).await;
                    return Err(error);
                }
                Err(_) => {
                    connection.wait_longer();
                    let silence = format!("no answer within {} s", whole_seconds(patience));
                    let error = Error::from(ErrorKind::Connect(silence.into()));
                    return Err(error.at(|| server_location(&self.pool)));
                }
            },
        };
        let sent = async {
            // Preparing takes a round trip, and a second statement would be sent during it.
            if framing == Framing::Bare && connection.has_names && second.is_none() {
                let result = run_statement(&client, what, Framing::Named, first).await;
                if !result.as_ref().is_err_and(is_statement_lost) {
                    return (result, None);
                }
                connection.has_names = false;
            }
            if framing == Framing::Bare && !connection.needs_blocks {
                let answers = run_both(&client, what, Framing::Bare, first, second).await;
                if !answers.0.as_ref().is_err_and(is_ended_by_settings) {
                    return answers;
                }
                connection.needs_blocks = true;
            }
            run_both(&client, what, Framing::Block, first, second).await
        };
        let Ok((result, more)) = tokio::time::timeout(patience, sent).await else {
            connection.wait_longer();
            let seconds = whole_seconds(patience);
            return Err(ErrorKind::TimedOut { what, seconds }.into());
        };
        let is_lost =
            |result: &Result<Vec<Row>, Error>| result.as_ref().is_err_and(Error::is_connection);
        if !is_lost(&result) && !more.as_ref().is_some_and(is_lost) {
            connection.client = Some(client);
        }
        if begun.elapsed() < self.patience {
            connection.patience = (patience / 2).max(self.patience);
        }
        Ok((result?, more))
    }

    /// Returns the site of its process.
    pub(crate) fn site(&self) -> &Site {
        &self.site
    }

    /// Returns whether the next statement finds an open connection.
    pub(crate) async fn is_connected(&self) -> bool {
        let connection = self.connection.lock().await;
        connection
            .client
            .as_ref()
            .is_some_and(|client| !client.is_closed())
    }

    /// Returns a new connection, and whether it ends at the server process.
    async fn connect(&self) -> Result<(ClientWrapper, bool), Error> {
        let client = deadpool::managed::Manager::create(self.pool.manager())
            .await
            .map_err(Error::unsent("cannot connect to Postgres"))
            .map_err(|error| error.at(|| server_location(&self.pool)))?;
        self.site.require_admission(&client, false).await?;
        let is_direct = is_direct(&client).await;
        Ok((client, is_direct))
    }
}

impl ConnectionState {
    fn back_off(&mut self, error: &Error) {
        self.refused_for = match error.is_rollback() || error.is_other_site() {
            true => MAX_RECONNECT_DELAY,
            false => (self.refused_for * 2).clamp(FIRST_RECONNECT_DELAY, MAX_RECONNECT_DELAY),
        };
    }

    fn wait_longer(&mut self) {
        self.patience = (self.patience * 2).min(MAX_TIMEOUT);
    }
}

fn whole_seconds(time: Duration) -> u64 {
    time.as_secs().max(1)
}

/// Whether a statement without a block did nothing because of the server's settings: the isolation
/// level, or the statement timeout.
fn is_ended_by_settings(error: &Error) -> bool {
    let state = error.sqlstate();
    state.is_some_and(|state| {
        *state == SqlState::INVALID_TRANSACTION_STATE || *state == SqlState::QUERY_CANCELED
    })
}

/// Whether a named statement did nothing because the server does not have it as it was prepared:
/// another one has the name, somebody deallocated it, or a migration changed the type of its rows.
fn is_statement_lost(error: &Error) -> bool {
    let state = error.sqlstate();
    state.is_some_and(|state| {
        *state == SqlState::INVALID_SQL_STATEMENT_NAME
            || *state == SqlState::FEATURE_NOT_SUPPORTED
            || is_ended_by_settings(error)
    })
}

/// Sends both statements in this order: the driver sends each when it is first polled.
async fn run_both(
    client: &ClientWrapper,
    what: &'static str,
    framing: Framing,
    first: Statement<'_>,
    second: Option<Statement<'_>>,
) -> (Result<Vec<Row>, Error>, Option<Result<Vec<Row>, Error>>) {
    let second = second.map(|second| run_statement(client, what, Framing::Block, second));
    futures_util::future::join(
        run_statement(client, what, framing, first),
        futures_util::future::OptionFuture::from(second),
    )
    .await
}

/// Runs a statement. If the database's encoding lacks a character, runs it again with all texts for
/// people escaped to ASCII.
async fn run_statement(
    client: &ClientWrapper,
    what: &'static str,
    framing: Framing,
    Statement { sql, parameters }: Statement<'_>,
) -> Result<Vec<Row>, Error> {
    let as_given = typed(parameters);
    let error = match run_once(client, what, framing, sql, &as_given).await {
        Err(error) if lacks_a_character(&error) => error,
        other => return other,
    };
    let escaped: Vec<_> = parameters.iter().map(|one| one.escaped()).collect();
    if escaped.iter().all(Option::is_none) {
        return Err(error);
    }
    let as_ascii = escaped
        .iter()
        .zip(&as_given)
        .map(|(escaped, (value, kind))| {
            let escaped = escaped.as_deref().map(|one| one as &(dyn ToSql + Sync));
            (escaped.unwrap_or(*value), kind.clone())
        });
    run_once(client, what, framing, sql, &as_ascii.collect::<Vec<_>>()).await
}

fn lacks_a_character(error: &Error) -> bool {
    let state = error.sqlstate();
    state.is_some_and(|state| {
        *state == SqlState::UNTRANSLATABLE_CHARACTER
            || *state == SqlState::CHARACTER_NOT_IN_REPERTOIRE
    })
}

async fn run_once(
    client: &ClientWrapper,
    what: &'static str,
    framing: Framing,
    sql: &'static str,
    parameters: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Vec<Row>, Error> {
    let bare = match framing {
        Framing::Block => None,
        Framing::Bare => Some(client.query_typed(sql, parameters).await),
        Framing::Named => Some(query_named(client, sql, parameters).await),
    };
    if let Some(rows) = bare {
        return rows.map_err(Error::postgres(what));
    }
    // Three messages in one round trip: the driver sends each when it is first polled.
    let (begun, rows, committed) = futures_util::future::join3(
        client.batch_execute(BEGIN_BLOCK),
        client.query_typed(sql, parameters),
        client.batch_execute("COMMIT"),
    )
    .await;
    begun.map_err(Error::postgres(what))?;
    let rows = rows.map_err(Error::postgres(what))?;
    committed.map_err(Error::postgres(what))?;
    Ok(rows)
}

/// Runs a statement that is prepared when this connection runs it for the first time.
async fn query_named(
    client: &ClientWrapper,
    sql: &'static str,
    parameters: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Vec<Row>, tokio_postgres::Error> {
    let types: Vec<Type> = parameters.iter().map(|(_, kind)| kind.clone()).collect();
    let statement = client.prepare_typed_cached(sql, &types).await?;
    let values: Vec<_> = parameters.iter().map(|(value, _)| *value).collect();
    client.query(&statement, &values).await
}
