//! A connection for a process that polls a database.

use std::time::Duration;

use deadpool_postgres::Client;

use crate::connect::Address;

/// The time limit of a read. The read after a timeout uses a new connection.
pub(crate) const WITHIN: Duration = Duration::from_secs(10);

/// Begins a read. A caller that abandons it after [`WITHIN`] closes the connection, which a server
/// does not notice while a statement runs: without `statement_timeout` such statements would pile
/// up.
const BEGIN: &str = "BEGIN READ ONLY; SET LOCAL statement_timeout = '8s'";

/// Reads in a transaction with a statement timeout. After an error the caller must drop the
/// connection.
pub(crate) async fn bounded<T>(
    client: &Client,
    read: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    client.batch_execute(BEGIN).await?;
    let found = read.await?;
    client.batch_execute("COMMIT").await?;
    Ok(found)
}

/// The connection of the last successful read. It is dropped after a failed or abandoned read,
/// because the answer to an earlier query might still arrive.
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

    /// Returns the cached connection, or connects. Call [`keep`](Self::keep) after a successful
    /// read.
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
