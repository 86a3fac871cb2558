//! What AMQP 0-9-1 destinations share: a connection to RabbitMQ, a channel for each batch, and what
//! confirmations, returns and closed channels say of each message.

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
use crate::destination::pipeline::in_order;
use crate::destination::reason::{Failure, Reason};
use crate::destination::shared_connection::{ConnectionGuard, SharedConnection};
use crate::message::Message;
use outcome::failed;

/// An address that swallows packets is given up after this.
const CONNECT: Duration = Duration::from_secs(5);
/// The heartbeat in seconds, if the URL sets none.
const HEARTBEAT: u16 = 10;
/// Nobody listens there: RabbitMQ confirms and drops what is sent to it.
const UNROUTED_KEY: &str = "posthaste.probe";
/// How messages are sent that durable queues are to keep on their disks.
pub(crate) const PERSISTENT: u8 = 2;
/// This much of headers is sent at most, in bytes.
const HEADERS: usize = 100_000;
/// The longest text that names something in AMQP.
const LONGEST: usize = 255;

/// A message as RabbitMQ gets it.
pub(crate) struct Publication<'a> {
    pub(crate) exchange: &'a str,
    pub(crate) routing_key: &'a str,
    /// With an id, by which a message that comes back is known.
    pub(crate) properties: BasicProperties,
    pub(crate) body: Cow<'a, [u8]>,
}

/// A RabbitMQ, to which many batches are published at once over one connection.
pub(crate) struct Amqp {
    uri: AMQPUri,
    link: SharedConnection<Broker>,
}

impl Amqp {
    /// `amqp://`, or `amqps://` for TLS, for which the program installs rustls' provider.
    pub(crate) fn new(url: &str) -> Result<Self, Error> {
        // The address may hold a password: the error does not repeat it.
        let mut uri: AMQPUri = url
            .parse()
            .map_err(|_| Error::invalid("url", "must be amqp://host:port/virtual-host"))?;
        uri.query.heartbeat.get_or_insert(HEARTBEAT);
        let timeout = u64::try_from(CONNECT.as_millis()).unwrap_or(u64::MAX);
        uri.query.connection_timeout.get_or_insert(timeout);
        let link = SharedConnection::default();
        Ok(Self { uri, link })
    }

    /// Address and virtual host, without user and password.
    pub(crate) fn label(&self) -> String {
        let authority = &self.uri.authority;
        let vhost = self.uri.vhost.trim_start_matches('/');
        format!("{}:{}/{vhost}", authority.host, authority.port)
    }

    /// Publishes all that could be encoded; an answer for each.
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
        if let Some(reason) = broker.is_blocked() {
            broker.finish_cleanly();
            return unavailable(Reason::new(Failure::Full, reason));
        }
        let (mut answers, mut is_sound) = (unavailable("nothing was sent".into()), true);
        // The broker closes a channel whose exchange it does not know: that concerns the messages
        // for that exchange and no others.
        for mut group in group_by_exchange(&letters) {
            while !group.is_empty() {
                let sent: Vec<&Publication<'_>> = group
                    .iter()
                    .filter_map(|index| letters[*index].as_ref().ok())
                    .collect();
                let outcomes = broker.publish_unless_blocked(&sent, true).await;
                let outcomes = outcome::resolve(&sent, outcomes);
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
        // What waits on a connection that is blocked must not be published unnoticed when it is
        // unblocked: it is given up.
        if is_sound {
            broker.finish_cleanly();
        }
        answers
    }

    /// Whether it takes messages. While an alarm is raised it reads no more than a publisher's
    /// first, and reports it; a blocked connection stays open, because one that is closed stays
    /// open there until the alarm is over.
    pub(crate) async fn probe(&self) -> Result<(), String> {
        let broker = self.open().await?;
        if let Some(reason) = broker.is_blocked() {
            broker.finish_cleanly();
            return Err(reason);
        }
        let letter = Publication {
            exchange: "",
            routing_key: UNROUTED_KEY,
            // Should somebody have made a queue of this name, it stays empty.
            properties: BasicProperties::default().with_expiration("0".into()),
            body: Cow::Borrowed(&[]),
        };
        let outcome = match broker.publish_unless_blocked(&[&letter], false).await {
            // An account that may not publish there is answered too, by one who reads.
            Ok(outcomes) => outcomes
                .into_iter()
                .find_map(Result::err)
                .filter(|error| !error.is_amqp_soft_error())
                .map_or(Ok(()), |error| Err(describe(&error))),
            Err(reason) => Err(reason.into()),
        };
        if outcome.is_ok() || broker.is_blocked().is_some() {
            broker.finish_cleanly();
        }
        outcome
    }

    async fn open(&self) -> Result<ConnectionGuard<'_, Broker>, Reason> {
        let is_alive = |broker: &Broker| broker.connection.status().connected();
        self.link
            .open(is_alive, async || self.connect().await)
            .await
    }

    async fn connect(&self) -> Result<Broker, Reason> {
        let properties = ConnectionProperties::default().with_connection_name("posthaste".into());
        let connection = handshake::connect(self.uri.clone(), properties);
        let connection = tokio::time::timeout(CONNECT, connection).await;
        let connection = connection
            .map_err(|_| format!("RabbitMQ: no connection within {} s", CONNECT.as_secs()))
            .map_err(Reason::late)?
            .map_err(|error| failed(&error))?;
        Ok(Broker::new(connection))
    }
}

