//! NATS JetStream: a message is stored in a stream once it is acknowledged, and only once within
//! the stream's duplicate window.

mod connection;
mod credentials;
mod wire;

use std::time::Duration;

use async_nats::{ConnectErrorKind, Event, HeaderMap, Request, RequestErrorKind, ServerAddr};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use posthaste::Error;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::destination::answer::Answer;
use crate::destination::contract::{Destination, UnsafeSetting};
use crate::destination::pipeline::join_in_order;
use crate::destination::reason::{Failure, Reason};
use crate::destination::shared_connection::{ConnectionGuard, SharedConnection};
use crate::message::Message;
use connection::NatsConnection;

/// Timeout of a connection attempt: an address may drop packets silently.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A subject that a stream of NATS JetStream stores.
///
/// | part of the message | source |
/// |---|---|
/// | subject | the mapping; the job's name by default |
/// | payload | the payload |
/// | `Nats-Msg-Id` | the delivery id: for `posthaste.confirm`, or `posthaste.inbox` |
/// | `Nats-Expected-Stream` | the name of the [`stream`](Self::stream), if it is set |
/// | headers | the mapping, and the trace context |
///
/// A stream drops a message whose id it has seen within its `duplicate_window`, two minutes by
/// default. A message that is sent again after that arrives twice. A relay is refused if the window
/// is shorter than the route's longest outage, a day by default, or if the stream is not named and
/// so cannot be checked, unless the setting is allowed by name.
///
/// A message is accepted when the stream has acknowledged it, also as a duplicate. NATS answers
/// before its disk does (`sync_interval`), so a crash of all machines that hold the stream loses
/// the last messages. If no stream stores the subject, or another one than expected, the message is
/// retried as if it had failed, because an operator may still create the stream. A message that is
/// too large is rejected permanently. While a stream has no leader, or is full and refuses new
/// messages, and while the account lacks a permission, jobs wait and no attempt is counted.
///
/// The account must be allowed to publish to the subjects and to `$JS.API.INFO`, to subscribe to
/// `_INBOX.>`, and to publish to `$JS.API.STREAM.NAMES` and `$JS.API.STREAM.INFO.*`, to read a
/// stream's settings.
///
/// ```
/// use posthaste_relay::{Mapping, Nats, Relay, Template};
/// # fn main() -> Result<(), posthaste::Error> {
/// let nats = Nats::new("nats://127.0.0.1:4222")?.stream("MAILS");
/// let mapping = Mapping::default().kind(Template::parse("mails.{kwargs.kind}")?);
/// let relay = Relay::to(nats).mapping(mapping).batch(100);
/// # Ok(()) }
/// ```
pub struct Nats {
    servers: Vec<ServerAddr>,
    credentials: Option<String>,
    domain: Option<String>,
    stream: Option<String>,
    link: SharedConnection<NatsConnection>,
    /// The last message that was refused because a stream was full: nothing is sent until the
    /// stream has room.
    full: Mutex<Option<FullStream>>,
}

#[derive(Clone)]
struct FullStream {
    subject: String,
    bytes: u64,
}

impl Nats {
    /// Connects to `nats://user:password@host:port`, `nats://token@host:port`, or `tls://`, for
    /// which the program must install a provider of rustls. Several servers of a cluster are
    /// separated by commas; the login and the TLS of the first apply to all. Reserved characters
    /// are percent-encoded.
    pub fn new(urls: &str) -> Result<Self, Error> {
        // The address may hold a password: the error does not repeat it.
        let servers: Result<Vec<ServerAddr>, _> =
            urls.split(',').map(|url| url.trim().parse()).collect();
        Ok(Self {
            servers: servers.map_err(|_| Error::invalid("url", "must be nats://host:port"))?,
            credentials: None,
            domain: None,
            stream: None,
            link: SharedConnection::default(),
            full: Mutex::default(),
        })
    }

    /// Sets the content of a `.creds` file.
    pub fn credentials(self, credentials: impl Into<String>) -> Self {
        let credentials = Some(credentials.into());
        Self {
            credentials,
            ..self
        }
    }

    /// Sets the JetStream domain, for example of a leaf node.
    pub fn domain(self, domain: impl Into<String>) -> Self {
        let domain = Some(domain.into());
        Self { domain, ..self }
    }

    /// Sets the stream that must store the messages: no other may, and its settings are checked.
    pub fn stream(self, stream: impl Into<String>) -> Self {
        let stream = Some(stream.into());
        Self { stream, ..self }
    }

