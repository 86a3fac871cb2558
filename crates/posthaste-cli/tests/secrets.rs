//! The log contains no payload and no secret, whichever messages a destination's library logs at
//! the enabled level.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::anyhow;
use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use posthaste_testkit::receivers::{
    Encrypts, Guarded, Kafka, Nats, RabbitMq, Receiver, Redis, Smtp, are_here,
};
use posthaste_testkit::{Child, Proxy, Sql as _, TestDb, eventually, number, unique};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use serde_json::Value;

use crate::stage::{self, BOUND, Stage};

/// In the arguments, in headers and in passwords.
const MARK: &str = "geheim7719";
/// The default log filter, and every message of our own crates.
const LOG: &str = "warn,deadpool_postgres=error,posthaste=trace";

/// Returns a route to each available destination, under its queue's name.
async fn routes(stage: &Stage, test: &str) -> anyhow::Result<(BTreeMap<String, String>, Servers)> {
    let mut servers = Servers::default();
    let mut routes = BTreeMap::new();
    let mut add = |name: &str, to: &str, more: &str| {
        let route = format!("to = \"{to}\"\n{more}");
        routes.insert(name.to_owned(), route);
    };
    if are_here(test, &[Receiver::Redis]) {
        let redis = Redis::start(&[("appendonly", "yes"), ("requirepass", MARK)])?;
        let port = redis.port();
        for kind in ["sidekiq", "asynq", "bullmq", "celery+redis"] {
            let name = kind.replace("+redis", "");
            add(&name, &format!("{kind}://:{MARK}@127.0.0.1:{port}/0"), "");
        }
        // Redis has another password.
        add(
            "wrong",
            &format!("sidekiq://:{MARK}x@127.0.0.1:{port}/0"),
            "",
        );
        servers.redis = Some(redis);
    }
    if are_here(test, &[Receiver::RabbitMq]) {
        let proxy = Proxy::start_raw((Ipv4Addr::LOCALHOST, RabbitMq::shared()?.port()).into());
        let proxy = proxy.await?;
        let url = format!("amqp://guest:guest@{}/relay", proxy.address());
        let header = format!("headers = {{ token = \"{MARK}\" }}\n");
        // No queue is declared for it: the message is returned.
        add(
            "rabbitmq",
            &url,
            &format!("{header}routing_key = \"none\"\n"),
        );
        add("celeryamqp", &url.replacen("amqp", "celery+amqp", 1), "");
        add(
            "stranger",
            &url.replacen("guest:guest", &format!("ada:{MARK}"), 1),
            "",
        );
        servers.rabbitmq = Some(proxy);
    }
    if are_here(test, &[Receiver::Nats]) {
        let nats = Nats::start()?;
        let header = format!("headers = {{ token = \"{MARK}\" }}\n");
        // No stream has this subject.
        let allow = "allow_unsafe = [\"stream\"]\nsubject = \"none\"\n";
        add("nats", &nats.url(), &format!("{header}{allow}"));
        servers.nats = Some(nats);
    }
    if are_here(test, &[Receiver::Kafka]) {
        let bootstrap = Kafka::shared()?.bootstrap();
        let topic = unique("secrets");
        let mut config = ClientConfig::new();
        let admin: AdminClient<DefaultClientContext> =
            config.set("bootstrap.servers", &bootstrap).create()?;
        let new = NewTopic::new(&topic, 1, TopicReplication::Fixed(1));
        for made in admin.create_topics(&[new], &AdminOptions::new()).await? {
            made.map_err(|(topic, code)| anyhow!("{topic}: {code}"))?;
        }
        let to = format!("kafka://{bootstrap}");
        let header = format!("headers = {{ token = \"{MARK}\" }}\n");
        add("kafka", &to, &format!("{header}topic = \"{topic}\"\n"));
        let sasl = format!(
            "settings = {{ \"security.protocol\" = \"sasl_plaintext\", \"sasl.mechanism\" = \
             \"PLAIN\", \"sasl.username\" = \"ada\", \"sasl.password\" = \"{MARK}\" }}\n"
        );
        add("sasl", &to, &format!("{sasl}topic = \"{topic}\"\n"));
    }
    if are_here(test, &[Receiver::Smtp]) {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
        let guarded = Guarded {
            encrypts: Encrypts::AfterStarttls,
            certificate: stage.write("certificate.pem", &made.cert.pem())?,
            key: stage.write("key.pem", &made.signing_key.serialize_pem())?,
            user: "ada",
            password: MARK,
        };
        let smtp = Smtp::start_guarded(&guarded)?;
        let mails = "mail_from = \"us@example.com\"\nmail_to = \"them@example.com\"\n";
        for (name, password) in [("smtp", MARK.to_owned()), ("smtpwrong", format!("{MARK}x"))] {
            let to = format!("smtp://ada:{password}@127.0.0.1:{}", smtp.port());
            add(name, &to, mails);
        }
        servers.smtp = Some(smtp);
    }
    let webhook =
        format!("networks = [\"127.0.0.1\"]\nheaders = {{ authorization = \"Bearer {MARK}\" }}\n");
    add("webhook", &format!("http://127.0.0.1:1/{MARK}"), &webhook);
    Ok((routes, servers))
}

