//! Each receiver accepts a job from its client library, and keeps its data after a kill.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::ensure;
use posthaste_testkit::receivers::Receiver::{self, Asynq, BullMq, Celery, Sidekiq};
use posthaste_testkit::receivers::{
    self, Effect, Kafka, Nats, OpenSearch, RabbitMq, Redis, Smtp, Worker,
};
use serde_json::json;

use crate::BOUND;

/// Settings with which acknowledged data survives a kill of Redis.
const DURABLE: [(&str, &str); 2] = [("appendonly", "yes"), ("appendfsync", "always")];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sidekiq_runs_jobs_of_its_client() -> anyhow::Result<()> {
    let program = "
        require 'sidekiq'
        Sidekiq::Client.push('class' => 'Mail::Job', 'args' => [ARGV[0], \
        {'n' => 12345678901234567890}], 'jid' => ARGV[0])";
    survives_kills("sidekiq", Sidekiq, Worker::sidekiq, |redis, id| {
        let mut client = Command::new("ruby");
        client.env("REDIS_URL", redis).args(["-e", program, id]);
        client
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asynq_runs_tasks_of_its_client() -> anyhow::Result<()> {
    survives_kills("asynq", Asynq, Worker::asynq, |redis, id| {
        let mut client = Command::new(Asynq.find().unwrap_or_default());
        let payload = format!("[\"{id}\",{{\"n\":12345678901234567890}}]");
        client
            .env("REDIS_URL", redis)
            .args(["default", id, "Mail::Job", &payload]);
        client
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn celery_on_redis_runs_tasks_of_its_client() -> anyhow::Result<()> {
    survives_kills("celery on redis", Celery, Worker::celery, send_task).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bullmq_runs_jobs_of_its_client() -> anyhow::Result<()> {
    let program = "
        const { Queue } = require('bullmq');
        const queue = new Queue('default', { connection: { port: Number(new \
        URL(process.env.REDIS_URL).port) } });
        const data = JSON.parse(process.argv[1]);
        queue.add('Mail::Job', data, { jobId: data[0] }).then(() => queue.close());";
    survives_kills("bullmq", BullMq, Worker::bullmq, |redis, id| {
        let mut client = Command::new("node");
        let data = format!("[\"{id}\",{{\"n\":1.5}}]");
        client
            .env(
                "NODE_PATH",
                root().join(".tools/receivers/bullmq/node_modules"),
            )
            .env("REDIS_URL", redis)
            .args(["-e", program, &data]);
        client
    })
    .await
}

/// A job sent while the worker runs, and one sent while it is dead and before Redis is killed, are
/// both done.
async fn survives_kills(
    name: &str,
    receiver: Receiver,
    worker: fn(&str, &[&str]) -> anyhow::Result<Worker>,
    client: impl Fn(&str, &str) -> Command,
) -> anyhow::Result<()> {
    let test = format!("{name} takes a job from its client");
    if !receivers::are_here(&test, &[Receiver::Redis, receiver]) {
        return Ok(());
    }
    let redis = Redis::start(&DURABLE)?;
    let worker = worker(&redis.url(), &["default"])?;
    run(&mut client(&redis.url(), "first"))?;
    let effects = worker.wait_for(1, BOUND).await?;
    assert_eq!(effects[0].id, "first", "{effects:?}");
    assert_eq!(effects[0].name, "Mail::Job");
    assert_eq!(effects[0].args[0], "first");
    assert!(effects[0].args[1]["n"].is_number());

    worker.kill9()?;
    run(&mut client(&redis.url(), "second"))?;
    redis.kill9()?;
    redis.restart()?;
    worker.restart()?;
    // The first may be repeated: the worker was killed, perhaps before it acknowledged the job.
    has(&worker, "second").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn celery_on_rabbitmq_runs_tasks_of_its_client() -> anyhow::Result<()> {
    if !receivers::are_here(
        "celery on rabbitmq takes a job",
        &[Receiver::RabbitMq, Celery],
    ) {
        return Ok(());
    }
    let url = RabbitMq::shared()?.url("celery")?;
    let worker = Worker::celery(&url, &["default"])?;
    run(&mut send_task(&url, "first"))?;
    let effects = worker.wait_for(1, BOUND).await?;
    assert_eq!((&*effects[0].id, &*effects[0].name), ("first", "Mail::Job"));
    worker.kill9()?;
    run(&mut send_task(&url, "second"))?;
    worker.restart()?;
    has(&worker, "second").await
}

fn send_task(broker: &str, id: &str) -> Command {
    python(
        broker,
        "import celery, sys
app = celery.Celery(broker=sys.argv[1])
app.send_task('Mail::Job', [sys.argv[2], {'n': 12345678901234567890}], queue='default', \
task_id=sys.argv[2])",
        id,
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rabbitmq_keeps_confirmed_messages_and_blocks_on_a_disk_alarm() -> anyhow::Result<()> {
    let test = "rabbitmq keeps what it confirmed and blocks by its disk alarm";
    if !receivers::are_here(test, &[Receiver::RabbitMq, Celery]) {
        return Ok(());
    }
    let rabbitmq = RabbitMq::start()?;
    let url = rabbitmq.url("mail")?;
    let publish = |id: &str| python(&url, PUBLISH, id);
    run(&mut publish("first"))?;
    rabbitmq.keep_declarations()?;
    rabbitmq.kill9()?;
    rabbitmq.restart()?;
    let worker = Worker::rabbitmq(&url, &["mails"])?;
    let effects = worker.wait_for(1, BOUND).await?;
    assert_eq!(
        (&*effects[0].id, &effects[0].args),
        ("first", &json!(["first"]))
    );

    rabbitmq.set_disk_alarm(true)?;
    let mut blocked = publish("second").spawn()?;
    // The client has been blocked for this long, unless the server accepted the message.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(blocked.try_wait()?.is_none(), "it was not blocked");
    rabbitmq.set_disk_alarm(false)?;
    has(&worker, "second").await?;
    assert!(blocked.wait()?.success());
    Ok(())
}

/// Declares a durable queue and publishes one persistent message, confirmed.
const PUBLISH: &str = "import kombu, sys, json
with kombu.Connection(sys.argv[1], transport_options={'confirm_publish': True}) as connection:
    queue = kombu.Queue('mails', durable=True)
    connection.Producer().publish(json.dumps([sys.argv[2]]), routing_key='mails', declare=[queue],
        content_type='application/json', content_encoding='utf-8', delivery_mode=2, \
        message_id=sys.argv[2])";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_deduplicates_messages_published_twice() -> anyhow::Result<()> {
    if !receivers::are_here("nats keeps a message once", &[Receiver::Nats, Celery]) {
        return Ok(());
    }
    let nats = Nats::start()?;
    let worker = Worker::nats(&nats.url(), "mail", Duration::from_secs(60))?;
    let publish = |id: &str| {
        python(
            &nats.url(),
            "import asyncio, json, nats, sys
async def main():
    connection = await nats.connect(sys.argv[1])
    data = json.dumps([sys.argv[2]]).encode()
    for _ in range(2):
        await connection.jetstream().publish('mail.sent', data, headers={'Nats-Msg-Id': \
        sys.argv[2]})
    await connection.close()
asyncio.run(main())",
            id,
        )
    };
    run(&mut publish("first"))?;
    worker.wait_for(1, BOUND).await?;
    worker.kill9()?;
    run(&mut publish("second"))?;
    nats.kill9()?;
    nats.restart()?;
    worker.restart()?;
    has(&worker, "second").await?;
    let effects = worker.effects()?;
    let sequences = |id: &str| {
        let of = effects.iter().filter(|effect| effect.id == id);
        of.map(|effect| effect.all["sequence"].clone())
            .collect::<Vec<_>>()
    };
    assert!(sequences("first").iter().all(|sequence| *sequence == 1));
    assert!(sequences("second").iter().all(|sequence| *sequence == 2));
    assert_eq!(effects[0].name, "mail.sent");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kafka_keeps_acknowledged_records() -> anyhow::Result<()> {
    if !receivers::are_here(
        "kafka keeps what it acknowledged",
        &[Receiver::Kafka, Celery],
    ) {
        return Ok(());
    }
    let kafka = Kafka::start(&[])?;
    let produce = |id: &str| {
        python(
            &kafka.bootstrap(),
            "import confluent_kafka, json, sys
producer = confluent_kafka.Producer({'bootstrap.servers': sys.argv[1], 'enable.idempotence': True})
producer.produce('mail', json.dumps([sys.argv[2]]), key='k', headers={'id': sys.argv[2]})
sys.exit(producer.flush(60))",
            id,
        )
    };
    run(&mut produce("first"))?;
    kafka.kill9()?;
    kafka.restart()?;
    let worker = Worker::kafka(&kafka.bootstrap(), "mail")?;
    let effects = worker.wait_for(1, BOUND).await?;
    assert_eq!(
        (&*effects[0].id, &effects[0].args),
        ("first", &json!(["first"]))
    );
    assert_eq!(effects[0].all["key"], "k");
    run(&mut produce("second"))?;
    has(&worker, "second").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opensearch_runs_scripts_and_keeps_acknowledged_writes() -> anyhow::Result<()> {
    let test = "opensearch runs scripts and keeps what it acknowledged";
    if !receivers::are_here(test, &[Receiver::OpenSearch, Celery]) {
        return Ok(());
    }
    let server = OpenSearch::start(&[])?;
    let call = |call: &str, body: &serde_json::Value| -> anyhow::Result<serde_json::Value> {
        let program = "import sys, urllib.request
method, path = sys.argv[2].split()
request = urllib.request.Request(sys.argv[1] + path, method=method, data=sys.argv[3].encode(),
    headers={'Content-Type': 'application/json'})
sys.stdout.write(urllib.request.urlopen(request, timeout=60).read().decode())";
        let mut client = python(&server.url(), program, call);
        let output = client.arg(body.to_string()).output()?;
        ensure!(output.status.success(), "{call}: {output:?}");
        Ok(serde_json::from_slice(&output.stdout)?)
    };
    let set = json!({"set": {"field": "at", "value": "{{_ingest.timestamp}}"}});
    call("PUT /_ingest/pipeline/stamp", &json!({"processors": [set]}))?;
    let add = json!({"script": {"lang": "painless", "source": "ctx._source.n += params.by"}});
    call("PUT /_scripts/add", &add)?;
    call("PUT /kept/_create/a?pipeline=stamp", &json!({"n": 1}))?;
    let by_script = json!({"script": {"id": "add", "params": {"by": 4}}});
    let updated = call("POST /kept/_update/a", &by_script)?;
    assert_eq!(updated["result"], "updated", "{updated}");

    server.kill9()?;
    server.restart()?;
    call("POST /kept/_update_by_query?refresh=true", &by_script)?;
    let kept = call("GET /kept/_doc/a", &json!({}))?;
    assert_eq!(kept["_source"]["n"], 9, "{kept}");
    assert!(kept["_source"]["at"].is_string(), "{kept}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mail_servers_accept_refuse_and_disconnect_as_configured() -> anyhow::Result<()> {
    if !receivers::are_here("a mail server takes, refuses and cuts", &[Receiver::Smtp]) {
        return Ok(());
    }
    let smtp = Smtp::start()?;
    let send = |id: &str| {
        python(
            &smtp.port().to_string(),
            "import smtplib, sys
with smtplib.SMTP('127.0.0.1', int(sys.argv[1])) as server:
    mail = f'Message-ID: <{sys.argv[2]}@posthaste>\\r\\nSubject: s\\r\\n\\r\\nbody'
    server.sendmail('from@example.com', ['to@example.com'], mail)",
            id,
        )
    };
    run(&mut send("first"))?;
    let effects = smtp.wait_for(1, BOUND).await?;
    assert_eq!(effects[0].id, "<first@posthaste>");
    assert_eq!(effects[0].args, json!(["to@example.com"]));

    smtp.set_behaviour(&json!({"rcpt": "550 no such user"}))?;
    assert!(failure(&mut send("second"))?.contains("550"));
    smtp.set_behaviour(&json!({"data": "451 try again"}))?;
    assert!(failure(&mut send("third"))?.contains("451"));
    assert_eq!(smtp.effects()?.len(), 1);

    smtp.set_behaviour(&json!({"cut": true}))?;
    assert!(failure(&mut send("fourth"))?.contains("SMTPServerDisconnected"));
    assert_eq!(
        smtp.effects()?.len(),
        2,
        "it was taken, and nobody was told"
    );
    smtp.kill9()?;
    smtp.restart()?;
    smtp.set_behaviour(&json!({}))?;
    run(&mut send("fifth"))?;
    assert_eq!(std::fs::read_dir(smtp.path().join("mail/new"))?.count(), 3);
    Ok(())
}

async fn has(worker: &Worker, id: &str) -> anyhow::Result<()> {
    let is_there = async || {
        Ok(worker
            .effects()?
            .iter()
            .any(|effect: &Effect| effect.id == id))
    };
    posthaste_testkit::eventually(BOUND, &format!("the effect of {id}"), is_there).await
}

fn python(url: &str, program: &str, id: &str) -> Command {
    let mut client = Command::new(Celery.find().unwrap_or_default());
    client.args(["-c", program, url, id]).stderr(Stdio::piped());
    client
}

fn run(client: &mut Command) -> anyhow::Result<()> {
    let output = client.output()?;
    ensure!(output.status.success(), "{client:?}: {output:?}");
    Ok(())
}

fn failure(client: &mut Command) -> anyhow::Result<String> {
    let output = client.output()?;
    ensure!(!output.status.success(), "{client:?}: {output:?}");
    Ok(String::from_utf8(output.stderr)?)
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
