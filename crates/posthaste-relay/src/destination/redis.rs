//! Shared code of Redis destinations: a connection that opens on demand and is dropped after an
//! ambiguous answer, and the check of settings with which Redis may lose messages.

#[cfg(any(feature = "celery-redis", feature = "sidekiq"))]
mod lists;
mod refusal;
#[cfg(any(feature = "asynq", feature = "bullmq"))]
mod scripts;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use posthaste::Error;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Pipeline, RedisError, Value};
use tokio::sync::OnceCell;

use crate::destination::answer::Answer;
use crate::destination::contract::UnsafeSetting;
use crate::destination::reason::Reason;

#[cfg(any(feature = "celery-redis", feature = "sidekiq"))]
pub(crate) use lists::List;
use refusal::{answer_from_refusal, describe_error, reason_from_error};
#[cfg(any(feature = "asynq", feature = "bullmq"))]
pub(crate) use scripts::{Calls, Script};

/// Timeout of a connection attempt: an address may drop packets silently.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

type ConnectionSlot = Arc<OnceCell<MultiplexedConnection>>;

/// A Redis server; many batches use one connection concurrently.
pub(crate) struct Redis {
    client: Client,
    connection: Mutex<ConnectionSlot>,
    /// The last error of a command that only registers a queue, while messages were accepted.
    beside: Mutex<Option<String>>,
}

/// Drops the connection unless all answers arrived: after an ambiguous result it is not used again.
struct DropUnlessAnswered<'a> {
    redis: &'a Redis,
    slot: ConnectionSlot,
    is_over: bool,
}

impl Redis {
    /// Parses `redis://`, or `rediss://` for TLS, for which the program must install a provider of
    /// rustls.
    pub(crate) fn new(url: &str) -> Result<Self, Error> {
        // The address may hold a password: the error does not repeat it.
        let client = Client::open(url)
            .map_err(|_| Error::invalid("url", "must be redis://host:port/database"))?;
        let (connection, beside) = Default::default();
        Ok(Self {
            client,
            connection,
            beside,
        })
    }

    /// Returns the address and database, without user and password.
    pub(crate) fn label(&self) -> String {
        let info = self.client.get_connection_info();
        format!("{}/{}", info.addr(), info.redis_settings().db())
    }

    /// Sends all commands together; returns an answer for each, which may be an error of the
    /// server. If the function itself fails, the commands may have had effects.
    pub(crate) async fn send_commands(
        &self,
        commands: &mut Pipeline,
    ) -> Result<Vec<Result<Value, RedisError>>, Reason> {
        let slot = Arc::clone(&self.slot());
        let mut doubt = DropUnlessAnswered {
            redis: self,
            slot: Arc::clone(&slot),
            is_over: false,
        };
        let connection = slot.get_or_try_init(|| self.connect()).await;
        let mut connection = connection
            .map_err(|error| reason_from_error(&error))?
            .clone();
        let answers = commands.ignore_errors().query_async(&mut connection).await;
        let answers: Vec<Result<Value, RedisError>> =
            answers.map_err(|error: RedisError| reason_from_error(&error))?;
        let is_refused = |answer: &Result<_, RedisError>| {
            let error = answer.as_ref().err();
            error.is_some_and(|error| {
                matches!(answer_from_refusal(error), Answer::Backpressure { .. })
            })
        };
        doubt.is_over = !answers.iter().any(is_refused);
        Ok(answers)
    }

    /// Returns the answers to commands that change nothing; fails if one is refused.
    #[cfg(any(feature = "asynq", feature = "bullmq", feature = "sidekiq"))]
    pub(crate) async fn read_all<T: redis::FromRedisValue>(
        &self,
        commands: &mut Pipeline,
    ) -> Result<Vec<T>, String> {
        let answers = match commands.is_empty() {
            true => Vec::new(),
            false => self.send_commands(commands).await?,
        };
        let read = |answer: Result<Value, RedisError>| {
            let value = answer.map_err(|error| describe_error(&error))?;
            redis::from_redis_value(value).map_err(|error| format!("Redis: {error}"))
        };
        answers.into_iter().map(read).collect()
    }

    /// Returns why it can never accept all messages, if that is known.
    pub(crate) async fn misconfiguration(&self) -> Option<String> {
        let mut commands = redis::pipe();
        commands.cmd("INFO").arg("cluster");
        let answers = self.send_commands(&mut commands).await.ok()?;
        let info: String = redis::from_redis_value(answers.into_iter().next()?.ok()?).ok()?;
        let is_cluster = info.lines().any(|line| line.trim() == "cluster_enabled:1");
        is_cluster.then(|| {
            "cluster-enabled: it is a node of Redis Cluster, where queues are on different nodes, \
             but the relay talks to one server: use a Redis outside a cluster"
                .into()
        })
    }

