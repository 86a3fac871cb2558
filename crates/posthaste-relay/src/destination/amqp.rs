//! Shared code of AMQP 0-9-1 destinations: a connection to RabbitMQ, a channel for each batch, and
//! the outcome of each message from confirmations, returns and closed channels.

#[cfg(feature = "rabbitmq")]
mod consumers;
mod handshake;
mod outcome;

use std::borrow::Cow;
use std::time::Duration;

use futures_util::StreamExt;
use jiff::{SignedDuration, Timestamp};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::ShortString;
use lapin::uri::AMQPUri;
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, Event};
use parking_lot::{Mutex, MutexGuard};
use posthaste::Error;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::destination::answer::Answer;
use crate::destination::pipeline::join_in_order;
use crate::destination::reason::{Failure, Reason};
use crate::destination::shared_connection::{ConnectionGuard, SharedConnection};
use crate::message::Message;
use outcome::reason_from_error;

/// Timeout of a connection attempt: an address may drop packets silently.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The heartbeat in seconds, if the URL sets none.
const DEFAULT_HEARTBEAT: u16 = 10;
/// A routing key without a queue: RabbitMQ confirms and drops messages for it.
const UNROUTED_KEY: &str = "posthaste.probe";
/// The delivery mode of messages that durable queues write to disk.
pub(crate) const PERSISTENT_MODE: u8 = 2;
/// The most bytes of headers that are sent.
const MAX_HEADER_BYTES: usize = 100_000;
/// The most bytes of a name in AMQP.
const MAX_NAME_BYTES: usize = 255;

/// A message as RabbitMQ receives it.
pub(crate) struct Publication<'a> {
    pub(crate) exchange: &'a str,
    pub(crate) routing_key: &'a str,
    /// They contain an id, by which a returned message is identified.
    pub(crate) properties: BasicProperties,
    pub(crate) body: Cow<'a, [u8]>,
}

/// A RabbitMQ server; many batches are published concurrently over one connection.
pub(crate) struct Amqp {
    uri: AMQPUri,
    link: SharedConnection<BrokerConnection>,
}

impl Amqp {
    /// Parses `amqp://`, or `amqps://` for TLS, for which the program must install a provider of
    /// rustls.
    pub(crate) fn new(url: &str) -> Result<Self, Error> {
        // The address may hold a password: the error does not repeat it.
        let mut uri: AMQPUri = url
            .parse()
            .map_err(|_| Error::invalid("url", "must be amqp://host:port/virtual-host"))?;
        uri.query.heartbeat.get_or_insert(DEFAULT_HEARTBEAT);
        let timeout = u64::try_from(CONNECT_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
        uri.query.connection_timeout.get_or_insert(timeout);
        let link = SharedConnection::default();
        Ok(Self { uri, link })
    }

    /// Returns the address and virtual host, without user and password.
    pub(crate) fn label(&self) -> String {
        let authority = &self.uri.authority;
        let vhost = self.uri.vhost.trim_start_matches('/');
        format!("{}:{}/{vhost}", authority.host, authority.port)
    }

    /// Publishes all messages that could be encoded; returns an answer for each.
    pub(crate) async fn publish(
        &self,
        letters: Vec<Result<Publication<'_>, Answer>>,
    ) -> Vec<Answer> {
        let unavailable = |reason: Reason| {
            let answer = Answer::unavailable(reason);
            let answers = letters.iter().map(|letter| match letter {
                Ok(_) => answer.clone(),
                Err(refused) => refused.clone(),
            });
            answers.collect::<Vec<Answer>>()
        };
        let broker = match self.open().await {
            Ok(broker) => broker,
            Err(reason) => return unavailable(reason),
        };
        if let Some(reason) = broker.blocked_reason() {
            broker.finish_cleanly();
            return unavailable(Reason::new(Failure::Full, reason));
        }
        let (mut answers, mut is_sound) = (unavailable("nothing was sent".into()), true);
        // The broker closes the channel if an exchange does not exist. That affects only messages
        // for that exchange.
        for mut group in group_by_exchange(&letters) {
            while !group.is_empty() {
                let sent: Vec<&Publication<'_>> = group
                    .iter()
                    .filter_map(|index| letters[*index].as_ref().ok())
                    .collect();
                let outcomes = broker.publish_unless_blocked(&sent, true).await;
                let outcomes = outcome::answers_from_outcomes(&sent, outcomes);
                is_sound &= outcomes.is_sound;
                let mut again = Vec::new();
                for (index, answer) in group.into_iter().zip(outcomes.answers) {
                    match answer {
                        Some(answer) => answers[index] = answer,
                        None => again.push(index),
                    }
                }
                group = again;
            }
        }
        // Messages that wait on a blocked connection must not be published unnoticed when it is
        // unblocked: such a connection is dropped.
        if is_sound {
            broker.finish_cleanly();
        }
        answers
    }

    /// Checks whether it accepts messages. While an alarm is raised, RabbitMQ reads at most a
    /// publisher's first message, and reports the alarm. A blocked connection stays open, because
    /// the server closes it only after the alarm.
    pub(crate) async fn probe(&self) -> Result<(), String> {
        let broker = self.open().await?;
        if let Some(reason) = broker.blocked_reason() {
            broker.finish_cleanly();
            return Err(reason);
        }
        let letter = Publication {
            exchange: "",
            routing_key: UNROUTED_KEY,
            // It expires at once, in case a queue of this name exists.
            properties: BasicProperties::default().with_expiration("0".into()),
            body: Cow::Borrowed(&[]),
        };
        let outcome = match broker.publish_unless_blocked(&[&letter], false).await {
            // If the account may not publish there, the refusal also shows that the broker reads.
            Ok(outcomes) => outcomes
                .into_iter()
                .find_map(Result::err)
                .filter(|error| !error.is_amqp_soft_error())
                .map_or(Ok(()), |error| Err(describe_error(&error))),
            Err(reason) => Err(reason.into()),
        };
        if outcome.is_ok() || broker.blocked_reason().is_some() {
            broker.finish_cleanly();
        }
        outcome
    }

    async fn open(&self) -> Result<ConnectionGuard<'_, BrokerConnection>, Reason> {
        let is_alive = |broker: &BrokerConnection| broker.connection.status().connected();
        self.link
            .open(is_alive, async || self.connect().await)
            .await
    }

