//! Kafka: records that all in-sync replicas have, through an idempotent producer.

mod report;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use posthaste::Error;
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{DeliveryFuture, FutureProducer, FutureRecord, Producer as _, PurgeConfig};
use tokio_util::sync::CancellationToken;

use crate::destination::answer::Answer;
use crate::destination::contract::Destination;
use crate::destination::reason::{Failure, Reason};
use crate::destination::shared_connection::{ConnectionGuard, SharedConnection};
use crate::message::Message;

/// Timeout of a request for the cluster's metadata.
const METADATA_TIMEOUT: Duration = Duration::from_secs(4);

/// Default settings of the client. Its timeouts are shorter than the relay's, so that the relay
/// gets the client's error.
const DEFAULT_SETTINGS: [(&str, &str); 9] = [
    ("client.id", "posthaste"),
    ("enable.idempotence", "true"),
    ("acks", "all"),
    ("message.timeout.ms", "20000"),
    // A batch arrives at once; waiting for more messages gains nothing.
    ("linger.ms", "1"),
    ("message.max.bytes", "16000000"),
    // A topic that the first message creates needs a moment; a topic that does not exist is not
    // awaited for longer.
    ("topic.metadata.propagation.max.ms", "2000"),
    ("reconnect.backoff.max.ms", "1000"),
    // Places keys as Java's clients do.
    ("partitioner", "murmur2_random"),
];

/// Settings that no route may change: an acknowledgement would no longer guarantee what is
/// documented.
const FIXED_SETTINGS: [&str; 5] = [
    "bootstrap.servers",
    "metadata.broker.list",
    "enable.idempotence",
    "acks",
    "request.required.acks",
];

/// Topics of Kafka.
///
/// | part of the record | source |
/// |---|---|
/// | topic | the mapping; the job's name by default |
/// | key | the job's ordering key, if it has one |
/// | value | the payload, byte by byte |
/// | header `id` | the delivery id: for `posthaste.confirm`, or `posthaste.inbox` |
/// | header `name` | the job's name |
/// | headers | the mapping, and the trace context |
///
/// The producer is idempotent: records that the client sends again arrive once. Records that the
/// relay sends again, after a lost answer or its own end, arrive twice, because Kafka has no
/// duplicate window: an effect that must happen once is recorded in `posthaste.inbox` by the
/// consumer.
///
/// A record is accepted when all in-sync replicas have it (`acks=all`); their least number is the
/// topic's `min.insync.replicas`. If the topic does not exist, the record is retried as if it had
/// failed, because an operator may still create it. While the account lacks a permission, jobs wait
/// and no attempt is counted. A record that is too large for the topic, and an invalid name of a
/// topic, are rejected permanently.
///
/// Records with the same key are sent to the same partition, the one that Java's clients would
/// choose, and stay in order there.
///
/// The client is librdkafka, built without OpenSSL: without TLS, and with PLAIN as the only SASL
/// mechanism. A setting that needs a missing feature is refused.
///
/// ```
/// use posthaste_relay::{Kafka, Mapping, Relay, Template};
/// # fn main() -> Result<(), posthaste::Error> {
/// let kafka = Kafka::new("127.0.0.1:9092")?.set("compression.type", "gzip")?;
/// let mapping = Mapping::default().kind(Template::text("mails"));
/// let relay = Relay::to(kafka).mapping(mapping).batch(500);
/// # Ok(()) }
/// ```
pub struct Kafka {
    brokers: String,
    config: ClientConfig,
    link: SharedConnection<Producer>,
}

impl Kafka {
    /// Sets the bootstrap brokers: `kafka://host:port`, or `host:port`; several brokers of a
    /// cluster are separated by commas.
    pub fn new(brokers: &str) -> Result<Self, Error> {
        let brokers = brokers.strip_prefix("kafka://").unwrap_or(brokers);
        let brokers = brokers.trim_end_matches('/');
        // A password here would appear in the label; SASL has its own settings.
        if brokers.is_empty() || brokers.contains(['@', '/']) {
            let shape = "must be kafka://host:port,host:port; a user goes into the settings \
                         sasl.username and sasl.password";
            return Err(Error::invalid("url", shape));
        }
        let mut config = ClientConfig::new();
        for (name, value) in DEFAULT_SETTINGS {
            config.set(name, value);
        }
        config.set("bootstrap.servers", brokers);
        // Errors of the client are returned as answers.
        config.set_log_level(RDKafkaLogLevel::Emerg);
        Ok(Self {
            brokers: brokers.into(),
            config,
            link: SharedConnection::default(),
        })
    }

