//! Runs the pages for new users as they are written.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use posthaste_testkit::receivers::{Kafka, Receiver, Redis, are_here};
use posthaste_testkit::{Child, TestDb, eventually};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Headers as _, Message as _, OwnedMessage};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde_json::Value;
use tokio_postgres::Client;

use crate::stage::{self, BOUND, Stage};

/// Returns the steps of a page: its fenced blocks, each with its language.
fn steps(page: &str) -> Vec<(String, String)> {
    let fenced = page.split("```").skip(1).step_by(2);
    fenced
        .filter_map(|block| block.split_once('\n'))
        .map(|(language, text)| (language.to_owned(), text.to_owned()))
        .collect()
}

fn page(name: &str) -> anyhow::Result<String> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/");
    std::fs::read_to_string(format!("{root}{name}")).with_context(|| name.to_owned())
}

/// A new user at a terminal.
struct Newcomer {
    stage: Stage,
    database: TestDb,
    client: Client,
    redis: Redis,
    /// Placeholders of the pages with their values in the test.
    places: Vec<(&'static str, String)>,
    up: Option<Child>,
}

impl Newcomer {
    async fn follow(&mut self, page: &str) -> anyhow::Result<()> {
        for (language, text) in steps(page) {
            match &*language {
                "sql" => self.client.batch_execute(&text).await?,
                "toml" => self.write(&text)?,
                "sh" => {
                    for line in text.lines() {
                        self.type_in(line).await.context(line.to_owned())?;
                    }
                }
                other => anyhow::bail!("a block of {other}"),
            }
        }
        Ok(())
    }

    fn write(&self, text: &str) -> anyhow::Result<()> {
        let mut text = text.to_owned();
        for (written, here) in &self.places {
            text = text.replace(written, here);
        }
        self.stage.write("posthaste.toml", &text).map(drop)
    }

    /// Runs a line of a shell and compares its output with the page.
    async fn type_in(&mut self, line: &str) -> anyhow::Result<()> {
        let (command, printed) = line.split_once(" # ").unwrap_or((line, ""));
        let words: Vec<&str> = command.split_whitespace().collect();
        match &words[..] {
            ["posthaste", "up", "&"] => {
                let mut up = self.stage.spawn_on(&self.database, &["up"])?;
                up.error_line("Ctrl-C stops", BOUND).await?;
                self.up = Some(up);
            }
            ["posthaste", arguments @ ..] => {
                let output = self.stage.run_on(&self.database, arguments).await?.good()?;
                let (output, printed) = (masked(&output)?, masked(printed)?);
                ensure!(
                    output.starts_with(printed.trim_end_matches('…')),
                    "{output}"
                );
            }
            ["redis-cli", question @ ..] => {
                let begin = printed.trim_end_matches(['…', ' ']);
                let is_there = async || {
                    let answer = self.redis.ask(question)?;
                    let first = answer[0].as_str().unwrap_or_default();
                    ensure!(first.is_empty() || first.starts_with(begin), "{answer}");
                    Ok(!first.is_empty())
                };
                eventually(BOUND, "it is in Redis", is_there).await?;
            }
            _ => anyhow::bail!("no command of the page"),
        }
        Ok(())
    }

    async fn stop(&mut self) -> anyhow::Result<()> {
        let mut up = self.up.take().context("nothing runs")?;
        up.terminate()?;
        let ended = up.exit(BOUND).await?;
        ensure!(ended.success(), "{:?}", up.stderr());
        Ok(())
    }