    /// Checks whether it accepts commands, including writes.
    pub(crate) async fn probe(&self) -> Result<(), String> {
        // A full server, a replica and one that loads its data answer a PING, but refuse a write
        // that may need memory. This write does nothing, because the list does not exist.
        let mut commands = redis::pipe();
        commands.cmd("LPUSHX").arg("posthaste:probe").arg("");
        for answer in self.send_commands(&mut commands).await? {
            match answer {
                // The account may be limited to the commands that it needs.
                Err(error) if error.code() == Some("NOPERM") => {}
                answer => drop(answer.map_err(|error| describe_error(&error))?),
            }
        }
        Ok(())
    }

    /// Logs once that registering a queue was refused although messages were accepted: they are not
    /// sent again for it.
    fn log_unrecorded_queue(&self, error: &RedisError) {
        let error = describe_error(error);
        let mut last = self.beside.lock();
        if last.as_ref() != Some(&error) {
            tracing::warn!(
                destination = self.label(),
                error = error,
                "the messages were accepted, but registering the name of their queue was refused"
            );
            *last = Some(error);
        }
    }

    /// Returns the settings that let it lose acknowledged messages.
    pub(crate) async fn unsafe_settings(&self) -> Result<Vec<UnsafeSetting>, Error> {
        let mut commands = redis::pipe();
        for setting in ["maxmemory-policy", "maxmemory", "appendonly", "appendfsync"] {
            commands.cmd("CONFIG").arg("GET").arg(setting);
        }
        let answers = self.send_commands(&mut commands).await;
        let answers = answers.map_err(|reason| Error::invalid("redis", String::from(reason)))?;
        let settings: Result<Vec<(String, String)>, RedisError> = answers
            .into_iter()
            .map(|answer| Ok(redis::from_redis_value(answer?)?))
            .collect();
        Ok(match settings {
            Ok(settings) => find_unsafe_settings(&settings),
            Err(error) => vec![UnsafeSetting {
                setting: "config".into(),
                lost: format!(
                    "its durability settings cannot be read ({})",
                    describe_error(&error)
                ),
            }],
        })
    }

    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            // The relay limits the time of requests.
            .set_response_timeout(None);
        self.client
            .get_multiplexed_async_connection_with_config(&config)
            .await
    }

    fn slot(&self) -> MutexGuard<'_, ConnectionSlot> {
        self.connection.lock()
    }
}

impl Drop for DropUnlessAnswered<'_> {
    fn drop(&mut self) {
        let mut slot = self.redis.slot();
        if !self.is_over && Arc::ptr_eq(&slot, &self.slot) {
            *slot = ConnectionSlot::default();
        }
    }
}

/// Judges settings and their values, as `CONFIG GET` returns them.
fn find_unsafe_settings(settings: &[(String, String)]) -> Vec<UnsafeSetting> {
    let value = |name: &str| {
        let found = settings.iter().find(|(setting, _)| setting == name);
        found.map_or("", |(_, value)| value.as_str())
    };
    let mut unsafe_settings = Vec::new();
    let mut unsafe_names = |setting: &str, lost: &str| {
        unsafe_settings.push(UnsafeSetting {
            setting: setting.into(),
            lost: format!("is {:?}, so {lost}", value(setting)),
        });
    };
    if value("maxmemory-policy") != "noeviction" {
        unsafe_names(
            "maxmemory-policy",
            "Redis drops acknowledged messages when memory is short; set it to noeviction",
        );
    }
    if value("appendonly") != "yes" {
        unsafe_names(
            "appendonly",
            "a crash of Redis loses acknowledged messages; set it to yes",
        );
    } else if value("appendfsync") == "no" {
        unsafe_names(
            "appendfsync",
            "a crash of the machine loses acknowledged messages; set it to everysec, which loses a \
             second, or to always",
        );
    }
    unsafe_settings
}

/// Returns the queues that no worker reads.
#[cfg(any(feature = "asynq", feature = "bullmq", feature = "sidekiq"))]
pub(crate) fn queues_without_readers(
    queues: &[String],
    read: impl Iterator<Item = String>,
) -> Vec<String> {
    let read: std::collections::BTreeSet<String> = read.collect();
    let unread = queues.iter().filter(|queue| !read.contains(*queue));
    unread.cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::find_unsafe_settings;

    fn unsafe_names(policy: &str, appendonly: &str, fsync: &str) -> Vec<String> {
        let settings = [
            ("maxmemory-policy", policy),
            ("appendonly", appendonly),
            ("appendfsync", fsync),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        find_unsafe_settings(&settings)
            .into_iter()
            .map(|one| one.setting)
            .collect()
    }

    #[test]
    fn unsafe_redis_settings_are_reported() {
        let none: [&str; 0] = [];
        assert_eq!(unsafe_names("noeviction", "yes", "everysec"), none);
        assert_eq!(unsafe_names("noeviction", "yes", "always"), none);
        assert_eq!(unsafe_names("noeviction", "no", "everysec"), ["appendonly"]);
        assert_eq!(
            unsafe_names("allkeys-lru", "no", "no"),
            ["maxmemory-policy", "appendonly"]
        );
        assert_eq!(unsafe_names("noeviction", "yes", "no"), ["appendfsync"]);
    }
}
