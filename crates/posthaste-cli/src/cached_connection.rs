//! A connection for a process that polls a database.

use std::time::Duration;

use deadpool_postgres::Client;

use crate::connect::Address;

/// A database that answers slower than this is asked again, by a new connection.
pub(crate) const WITHIN: Duration = Duration::from_secs(10);

/// Begins a read. A caller that gives up after [`WITHIN`] closes the connection, which a server
/// does not notice while a statement runs: without a bound of the statement's own they would pile
/// up.
const BEGIN: &str = "BEGIN READ ONLY; SET LOCAL statement_timeout = '8s'";

/// Reads in a transaction in which no statement takes long. After an error the connection must be
/// dropped.
pub(crate) async fn bounded<T>(
    client: &Client,
    read: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    client.batch_execute(BEGIN).await?;
    let found = read.await?;
    client.batch_execute("COMMIT").await?;
    Ok(found)
}

/// The connection of the last read, if that succeeded: on one that failed or was abandoned the
/// answer to an earlier query might still arrive.
pub(crate) struct CachedConnection {
    address: Address,
    client: Option<Client>,
}

impl CachedConnection {
    pub(crate) fn at(address: &Address) -> Self {
        Self {
            address: address.clone(),
            client: None,
        }
    }

    /// That connection, else a new one: [`keep`](Self::keep) it after a successful read.
    pub(crate) async fn take(&mut self) -> anyhow::Result<Client> {
        match self.client.take() {
            Some(client) => Ok(client),
            None => self.address.connect().await,
        }
    }

    pub(crate) fn keep(&mut self, client: Client) {
        self.client = Some(client);
    }
}
