//! Accounts that lack a permission at their destination: jobs wait, no attempt is counted, and the
//! missing permission is reported.

use std::sync::Arc;

use posthaste::WorkerHandle;
use posthaste_relay::{Destination, Mapping, Relay, Smtp, Template};
use posthaste_testkit::receivers::{self, Receiver, Redis, are_here};
use posthaste_testkit::{Sql as _, eventually};
use serde_json::json;

use super::redis::{KEEPS, all};
use super::{Setup, enqueue, setup};
use crate::support::{SOON, all_done, unfinished};

/// A relay whose jobs the destination denies.
struct Waiting {
    setup: Setup,
    relay: Relay,
    worker: WorkerHandle,
}

impl Waiting {
    async fn on(destination: Arc<dyn Destination>, names: &[&str]) -> Self {
        let setup = setup().await;
        enqueue(&setup.client, names).await;
        let relay = Relay::to_any(destination).batch(5);
        let relay = relay.mapping(Mapping::default()).start().await.unwrap();
        let worker = setup.consumer(relay.clone()).await;
        Self {
            setup,
            relay,
            worker,
        }
    }

    /// Asserts that the jobs are offered repeatedly, that the error has these texts, and that no
    /// attempt is counted.
    async fn says(&self, texts: &[&str]) {
        let offered = async || {
            let status = self.relay.status();
            let error = status.last_error.unwrap_or_default();
            let is_reported = texts.iter().all(|one| error.contains(one));
            Ok(is_reported && status.unavailable > 15 && status.failures.contains_key("auth"))
        };
        let offered = eventually(SOON, "it is offered again and again", offered).await;
        offered.unwrap_or_else(|error| panic!("{error:#}: {:?}", self.relay.status()));
        self.counts_nothing().await;
        assert_eq!(
            self.relay.status().down_since,
            None,
            "the destination answers"
        );
    }

