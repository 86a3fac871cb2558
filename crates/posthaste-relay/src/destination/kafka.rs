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

/// Asking for the cluster's metadata takes no longer than this.
const ASK: Duration = Duration::from_secs(4);

/// Settings of the client, unless the route says otherwise: the times are such that a relay finds
/// out within its own.
const SETTINGS: [(&str, &str); 9] = [
    ("client.id", "posthaste"),
    ("enable.idempotence", "true"),
    ("acks", "all"),
    ("message.timeout.ms", "20000"),
    // A batch is there at once; nobody else's messages are waited for.
    ("linger.ms", "1"),
    ("message.max.bytes", "16000000"),
    // A topic that is to be created by the first message needs a moment; one that there is not is
    // not waited for longer.
    ("topic.metadata.propagation.max.ms", "2000"),
    ("reconnect.backoff.max.ms", "1000"),
    // As Java's clients place keys.
    ("partitioner", "murmur2_random"),
];

/// What no route may say otherwise: an acknowledgement would mean less than is promised.
const FIXED: [&str; 5] = [
    "bootstrap.servers",
    "metadata.broker.list",
    "enable.idempotence",
    "acks",
    "request.required.acks",
];

/// Topics of Kafka.
///
/// | of the record | comes |
/// |---|---|
/// | topic | what the mapping says, the job's name unless it says something |
/// | key | the job's ordering key, none without one |
/// | value | the payload, byte by byte |
/// | header `id` | the delivery id: for `posthaste.confirm`, or `posthaste.inbox` |
/// | header `name` | the job's name |
/// | headers | what the mapping says, and the trace context |
///
/// The producer is idempotent: what its client sends again by itself arrives once. What the relay
/// sends again, after a lost answer or its own end, arrives twice, for which Kafka has no window:
/// an effect that must happen once is recorded in `posthaste.inbox` by the consumer.
///
/// Accepted is what all in-sync replicas have (`acks=all`); how many these are is the topic's
/// `min.insync.replicas`. A topic that there is not makes a record wait as if it had failed,
/// because the one that runs the cluster may create it yet. While the account lacks a right, jobs
/// wait and count as no attempt. A record that is larger than the topic takes, and a topic with an
/// impossible name, are rejected permanently.
///
/// Records with one key go to one partition, the one that Java's clients would choose, and stay in
/// order there.
///
/// The client is librdkafka, here without OpenSSL: no TLS, and of SASL PLAIN alone. What it was
/// built without is refused where it is set.
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
    /// Where to begin: `kafka://host:port`, or `host:port`; several brokers of a cluster with
    /// commas between them.
    pub fn new(brokers: &str) -> Result<Self, Error> {
        let brokers = brokers.strip_prefix("kafka://").unwrap_or(brokers);
        let brokers = brokers.trim_end_matches('/');
        // Who writes a password here would read it in the label; SASL has settings of its own.
        if brokers.is_empty() || brokers.contains(['@', '/']) {
            let shape = "must be kafka://host:port,host:port; a user goes into the settings \
                         sasl.username and sasl.password";
            return Err(Error::invalid("url", shape));
        }
        let mut config = ClientConfig::new();
        for (name, value) in SETTINGS {
            config.set(name, value);
        }
        config.set("bootstrap.servers", brokers);
        // What it complains of comes as an answer.
        config.set_log_level(RDKafkaLogLevel::Emerg);
        Ok(Self {
            brokers: brokers.into(),
            config,
            link: SharedConnection::default(),
        })
    }

    /// A setting of librdkafka: `sasl.username`, `compression.type`. Refused for those on which the
    /// promise rests.
    pub fn set(mut self, name: &str, value: &str) -> Result<Self, Error> {
        if FIXED.contains(&name) {
            return Err(Error::invalid(
                "setting",
                format!("{name} is set by the relay"),
            ));
        }
        self.config.set(name, value);
        if let Some(problem) = self.missing_client_feature() {
            return Err(Error::invalid("setting", problem));
        }
        // The client says what it does not know; the value may be a password.
        match self.config.create_native_config() {
            Ok(_) => Ok(self),
            Err(_) => Err(Error::invalid(
                "setting",
                format!("Kafka's client does not take this value of {name:?}"),
            )),
        }
    }

    /// What the settings ask for that this client was built without, by its own word.
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
        self.link.open(is_alive, async || self.create()).await
    }

    fn create(&self) -> Result<Producer, String> {
        let down = Outage::default();
        let context = Context { down: down.clone() };
        let producer = self.config.create_with_context(context);
        Ok(Producer {
            producer: Some(producer.map_err(|error| report::describe(&error))?),
            down,
        })
    }
}

/// A client of Kafka with its threads and connections.
struct Producer {
    /// There until it is dropped.
    producer: Option<FutureProducer<Context>>,
    down: Outage,
}

