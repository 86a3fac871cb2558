//! A connection to Redis that opens on demand, and is dropped after any error: the next call opens
//! another one.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, RedisError, ScriptInvocation};
use tokio::sync::Mutex;

/// Timeout of connecting and of an answer. A lease is far longer.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub struct Connection {
    client: Client,
    open: Arc<Mutex<Option<Arc<MultiplexedConnection>>>>,
}

impl Connection {
    /// Does not connect yet.
    pub fn new(url: &str) -> Result<Self, Box<dyn Error + Send + Sync>> {
        // The address may hold a password: the error does not repeat it.
        let client = Client::open(url).map_err(|_| "must be redis://host:port/database")?;
        let open = Arc::default();
        Ok(Self { client, open })
    }

    /// Returns the answer to this call. It is sent once: whether a call that failed had effects is
    /// unknown, and a task that it took returns when its lease expires.
    pub async fn ask<T: FromRedisValue>(
        &self,
        call: &ScriptInvocation<'_>,
    ) -> Result<T, Box<dyn Error + Send + Sync>> {
        let connection = self
            .connection()
            .await
            .map_err(|error| self.describe(&error))?;
        let answer = call.invoke_async(&mut (*connection).clone()).await;
        if answer.is_err() {
            // The connection is also dropped if the server refused the call: after a failover the
            // same address is another server.
            self.open
                .lock()
                .await
                .take_if(|open| Arc::ptr_eq(open, &connection));
        }
        answer.map_err(|error| self.describe(&error))
    }

    async fn connection(&self) -> Result<Arc<MultiplexedConnection>, RedisError> {
        let mut open = self.open.lock().await;
        if let Some(connection) = &*open {
            return Ok(Arc::clone(connection));
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let connection = self
            .client
            .get_multiplexed_async_connection_with_config(&config);
        Ok(Arc::clone(open.insert(Arc::new(connection.await?))))
    }

    /// Describes an error and its address, without user and password.
    fn describe(&self, error: &RedisError) -> Box<dyn Error + Send + Sync> {
        let address = self.client.get_connection_info().addr();
        format!("Redis at {address}: {error}").into()
    }
}
