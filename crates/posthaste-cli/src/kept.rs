//! A connection for somebody who looks at a database again and again.

use std::time::Duration;

use deadpool_postgres::Client;

use crate::connect::Address;

/// A database that answers slower than this is asked again, by a new connection.
pub(crate) const WITHIN: Duration = Duration::from_secs(10);

/// The connection of the last look, if that went well: by one that failed or was given up the
/// answer to something that was asked before might still come.
pub(crate) struct Kept {
    address: Address,
    client: Option<Client>,
}

impl Kept {
    pub(crate) fn at(address: &Address) -> Self {
        Self {
            address: address.clone(),
            client: None,
        }
    }

    /// That connection, else a new one: [`keep`](Self::keep) it after a look that went well.
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