    async fn status(&self) -> anyhow::Result<String> {
        self.stage.run_on(&self.database, &["status"]).await?.good()
    }
}

/// Replaces positions in the log, which differ.
fn masked(text: &str) -> anyhow::Result<String> {
    let lsn = regex::Regex::new("[0-9A-F]+/[0-9A-F]+")?;
    Ok(lsn.replace_all(text.trim(), "LSN").into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quickstart_runs_as_written() -> anyhow::Result<()> {
    let test = "the_quickstart_runs_as_written";
    if !are_here(test, &[Receiver::Redis, Receiver::Kafka]) {
        return Ok(());
    }
    let (_server, database) = stage::with_logical_log().await?;
    let redis = Redis::start(&[("appendonly", "yes")])?;
    let topic = format!("orders-{}", uuid::Uuid::new_v4());
    let places = vec![
        ("localhost:6379", format!("127.0.0.1:{}", redis.port())),
        ("localhost:9092", Kafka::shared()?.bootstrap()),
        ("topic = \"orders\"", format!("topic = \"{topic}\"")),
    ];
    let mut newcomer = Newcomer {
        stage: Stage::new()?,
        client: database.client().await?,
        database,
        redis,
        places,
        up: None,
    };
    let page = page("start/outbox.md")?;
    let (sidekiq, kafka) = page.split_once("## Kafka").context("two halves")?;
    newcomer.follow(sidekiq).await?;

    newcomer.redis.stop()?;
    let all = steps(sidekiq);
    let mut inserts = all.iter().filter(|(_, text)| text.starts_with("INSERT"));
    let (_, insert) = inserts.next_back().context("a row")?;
    newcomer.client.batch_execute(insert).await?;
    eventually(BOUND, "the status names the dead route", async || {
        let status = newcomer.status().await?;
        Ok(status.contains("  down") && status.contains("orders   running"))
    })
    .await?;
    newcomer.redis.restart()?;
    eventually(BOUND, "the row is sent", async || {
        let count = newcomer.redis.ask(&["llen", "queue:default"]);
        Ok(count.is_ok_and(|count| count == 2))
    })
    .await?;
    newcomer.stop().await?;

    make_topic(&topic).await?;
    newcomer.follow(kafka).await?;
    newcomer.type_in("posthaste up &").await?;
    newcomer.client.batch_execute(insert).await?;
    let record = first_record(&topic).await?;
    let payload: Value = serde_json::from_slice(record.payload().unwrap_or_default())?;
    assert_eq!(payload, serde_json::json!({"order": 7}));
    assert_eq!(record.key(), Some(&b"7"[..]));
    let headers = headers(&record);
    let names: Vec<&str> = headers.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["id", "name", "position"]);
    assert_eq!(headers[1].1, "order.paid");
    newcomer.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_an_event_router_sends_the_same_records() -> anyhow::Result<()> {
    let test = "a_file_of_an_event_router_sends_the_same_records";
    if !are_here(test, &[Receiver::Kafka]) {
        return Ok(());
    }
    let (_server, database) = stage::with_logical_log().await?;
    let (stage, client) = (Stage::new()?, database.client().await?);
    let table = "CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), \
         aggregatetype varchar(255), aggregateid varchar(255), type varchar(255), payload jsonb)";
    client.batch_execute(table).await?;
    let page = page("guides/capture-debezium.md")?;
    let steps = steps(&page);
    let (_, file) = steps.first().context("a file")?;
    let file = file.replace("localhost:9092", &Kafka::shared()?.bootstrap());
    stage.write("posthaste.toml", &file)?;
    let kind = format!("order-{}", uuid::Uuid::new_v4());
    let topic = format!("outbox.event.{kind}");
    make_topic(&topic).await?;
    for arguments in [&["migrate"][..], &["capture", "install"]] {
        stage.run_on(&database, arguments).await?.good()?;
    }
    let insert = "INSERT INTO outbox (aggregatetype, aggregateid, type, payload) \
                  VALUES ($1, '7', 'OrderPaid', '{\"order\": 7}') RETURNING id::text";
    let id: String = client.query_one(insert, &[&kind]).await?.get(0);
    let once = stage.run_on(&database, &["capture", "run", "--once"]);
    assert_eq!(once.await?.good()?, "orders: 1 event sent");
    let record = first_record(&topic).await?;
    assert_eq!(record.key(), Some(&b"7"[..]));
    assert_eq!(record.payload(), Some(&b"{\"order\": 7}"[..]));
    assert_eq!(headers(&record)[0], ("id".to_owned(), id));
    Ok(())
}

async fn make_topic(topic: &str) -> anyhow::Result<()> {
    let admin: AdminClient<DefaultClientContext> = client().create()?;
    let new = NewTopic::new(topic, 1, TopicReplication::Fixed(1));
    for made in admin.create_topics(&[new], &AdminOptions::new()).await? {
        made.map_err(|(topic, error)| anyhow::anyhow!("{topic}: {error}"))?;
    }
    Ok(())
}

fn client() -> ClientConfig {
    let mut client = ClientConfig::new();
    if let Ok(kafka) = Kafka::shared() {
        client.set("bootstrap.servers", kafka.bootstrap());
    }
    client
}

async fn first_record(topic: &str) -> anyhow::Result<OwnedMessage> {
    let consumer: BaseConsumer = client()
        .set("group.id", "tests")
        .set("enable.auto.commit", "false")
        .create()?;
    let mut first = TopicPartitionList::new();
    first.add_partition_offset(topic, 0, Offset::Beginning)?;
    consumer.assign(&first)?;
    let polled = tokio::task::spawn_blocking(move || {
        let message = consumer.poll(BOUND).context("no record came")?;
        anyhow::Ok(message?.detach())
    });
    tokio::time::timeout(BOUND + Duration::from_secs(5), polled).await??
}

fn headers(record: &OwnedMessage) -> Vec<(String, String)> {
    let all = record.headers().into_iter().flat_map(|all| all.iter());
    let text = |value: Option<&[u8]>| String::from_utf8_lossy(value.unwrap_or_default()).into();
    all.map(|one| (one.key.to_owned(), text(one.value)))
        .collect()
}
