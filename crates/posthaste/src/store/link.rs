//! A connection of the engine's own: opened on demand, dropped on doubt. Each statement is one short READ COMMITTED transaction, whatever the
//! database's default is, in one round trip.
//!
//! Statements have no names: behind a pooler that hands out server sessions by the transaction, a name means nothing, or another process's statement.

use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Pool};
use tokio::sync::Mutex;
use tokio_postgres::Row;

use super::parameter::{Parameter, typed};
use super::restore;
use crate::error::{Error, ErrorKind};

/// Beyond this the connection is taken for dead (a half-open one never answers) and the statement's effect for unknown.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Locks are waited for briefly: whoever holds one for long is a user's transaction, and the statement is tried again later.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '1s'";

/// A server may be another one each time that we connect. One where no work may be done is asked again after so long.
const REFUSED_FOR: Duration = Duration::from_secs(1);

pub(crate) struct Link {
    pool: Pool,
    client: Mutex<Option<ClientWrapper>>,
}

impl Link {
    /// A connection beside the pool: made by the pool's manager, so with its address and TLS, but on the runtime that uses it.
    pub(crate) fn new(pool: Pool) -> Self {
        Self {
            pool,
            client: Mutex::new(None),
        }
    }

    /// Runs one statement. An error for which [`Error::is_connection`] holds leaves open whether it took effect.
    pub(crate) async fn fetch(
        &self,
        what: &'static str,
        sql: &'static str,
        parameters: &[&dyn Parameter],
    ) -> Result<Vec<Row>, Error> {
        let mut guard = self.client.lock().await;
        // Taken out while in use: if this future is dropped half-way, so is the connection.
        let client = match guard.take() {
            Some(client) if !client.is_closed() => client,
            _ => self.connect().await?,
        };
        let result =
            match tokio::time::timeout(ANSWER_WITHIN, run(&client, what, sql, parameters)).await {
                Ok(result) => result,
                Err(_) => Err(ErrorKind::TimedOut {
                    what,
                    seconds: ANSWER_WITHIN.as_secs(),
                }
                .into()),
            };
        if !result.as_ref().is_err_and(Error::is_connection) {
            *guard = Some(client);
        }
        result
    }

    async fn connect(&self) -> Result<ClientWrapper, Error> {
        let connecting = async {
            let client = deadpool::managed::Manager::create(self.pool.manager())
                .await
                .map_err(Error::unsent("cannot connect to Postgres"))?;
            restore::recognise(&client).await?;
            Ok(client)
        };
        let connected = tokio::time::timeout(ANSWER_WITHIN, connecting)
            .await
            .unwrap_or_else(|_| {
                let silence = format!("no answer within {} s", ANSWER_WITHIN.as_secs());
                Err(ErrorKind::Connect(silence).into())
            });
        if connected.as_ref().is_err_and(Error::is_rollback) {
            tokio::time::sleep(REFUSED_FOR).await;
        }
        connected
    }
}

async fn run(
    client: &ClientWrapper,
    what: &'static str,
    sql: &'static str,
    parameters: &[&dyn Parameter],
) -> Result<Vec<Row>, Error> {
    let parameters = typed(parameters);
    // Three messages, one round trip: the driver sends each as it is first polled.
    let (begun, rows, committed) = futures_util::future::join3(
        client.batch_execute(BEGIN),
        client.query_typed(sql, &parameters),
        client.batch_execute("COMMIT"),
    )
    .await;
    begun.map_err(Error::postgres(what))?;
    let rows = rows.map_err(Error::postgres(what))?;
    committed.map_err(Error::postgres(what))?;
    Ok(rows)
}