/// No broker can be reached any more, or none takes anything of this client.
#[derive(Clone, Default)]
struct Outage {
    token: CancellationToken,
    /// Why the brokers refused the client, if they reported it.
    refused: Arc<OnceLock<String>>,
}

impl Outage {
    /// Why nothing comes of what was asked.
    fn reason(&self, otherwise: &str) -> Reason {
        match self.refused.get() {
            Some(refused) => Reason::new(Failure::Auth, format!("{otherwise} ({refused})")),
            None => Reason::new(Failure::Connect, otherwise),
        }
    }
}

/// Hears of brokers that cannot be reached, which no message hears of before its time is over.
struct Context {
    down: Outage,
}

impl ClientContext for Context {
    fn error(&self, error: KafkaError, _reason: &str) {
        use RDKafkaErrorCode::{AllBrokersDown, Authentication, Fatal, SaslAuthenticationFailed};
        match error.rdkafka_error_code() {
            Some(AllBrokersDown | Fatal) => self.down.token.cancel(),
            Some(Authentication | SaslAuthenticationFailed) => {
                // The first error is as good as later ones.
                let _ = self.down.refused.set(report::describe(&error));
            }
            _ => {}
        }
    }
}

impl Producer {
    fn client(&self) -> Result<&FutureProducer<Context>, String> {
        self.producer
            .as_ref()
            .ok_or_else(|| "Kafka: the client has ended".to_owned())
    }

    /// Puts a message into the client's queue; its answer if that is known already.
    fn produce(&self, message: &Message) -> Result<DeliveryFuture, Answer> {
        if let Some(problem) = report::topic_problem(&message.kind) {
            let reason = format!("the topic {:?} {problem}", message.kind);
            return Err(Answer::rejected(reason));
        }
        if let Some(reason) = message.header_problem(report::rejects_header) {
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
        // It is alone: the client itself checks its size.
        client
            .send_result(record)
            .map_err(|(error, _)| self.judge(&error, true))
    }

    /// What became of a message: a client that has ended by itself, as it does where a right is
    /// missing, only says of its messages that it has dropped them.
    fn judge(&self, error: &KafkaError, is_alone: bool) -> Answer {
        use RDKafkaErrorCode::{Fatal, MessageTimedOut, PurgeInflight, PurgeQueue};
        let code = error.rdkafka_error_code();
        // Without a login nothing is sent until its time is over.
        if let (Some(MessageTimedOut), Some(refused)) = (code, self.down.refused.get()) {
            return Answer::denied(format!(
                "{refused}: correct sasl.username and sasl.password"
            ));
        }
        match (code, self.fatal()) {
            (Some(Fatal | PurgeInflight | PurgeQueue), Some(cause)) => {
                report::answer(&cause, is_alone)
            }
            _ => report::answer(error, is_alone),
        }
    }

    /// Why the client has ended by itself, if it has.
    fn fatal(&self) -> Option<KafkaError> {
        let (code, _) = self.client().ok()?.client().fatal_error()?;
        Some(KafkaError::Global(code))
    }

    /// Why the outcome of messages in flight is unknown.
    fn lost(&self) -> Answer {
        match self.fatal() {
            Some(cause) => report::answer(&cause, false),
            None => Answer::unavailable(self.down.reason("Kafka: no broker can be reached")),
        }
    }

    /// What became of each of them.
    async fn send(&self, batch: &[Message]) -> Vec<Answer> {
        let is_alone = batch.len() == 1;
        let produced: Vec<_> = batch.iter().map(|one| self.produce(one)).collect();
        let answers = produced.into_iter().map(async |produced| match produced {
            Err(answer) => answer,
            Ok(delivery) => match delivery.await {
                Ok(Ok(_)) => Answer::Accepted,
                Ok(Err((error, _))) => self.judge(&error, is_alone),
                Err(_) => Answer::unavailable("Kafka: the client has ended"),
            },
        });
        tokio::select! {
            answers = join_all(answers) => answers,
            () = self.down.token.cancelled() => self.lost().repeat_for(batch),
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        let Some(producer) = self.producer.take() else {
            return;
        };
        // What was not answered is sent again by the relay, so the client must not send it later.
        // Its threads take a moment to end.
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
            // A broker refuses all records that came in one request, also those of other batches.
            if let [Answer::Rejected { .. }] = answers[..] {
                let alone = self.create();
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

    fn rejects_header(&self, name: &str) -> Option<String> {
        report::rejects_header(name)
    }

    fn rejects(&self, message: &Message) -> Option<String> {
        let problem = report::topic_problem(&message.kind);
        let problem = problem.map(|problem| format!("the topic {:?} {problem}", message.kind));
        problem.or_else(|| message.header_problem(report::rejects_header))
    }

    fn misconfiguration(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(async {
            // A client that its settings let nobody make is never there.
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
            // It blocks its thread, and what it knows it does not ask again: a client that has
            // failed is not asked, because it was dropped.
            let asked = move || client.client().fetch_cluster_id(ASK).is_some();
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