    async fn open(&self) -> Result<ConnectionGuard<'_, NatsConnection>, Reason> {
        let is_alive = |live: &NatsConnection| !live.gone.is_cancelled();
        self.link
            .open(is_alive, async || self.connect().await)
            .await
    }

    async fn connect(&self) -> Result<NatsConnection, Reason> {
        let gone = CancellationToken::new();
        let lost = gone.clone();
        let (tell, violations) = watch::channel(Vec::new());
        let connected = credentials::connect_options(&self.servers, self.credentials.as_deref())?
            .name("posthaste")
            .connection_timeout(CONNECT_TIMEOUT)
            // The relay limits the time of requests.
            .request_timeout(None)
            .event_callback(move |event| {
                match event {
                    Event::Disconnected | Event::Closed => lost.cancel(),
                    Event::ServerError(error) => {
                        let violation = wire::parse_violation(&error.to_string());
                        tell.send_if_modified(|known: &mut Vec<wire::Violation>| {
                            wire::add_violation(known, violation)
                        });
                    }
                    _ => {}
                }
                std::future::ready(())
            })
            .connect(&self.servers);
        let client = tokio::time::timeout(CONNECT_TIMEOUT, connected).await;
        let client = client
            .map_err(|_| format!("NATS: no connection within {} s", CONNECT_TIMEOUT.as_secs()))
            .map_err(Reason::timed_out)?
            .map_err(|error| {
                Reason::new(connect_failure(error.kind()), format!("NATS: {error}"))
            })?;
        Ok(NatsConnection {
            client,
            gone,
            violations,
        })
    }

    /// Encodes a message; the error is its permanent rejection.
    fn encode(&self, message: &Message, most: usize) -> Result<HeaderMap, Answer> {
        let refuse = |reason: String| Err(Answer::rejected(reason));
        if let Some(problem) = wire::subject_problem(&message.kind) {
            return refuse(format!("the subject {:?} {problem}", message.kind));
        }
        if let Some(problem) = message.header_problem(wire::header_objection) {
            return refuse(problem);
        }
        let id = message.id.to_string();
        let stream = self.stream.as_deref();
        let stream = stream.map(|stream| ("Nats-Expected-Stream", stream));
        let own = [("Nats-Msg-Id", id.as_str())].into_iter().chain(stream);
        let theirs = message.headers.iter();
        let theirs = theirs.map(|(name, value)| (name.as_str(), value.as_str()));
        let mut headers = HeaderMap::new();
        let mut bytes = message.body().len() + wire::EMPTY_HEADER_BYTES;
        for (name, value) in own.chain(theirs) {
            let Some((name, value, length)) = wire::encode_header(name, value) else {
                return refuse(format!("the header {name:?} cannot be written in a line"));
            };
            headers.insert(name, value);
            bytes += length;
        }
        if bytes > most {
            let reason = format!("it has {bytes} bytes, but NATS allows {most} (max_payload)");
            return Err(Answer::rejected(Reason::new(Failure::TooLarge, reason)));
        }
        Ok(headers)
    }

    /// Publishes one message and waits for its acknowledgement.
    async fn publish(&self, live: &NatsConnection, message: &Message, most: usize) -> Answer {
        let headers = match self.encode(message, most) {
            Ok(headers) => headers,
            Err(refused) => return refused,
        };
        let payload = Bytes::copy_from_slice(message.body());
        let request = Request::new().headers(headers).payload(payload);
        let reply = match live.request(&message.kind, request).await {
            Ok(reply) => reply,
            Err(denied) => return Answer::backpressure(denied),
        };
        match reply {
            Ok(reply) => {
                let (answer, is_full) = wire::answer_from_reply(&reply.payload);
                // One full stream of several does not hold up the others.
                if is_full && self.stream.is_some() {
                    *self.full_stream() = Some(FullStream {
                        subject: message.kind.clone(),
                        bytes: message.body().len() as u64,
                    });
                }
                answer
            }
            Err(error) if error.kind() == RequestErrorKind::NoResponders => {
                self.explain_no_responders(live, &message.kind).await
            }
            Err(error) => {
                let failure = match error.kind() {
                    RequestErrorKind::TimedOut => Failure::Timeout,
                    _ => Failure::Connect,
                };
                Answer::unavailable(Reason::new(failure, format!("NATS: {error}")))
            }
        }
    }

    /// Explains why no server responds to a subject: no stream stores it, or its stream has no
    /// leader.
    async fn explain_no_responders(&self, live: &NatsConnection, subject: &str) -> Answer {
        let streams = self.streams_for(live, subject).await;
        match streams.as_deref() {
            Ok([]) => {
                let reason = format!("NATS has no stream for the subject {subject:?}");
                Answer::retry(Reason::new(Failure::NoRoute, reason))
            }
            Ok([stream, ..]) => {
                Answer::backpressure(format!("NATS: the stream {stream} has no leader"))
            }
            Err(reason) if reason.is_denial() => Answer::backpressure(reason.clone()),
            Err(reason) => Answer::unavailable(reason.clone()),
        }
    }

    /// Returns the names of the streams that store a subject.
    async fn streams_for(
        &self,
        live: &NatsConnection,
        subject: &str,
    ) -> Result<Vec<String>, Reason> {
        let request = serde_json::json!({ "subject": subject }).to_string();
        let names = self
            .request_jetstream(live, "STREAM.NAMES", request)
            .await?;
        names.check_error()?;
        Ok(names.streams)
    }

    /// Sends a request to JetStream; an error if JetStream is not enabled.
    async fn request_jetstream(
        &self,
        live: &NatsConnection,
        what: &str,
        request: String,
    ) -> Result<wire::Reply, Reason> {
        let api = match &self.domain {
            Some(domain) => format!("$JS.{domain}.API"),
            None => "$JS.API".to_owned(),
        };
        let request = Request::new().payload(request.into());
        match live.request(&format!("{api}.{what}"), request).await? {
            Ok(reply) => Ok(wire::Reply::parse(&reply.payload)),
            Err(error) if error.kind() == RequestErrorKind::NoResponders => {
                Err("NATS: JetStream is not enabled for this account".into())
            }
            Err(error) => Err(format!("NATS: {error}").into()),
        }
    }

    /// Checks whether the full stream has room again.
    async fn has_room(&self, live: &NatsConnection) -> Result<(), Reason> {
        let Some(full) = self.full_stream().clone() else {
            return Ok(());
        };
        let streams = self.streams_for(live, &full.subject).await?;
        let info = match streams.first() {
            Some(stream) => {
                self.request_jetstream(live, &format!("STREAM.INFO.{stream}"), String::new())
                    .await?
            }
            None => wire::Reply::default(),
        };
        if info.is_full(full.bytes) {
            return Err(format!("NATS: the stream for {:?} is full", full.subject).into());
        }
        *self.full_stream() = None;
        Ok(())
    }

    fn full_stream(&self) -> MutexGuard<'_, Option<FullStream>> {
        self.full.lock()
    }
}

