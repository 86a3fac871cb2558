//! Addresses of destinations: `<destination>+<transport>://…`, or the transport alone if it
//! identifies the destination. Pure.

/// A kind of destination.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum DestinationKind {
    Sidekiq,
    Asynq,
    BullMq,
    Celery,
    RabbitMq,
    Nats,
    Kafka,
    Webhook,
    Smtp,
    Lines,
}

/// The part of an address before `://`, and its meaning.
struct Scheme {
    word: &'static str,
    kind: DestinationKind,
    /// The transport in the address that the destination gets.
    transport: &'static str,
}

const fn scheme(word: &'static str, kind: DestinationKind, transport: &'static str) -> Scheme {
    Scheme {
        word,
        kind,
        transport,
    }
}

const SCHEMES: [Scheme; 22] = [
    scheme("sidekiq", DestinationKind::Sidekiq, "redis"),
    scheme("sidekiq+redis", DestinationKind::Sidekiq, "redis"),
    scheme("sidekiq+rediss", DestinationKind::Sidekiq, "rediss"),
    scheme("asynq", DestinationKind::Asynq, "redis"),
    scheme("asynq+redis", DestinationKind::Asynq, "redis"),
    scheme("asynq+rediss", DestinationKind::Asynq, "rediss"),
    scheme("bullmq", DestinationKind::BullMq, "redis"),
    scheme("bullmq+redis", DestinationKind::BullMq, "redis"),
    scheme("bullmq+rediss", DestinationKind::BullMq, "rediss"),
    scheme("celery+redis", DestinationKind::Celery, "redis"),
    scheme("celery+rediss", DestinationKind::Celery, "rediss"),
    scheme("celery+amqp", DestinationKind::Celery, "amqp"),
    scheme("celery+amqps", DestinationKind::Celery, "amqps"),
    scheme("amqp", DestinationKind::RabbitMq, "amqp"),
    scheme("amqps", DestinationKind::RabbitMq, "amqps"),
    scheme("nats", DestinationKind::Nats, "nats"),
    scheme("nats+tls", DestinationKind::Nats, "tls"),
    scheme("kafka", DestinationKind::Kafka, "kafka"),
    scheme("http", DestinationKind::Webhook, "http"),
    scheme("https", DestinationKind::Webhook, "https"),
    scheme("smtp", DestinationKind::Smtp, "smtp"),
    scheme("smtps", DestinationKind::Smtp, "smtps"),
];

/// Common mistakes that name a server or library instead of a destination, and what to write
/// instead.
const MISTAKEN_SCHEMES: [(&str, &str); 14] = [
    (
        "redis",
        "sidekiq://, asynq://, bullmq:// or celery+redis://, depending on the receiver",
    ),
    (
        "rediss",
        "sidekiq+rediss://, asynq+rediss://, bullmq+rediss:// or celery+rediss://, depending on \
         the receiver",
    ),
    ("celery", "celery+redis:// or celery+amqp://"),
    ("rabbitmq", "amqp://, or amqps:// for TLS"),
    (
        "pyamqp",
        "celery+amqp://, or amqp:// for any other consumer",
    ),
    ("tls", "nats+tls://"),
    ("jetstream", "nats://"),
    ("kafka+ssl", "kafka://; TLS is not supported for it"),
    ("webhook", "https:// or http://"),
    (
        "mailto",
        "smtp:// with the mail server's host, and the address as mail_to",
    ),
    ("mail", "smtp://"),
    ("stdout", "stdout:"),
    ("-", "stdout:"),
    (
        "postgres",
        "the address of a destination; DATABASE_URL sets the database",
    ),
];

/// The destination of a route.
#[derive(PartialEq)]
pub(super) struct DestinationAddress {
    pub(super) kind: DestinationKind,
    /// The address that the destination gets, without the destination's name.
    pub(super) url: String,
}