    /// Sets a property of librdkafka: `sasl.username`, `compression.type`. Fails for those on which
    /// the guarantees depend.
    pub fn set(mut self, name: &str, value: &str) -> Result<Self, Error> {
        if FIXED_SETTINGS.contains(&name) {
            return Err(Error::invalid(
                "setting",
                format!("{name} is set by the relay"),
            ));
        }
        self.config.set(name, value);
        if let Some(problem) = self.missing_client_feature() {
            return Err(Error::invalid("setting", problem));
        }
        // The error of the client may contain the value, which may be a password.
        match self.config.create_native_config() {
            Ok(_) => Ok(self),
            Err(_) => Err(Error::invalid(
                "setting",
                format!("the Kafka client does not accept this value of {name:?}"),
            )),
        }
    }

    /// Returns the problem if the settings need a feature that this client was built without.
    fn missing_client_feature(&self) -> Option<String> {
        let built = ClientConfig::new().create_native_config().ok()?;
        let features = built.get("builtin.features").ok()?;
        let mechanism = self.config.get("sasl.mechanism");
        let mechanism = mechanism.or_else(|| self.config.get("sasl.mechanisms"));
        let protocol = self.config.get("security.protocol").unwrap_or_default();
        report::missing_feature(&features, &protocol.to_lowercase(), mechanism)
    }

    async fn open(&self) -> Result<ConnectionGuard<'_, Producer>, String> {
        let is_alive = |producer: &Producer| !producer.down.token.is_cancelled();
        self.link
            .open(is_alive, async || self.create_producer())
            .await
    }

    fn create_producer(&self) -> Result<Producer, String> {
        let down = Outage::default();
        let context = ErrorRecorder { down: down.clone() };
        let producer = self.config.create_with_context(context);
        Ok(Producer {
            producer: Some(producer.map_err(|error| report::describe_error(&error))?),
            down,
        })
    }
}

/// A client of Kafka with its threads and connections.
struct Producer {
    /// `Some` until it is dropped.
    producer: Option<FutureProducer<ErrorRecorder>>,
    down: Outage,
}

/// The state in which no broker can be reached, or none accepts anything from this client.
#[derive(Clone, Default)]
struct Outage {
    token: CancellationToken,
    /// The reason why the brokers refused the client, if they reported it.
    refused: Arc<OnceLock<String>>,
}

impl Outage {
    /// Returns why a request had no result.
    fn reason(&self, otherwise: &str) -> Reason {
        match self.refused.get() {
            Some(refused) => Reason::new(Failure::Auth, format!("{otherwise} ({refused})")),
            None => Reason::new(Failure::Connect, otherwise),
        }
    }
}

/// Records that brokers cannot be reached; messages get no such error before they time out.
struct ErrorRecorder {
    down: Outage,
}

impl ClientContext for ErrorRecorder {
    fn error(&self, error: KafkaError, _reason: &str) {
        use RDKafkaErrorCode::{AllBrokersDown, Authentication, Fatal, SaslAuthenticationFailed};
        match error.rdkafka_error_code() {
            Some(AllBrokersDown | Fatal) => self.down.token.cancel(),
            Some(Authentication | SaslAuthenticationFailed) => {
                // Later errors add no information.
                let _ = self.down.refused.set(report::describe_error(&error));
            }
            _ => {}
        }
    }
}

impl Producer {
    fn client(&self) -> Result<&FutureProducer<ErrorRecorder>, String> {
        self.producer
            .as_ref()
            .ok_or_else(|| "Kafka: the client has ended".to_owned())
    }

    /// Adds a message to the client's queue; the error is its answer if that is known already.
    fn produce(&self, message: &Message) -> Result<DeliveryFuture, Answer> {
        if let Some(problem) = report::topic_problem(&message.kind) {
            let reason = format!("the topic {:?} {problem}", message.kind);
            return Err(Answer::rejected(reason));
        }
        if let Some(reason) = message.header_problem(report::header_objection) {
            return Err(Answer::rejected(reason));
        }
        let id = message.id.to_string();
        let own = [("id", id.as_str()), ("name", &message.job.name)];
        let theirs = message.headers.iter();
        let theirs = theirs.map(|(name, value)| (name.as_str(), value.as_str()));
        let mut headers = OwnedHeaders::new();
        for (key, value) in own.into_iter().chain(theirs) {
            let value = Some(value);
            headers = headers.insert(Header { key, value });
        }
        let mut record: FutureRecord<'_, str, [u8]> = FutureRecord::to(&message.kind)
            .payload(message.body())
            .headers(headers);
        if let Some(key) = &message.job.ordering_key {
            record = record.key(&**key);
        }
        let client = self.client().map_err(Answer::unavailable)?;
        // No other record affects this error: the client checks the size of each record.
        client
            .send_result(record)
            .map_err(|(error, _)| self.answer_from_error(&error, true))
    }