fn connect_failure(error: ConnectErrorKind) -> Failure {
    use ConnectErrorKind::{Authentication, AuthorizationViolation, TimedOut};
    match error {
        Authentication | AuthorizationViolation => Failure::Auth,
        TimedOut => Failure::Timeout,
        _ => Failure::Connect,
    }
}

impl Destination for Nats {
    fn label(&self) -> String {
        let servers = self.servers.iter();
        let servers = servers.map(|server| format!("{}:{}", server.host(), server.port()));
        format!("nats at {}", servers.collect::<Vec<_>>().join(","))
    }

    fn send<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Answer>> {
        Box::pin(async move {
            let live = match self.open().await {
                Ok(live) => live,
                Err(reason) => return Answer::unavailable(reason).repeat_for(batch),
            };
            let most = live.client.server_info().max_payload;
            let publish = |message| self.publish(&live, message, most);
            let sent = join_in_order(batch.iter().map(publish).collect());
            match live.unless_disconnected(sent).await {
                Ok(answers) => {
                    if !answers.iter().any(Answer::is_denial) {
                        live.finish_cleanly();
                    }
                    answers
                }
                Err(reason) => Answer::unavailable(reason).repeat_for(batch),
            }
        })
    }

    fn header_objection(&self, name: &str) -> Option<String> {
        wire::header_objection(name)
    }

    fn rejection_reason(&self, message: &Message) -> Option<String> {
        match self.encode(message, usize::MAX) {
            Err(Answer::Rejected { reason }) => Some(reason.into()),
            _ => None,
        }
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            let live = self.open().await?;
            let checked = async {
                let info = self.request_jetstream(&live, "INFO", String::new()).await?;
                info.check_error()?;
                self.has_room(&live).await
            };
            let outcome: Result<(), Reason> = live.unless_disconnected(checked).await?;
            if !outcome.as_ref().is_err_and(Reason::is_denial) {
                live.finish_cleanly();
            }
            Ok(outcome?)
        })
    }

    fn unsafe_settings(
        &self,
        longest_outage: Duration,
    ) -> BoxFuture<'_, Result<Vec<UnsafeSetting>, Error>> {
        Box::pin(async move {
            let Some(stream) = &self.stream else {
                return Ok(vec![wire::unknown_stream_setting()]);
            };
            let checked = async {
                let live = self.open().await?;
                let info = format!("STREAM.INFO.{stream}");
                let asked = self.request_jetstream(&live, &info, String::new());
                let info = live.unless_disconnected(asked).await?;
                if !info.as_ref().is_err_and(Reason::is_denial) {
                    live.finish_cleanly();
                }
                info?.unsafe_settings(longest_outage)
            };
            let checked: Result<Vec<UnsafeSetting>, String> = checked.await;
            checked.map_err(|reason| Error::invalid("stream", reason))
        })
    }
}
