//! What destinations behind Redis share: a connection that is opened when it is needed and dropped
//! when it is in doubt, and the guard over the settings with which Redis may forget what it took.

#[cfg(any(feature = "asynq", feature = "bullmq"))]
mod calls;
#[cfg(any(feature = "celery-redis", feature = "sidekiq"))]
mod lists;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use posthaste::Error;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ErrorKind, Pipeline, RedisError, Value};
use tokio::sync::OnceCell;

use super::destination::{Answer, UnsafeSetting};
use super::reason::{Failure, Reason};

#[cfg(any(feature = "asynq", feature = "bullmq"))]
pub(super) use calls::{Calls, Script};
#[cfg(any(feature = "celery-redis", feature = "sidekiq"))]
pub(super) use lists::List;

/// An address that swallows packets is given up after this.
const CONNECT: Duration = Duration::from_secs(5);

/// What a server says that takes nothing now, or is not the one that does, whichever message it is
/// given. After a failover a stable address leads to another server than the connection that is
/// open.
const NOT_NOW: [&str; 12] = [
    "ASK",
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "MOVED",
    "NOREPLICAS",
    // The call that brings the script along was refused.
    "NOSCRIPT",
    "OOM",
    "READONLY",
    "TRYAGAIN",
];

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

    /// Sends all commands in one go; an answer for each, the server's refusals among them. An error
    /// means that there may have been effects.
    pub(super) async fn ask(
        &self,
        commands: &mut Pipeline,
    ) -> Result<Vec<Result<Value, RedisError>>, Reason> {
        let slot = Arc::clone(&self.slot());
        let mut doubt = Doubt {
            redis: self,
            slot: Arc::clone(&slot),
            is_over: false,
        };
        let connection = slot.get_or_try_init(|| self.connect()).await;
        let mut connection = connection.map_err(|error| failed(&error))?.clone();
        let answers = commands.ignore_errors().query_async(&mut connection).await;
        let answers: Vec<Result<Value, RedisError>> =
            answers.map_err(|error: RedisError| failed(&error))?;
        let is_refused = |answer: &Result<_, _>| answer.as_ref().is_err_and(is_backpressure);
        doubt.is_over = !answers.iter().any(is_refused);
        Ok(answers)
    }

    /// The answers to commands that change nothing; none may be refused.
    #[cfg(any(feature = "asynq", feature = "bullmq", feature = "sidekiq"))]
    pub(super) async fn read<T: redis::FromRedisValue>(
        &self,
        commands: &mut Pipeline,
    ) -> Result<Vec<T>, String> {
        let answers = match commands.is_empty() {
            true => Vec::new(),
            false => self.ask(commands).await?,
        };
        let read = |answer: Result<Value, RedisError>| {
            let value = answer.map_err(|error| said(&error))?;
            redis::from_redis_value(value).map_err(|error| format!("Redis: {error}"))
        };
        answers.into_iter().map(read).collect()
    }

    /// Why it can never take all that it is sent, if that is known.
    pub(super) async fn unfit(&self) -> Option<String> {
        let mut commands = redis::pipe();
        commands.cmd("INFO").arg("cluster");
        let answers = self.ask(&mut commands).await.ok()?;
        let info: String = redis::from_redis_value(answers.into_iter().next()?.ok()?).ok()?;
        let is_cluster = info.lines().any(|line| line.trim() == "cluster_enabled:1");
        is_cluster.then(|| {
            "cluster-enabled: it is a node of Redis Cluster, which has each queue on another node; \
             the relay speaks to one server: name a Redis that is none of a cluster"
                .into()
        })
    }

    /// Whether it takes commands, and writes among them.
    pub(super) async fn probe(&self) -> Result<(), String> {
        // A full server, a replica and one that loads its data answer a PING; a write that may need
        // memory they refuse. This one does nothing: there is no such list.
        let mut commands = redis::pipe();
        commands.cmd("LPUSHX").arg("posthaste:probe").arg("");
        for answer in self.ask(&mut commands).await? {
            answer.map_err(|error| said(&error))?;
        }
        Ok(())
    }

    /// What of its settings lets it forget what it has acknowledged.
    pub(super) async fn unsafe_settings(&self) -> Result<Vec<UnsafeSetting>, Error> {
        let mut commands = redis::pipe();
        for setting in ["maxmemory-policy", "maxmemory", "appendonly", "appendfsync"] {
            commands.cmd("CONFIG").arg("GET").arg(setting);
        }
        let answers = self.ask(&mut commands).await;
        let answers = answers.map_err(|reason| Error::invalid("redis", String::from(reason)))?;
        let settings: Result<Vec<(String, String)>, RedisError> = answers
            .into_iter()
            .map(|answer| Ok(redis::from_redis_value(answer?)?))
            .collect();
        Ok(match settings {
            Ok(settings) => judge(&settings),
            Err(error) => vec![UnsafeSetting {
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

/// What went wrong, without the address, and without what was sent: a server that does not know a
/// command repeats what came with it.
fn said(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => {
            let detail = detail.split(", with args beginning with").next();
            format!("Redis: {code} {}", detail.unwrap_or_default())
        }
        _ => format!("Redis: {error}"),
    }
}

/// Why nothing is known of what was sent.
fn failed(error: &RedisError) -> Reason {
    Reason::of(kind(error), said(error))
}

fn kind(error: &RedisError) -> Failure {
    match error.code() {
        Some("NOAUTH" | "WRONGPASS" | "NOPERM") => Failure::Auth,
        _ if error.kind() == ErrorKind::AuthenticationFailed => Failure::Auth,
        _ if error.is_timeout() => Failure::Timeout,
        None if error.is_io_error() || error.is_connection_dropped() => Failure::Connect,
        Some(_) => Failure::Error,
        None => Failure::Other,
    }
}

/// Whether it lies with the server, and it may take the same in a while.
fn is_backpressure(error: &RedisError) -> bool {
    let Some(code) = error.code() else {
        return false;
    };
    // Before 7 a script ends with an error of its own, which has the server's within.
    let within = || {
        let detail = error.detail().filter(|_| code == "ERR")?;
        detail
            .split_whitespace()
            .find_map(|word| word.strip_prefix('-'))
    };
    NOT_NOW.contains(&code) || within().is_some_and(|code| NOT_NOW.contains(&code))
}

/// What the server's refusal says of a message.
pub(super) fn refusal(error: &RedisError) -> Answer {
    let reason = Reason::of(kind(error), said(error));
    match error.code() {
        // Something else lies where the receiver's queue should be, so others may pass.
        Some("WRONGTYPE") => Answer::retry(said(error)),
        _ if is_backpressure(error) => Answer::full(said(error)),
        _ => Answer::unavailable(reason),
    }
}

/// Settings with their values, as `CONFIG GET` tells them.
fn judge(settings: &[(String, String)]) -> Vec<UnsafeSetting> {
    let value = |name: &str| {
        let found = settings.iter().find(|(setting, _)| setting == name);
        found.map_or("", |(_, value)| value.as_str())
    };
    let mut unsafe_settings = Vec::new();
    let mut weak = |setting: &str, lost: &str| {
        unsafe_settings.push(UnsafeSetting {
            setting: setting.into(),
            lost: format!("is {:?}, so {lost}", value(setting)),
        });
    };
    if value("maxmemory-policy") != "noeviction" {
        weak(
            "maxmemory-policy",
            "when memory is short Redis drops messages that it has acknowledged; \
             set it to noeviction",
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
            "a crash of the machine loses messages that Redis has acknowledged; \
             set it to everysec, which loses a second, or to always",
        );
    }
    unsafe_settings
}

#[cfg(test)]
mod tests {
    use super::{NOT_NOW, judge, refusal};
    use crate::destination::Answer;

    /// What becomes of a message of which the server says this.
    fn answer(said: &str) -> Answer {
        let line = format!("-{said}\r\n");
        let value = redis::parse_redis_value(line.as_bytes()).expect("an answer");
        refusal(&value.extract_error().expect_err("a refusal"))
    }

    #[test]
    fn what_lies_with_the_server_counts_as_no_attempt_also_within_a_script() {
        for code in NOT_NOW {
            let plain = answer(&format!("{code} why it is so"));
            let script =
                format!("ERR Error running script (call to f_1): @user_script:3: -{code} why");
            for answer in [plain, answer(&script)] {
                let Answer::Backpressure { reason } = answer else {
                    panic!("{code}: {answer:?}");
                };
                assert!(reason.contains(code), "{reason}");
            }
        }
        let later = answer("WRONGTYPE Operation against a key");
        assert!(matches!(later, Answer::Retry { .. }), "{later:?}");
        let unknown = answer("ERR something - else");
        assert!(matches!(unknown, Answer::Unavailable { .. }), "{unknown:?}");
    }

    #[test]
    fn each_refusal_has_its_kind_of_failure() {
        for (said, failure) in [
            ("OOM command not allowed", "full"),
            ("NOAUTH Authentication required.", "auth"),
            ("WRONGPASS invalid username-password pair", "auth"),
            ("WRONGTYPE Operation against a key", "error"),
            ("ERR something - else", "error"),
        ] {
            let kind = answer(said).failure().map(crate::Failure::name);
            assert_eq!(kind, Some(failure), "{said}");
        }
    }

    #[test]
    fn a_server_that_does_not_know_a_command_has_its_arguments_repeated_by_nobody() {
        let said = "ERR unknown command 'LPUSH', with args beginning with: 'queue:a' 'geheim'";
        let Answer::Unavailable { reason } = answer(said) else {
            panic!("{:?}", answer(said));
        };
        assert_eq!(&*reason, "Redis: ERR unknown command 'LPUSH'");
    }

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
