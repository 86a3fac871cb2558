use std::collections::BTreeMap;
use std::time::Duration;

use posthaste::settings::Fields;
use serde_json::{Value, json};

use super::{DestinationAddress, Route, RouteSettings, read_mapping};
use crate::engine::options::{Ack, OnAmbiguous};
use crate::message::tests::{ID, job};

fn read(settings: &Value) -> Result<Route, String> {
    let settings = settings.as_object().expect("an object");
    Route::read("mail", settings).map_err(|error| error.to_string())
}

/// Returns the settings of a route to standard output with these settings.
fn settings(more: Value) -> RouteSettings {
    let mut settings = json!({"to": "stdout:"});
    let all = settings.as_object_mut().expect("an object");
    all.extend(more.as_object().expect("an object").clone());
    read(&settings).expect("a route").settings
}

/// Returns the error for a route to standard output with this setting.
fn refused(name: &str, value: &Value) -> String {
    let error = read(&json!({"to": "stdout:", name: value})).expect_err(name);
    let start = format!("route mail: {name}: ");
    assert!(error.starts_with(&start), "{error}");
    error[start.len()..].to_owned()
}

#[test]
fn routes_need_only_an_address_and_default_their_queue() {
    let route = read(&json!({"to": "stdout:"})).expect("a route");
    assert_eq!((route.queue(), route.label()), ("mail", "lines".to_owned()));
    let route = read(&json!({"to": "stdout:", "queue": "m"})).expect("a route");
    assert_eq!((route.name(), route.queue()), ("mail", "m"));
    let error = read(&json!({"queue": "m"})).expect_err("no address");
    assert!(error.starts_with("route mail: to: is missing"), "{error}");
}

#[test]
fn route_settings_are_parsed() {
    let given = settings(json!({
        "batch": 100, "concurrency": 2, "time_limit": "90s", "ack": "confirmed", "lease": "2h",
        "on_ambiguous": "resend",
        "allow_unsafe": ["appendonly", "maxmemory-policy"],
    }));
    assert_eq!((given.batch, given.concurrency), (Some(100), Some(2)));
    assert_eq!(given.time_limit, Some(Duration::from_secs(90)));
    let lease = Duration::from_secs(7200);
    assert_eq!(given.ack, Ack::Confirmed { lease });
    assert_eq!(
        (given.ordered, given.on_ambiguous),
        (false, OnAmbiguous::Resend)
    );
    assert_eq!(given.allow_unsafe, ["appendonly", "maxmemory-policy"]);
    assert!(settings(json!({"ordered": true})).ordered);
    let half = Some(Duration::from_millis(500));
    assert_eq!(settings(json!({"time_limit": 0.5})).time_limit, half);
}

