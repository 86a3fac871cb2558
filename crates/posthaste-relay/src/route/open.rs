//! Creates the destination of an address with its options, without connecting.

use std::sync::Arc;

use posthaste::__private::lacks_feature;
use posthaste::settings::Fields;

use super::address::{DestinationAddress, DestinationKind};
use crate::destination::contract::Destination;
use crate::destination::lines::Lines;

pub(super) fn open_destination(
    to: &DestinationAddress,
    fields: &mut Fields,
) -> Result<Arc<dyn Destination>, String> {
    match to.kind {
        DestinationKind::Lines => Ok(Arc::new(Lines::new(tokio::io::stdout()))),
        #[cfg(feature = "asynq")]
        DestinationKind::Asynq => open_asynq(to, fields),
        #[cfg(feature = "bullmq")]
        DestinationKind::BullMq => open_bullmq(to, fields),
        #[cfg(feature = "celery-redis")]
        DestinationKind::Celery if to.url.starts_with("redis") => {
            open_celery(crate::destination::celery::Celery::redis(&to.url), fields)
        }
        #[cfg(feature = "celery-rabbitmq")]
        DestinationKind::Celery if to.url.starts_with("amqp") => open_celery(
            crate::destination::celery::Celery::rabbitmq(&to.url),
            fields,
        ),
        #[cfg(feature = "kafka")]
        DestinationKind::Kafka => open_kafka(to, fields),
        #[cfg(feature = "nats")]
        DestinationKind::Nats => open_nats(to, fields),
        #[cfg(feature = "rabbitmq")]
        DestinationKind::RabbitMq => open_rabbitmq(to, fields),
        #[cfg(feature = "sidekiq")]
        DestinationKind::Sidekiq => open_sidekiq(to, fields),
        #[cfg(feature = "smtp")]
        DestinationKind::Smtp => open_smtp(to, fields),
        #[cfg(feature = "webhook")]
        DestinationKind::Webhook => open_webhook(to, fields),
        _ => {
            let _ = fields;
            let lack = lacks_feature(to.name(), required_feature(to));
            Err(format!("to: {lack}"))
        }
    }
}

/// Returns the cargo feature that contains a destination.
fn required_feature(to: &DestinationAddress) -> &'static str {
    match to.kind {
        DestinationKind::Sidekiq => "sidekiq",
        DestinationKind::Asynq => "asynq",
        DestinationKind::BullMq => "bullmq",
        DestinationKind::Celery if to.url.starts_with("redis") => "celery-redis",
        DestinationKind::Celery => "celery-rabbitmq",
        DestinationKind::RabbitMq => "rabbitmq",
        DestinationKind::Nats => "nats",
        DestinationKind::Kafka => "kafka",
        DestinationKind::Webhook => "webhook",
        DestinationKind::Smtp => "smtp",
        DestinationKind::Lines => "default",
    }
}

/// Describes an error in an address without repeating the address.
#[cfg(any(
    feature = "amqp",
    feature = "kafka",
    feature = "nats",
    feature = "redis",
    feature = "smtp",
    feature = "webhook"
))]
fn address_error(error: posthaste::Error) -> String {
    format!("to: {error}")
}

#[cfg(feature = "asynq")]
fn open_asynq(
    to: &DestinationAddress,
    fields: &mut Fields,
) -> Result<Arc<dyn Destination>, String> {
    let mut asynq = crate::destination::asynq::Asynq::new(&to.url).map_err(address_error)?;
    if let Some(times) = fields.take("max_retry")? {
        asynq = asynq.max_retry(times);
    }
    if let Some(timeout) = fields.take("timeout")? {
        asynq = asynq.task_timeout(timeout);
    }
    if fields.take("deadline")? == Some(true) {
        asynq = asynq.deadline();
    }
    if let Some(retention) = fields.take("retention")? {
        asynq = asynq.retention(retention);
    }
    Ok(Arc::new(asynq))
}

#[cfg(feature = "bullmq")]
fn open_bullmq(
    to: &DestinationAddress,
    fields: &mut Fields,
) -> Result<Arc<dyn Destination>, String> {
    // BullMQ requires a queue name; a route without one gets this one.
    let mut bullmq =
        crate::destination::bullmq::BullMq::new(&to.url, "default").map_err(address_error)?;
    if let Some(prefix) = fields.take::<String>("prefix")? {
        bullmq = bullmq.prefix(prefix);
    }
    if let Some(attempts) = fields.take("attempts")? {
        bullmq = bullmq.attempts(attempts);
    }
    if let Some(wait) = fields.take("fixed_backoff")? {
        bullmq = bullmq.fixed_backoff(wait);
    }
    if let Some(wait) = fields.take("exponential_backoff")? {
        bullmq = bullmq.exponential_backoff(wait);
    }
    if let Some(age) = fields.take("remove_on_complete")? {
        bullmq = bullmq.remove_on_complete(age);
    }
    if let Some(age) = fields.take("remove_on_fail")? {
        bullmq = bullmq.remove_on_fail(age);
    }
    Ok(Arc::new(bullmq))
}

#[cfg(any(feature = "celery-rabbitmq", feature = "celery-redis"))]
fn open_celery(
    celery: Result<crate::destination::celery::Celery, posthaste::Error>,
    fields: &mut Fields,
) -> Result<Arc<dyn Destination>, String> {
    let mut celery = celery.map_err(address_error)?;
    if let Some(limit) = fields.take("task_time_limit")? {
        celery = celery.time_limit(limit);
    }
    if let Some(limit) = fields.take("task_soft_time_limit")? {
        celery = celery.soft_time_limit(limit);
    }
    if fields.take("expires")? == Some(true) {
        celery = celery.expires();
    }
    Ok(Arc::new(celery))
}