#[derive(Default)]
struct Servers {
    redis: Option<Redis>,
    /// A proxy, because other tests continue to use the server.
    rabbitmq: Option<Proxy>,
    nats: Option<Nats>,
    smtp: Option<Smtp>,
}

#[tokio::test(flavor = "multi_thread")]
async fn destinations_log_neither_payloads_nor_secrets() -> anyhow::Result<()> {
    let test = "destinations_log_neither_payloads_nor_secrets";
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let (routes, servers) = routes(&stage, test).await?;
    let file: Vec<String> = routes
        .iter()
        .map(|(name, route)| format!("[route.{name}]\n{route}"))
        .collect();
    stage.write("posthaste.toml", &file.join("\n"))?;
    for name in routes.keys() {
        let enqueue = "SELECT posthaste.enqueue('mail', jsonb_build_object('text', $2::text),
            queue => $1) FROM generate_series(1, 20)";
        client.execute(enqueue, &[name, &MARK]).await?;
    }
    let mut command = stage.command(&["relay", "run"]);
    command
        .env("DATABASE_URL", database.url())
        .env("POSTHASTE_LOG", LOG)
        .env("SSL_CERT_FILE", stage.folder.join("certificate.pem"));
    let mut relay = Child::spawn(&mut command)?;
    relay.error_line("Ctrl-C stops", BOUND).await?;
    // Counts the relays in this state, by the last report of each.
    let relays = async |are: &str| {
        let relays = format!(
            "SELECT count(*) FILTER (WHERE {are}) FROM (
               SELECT DISTINCT ON (route) * FROM posthaste.relay ORDER BY route, at DESC) r"
        );
        anyhow::Ok(usize::try_from(number(&client, &relays).await?)?)
    };
    eventually(BOUND, "each has sent, or says why not", async || {
        Ok(
            relays("accepted > 0 OR last_error IS NOT NULL AND route <> 'kafka'").await?
                == routes.len(),
        )
    })
    .await?;
    // The servers end while connections are open.
    drop(servers);
    let again = "SELECT posthaste.enqueue('mail', jsonb_build_object('text', $2::text), queue => q)
        FROM unnest($1::text[]) q, generate_series(1, 20)";
    let queues: Vec<&String> = routes.keys().collect();
    client.execute(again, &[&queues, &MARK]).await?;
    eventually(BOUND, "it is noticed", async || {
        let fails = "route = 'kafka' OR failing_since IS NOT NULL OR down_since IS NOT NULL";
        Ok(relays(fails).await? == routes.len())
    })
    .await?;
    let status = stage.run_on(&database, &["status", "--json"]).await?;
    let status = status.good()?;
    relay.terminate()?;
    relay.exit(BOUND).await?;
    let (out, err) = (relay.stdout(), relay.stderr());
    assert!(
        err.iter()
            .any(|line| line.contains("does not answer; its jobs wait"))
    );
    for line in out
        .iter()
        .chain(&err)
        .map(String::as_str)
        .chain(status.lines())
    {
        assert!(!line.contains(MARK), "{line}");
    }
    Ok(())
}