    async fn connect(&self) -> Result<BrokerConnection, Reason> {
        let properties = ConnectionProperties::default().with_connection_name("posthaste".into());
        let connection = handshake::connect(self.uri.clone(), properties);
        let connection = tokio::time::timeout(CONNECT_TIMEOUT, connection).await;
        let connection = connection
            .map_err(|_| {
                format!(
                    "RabbitMQ: no connection within {} s",
                    CONNECT_TIMEOUT.as_secs()
                )
            })
            .map_err(Reason::timed_out)?
            .map_err(|error| reason_from_error(&error))?;
        Ok(BrokerConnection::new(connection))
    }
}

/// A connection and its idle channels.
struct BrokerConnection {
    connection: Connection,
    idle: Mutex<Vec<Channel>>,
    /// The reason why the broker blocks publishers now.
    blocked: watch::Receiver<Option<String>>,
    _listening: JoinSet<()>,
}

impl BrokerConnection {
    fn new(connection: Connection) -> Self {
        let (sender, blocked) = watch::channel(None);
        let mut events = connection.events_listener();
        let mut listening = JoinSet::new();
        listening.spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Event::ConnectionBlocked(reason) => sender.send_replace(Some(reason)),
                    Event::ConnectionUnblocked => sender.send_replace(None),
                    _ => continue,
                };
            }
        });
        Self {
            connection,
            idle: Mutex::default(),
            blocked,
            _listening: listening,
        }
    }

    /// Publishes messages and returns the outcome of each; an error if publishers are blocked, when
    /// the number of published messages is unknown.
    async fn publish_unless_blocked(
        &self,
        letters: &[&Publication<'_>],
        mandatory: bool,
    ) -> Result<Vec<lapin::Result<Confirmation>>, Reason> {
        tokio::select! {
            // Confirmations count even if publishers are now blocked.
            biased;
            outcomes = self.publish(letters, mandatory) => {
                outcomes.map_err(|error| reason_from_error(&error))
            }
            reason = self.wait_until_blocked() => Err(Reason::new(Failure::Full, reason)),
        }
    }

    /// Publishes on a channel of this batch alone, so that every message that returns on it belongs
    /// to this batch.
    async fn publish(
        &self,
        letters: &[&Publication<'_>],
        mandatory: bool,
    ) -> lapin::Result<Vec<lapin::Result<Confirmation>>> {
        let idle = self.idle_channels().pop();
        let channel = match idle {
            Some(channel) => channel,
            None => {
                let channel = self.connection.create_channel().await?;
                let options = ConfirmSelectOptions::default();
                channel.confirm_select(options).await?;
                channel
            }
        };
        let options = BasicPublishOptions {
            mandatory,
            ..BasicPublishOptions::default()
        };
        let publish = async |letter: &Publication<'_>| {
            let (exchange, key) = (letter.exchange.into(), letter.routing_key.into());
            let properties = letter.properties.clone();
            let published = channel.basic_publish(exchange, key, options, &letter.body, properties);
            published.await?.await
        };
        let outcomes = join_in_order(letters.iter().map(|letter| publish(letter)).collect()).await;
        // A channel that the broker closed, or that lacks a confirmation, is closed by dropping it.
        if outcomes.iter().all(Result::is_ok) {
            self.idle_channels().push(channel);
        }
        Ok(outcomes)
    }

    /// Completes when publishers are blocked, with the reason.
    async fn wait_until_blocked(&self) -> String {
        let mut blocked = self.blocked.clone();
        let is_over = blocked.wait_for(Option::is_some).await.is_err();
        if is_over {
            // The sender ended with the connection, which is reported elsewhere.
            std::future::pending::<()>().await;
        }
        self.blocked_reason().unwrap_or_default()
    }

    fn blocked_reason(&self) -> Option<String> {
        let reason = self.blocked.borrow();
        let reason = reason.as_deref();
        reason.map(|reason| format!("RabbitMQ blocks publishers: {reason}"))
    }

    fn idle_channels(&self) -> MutexGuard<'_, Vec<Channel>> {
        self.idle.lock()
    }
}