impl DestinationAddress {
    /// Parses an address. The error does not repeat it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text == "stdout:" {
            return Ok(Self {
                kind: DestinationKind::Lines,
                url: String::new(),
            });
        }
        let found = text.split_once("://").and_then(|(word, rest)| {
            let scheme = SCHEMES.iter().find(|scheme| scheme.word == word)?;
            Some((scheme, rest))
        });
        let Some((scheme, rest)) = found else {
            let word = text.split_once(':').map_or(text, |(word, _)| word);
            if let Some((_, canonical)) = MISTAKEN_SCHEMES.iter().find(|(alias, _)| *alias == word)
            {
                return Err(format!("{word}: is not a destination; write {canonical}"));
            }
            let words: Vec<&str> = SCHEMES.iter().map(|scheme| scheme.word).collect();
            return Err(format!(
                "must begin with one of {}, each with ://, or be stdout:",
                words.join(", ")
            ));
        };
        if rest.is_empty() {
            return Err("names no host".into());
        }
        Ok(Self {
            kind: scheme.kind,
            url: format!("{}://{rest}", scheme.transport),
        })
    }

    /// Returns the name of the destination for people.
    pub(super) fn name(&self) -> &'static str {
        match self.kind {
            DestinationKind::Sidekiq => "Sidekiq",
            DestinationKind::Asynq => "asynq",
            DestinationKind::BullMq => "BullMQ",
            DestinationKind::Celery => "Celery",
            DestinationKind::RabbitMq => "RabbitMQ",
            DestinationKind::Nats => "NATS",
            DestinationKind::Kafka => "Kafka",
            DestinationKind::Webhook => "a webhook",
            DestinationKind::Smtp => "SMTP",
            DestinationKind::Lines => "stdout",
        }
    }

    /// Returns the destination's word for the kind of a message; `None` for a webhook: its requests
    /// carry the job's name, and a kind would appear in no part of them.
    pub(super) fn kind_word(&self) -> Option<&'static str> {
        Some(match self.kind {
            DestinationKind::Webhook => return None,
            DestinationKind::Sidekiq => "class",
            DestinationKind::Asynq => "type",
            DestinationKind::BullMq => "name",
            DestinationKind::Celery => "task",
            DestinationKind::RabbitMq => "routing_key",
            DestinationKind::Nats => "subject",
            DestinationKind::Kafka => "topic",
            DestinationKind::Smtp | DestinationKind::Lines => "kind",
        })
    }

    /// Returns the destination's word for its queues; `None` if a message has only a kind.
    pub(super) fn queue_word(&self) -> Option<&'static str> {
        match self.kind {
            DestinationKind::Nats | DestinationKind::Kafka | DestinationKind::Smtp => None,
            DestinationKind::RabbitMq => Some("exchange"),
            _ => Some("receiver_queue"),
        }
    }
}

/// The address may hold a password.
impl std::fmt::Debug for DestinationAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DestinationAddress")
            .field(&self.kind)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::{DestinationAddress, DestinationKind};

    fn parsed(text: &str) -> Option<(DestinationKind, String)> {
        DestinationAddress::parse(text)
            .ok()
            .map(|to| (to.kind, to.url))
    }

    #[test]
    fn the_destination_precedes_the_transport_in_the_scheme() {
        let url = |kind, url: &str| Some((kind, url.to_owned()));
        let redis = "redis://:p@h:1/2";
        assert_eq!(
            parsed("sidekiq://:p@h:1/2"),
            url(DestinationKind::Sidekiq, redis)
        );
        assert_eq!(
            parsed("asynq+redis://:p@h:1/2"),
            url(DestinationKind::Asynq, redis)
        );
        assert_eq!(
            parsed("bullmq+rediss://h"),
            url(DestinationKind::BullMq, "rediss://h")
        );
        assert_eq!(
            parsed("celery+amqp://h/v"),
            url(DestinationKind::Celery, "amqp://h/v")
        );
        assert_eq!(
            parsed("amqps://h"),
            url(DestinationKind::RabbitMq, "amqps://h")
        );
        assert_eq!(
            parsed("https://h/x"),
            url(DestinationKind::Webhook, "https://h/x")
        );
        assert_eq!(parsed("stdout:"), url(DestinationKind::Lines, ""));
    }

    #[test]
    fn invalid_addresses_are_refused_without_leaking() {
        for text in [
            "",
            "geheim",
            "redis://geheim",
            "redis://geheim:geheim@geheim/0",
            "celery://geheim",
            "nats://",
            "stdout:geheim",
        ] {
            let error = DestinationAddress::parse(text).expect_err(text);
            assert!(!error.contains("geheim"), "{error}");
        }
    }

    #[test]
    fn unsupported_schemes_are_refused_with_the_supported_ones() {
        for (text, canonical) in [
            (
                "redis://127.0.0.1/0",
                "write sidekiq://, asynq://, bullmq:// or celery+redis://",
            ),
            ("rediss://h", "write sidekiq+rediss://"),
            ("celery://h", "write celery+redis:// or celery+amqp://"),
            ("rabbitmq://h", "write amqp://"),
            ("stdout", "write stdout:"),
            ("mailto:ada@example.com", "write smtp://"),
        ] {
            let error = DestinationAddress::parse(text).expect_err(text);
            assert!(error.contains(canonical), "{text}: {error}");
        }
    }
}