/// Starts a search server that rejects every request and echoes its credentials.
async fn refuses() -> anyhow::Result<std::net::SocketAddr> {
    let answer = async |headers: HeaderMap, body: String| {
        let key = headers.get("authorization");
        let key = key.and_then(|key| key.to_str().ok()).unwrap_or_default();
        (StatusCode::UNAUTHORIZED, format!("not {key}: {body}"))
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    Ok(address)
}

/// Stops a process, and checks all its output and its reports in the database.
async fn says_no_secret(mut child: Child, stage: &Stage, database: &TestDb) -> anyhow::Result<()> {
    let status = stage
        .run_on(database, &["status", "--json"])
        .await?
        .good()?;
    let doctor = stage.run_on(database, &["doctor"]).await?.out;
    let client = database.client().await?;
    let errors = "SELECT coalesce(string_agg(e, ' '), '') FROM (
        SELECT DISTINCT error FROM posthaste.attempt UNION
        SELECT DISTINCT last_error FROM posthaste.job) e(e)";
    let errors: String = client.query_one(errors, &[]).await?.try_get(0)?;
    child.terminate()?;
    child.exit(BOUND).await?;
    let output = [child.stdout(), child.stderr(), vec![status, doctor, errors]].concat();
    // A password is sent as base64 too.
    for secret in [MARK, "YWRhOmdlaGVpbTc3MTk", &MARK.to_uppercase()] {
        for line in &output {
            anyhow::ensure!(!line.contains(secret), "{line}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sync_errors_show_no_password() -> anyhow::Result<()> {
    for place in [refuses().await?.to_string(), "127.0.0.1:1".to_owned()] {
        let (stage, database) = (Stage::new()?, stage::database().await?);
        let client = database.client().await?;
        client
            .run("CREATE TABLE page (id bigint PRIMARY KEY, title text)")
            .await?;
        let file = format!(
            "[sync.pages]\ntable = 'page'\ndelay = '0s'\nperiod = '1s'\n\
             document = {{ title = 'title' }}\nindex = 'http://ada:{MARK}@{place}/pages'\n"
        );
        stage.write("posthaste.toml", &file)?;
        let install = stage.run_on(&database, &["sync", "install"]).await?;
        install.good()?;
        let sync = stage.spawn_on(&database, &["sync", "run"])?;
        let row = "INSERT INTO page VALUES (1, $1)";
        client.execute(row, &[&MARK]).await?;
        eventually(BOUND, "it fails, and says why", async || {
            let status = stage.run_on(&database, &["status", "--json"]).await?;
            let document: Value = serde_json::from_str(&status.good()?)?;
            Ok(document["syncs"][0]["problems"][0]["reason"].is_string())
        })
        .await?;
        says_no_secret(sync, &stage, &database).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn http_worker_errors_show_neither_payload_nor_password() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let http = format!("mail=http://ada:{MARK}@127.0.0.1:1/{MARK}");
    let mut command = stage.command(&["work", "--http", &http]);
    command.env("NO_PROXY", "127.0.0.1");
    let mut worker = Child::spawn(command.env("DATABASE_URL", database.url()))?;
    let enqueue = "SELECT posthaste.enqueue('mail', jsonb_build_object('text', $1::text))";
    client.execute(enqueue, &[&MARK]).await?;
    worker.error_line("accepts no jobs", BOUND).await?;
    eventually(BOUND, "the reason is recorded", async || {
        let failed = "SELECT count(*) FROM posthaste.job WHERE last_error <> ''";
        Ok(number(&client, failed).await? > 0)
    })
    .await?;
    says_no_secret(worker, &stage, &database).await
}