    async fn counts_nothing(&self) {
        let counted = "SELECT ((SELECT coalesce(sum(attempt), 0) FROM posthaste.job)
                       + (SELECT count(*) FROM posthaste.attempt))::bigint";
        let counted = self.setup.client.one::<i64>(counted).await.unwrap();
        assert_eq!(counted, 0);
    }

    async fn finish(self) {
        all_done(&self.setup.client).await;
        self.counts_nothing().await;
        self.worker.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_redis_permission_counts_no_attempt_and_leaks_nothing() {
    let test = "a_missing_redis_permission_counts_no_attempt_and_leaks_nothing";
    if !are_here(test, &[Receiver::Redis]) {
        return;
    }
    let redis = Redis::start(KEEPS).unwrap();
    let user = |rules: &str| {
        let setting = ["ACL", "SETUSER", "app", "reset", "on", ">pw", "&*"];
        let setting: Vec<&str> = setting.into_iter().chain(rules.split(' ')).collect();
        redis.ask(&setting).unwrap();
    };
    let url = redis.url().replace("redis://", "redis://app:pw@");
    // The command that adds a message; one in the middle of a script; the receiver's keys.
    for rules in ["~* +@all -lpush", "~* +@all -hset", "~nothing:* +@all"] {
        for destination in all(&url) {
            let is_list = ["sidekiq", "celery"].map(|kind| destination.label().starts_with(kind));
            if rules.contains("hset") && is_list.contains(&true) {
                continue;
            }
            user(rules);
            let waiting = Waiting::on(destination, &["m"; 12]).await;
            waiting.says(&["ACL SETUSER"]).await;
            assert_eq!(unfinished(&waiting.setup.client).await, 12);
            user("~* +@all");
            waiting.finish().await;
            let lists = [
                "queue:default",
                "celery",
                "asynq:{default}:pending",
                "bull:mail:wait",
            ];
            let arrived = lists.map(|list| redis.ask(&["LLEN", list]).unwrap().as_i64().unwrap());
            assert_eq!(
                arrived.iter().sum::<i64>(),
                12,
                "{rules}: each once: {arrived:?}"
            );
            redis.ask(&["FLUSHALL"]).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepted_jobs_are_not_resent_for_a_missing_permission() {
    let test = "accepted_jobs_are_not_resent_for_a_missing_permission";
    if !are_here(test, &[Receiver::Redis]) {
        return;
    }
    let redis = Redis::start(KEEPS).unwrap();
    let setting = ["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all"];
    redis.ask(&[&setting[..], &["-sadd"]].concat()).unwrap();
    let url = redis.url().replace("redis://", "redis://app:pw@");
    for destination in all(&url) {
        Waiting::on(destination, &["m"; 7]).await.finish().await;
    }
    for list in [
        "queue:default",
        "celery",
        "asynq:{default}:pending",
        "bull:mail:wait",
    ] {
        assert_eq!(redis.ask(&["LLEN", list]).unwrap(), json!(7), "{list}");
    }
}

#[cfg(feature = "rabbitmq")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_rabbitmq_permissions_count_no_attempt_and_block_no_other_topic() {
    use super::rabbitmq::{Hands, shared};
    use posthaste_relay::RabbitMq;
    use posthaste_testkit::unique;

    let test = "a_rabbitmq_user_without_a_right_counts_as_no_attempt";
    if !are_here(test, &[Receiver::RabbitMq]) {
        return;
    }
    let (user, queue) = (unique("app"), unique("mine"));
    let hands = Hands::on(shared()).await;
    hands.queue(&queue, &[]).await;
    let server = receivers::RabbitMq::shared().unwrap();
    let control = |arguments: &[&str]| server.control(arguments).unwrap();
    control(&["add_user", &user, "pw"]);
    control(&["set_permissions", "-p", "relay", &user, "", "^other$", ""]);
    let url = shared().replace("guest:guest", &format!("{user}:pw"));
    let waiting = Waiting::on(Arc::new(RabbitMq::new(&url).unwrap()), &[&*queue; 12]).await;
    waiting
        .says(&["ACCESS_REFUSED", "rabbitmqctl set_permissions"])
        .await;
    control(&["set_permissions", "-p", "relay", &user, "", ".*", ""]);
    waiting.finish().await;

    // Other messages of a topic exchange pass, whichever of the batch is refused.
    let exchange = "amq.topic";
    for key in ["theirs", &*queue] {
        hands.bind(&queue, exchange, key).await;
    }
    let only = format!("^{queue}$");
    control(&[
        "set_topic_permissions",
        "-p",
        "relay",
        &user,
        exchange,
        &only,
        "",
    ]);
    let names = [&*queue, "theirs", &*queue, "theirs", &*queue, &*queue];
    let rabbitmq = RabbitMq::new(&url).unwrap().exchange(exchange);
    let waiting = Waiting::on(Arc::new(rabbitmq), &names).await;
    waiting.says(&["access to topic 'theirs'"]).await;
    assert_eq!(unfinished(&waiting.setup.client).await, 2);
    control(&["clear_topic_permissions", "-p", "relay", &user]);
    waiting.finish().await;
    let mut ids = Vec::new();
    while let Some(message) = hands.take(&queue).await {
        ids.push(message.properties.message_id().clone().unwrap().to_string());
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 12 + 6);
    hands.delete(&queue).await;
    control(&["delete_user", &user]);
}

#[cfg(feature = "nats")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_nats_permissions_count_no_attempt_and_block_no_other_subject() {
    use posthaste_relay::Nats;

    let test = "a_nats_user_without_a_right_counts_as_no_attempt";
    if !are_here(test, &[Receiver::Nats]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nats.conf");
    let allow = |publish: &str, subscribe: &str| {
        let config = format!(
            r#"authorization {{ users: [ {{ user: admin, password: pw }},
               {{ user: app, password: pw, permissions: {{
                  publish: {publish}, subscribe: {subscribe} }} }} ] }}"#
        );
        std::fs::write(&file, config).unwrap();
    };
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), readable).unwrap();
    let (some, inbox) = (r#"["mail.mine", "$JS.API.>"]"#, r#"["_INBOX.>"]"#);
    allow(some, inbox);
    let path = file.to_str().unwrap();
    let server = receivers::Nats::start_with(&["--config", path]).unwrap();
    let as_user = |user: &str| {
        server
            .url()
            .replace("nats://", &format!("nats://{user}:pw@"))
    };
    let hands = async_nats::ConnectOptions::with_user_and_password("admin".into(), "pw".into());
    let hands = hands.connect(server.url()).await.unwrap();
    super::nats::stream(&hands, "CREATE", "mail", &json!({})).await;
    let nats = || Arc::new(Nats::new(&as_user("app")).unwrap().stream("mail"));

    // The account may not publish to `mail.theirs`.
    let names = [
        "mail.theirs",
        "mail.mine",
        "mail.mine",
        "mail.theirs",
        "mail.mine",
    ];
    let waiting = Waiting::on(nats(), &names).await;
    waiting
        .says(&["Permissions Violation for Publish to \"mail.theirs\""])
        .await;
    assert_eq!(unfinished(&waiting.setup.client).await, 2);
    allow(r#"[">"]"#, inbox);
    server.restart().unwrap();
    waiting.finish().await;

    // An account that receives no answers cannot check the server.
    allow(r#"[">"]"#, r#"["nothing"]"#);
    server.restart().unwrap();
    let setup = setup().await;
    enqueue(&setup.client, &["mail.mine"; 3]).await;
    let relay = Relay::to_any(nats()).start().await.unwrap();
    let worker = setup.consumer(relay.clone()).await;
    let is_reported = async || {
        let error = relay.status().last_error.unwrap_or_default();
        Ok(error.contains("Permissions Violation for Subscription"))
    };
    eventually(SOON, "the error is reported", is_reported)
        .await
        .unwrap();
    allow(r#"[">"]"#, inbox);
    server.restart().unwrap();
    all_done(&setup.client).await;
    assert_eq!(relay.status().retried, 0);
    worker.stop().await.unwrap();
}

/// The mock of Kafka's client library shows how that library handles the answers.
#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_kafka_permissions_count_no_attempt() {
    use posthaste_relay::Kafka;
    use rdkafka::mocking::MockCluster;
    use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

    for (api, code, text) in [
        (
            RDKafkaApiKey::Produce,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
            "grant the account WRITE",
        ),
        (
            RDKafkaApiKey::InitProducerId,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED,
            "grant the account IDEMPOTENT_WRITE",
        ),
    ] {
        let cluster = MockCluster::new(1).unwrap();
        cluster.request_errors(api, &[code; 10_000]);
        let kafka = Kafka::new(&cluster.bootstrap_servers()).unwrap();
        let waiting = Waiting::on(Arc::new(kafka), &["mine"; 12]).await;
        waiting.says(&[text]).await;
        cluster.clear_request_errors(api);
        waiting.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn smtp_denials_of_the_account_count_no_attempt() {
    let test = "smtp_denials_of_the_account_count_no_attempt";
    if !are_here(test, &[Receiver::Smtp]) {
        return;
    }
    let server = receivers::Smtp::start().unwrap();
    for (step, answer) in [
        ("mail", "530 5.7.0 Authentication required"),
        ("mail", "454 4.7.0 Temporary authentication failure"),
        (
            "mail",
            "553 5.7.1 Sender address rejected: not owned by user",
        ),
        ("rcpt", "530 5.7.0 Must issue a STARTTLS command first"),
        ("data", "550 5.7.13 User account disabled"),
    ] {
        server.set_behaviour(&json!({ step: answer })).unwrap();
        let smtp = Smtp::new(&server.url()).unwrap();
        let smtp = smtp.from("us@example.com").to("them@example.com");
        let waiting = Waiting::on(Arc::new(smtp), &["m"; 6]).await;
        let (code, text) = answer.split_once(' ').unwrap();
        waiting.says(&[code, text, "; set a "]).await;
        server.set_behaviour(&json!({})).unwrap();
        waiting.finish().await;
    }
    assert_eq!(server.effects().unwrap().len(), 5 * 6, "each once");

    // A sender that the job sets concerns that job only.
    let from = Template::parse("{kwargs.from}").unwrap();
    let mapping = Mapping::default().header("from", from);
    let order = json!({ "mail": "553 5.7.1 Sender address rejected" });
    server.set_behaviour(&order).unwrap();
    let setup = setup().await;
    let job = "SELECT posthaste.enqueue('m', '{\"from\": \"eve@example.com\"}', queue => 'mail')";
    setup.client.run(job).await.unwrap();
    let smtp = Smtp::new(&server.url()).unwrap().to("them@example.com");
    let relay = Relay::to(smtp).mapping(mapping).start().await.unwrap();
    let worker = setup.consumer(relay.clone()).await;
    let is_discarded = async || Ok(relay.status().rejected == 1);
    eventually(SOON, "it is discarded", is_discarded)
        .await
        .unwrap();
    worker.stop().await.unwrap();
}
