//! A route of a configuration file: the queue, the destination and its settings. Pure, except for
//! the destination that it creates, which connects later.

mod address;
mod open;
pub(crate) mod preview;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use posthaste::Error;
use posthaste::settings::Fields;
use serde_json::Value;

use crate::destination::contract::{DEFAULT_LONGEST_OUTAGE, Destination};
use crate::engine::builder::RelayBuilder;
use crate::engine::builder::reserved_header;
use crate::engine::options::{Ack, DEFAULT_TIME_LIMIT, OnAmbiguous};
use crate::engine::relay::Relay;
use crate::engine::sender::Sender;
use crate::message::mapping::Mapping;
use crate::message::template::Template;
use address::DestinationAddress;

/// The default time within which an effect must be confirmed.
const DEFAULT_LEASE: Duration = Duration::from_secs(300);

/// A route of a configuration file: sends the jobs of a queue to a destination.
///
/// | setting | meaning |
/// |---|---|
/// | `to` | the destination's address, see below; the only required setting |
/// | `queue` | the queue whose jobs are sent; the route's name by default |
/// | `ordered` | `true`: one relay at a time, in order; `false`: any number of relays, no order |
/// | `ack` | `accepted` (done when the destination has it) or `confirmed` (when `posthaste.confirm` or `posthaste.receive` was called) |
/// | `lease` | with `confirmed`: how long the confirmation may take until the job is sent again; 5 minutes |
/// | `batch`, `concurrency` | messages sent together (10), batches in flight (4) |
/// | `time_limit` | how long a batch may take (30 s) |
/// | `longest_outage` | the outage after which duplicates must still be detected (24 h) |
/// | `on_ambiguous` | `resend`, or for mail `discard`, messages that may have arrived |
/// | `allow_unsafe` | settings of the destination that are allowed to break the guarantees |
/// | `kind`, or as the destination calls it | `class` (Sidekiq), `type` (asynq), `name` (BullMQ), `task` (Celery), `routing_key` (RabbitMQ), `subject` (NATS), `topic` (Kafka): a [`Template`]; a webhook has none |
/// | `receiver_queue` | the receiver's queue; RabbitMQ's `exchange`: a [`Template`] |
/// | `headers`, `payload` | a table of [`Template`]s, and a single one |
/// | `resolve` | SQL by table, see [`RelayBuilder::resolve`]; needs [`RelayBuilder::database`] |
/// | `keep` | how long done jobs, and with them rows of `posthaste.outbox`, stay: [`Route::keep`] |
/// | `at` | when the receiver runs it, see [`Mapping::at`]: a [`Template`] |
///
/// For TLS the program must install a provider of rustls first.
///
/// Every other setting must be an option of the destination. Times are written `"30s"`, `"5m"`,
/// `"24h"`, `"7d"`, or as a number of seconds.
///
/// | `to` | destination | its options |
/// |---|---|---|
/// | `sidekiq://host:port/db` | Sidekiq; `sidekiq+rediss://` over TLS | `retry` and `backtrace` (true, false or a number), `tags` (a list), `dead` (true or false), `times` (`seconds`, `milliseconds`) |
/// | `asynq://…` | asynq; `asynq+rediss://` | `max_retry`, `timeout`, `deadline` (true or false), `retention` |
/// | `bullmq://…` | BullMQ; `bullmq+rediss://` | `prefix`, `attempts`, `fixed_backoff`, `exponential_backoff`, `remove_on_complete`, `remove_on_fail` |
/// | `celery+redis://…`, `celery+amqp://…` | Celery; `celery+rediss://`, `celery+amqps://` | `task_time_limit`, `task_soft_time_limit`, `expires` (true or false) |
/// | `amqp://…`, `amqps://…` | RabbitMQ | `expires` (true or false) |
/// | `nats://…`, `nats+tls://…` | NATS JetStream | `credentials`, `domain`, `stream` |
/// | `kafka://host:port,host:port` | Kafka | `settings`: a table of librdkafka's |
/// | `https://…`, `http://…` | a webhook | `secrets`, `networks` (private ones that may be reached), `request_time_limit`, `requests` (at once), `again_on_client_errors` (true or false) |
/// | `smtp://…`, `smtps://…` | mail | `mail_from`, `mail_to`: used unless the headers are set |
/// | `stdout:` | lines of JSON | |
///
/// ```
/// use posthaste_relay::Route;
/// # fn main() -> Result<(), posthaste::Error> {
/// let settings = serde_json::json!({"to": "stdout:", "queue": "audit", "kind": "audit.{name}"});
/// let route = Route::read("audit", settings.as_object().into_iter().flatten())?;
/// assert_eq!((route.name(), route.queue(), route.label()), ("audit", "audit", "lines".into()));
/// let relay = route.relay().batch(100);
/// # Ok(()) }
/// ```
pub struct Route {
    name: String,
    queue: String,
    destination: Arc<dyn Destination>,
    settings: RouteSettings,
}