    /// Returns the answer for an error. A client that ended by itself, as it does if a permission
    /// is missing, only reports that it purged its messages; the cause is its fatal error.
    fn answer_from_error(&self, error: &KafkaError, is_alone: bool) -> Answer {
        use RDKafkaErrorCode::{Fatal, MessageTimedOut, PurgeInflight, PurgeQueue};
        let code = error.rdkafka_error_code();
        // Without authentication messages are not sent and time out.
        if let (Some(MessageTimedOut), Some(refused)) = (code, self.down.refused.get()) {
            return Answer::denied(format!(
                "{refused}: correct sasl.username and sasl.password"
            ));
        }
        match (code, self.fatal_error()) {
            (Some(Fatal | PurgeInflight | PurgeQueue), Some(cause)) => {
                report::answer_from_error(&cause, is_alone)
            }
            _ => report::answer_from_error(error, is_alone),
        }
    }

    /// Returns why the client has ended by itself, if it has.
    fn fatal_error(&self) -> Option<KafkaError> {
        let (code, _) = self.client().ok()?.client().fatal_error()?;
        Some(KafkaError::Global(code))
    }

    /// Returns why the outcome of messages in flight is unknown.
    fn answer_for_lost(&self) -> Answer {
        match self.fatal_error() {
            Some(cause) => report::answer_from_error(&cause, false),
            None => Answer::unavailable(self.down.reason("Kafka: no broker can be reached")),
        }
    }

    /// Sends messages; returns an answer for each.
    async fn send(&self, batch: &[Message]) -> Vec<Answer> {
        let is_alone = batch.len() == 1;
        let produced: Vec<_> = batch.iter().map(|one| self.produce(one)).collect();
        let answers = produced.into_iter().map(async |produced| match produced {
            Err(answer) => answer,
            Ok(delivery) => match delivery.await {
                Ok(Ok(_)) => Answer::Accepted,
                Ok(Err((error, _))) => self.answer_from_error(&error, is_alone),
                Err(_) => Answer::unavailable("Kafka: the client has ended"),
            },
        });
        tokio::select! {
            answers = join_all(answers) => answers,
            () = self.down.token.cancelled() => self.answer_for_lost().repeat_for(batch),
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        let Some(producer) = self.producer.take() else {
            return;
        };
        // The relay sends unanswered messages again, so the client must not send them later. Its
        // threads take a moment to end.
        std::thread::spawn(move || {
            producer.purge(PurgeConfig::default().queue().inflight());
        });
    }
}

impl Destination for Kafka {
    fn label(&self) -> String {
        format!("kafka at {}", self.brokers)
    }

    fn send<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Answer>> {
        Box::pin(async move {
            let producer = match self.open().await {
                Ok(producer) => producer,
                Err(reason) => return Answer::unavailable(reason).repeat_for(batch),
            };
            let mut answers = producer.send(batch).await;
            // A broker refuses all records of a request together, including those of other batches.
            if let [Answer::Rejected { .. }] = answers[..] {
                let alone = self.create_producer();
                answers = match &alone {
                    Ok(alone) => alone.send(batch).await,
                    Err(reason) => Answer::unavailable(reason.clone()).repeat_for(batch),
                };
            }
            let is_lost = |answer: &Answer| {
                matches!(
                    answer,
                    Answer::Unavailable { .. } | Answer::Backpressure { .. }
                )
            };
            if !answers.iter().any(is_lost) {
                producer.finish_cleanly();
            }
            answers
        })
    }

    fn header_objection(&self, name: &str) -> Option<String> {
        report::header_objection(name)
    }

    fn rejection_reason(&self, message: &Message) -> Option<String> {
        let problem = report::topic_problem(&message.kind);
        let problem = problem.map(|problem| format!("the topic {:?} {problem}", message.kind));
        problem.or_else(|| message.header_problem(report::header_objection))
    }

    fn misconfiguration(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(async {
            // A client that its settings do not allow to be created can never be used.
            match self.open().await {
                Ok(producer) => {
                    producer.finish_cleanly();
                    None
                }
                Err(reason) => Some(reason),
            }
        })
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            let producer = self.open().await?;
            let client = producer.client()?.clone();
            // This blocks its thread. The client answers from its cache if it can: a failed client
            // is not asked, because it was dropped.
            let asked = move || client.client().fetch_cluster_id(METADATA_TIMEOUT).is_some();
            let asked = tokio::task::spawn_blocking(asked);
            let is_there = tokio::select! {
                asked = asked => asked.unwrap_or(false),
                () = producer.down.token.cancelled() => false,
            };
            if !is_there {
                return Err(producer.down.reason("Kafka: no broker answers").into());
            }
            producer.finish_cleanly();
            Ok(())
        })
    }
}
