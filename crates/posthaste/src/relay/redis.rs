//! What destinations behind Redis share: a connection that is opened when it is needed and dropped when it is in doubt, and the guard over the settings
//! with which Redis may forget what it took.

#[cfg(any(feature = "asynq", feature = "bullmq"))]
mod calls;
#[cfg(any(feature = "celery-redis", feature = "sidekiq"))]
mod lists;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Pipeline, RedisError, Value};
use tokio::sync::OnceCell;

use super::destination::{Answer, Weakness};
use crate::error::Error;

#[cfg(any(feature = "asynq", feature = "bullmq"))]
pub(super) use calls::{Calls, Script};
#[cfg(any(feature = "celery-redis", feature = "sidekiq"))]
pub(super) use lists::List;

/// An address that swallows packets is given up after this.
const CONNECT: Duration = Duration::from_secs(5);

type Slot = Arc<OnceCell<MultiplexedConnection>>;

/// A Redis server, which many batches ask at once over one connection.
pub(super) struct Redis {
    client: Client,
    connection: Mutex<Slot>,
}

/// Drops the connection unless the answer came: what is in doubt is not used again.
struct Doubt<'a> {
    redis: &'a Redis,
    slot: Slot,
    is_over: bool,
}

impl Redis {
    /// `redis://`, or `rediss://` for TLS, for which the program installs rustls' provider.
    pub(super) fn new(url: &str) -> Result<Self, Error> {
        // The address may hold a password: the error does not repeat it.
        let client = Client::open(url)
            .map_err(|_| Error::invalid("url", "must be redis://host:port/database"))?;
        let connection = Mutex::default();
        Ok(Self { client, connection })
    }

    /// Address and database, without user and password.
    pub(super) fn label(&self) -> String {
        let info = self.client.get_connection_info();
        format!("{}/{}", info.addr(), info.redis_settings().db())
    }

    /// Sends all commands in one go; an answer for each, the server's refusals among them. An error means that there may have been effects.
    pub(super) async fn ask(
        &self,
        commands: &mut Pipeline,
    ) -> Result<Vec<Result<Value, RedisError>>, String> {
        let slot = Arc::clone(&self.slot());
        let mut doubt = Doubt {
            redis: self,
            slot: Arc::clone(&slot),
            is_over: false,
        };
        let connection = slot.get_or_try_init(|| self.connect()).await;
        let mut connection = connection.map_err(|error| said(&error))?.clone();
        let answers = commands.ignore_errors().query_async(&mut connection).await;
        doubt.is_over = answers.is_ok();
        answers.map_err(|error: RedisError| said(&error))
    }

    /// Whether it takes commands, and writes among them.
    pub(super) async fn probe(&self) -> Result<(), String> {
        // A full server, a replica and one that loads its data answer a PING; a write that may need memory they refuse. This one does nothing: there is
        // no such list.
        let mut commands = redis::pipe();
        commands.cmd("LPUSHX").arg("posthaste:probe").arg("");
        for answer in self.ask(&mut commands).await? {
            answer.map_err(|error| said(&error))?;
        }
        Ok(())
    }

    /// What of its settings lets it forget what it has acknowledged.
    pub(super) async fn weaknesses(&self) -> Result<Vec<Weakness>, Error> {
        let mut commands = redis::pipe();
        for setting in ["maxmemory-policy", "maxmemory", "appendonly", "appendfsync"] {
            commands.cmd("CONFIG").arg("GET").arg(setting);
        }
        let answers = self.ask(&mut commands).await;
        let answers = answers.map_err(|reason| Error::invalid("redis", reason))?;
        let settings: Result<Vec<(String, String)>, RedisError> = answers
            .into_iter()
            .map(|answer| Ok(redis::from_redis_value(answer?)?))
            .collect();
        Ok(match settings {
            Ok(settings) => judge(&settings),
            Err(error) => vec![Weakness {
                setting: "config".into(),
                lost: format!(
                    "whether it keeps what it takes cannot be found out ({})",
                    said(&error)
                ),
            }],
        })
    }

    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            // The relay bounds what it asks.
            .set_response_timeout(None);
        self.client
            .get_multiplexed_async_connection_with_config(&config)
            .await
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        let mut slot = self.redis.slot();
        if !self.is_over && Arc::ptr_eq(&slot, &self.slot) {
            *slot = Slot::default();
        }
    }
}

/// What went wrong, without the address.
fn said(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("Redis: {code} {detail}"),
        _ => format!("Redis: {error}"),
    }
}

/// What the server's refusal says of a message.
pub(super) fn refusal(error: &RedisError) -> Answer {
    match error.code() {
        // Something else lies where the receiver's queue should be, so others may pass.
        Some("WRONGTYPE") => Answer::Later {
            reason: said(error),
            after: None,
        },
        _ => Answer::unanswered(said(error)),
    }
}

/// Settings with their values, as `CONFIG GET` tells them.
fn judge(settings: &[(String, String)]) -> Vec<Weakness> {
    let value = |name: &str| {
        let found = settings.iter().find(|(setting, _)| setting == name);
        found.map_or("", |(_, value)| value.as_str())
    };
    let mut weaknesses = Vec::new();
    let mut weak = |setting: &str, lost: &str| {
        weaknesses.push(Weakness {
            setting: setting.into(),
            lost: format!("is {:?}, so {lost}", value(setting)),
        });
    };
    if value("maxmemory-policy") != "noeviction" {
        weak(
            "maxmemory-policy",
            "when memory is short Redis drops messages that it has acknowledged; set it to noeviction",
        );
    }
    if value("appendonly") != "yes" {
        weak(
            "appendonly",
            "a crash of Redis loses messages that it has acknowledged; set it to yes",
        );
    } else if value("appendfsync") == "no" {
        weak(
            "appendfsync",
            "a crash of the machine loses messages that Redis has acknowledged; set it to everysec, which loses a second, or to always",
        );
    }
    weaknesses
}

#[cfg(test)]
mod tests {
    use super::judge;

    fn weak(policy: &str, appendonly: &str, fsync: &str) -> Vec<String> {
        let settings = [
            ("maxmemory-policy", policy),
            ("appendonly", appendonly),
            ("appendfsync", fsync),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        judge(&settings)
            .into_iter()
            .map(|one| one.setting)
            .collect()
    }

    #[test]
    fn settings_with_which_redis_forgets_are_named() {
        let none: [&str; 0] = [];
        assert_eq!(weak("noeviction", "yes", "everysec"), none);
        assert_eq!(weak("noeviction", "yes", "always"), none);
        assert_eq!(weak("noeviction", "no", "everysec"), ["appendonly"]);
        assert_eq!(
            weak("allkeys-lru", "no", "no"),
            ["maxmemory-policy", "appendonly"]
        );
        assert_eq!(weak("noeviction", "yes", "no"), ["appendfsync"]);
    }
}