#[derive(Debug, Default)]
struct RouteSettings {
    mapping: Mapping,
    batch: Option<usize>,
    concurrency: Option<usize>,
    time_limit: Option<Duration>,
    longest_outage: Option<Duration>,
    ordered: bool,
    ack: Ack,
    on_ambiguous: OnAmbiguous,
    allow_unsafe: Vec<String>,
    resolve: BTreeMap<String, String>,
    keep: Option<Duration>,
}

impl Route {
    /// Reads the settings of the route of this name. The error names the setting and never its
    /// value, which may be a secret.
    pub fn read<'a>(
        name: &str,
        settings: impl IntoIterator<Item = (&'a String, &'a Value)>,
    ) -> Result<Self, Error> {
        let settings = settings.into_iter();
        let settings = settings.map(|(name, value)| (name.clone(), value.clone()));
        read_route(name, Fields::new(settings.collect()))
            .map_err(|problem| Error::config(format!("route {name}: {problem}")))
    }

    /// Returns the name of the route.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the queue whose jobs are sent.
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// Returns the destination's kind and address for people, without secrets.
    pub fn label(&self) -> String {
        self.destination.label()
    }

    /// Returns how a message is made from a job.
    pub fn mapping(&self) -> &Mapping {
        &self.settings.mapping
    }

    /// Returns the destination of its messages.
    pub(crate) fn destination(&self) -> &dyn Destination {
        &*self.destination
    }

    /// Returns the statements that read the rows to which jobs refer, by table.
    pub(crate) fn statements(&self) -> &BTreeMap<String, String> {
        &self.settings.resolve
    }

    /// Returns how long the queue keeps its done jobs, if the route sets it: for `posthaste.keep`.
    pub fn keep(&self) -> Option<Duration> {
        self.settings.keep
    }

    /// Creates a sender of messages without jobs by this route, beside its relay. Fails if such a
    /// message could differ from that of a job or lose its place in the order.
    pub fn sender(&self) -> Result<Sender, Error> {
        let settings = &self.settings;
        let refuse = |problem: String| {
            let name = &self.name;
            Err(Error::config(format!("route {name}: {problem}")))
        };
        if !settings.ordered {
            return refuse("ordered: must be true to send without jobs".into());
        }
        if settings.ack != Ack::Accepted {
            return refuse("ack: only a job can wait to be confirmed".into());
        }
        if settings.on_ambiguous == OnAmbiguous::Discard {
            let problem = "on_ambiguous: without jobs, a message that may have arrived is always \
                           sent again";
            return refuse(problem.into());
        }
        if let Some(place) = settings.mapping.per_job_placeholder() {
            return refuse(format!("{place}: exists only for jobs"));
        }
        Ok(Sender {
            destination: Arc::clone(&self.destination),
            mapping: settings.mapping.clone(),
            queue: self.queue.as_str().into(),
            batch: settings.batch,
            time_limit: settings.time_limit.unwrap_or(DEFAULT_TIME_LIMIT),
            longest_outage: settings.longest_outage.unwrap_or(DEFAULT_LONGEST_OUTAGE),
            allowed: settings.allow_unsafe.clone(),
        })
    }

    /// Builds the relay that the route describes.
    pub fn relay(self) -> RelayBuilder {
        let RouteSettings {
            mapping,
            batch,
            concurrency,
            time_limit,
            longest_outage,
            ordered,
            ack,
            on_ambiguous,
            allow_unsafe,
            resolve,
            keep: _,
        } = self.settings;
        let mut relay = Relay::to_any(self.destination)
            .name(self.name)
            .mapping(mapping)
            .ordered(ordered)
            .ack(ack)
            .on_ambiguous(on_ambiguous);
        if let Some(messages) = batch {
            relay = relay.batch(messages);
        }
        if let Some(batches) = concurrency {
            relay = relay.concurrency(batches);
        }
        if let Some(limit) = time_limit {
            relay = relay.time_limit(limit);
        }
        for (table, statement) in resolve {
            relay = relay.resolve(table, statement);
        }
        if let Some(outage) = longest_outage {
            relay = relay.longest_outage(outage);
        }
        allow_unsafe
            .into_iter()
            .fold(relay, RelayBuilder::allow_unsafe)
    }
}