/// Groups the indices of encoded messages by exchange, otherwise in their order.
fn group_by_exchange(letters: &[Result<Publication<'_>, Answer>]) -> Vec<Vec<usize>> {
    let mut groups: Vec<(&str, Vec<usize>)> = Vec::new();
    for (index, letter) in letters.iter().enumerate() {
        let Ok(letter) = letter else { continue };
        match groups.iter_mut().find(|(name, _)| *name == letter.exchange) {
            Some((_, group)) => group.push(index),
            None => groups.push((letter.exchange, vec![index])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Converts a name; one that is too long cannot be sent, and would close the connection.
pub(crate) fn short_string(what: &str, text: &str) -> Result<ShortString, Answer> {
    if text.len() <= MAX_NAME_BYTES {
        return Ok(text.into());
    }
    Err(Answer::rejected(format!(
        "{what} has {} bytes, but AMQP allows {MAX_NAME_BYTES}",
        text.len()
    )))
}

/// Checks the size of the headers. They are sent in one frame, for which RabbitMQ allows 128 KiB by
/// default; a larger frame would close the connection.
pub(crate) fn check_header_size(message: &Message) -> Result<(), Answer> {
    let bytes: usize = message
        .headers
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    match bytes <= MAX_HEADER_BYTES {
        true => Ok(()),
        false => Err(Answer::rejected(format!(
            "its headers have {bytes} bytes, but RabbitMQ allows {MAX_HEADER_BYTES}"
        ))),
    }
}

/// RabbitMQ also routes by these headers, and closes the channel if they are not lists.
pub(crate) fn header_objection(name: &str) -> Option<String> {
    matches!(name, "CC" | "BCC")
        .then(|| "is a header that RabbitMQ reserves for routing keys".into())
}

/// Converts a priority: RabbitMQ runs the highest of its 256 first, posthaste the lowest.
pub(crate) fn amqp_priority(priority: i32) -> u8 {
    u8::try_from(priority.saturating_neg().clamp(0, 255)).unwrap_or(u8::MAX)
}

/// Returns the milliseconds until a job expires; RabbitMQ accepts 1 to 2^32 - 1.
pub(crate) fn expiration_ms(expires_at: Timestamp, now: Timestamp) -> Option<String> {
    let left = expires_at.duration_since(now).max(SignedDuration::ZERO);
    let milliseconds = left.as_millis().max(1);
    (milliseconds < 1 << 32).then(|| milliseconds.to_string())
}

/// Describes an error without the address.
fn describe_error(error: &lapin::Error) -> String {
    format!("RabbitMQ: {error}")
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{Amqp, amqp_priority, expiration_ms};

    #[test]
    fn labels_and_errors_hide_the_password() {
        let amqp = Amqp::new("amqp://ada:secret@rabbit:5673/mail").expect("a URL");
        assert_eq!(amqp.label(), "rabbit:5673/mail");
        let wrong = Amqp::new("http://ada:secret@rabbit")
            .err()
            .expect("an error");
        assert!(!wrong.to_string().contains("secret"), "{wrong}");
    }

    #[test]
    fn priorities_are_reversed_for_rabbitmq() {
        let priorities = [i32::MIN, -256, -255, -1, 0, 1, i32::MAX].map(amqp_priority);
        assert_eq!(priorities, [255, 255, 255, 1, 0, 0, 0]);
    }

    #[test]
    fn expiration_is_between_one_and_the_rabbitmq_maximum() {
        let at = |millisecond: i64| Timestamp::from_millisecond(millisecond).expect("a time");
        let left = |expires_at: i64| expiration_ms(at(expires_at), at(1_000_000));
        assert_eq!(left(1_000_500).as_deref(), Some("500"));
        assert_eq!(left(999_000).as_deref(), Some("1"));
        assert_eq!(
            left(1_000_000 + (1 << 32) - 1).as_deref(),
            Some("4294967295")
        );
        assert_eq!(left(1_000_000 + (1 << 32)), None);
    }
}