#[test]
fn messages_follow_the_route_settings() {
    let given = settings(json!({
        "kind": "{name}!", "receiver_queue": "q.{tag}", "headers": {"x-a": "{kwargs.a}"},
        "payload": "{kwargs.a}",
    }));
    let message = given.mapping.message(job("n", r#"{"a": 1}"#), ID);
    let message = message.expect("a message");
    assert_eq!((&*message.kind, message.payload()), ("n!", "1"));
    assert_eq!(message.queue.as_deref(), Some("q.signup"));
    assert_eq!(message.headers, [("x-a".to_owned(), "1".to_owned())]);
}

#[test]
fn invalid_settings_are_refused_by_name() {
    assert_eq!(refused("batch", &json!(0)), "must be at least 1");
    assert_eq!(refused("batch", &json!("geheim")), "must be a whole number");
    assert_eq!(refused("batch", &json!(-1)), "must be a whole number");
    assert_eq!(
        refused("ordered", &json!("geheim")),
        "must be true or false"
    );
    assert_eq!(refused("lease", &json!("1h")), "is for ack = \"confirmed\"");
    assert_eq!(refused("time_limit", &json!(0)), "must be more than 0");
    for time in [json!("geheim"), json!(-1), json!("-5s"), json!(1e300)] {
        assert!(refused("time_limit", &time).starts_with("must be a time"));
    }
    assert_eq!(
        refused("allow_unsafe", &json!("a")),
        "must be a list of strings"
    );
    assert_eq!(
        refused("headers", &json!([1])),
        "must be a table of strings"
    );
    assert_eq!(
        refused("kind", &json!("geheim {colour}")),
        "{colour} is not a known placeholder"
    );
    assert_eq!(refused("queue", &json!("")), "must have 1 to 255 bytes");
    let unknown = refused("colour", &json!("geheim"));
    assert!(
        unknown.starts_with(
            "is not a setting of a route to stdout; known are ack, allow_unsafe, at, batch,"
        ),
        "{unknown}"
    );
    let error = read(&json!({"to": "stdout:", "ordered": true, "concurrency": 2}));
    assert!(error.expect_err("two batches").contains("concurrency: "));
}

#[test]
fn discarding_ambiguous_messages_is_for_mail_only() {
    assert_eq!(
        refused("on_ambiguous", &json!("discard")),
        "only a route to mail can discard a message that may have arrived; other routes send it \
         again under the same id"
    );
    let unknown = refused("on_ambiguous", &json!("geheim"));
    assert_eq!(unknown, r#"must be "resend" or "discard""#);
}

#[cfg(feature = "smtp")]
#[test]
fn ambiguous_mails_are_discarded_if_the_route_says_so() {
    let route = |on_ambiguous: &str| {
        let route = read(&json!({"to": "smtp://h.example", "on_ambiguous": on_ambiguous}));
        route.expect("a route").settings.on_ambiguous
    };
    assert_eq!(route("discard"), OnAmbiguous::Discard);
    assert_eq!(route("resend"), OnAmbiguous::Resend);
}

#[cfg(feature = "smtp")]
#[test]
fn rejects_discarding_ambiguous_mails_without_jobs() {
    let settings = json!({"to": "smtp://h.example", "ordered": true, "on_ambiguous": "discard"});
    let error = read(&settings)
        .expect("a route")
        .sender()
        .expect_err("refused");
    assert!(error.to_string().contains("on_ambiguous:"), "{error}");
}

#[test]
fn webhooks_reject_the_kind_setting() {
    let to = DestinationAddress::parse("https://h.example/geheim").expect("an address");
    for name in ["kind", "type"] {
        let given = BTreeMap::from([(name.to_owned(), json!("geheim"))]);
        let mut fields = Fields::new(given);
        read_mapping(&mut fields, &to).expect("nobody has asked for it");
        let error = fields.all_known("a webhook").expect_err(name);
        let start = format!(
            "{name}: is not a setting of a webhook; known are at, headers, \
                             payload, "
        );
        assert!(error.starts_with(&start), "{error}");
    }
}

#[test]
fn errors_and_debug_output_hide_secrets() {
    for settings in [
        json!({"to": "geheim"}),
        json!({"to": "smtp+geheim://h"}),
        json!({"to": 7, "geheim2": "geheim"}),
        json!({"to": "stdout:", "headers": {"authorization": "Bearer geheim {"}}),
        json!({"to": "stdout:", "batch": {"geheim": 1}}),
    ] {
        let error = read(&settings).expect_err("refused");
        assert!(!error.contains("geheim"), "{error}");
    }
}

#[cfg(all(feature = "asynq", feature = "bullmq", feature = "celery-redis"))]
#[test]
fn each_destination_has_its_own_settings() {
    for (settings, label) in [
        (
            json!({"to": "asynq://:geheim@h:1/2", "type": "mail:send", "max_retry": 3,
                "timeout": "1m", "deadline": true, "retention": "48h"}),
            "asynq at h:1/2",
        ),
        (
            json!({"to": "bullmq://:geheim@h:1/2", "name": "send", "prefix": "p", "attempts": 3,
                "fixed_backoff": "1s", "remove_on_complete": "48h", "remove_on_fail": "48h"}),
            "bullmq at h:1/2",
        ),
        (
            json!({"to": "celery+redis://:geheim@h:1/2", "task": "send", "task_time_limit": "1m",
                "task_soft_time_limit": 50, "expires": true}),
            "celery at h:1/2",
        ),
    ] {
        let route = read(&settings).expect("a route");
        assert_eq!(route.label().to_lowercase(), label);
    }
}

#[cfg(all(feature = "kafka", feature = "nats", feature = "rabbitmq"))]
#[test]
fn each_broker_has_its_own_settings() {
    for settings in [
        json!({"to": "amqp://u:geheim@h:1/v", "routing_key": "mail.{name}", "exchange": "jobs",
            "expires": true}),
        json!({"to": "nats://h:1", "subject": "mail.{name}", "domain": "d", "stream": "s",
            "credentials": "geheim"}),
        json!({"to": "kafka://h:1,i:2", "topic": "mail", "settings": {"sasl.password": "geheim"}}),
    ] {
        let route = read(&settings).expect("a route");
        assert!(!route.label().contains("geheim"), "{route:?}");
    }
    let error = read(&json!({"to": "kafka://h:1", "settings": {"acks": "geheim"}}));
    let error = error.expect_err("the promise rests on it");
    assert!(
        error.starts_with("route mail: settings: ") && !error.contains("geheim"),
        "{error}"
    );
}

#[cfg(all(feature = "smtp", feature = "celery-rabbitmq"))]
#[test]
fn mail_and_celery_over_rabbitmq_have_their_own_settings() {
    for settings in [
        json!({"to": "smtp://u:geheim@h.example:25", "mail_from": "a@example.com",
            "mail_to": "b@example.com", "headers": {"subject": "{name}"}}),
        json!({"to": "celery+amqp://u:geheim@h:1/v", "task": "mail.{name}", "task_time_limit": "1m",
            "expires": true}),
    ] {
        let route = read(&settings).expect("a route");
        assert!(!route.label().contains("geheim"), "{route:?}");
    }
}

#[cfg(all(
    feature = "celery-redis",
    feature = "kafka",
    feature = "nats",
    feature = "rabbitmq",
    feature = "smtp"
))]
#[test]
fn reserved_headers_cannot_be_overridden() {
    for (to, name) in [
        ("celery+redis://h", "retries"),
        ("celery+redis://h", "id"),
        ("celery+amqp://h", "CC"),
        ("amqp://h", "BCC"),
        ("nats://h", "Nats-Msg-Id"),
        ("kafka://h:1", "id"),
        ("smtp://h.example", "Message-ID"),
    ] {
        let settings = json!({"to": to, "headers": {name: "geheim"}});
        let error = read(&settings).expect_err(name);
        assert!(
            error.starts_with(&format!("route mail: headers.{name}: ")),
            "{error}"
        );
        assert!(!error.contains("geheim"), "{error}");
    }
    // These destinations put headers apart from the fields of their formats.
    for to in ["asynq://h", "bullmq://h", "stdout:"] {
        read(&json!({"to": to, "headers": {"id": "1"}})).expect(to);
    }
}