/// The address of the destination may be a secret.
impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Route")
            .field("name", &self.name)
            .field("queue", &self.queue)
            .field("to", &self.label())
            .finish_non_exhaustive()
    }
}

fn read_route(name: &str, mut fields: Fields) -> Result<Route, String> {
    let to: String = fields
        .take("to")?
        .ok_or("to: is missing; it is the destination's address")?;
    let to = DestinationAddress::parse(&to).map_err(|problem| format!("to: {problem}"))?;
    let queue = fields.take("queue")?.unwrap_or_else(|| name.to_owned());
    if queue.is_empty() || queue.len() > 255 {
        return Err("queue: must have 1 to 255 bytes".into());
    }
    let settings = RouteSettings {
        mapping: read_mapping(&mut fields, &to)?,
        batch: fields.positive("batch")?,
        concurrency: fields.positive("concurrency")?,
        time_limit: fields.take("time_limit")?,
        longest_outage: fields.take("longest_outage")?,
        ordered: fields.take("ordered")?.unwrap_or_default(),
        ack: read_ack(&mut fields)?,
        on_ambiguous: fields
            .word(
                "on_ambiguous",
                &[
                    ("resend", OnAmbiguous::Resend),
                    ("discard", OnAmbiguous::Discard),
                ],
            )?
            .unwrap_or_default(),
        allow_unsafe: fields.take("allow_unsafe")?.unwrap_or_default(),
        resolve: fields.take("resolve")?.unwrap_or_default(),
        keep: fields.take("keep")?,
    };
    if settings.ordered && settings.concurrency.is_some_and(|batches| batches > 1) {
        return Err("concurrency: an ordered relay sends one batch at a time".into());
    }
    if settings.time_limit.is_some_and(|limit| limit.is_zero()) {
        return Err("time_limit: must be more than 0".into());
    }
    let destination = open::open_destination(&to, &mut fields)?;
    fields.all_known(&format!("a route to {}", to.name()))?;
    // No other destination answers `Ambiguous`.
    if settings.on_ambiguous == OnAmbiguous::Discard && destination.can_deduplicate() {
        return Err(
            "on_ambiguous: only a route to mail can discard a message that may have arrived; other \
             routes send it again under the same id"
                .into(),
        );
    }
    if let Some(problem) = reserved_header(&*destination, &settings.mapping) {
        return Err(problem);
    }
    Ok(Route {
        name: name.to_owned(),
        queue,
        destination,
        settings,
    })
}

fn read_ack(fields: &mut Fields) -> Result<Ack, String> {
    let is_confirmed = fields.word("ack", &[("accepted", false), ("confirmed", true)])?;
    let lease: Option<Duration> = fields.take("lease")?;
    match (is_confirmed, lease) {
        (Some(true), Some(lease)) if lease.is_zero() => Err("lease: must be more than 0".into()),
        (Some(true), lease) => Ok(Ack::Confirmed {
            lease: lease.unwrap_or(DEFAULT_LEASE),
        }),
        (_, Some(_)) => Err("lease: is for ack = \"confirmed\"".into()),
        _ => Ok(Ack::Accepted),
    }
}

fn read_mapping(fields: &mut Fields, to: &DestinationAddress) -> Result<Mapping, String> {
    let mut mapping = Mapping::default();
    if let Some(word) = to.kind_word()
        && let Some(kind) = read_template(fields, ["kind", word])?
    {
        mapping = mapping.kind(kind);
    }
    if let Some(word) = to.queue_word()
        && let Some(queue) = read_template(fields, ["receiver_queue", word])?
    {
        mapping = mapping.queue(queue);
    }
    let headers: Option<BTreeMap<String, String>> = fields.take("headers")?;
    for (name, value) in headers.into_iter().flatten() {
        let value = Template::parse_secret(&value)
            .map_err(|problem| format!("headers.{name}: {problem}"))?;
        mapping = mapping.header(name, value);
    }
    if let Some(payload) = read_template(fields, ["payload", "payload"])? {
        mapping = mapping.payload(payload);
    }
    if let Some(at) = read_template(fields, ["at", "at"])? {
        mapping = mapping.at(at);
    }
    Ok(mapping)
}

/// Reads a template that has two names.
fn read_template(
    fields: &mut Fields,
    names: [&'static str; 2],
) -> Result<Option<Template>, String> {
    let mut found = None;
    for name in names {
        if let Some(text) = fields.take::<String>(name)? {
            if found.is_some() {
                return Err(format!(
                    "{name}: is another name of {}; set only one of them",
                    names[0]
                ));
            }
            let template =
                Template::parse_secret(&text).map_err(|problem| format!("{name}: {problem}"))?;
            found = Some(template);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