/// A connection and its channels that nobody uses now.
struct Broker {
    connection: Connection,
    idle: Mutex<Vec<Channel>>,
    /// Why it takes nothing now, if that is so.
    blocked: watch::Receiver<Option<String>>,
    _listening: JoinSet<()>,
}

impl Broker {
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

    /// What became of each; an error when publishers are blocked, and nobody knows how many got
    /// through.
    async fn publish_unless_blocked(
        &self,
        letters: &[&Publication<'_>],
        mandatory: bool,
    ) -> Result<Vec<lapin::Result<Confirmation>>, Reason> {
        tokio::select! {
            // What was confirmed counts, also where publishers are blocked by now.
            biased;
            outcomes = self.publish(letters, mandatory) => outcomes.map_err(|error| failed(&error)),
            reason = self.blocked() => Err(Reason::new(Failure::Full, reason)),
        }
    }

    /// Publishes on a channel that is this batch's alone, so that whatever comes back on it is of
    /// this batch.
    async fn publish(
        &self,
        letters: &[&Publication<'_>],
        mandatory: bool,
    ) -> lapin::Result<Vec<lapin::Result<Confirmation>>> {
        let idle = self.idle().pop();
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
        let outcomes = in_order(letters.iter().map(|letter| publish(letter)).collect()).await;
        // One that the broker has closed, or on which something is missing, is closed by being
        // dropped.
        if outcomes.iter().all(Result::is_ok) {
            self.idle().push(channel);
        }
        Ok(outcomes)
    }

    /// Comes when publishers are blocked, with the reason.
    async fn blocked(&self) -> String {
        let mut blocked = self.blocked.clone();
        let is_over = blocked.wait_for(Option::is_some).await.is_err();
        if is_over {
            // The receiver is gone with the connection, which is reported elsewhere.
            std::future::pending::<()>().await;
        }
        self.is_blocked().unwrap_or_default()
    }

    fn is_blocked(&self) -> Option<String> {
        let reason = self.blocked.borrow();
        let reason = reason.as_deref();
        reason.map(|reason| format!("RabbitMQ blocks publishers: {reason}"))
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Channel>> {
        self.idle.lock()
    }
}

/// The indices of what can be sent, together by exchange, otherwise in their order.
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

/// A text that names something; a longer one cannot be sent, and would cost the connection.
pub(crate) fn short(what: &str, text: &str) -> Result<ShortString, Answer> {
    if text.len() <= LONGEST {
        return Ok(text.into());
    }
    Err(Answer::rejected(format!(
        "{what} has {} bytes, but AMQP allows {LONGEST}",
        text.len()
    )))
}

/// Headers go out in one frame, for which RabbitMQ has 128 KiB unless it is set otherwise; more
/// would cost the connection.
pub(crate) fn fits(message: &Message) -> Result<(), Answer> {
    let bytes: usize = message
        .headers
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    match bytes <= HEADERS {
        true => Ok(()),
        false => Err(Answer::rejected(format!(
            "its headers have {bytes} bytes, but RabbitMQ allows {HEADERS}"
        ))),
    }
}

/// RabbitMQ sends a message by these headers too, and closes the channel where they are not lists.
pub(crate) fn rejects_header(name: &str) -> Option<String> {
    matches!(name, "CC" | "BCC")
        .then(|| "is a header in which RabbitMQ expects routing keys".into())
}

/// RabbitMQ runs higher priorities first, of which it has 256, and we lower ones.
pub(crate) fn priority(priority: i32) -> u8 {
    u8::try_from(priority.saturating_neg().clamp(0, 255)).unwrap_or(u8::MAX)
}

/// The milliseconds that are left, as RabbitMQ takes them: below 2^32, and at least one.
pub(crate) fn expiration(expires_at: Timestamp, now: Timestamp) -> Option<String> {
    let left = expires_at.duration_since(now).max(SignedDuration::ZERO);
    let milliseconds = left.as_millis().max(1);
    (milliseconds < 1 << 32).then(|| milliseconds.to_string())
}

/// What went wrong, without the address.
fn describe(error: &lapin::Error) -> String {
    format!("RabbitMQ: {error}")
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{Amqp, expiration, priority};

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
    fn priorities_are_reversed_for_bullmq() {
        let priorities = [i32::MIN, -256, -255, -1, 0, 1, i32::MAX].map(priority);
        assert_eq!(priorities, [255, 255, 255, 1, 0, 0, 0]);
    }

    #[test]
    fn expiration_is_between_one_and_the_rabbitmq_maximum() {
        let at = |millisecond: i64| Timestamp::from_millisecond(millisecond).expect("a time");
        let left = |expires_at: i64| expiration(at(expires_at), at(1_000_000));
        assert_eq!(left(1_000_500).as_deref(), Some("500"));
        assert_eq!(left(999_000).as_deref(), Some("1"));
        assert_eq!(
            left(1_000_000 + (1 << 32) - 1).as_deref(),
            Some("4294967295")
        );
        assert_eq!(left(1_000_000 + (1 << 32)), None);
    }
}