#[cfg(feature = "sidekiq")]
mod sidekiq {
    use super::*;

    #[test]
    fn sidekiq_has_its_own_settings() {
        let route = read(&json!({
            "to": "sidekiq://u:geheim@127.0.0.1:6379/3", "class": "MailJob",
            "receiver_queue": "low", "retry": 3, "times": "milliseconds",
        }));
        let route = route.expect("a route");
        assert_eq!(route.label(), "sidekiq at 127.0.0.1:6379/3");
        assert!(!format!("{route:?}").contains("geheim"), "{route:?}");
        let message = route.mapping().message(job("n", "{}"), ID);
        let message = message.expect("a message");
        assert_eq!(
            (&*message.kind, message.queue.as_deref()),
            ("MailJob", Some("low"))
        );
        let both = json!({"to": "sidekiq://h", "class": "A", "kind": "B"});
        let error = read(&both).expect_err("both");
        assert!(error.contains("class: is another name of kind"), "{error}");
        let others = json!({"to": "sidekiq://h", "topic": "A"});
        let error = read(&others).expect_err("Kafka's");
        assert!(error.contains("topic: is not a setting of a route to Sidekiq"));
        for more in [
            json!({"retry": false, "backtrace": true, "dead": false, "tags": ["a"]}),
            json!({"retry": 0, "backtrace": 20, "headers": {"locale": "de"}}),
        ] {
            let mut settings = json!({"to": "sidekiq://h"});
            let all = settings.as_object_mut().expect("an object");
            all.extend(more.as_object().expect("an object").clone());
            read(&settings).expect("a route");
        }
        for (more, why) in [
            (json!({"tags": "a"}), "tags: must be a list of strings"),
            (json!({"dead": "no"}), "dead: must be true or false"),
            (
                json!({"headers": {"retry": "false"}}),
                "headers.retry: is a key that Sidekiq sets; use the route's setting retry",
            ),
            (
                json!({"headers": {"delivery_id": "{id}"}}),
                "headers.delivery_id: is a key that Sidekiq sets",
            ),
        ] {
            let mut settings = json!({"to": "sidekiq://h"});
            let all = settings.as_object_mut().expect("an object");
            all.extend(more.as_object().expect("an object").clone());
            assert_eq!(
                read(&settings).expect_err(why),
                format!("route mail: {why}")
            );
        }
        let retry = json!({"to": "sidekiq://h", "retry": "geheim"});
        let error = read(&retry).expect_err("no number");
        assert_eq!(
            error,
            "route mail: retry: must be true, false or a whole number"
        );
    }
}

#[cfg(not(feature = "sidekiq"))]
#[test]
fn a_destination_not_compiled_in_is_refused_with_its_feature() {
    let error = read(&json!({"to": "sidekiq://h"})).expect_err("left out");
    assert!(error.contains("the feature \"sidekiq\""), "{error}");
}

#[test]
fn receivers_without_queues_reject_the_queue_setting() {
    for to in ["nats://h", "kafka://h", "smtp://h"] {
        let error = read(&json!({"to": to, "receiver_queue": "m"})).expect_err(to);
        assert!(error.contains("receiver_queue"), "{error}");
    }
}

#[test]
fn messages_without_jobs_need_an_ordered_route_without_per_job_settings() {
    let ordered = json!({"to": "stdout:", "ordered": true, "queue": "q", "batch": 7});
    let route = Route::read("mail", ordered.as_object().expect("settings")).expect("a route");
    let sender = route.sender().expect("a sender");
    assert_eq!((sender.queue(), sender.batch()), ("q", Some(7)));
    for (more, why) in [
        (json!({"ordered": false}), "ordered: must be true"),
        (json!({"ack": "confirmed"}), "ack: only a job"),
        (
            json!({"headers": {"a": "{attempt}"}}),
            "{attempt}: exists only for jobs",
        ),
        (
            json!({"payload": "{json:job_id}"}),
            "{job_id}: exists only for jobs",
        ),
    ] {
        let mut settings = ordered.clone();
        let all = settings.as_object_mut().expect("settings");
        all.extend(more.as_object().expect("settings").clone());
        let route = Route::read("mail", &*all).expect("a route");
        let error = route.sender().expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
    }
}
