//! A connection for a process that polls a database.

use std::time::Duration;

use deadpool_postgres::Client;

use crate::connect::Address;

/// The time limit of a read. The read after a timeout uses a new connection.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Begins a read. A caller that abandons it after [`READ_TIMEOUT`] closes the connection, which a
/// server does not notice while a statement runs: without `statement_timeout` such statements would
/// pile up.
const BEGIN_BOUNDED_READ: &str = "BEGIN READ ONLY; SET LOCAL statement_timeout = '8s'";

/// Reads in a transaction with a statement timeout. After an error the caller must drop the
/// connection.
pub(crate) async fn read_bounded<T>(
    client: &Client,
    read: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    client.batch_execute(BEGIN_BOUNDED_READ).await?;
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
    pub(crate) fn new(address: &Address) -> Self {
        Self {
            address: address.clone(),
            client: None,
        }
    }

    /// Returns the cached connection, or connects. Call [`put_back`](Self::put_back) after a
    /// successful read.
    pub(crate) async fn take_or_connect(&mut self) -> anyhow::Result<Client> {
        match self.client.take() {
            Some(client) => Ok(client),
            None => self.address.connect().await,
        }
    }

    pub(crate) fn put_back(&mut self, client: Client) {
        self.client = Some(client);
    }
}