#[cfg(feature = "kafka")]
fn open_kafka(
    to: &DestinationAddress,
    fields: &mut Fields,
) -> Result<Arc<dyn Destination>, String> {
    use std::collections::BTreeMap;

    let mut kafka = crate::destination::kafka::Kafka::new(&to.url).map_err(address_error)?;
    let settings: Option<BTreeMap<String, String>> = fields.take("settings")?;
    for (name, value) in settings.into_iter().flatten() {
        kafka = kafka
            .set(&name, &value)
            .map_err(|error| format!("settings: {error}"))?;
    }
    Ok(Arc::new(kafka))
}

#[cfg(feature = "nats")]
fn open_nats(to: &DestinationAddress, fields: &mut Fields) -> Result<Arc<dyn Destination>, String> {
    let mut nats = crate::destination::nats::Nats::new(&to.url).map_err(address_error)?;
    if let Some(credentials) = fields.take::<String>("credentials")? {
        nats = nats.credentials(credentials);
    }
    if let Some(domain) = fields.take::<String>("domain")? {
        nats = nats.domain(domain);
    }
    if let Some(stream) = fields.take::<String>("stream")? {
        nats = nats.stream(stream);
    }
    Ok(Arc::new(nats))
}

#[cfg(feature = "rabbitmq")]
fn open_rabbitmq(
    to: &DestinationAddress,
    fields: &mut Fields,
) -> Result<Arc<dyn Destination>, String> {
    let mut rabbitmq =
        crate::destination::rabbitmq::RabbitMq::new(&to.url).map_err(address_error)?;
    if fields.take("expires")? == Some(true) {
        rabbitmq = rabbitmq.expires();
    }
    Ok(Arc::new(rabbitmq))
}

#[cfg(feature = "sidekiq")]
fn open_sidekiq(
    to: &DestinationAddress,
    fields: &mut Fields,
) -> Result<Arc<dyn Destination>, String> {
    use crate::destination::sidekiq::ToggleOrCount;
    use crate::destination::sidekiq::{Sidekiq, TimeUnit};

    let mut sidekiq = Sidekiq::new(&to.url).map_err(address_error)?;
    if let Some(times) = fields.take::<ToggleOrCount>("retry")? {
        sidekiq = sidekiq.retry(times);
    }
    if let Some(lines) = fields.take::<ToggleOrCount>("backtrace")? {
        sidekiq = sidekiq.backtrace(lines);
    }
    if let Some(tags) = fields.take::<Vec<String>>("tags")? {
        sidekiq = sidekiq.tags(tags);
    }
    if let Some(is_kept) = fields.take("dead")? {
        sidekiq = sidekiq.dead(is_kept);
    }
    let times = [
        ("seconds", TimeUnit::Seconds),
        ("milliseconds", TimeUnit::Milliseconds),
    ];
    if let Some(times) = fields.word("times", &times)? {
        sidekiq = sidekiq.times(times);
    }
    Ok(Arc::new(sidekiq))
}

#[cfg(feature = "smtp")]
fn open_smtp(to: &DestinationAddress, fields: &mut Fields) -> Result<Arc<dyn Destination>, String> {
    let mut smtp = crate::destination::smtp::Smtp::new(&to.url).map_err(address_error)?;
    if let Some(address) = fields.take::<String>("mail_from")? {
        smtp = smtp.from(address);
    }
    if let Some(addresses) = fields.take::<String>("mail_to")? {
        smtp = smtp.to(addresses);
    }
    Ok(Arc::new(smtp))
}

/// TLS depends on the features of reqwest that the program enables.
#[cfg(feature = "webhook")]
fn open_webhook(
    to: &DestinationAddress,
    fields: &mut Fields,
) -> Result<Arc<dyn Destination>, String> {
    use crate::destination::webhook::AddressPolicy;
    use crate::destination::webhook::Webhook;

    let mut address_policy = AddressPolicy::public();
    let networks: Option<Vec<String>> = fields.take("networks")?;
    for network in networks.into_iter().flatten() {
        let allowed = address_policy.allow(&network);
        address_policy = allowed.map_err(|error| format!("networks: {error}"))?;
    }
    let client = reqwest::Client::builder().user_agent("posthaste");
    let mut webhook =
        Webhook::with_address_policy(client, &to.url, address_policy).map_err(address_error)?;
    let secrets: Option<Vec<String>> = fields.take("secrets")?;
    let secrets = secrets.into_iter().flatten().map(|secret| {
        let shape = "secrets: each must be whsec_ and base64 of 24 to 64 random bytes";
        secret.parse().map_err(|_| shape.to_owned())
    });
    let secrets: Vec<posthaste::Secret> = secrets.collect::<Result<_, String>>()?;
    if !secrets.is_empty() {
        webhook = webhook.secrets(secrets);
    }
    if let Some(limit) = fields.take("request_time_limit")? {
        webhook = webhook.time_limit(limit);
    }
    if let Some(requests) = fields.take("requests")? {
        webhook = webhook.requests(requests);
    }
    if fields.take("again_on_client_errors")? == Some(true) {
        webhook = webhook.again_on_client_errors();
    }
    Ok(Arc::new(webhook))
}
