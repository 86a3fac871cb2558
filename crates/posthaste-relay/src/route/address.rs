//! Addresses of destinations: `<destination>+<transport>://…`, or the transport alone if it
//! identifies the destination. Pure.

/// A kind of destination.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
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
    kind: Kind,
    /// The transport in the address that the destination gets.
    transport: &'static str,
}

const fn scheme(word: &'static str, kind: Kind, transport: &'static str) -> Scheme {
    Scheme {
        word,
        kind,
        transport,
    }
}

const SCHEMES: [Scheme; 22] = [
    scheme("sidekiq", Kind::Sidekiq, "redis"),
    scheme("sidekiq+redis", Kind::Sidekiq, "redis"),
    scheme("sidekiq+rediss", Kind::Sidekiq, "rediss"),
    scheme("asynq", Kind::Asynq, "redis"),
    scheme("asynq+redis", Kind::Asynq, "redis"),
    scheme("asynq+rediss", Kind::Asynq, "rediss"),
    scheme("bullmq", Kind::BullMq, "redis"),
    scheme("bullmq+redis", Kind::BullMq, "redis"),
    scheme("bullmq+rediss", Kind::BullMq, "rediss"),
    scheme("celery+redis", Kind::Celery, "redis"),
    scheme("celery+rediss", Kind::Celery, "rediss"),
    scheme("celery+amqp", Kind::Celery, "amqp"),
    scheme("celery+amqps", Kind::Celery, "amqps"),
    scheme("amqp", Kind::RabbitMq, "amqp"),
    scheme("amqps", Kind::RabbitMq, "amqps"),
    scheme("nats", Kind::Nats, "nats"),
    scheme("nats+tls", Kind::Nats, "tls"),
    scheme("kafka", Kind::Kafka, "kafka"),
    scheme("http", Kind::Webhook, "http"),
    scheme("https", Kind::Webhook, "https"),
    scheme("smtp", Kind::Smtp, "smtp"),
    scheme("smtps", Kind::Smtp, "smtps"),
];

/// Common mistakes that name a server or library instead of a destination, and what to write
/// instead.
const ALIASES: [(&str, &str); 14] = [
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
    pub(super) kind: Kind,
    /// The address that the destination gets, without the destination's name.
    pub(super) url: String,
}

impl DestinationAddress {
    /// Parses an address. The error does not repeat it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text == "stdout:" {
            return Ok(Self {
                kind: Kind::Lines,
                url: String::new(),
            });
        }
        let found = text.split_once("://").and_then(|(word, rest)| {
            let scheme = SCHEMES.iter().find(|scheme| scheme.word == word)?;
            Some((scheme, rest))
        });
        let Some((scheme, rest)) = found else {
            let word = text.split_once(':').map_or(text, |(word, _)| word);
            if let Some((_, canonical)) = ALIASES.iter().find(|(alias, _)| *alias == word) {
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
            Kind::Sidekiq => "Sidekiq",
            Kind::Asynq => "asynq",
            Kind::BullMq => "BullMQ",
            Kind::Celery => "Celery",
            Kind::RabbitMq => "RabbitMQ",
            Kind::Nats => "NATS",
            Kind::Kafka => "Kafka",
            Kind::Webhook => "a webhook",
            Kind::Smtp => "SMTP",
            Kind::Lines => "stdout",
        }
    }

    /// Returns the destination's word for the kind of a message; `None` for a webhook: its requests
    /// carry the job's name, and a kind would appear in no part of them.
    pub(super) fn kind_word(&self) -> Option<&'static str> {
        Some(match self.kind {
            Kind::Webhook => return None,
            Kind::Sidekiq => "class",
            Kind::Asynq => "type",
            Kind::BullMq => "name",
            Kind::Celery => "task",
            Kind::RabbitMq => "routing_key",
            Kind::Nats => "subject",
            Kind::Kafka => "topic",
            Kind::Smtp | Kind::Lines => "kind",
        })
    }

    /// Returns the destination's word for its queues; `None` if a message has only a kind.
    pub(super) fn queue_word(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Nats | Kind::Kafka | Kind::Smtp => None,
            Kind::RabbitMq => Some("exchange"),
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
    use super::{DestinationAddress, Kind};

    fn parsed(text: &str) -> Option<(Kind, String)> {
        DestinationAddress::parse(text)
            .ok()
            .map(|to| (to.kind, to.url))
    }

    #[test]
    fn the_destination_precedes_the_transport_in_the_scheme() {
        let url = |kind, url: &str| Some((kind, url.to_owned()));
        let redis = "redis://:p@h:1/2";
        assert_eq!(parsed("sidekiq://:p@h:1/2"), url(Kind::Sidekiq, redis));
        assert_eq!(parsed("asynq+redis://:p@h:1/2"), url(Kind::Asynq, redis));
        assert_eq!(parsed("bullmq+rediss://h"), url(Kind::BullMq, "rediss://h"));
        assert_eq!(parsed("celery+amqp://h/v"), url(Kind::Celery, "amqp://h/v"));
        assert_eq!(parsed("amqps://h"), url(Kind::RabbitMq, "amqps://h"));
        assert_eq!(parsed("https://h/x"), url(Kind::Webhook, "https://h/x"));
        assert_eq!(parsed("stdout:"), url(Kind::Lines, ""));
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
