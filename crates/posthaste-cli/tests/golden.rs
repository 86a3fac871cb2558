//! The output of each command in normal and failing cases: `tests/golden` has a file for each
//! command. A changed message appears there as a difference to review.

mod transcript;

use posthaste_testkit::elastic::FakeElastic;
use posthaste_testkit::{PgServer, PgVersion, TestDb};
use tokio_postgres::Client;

use crate::stage::{BOUND, Stage};
use transcript::Transcripts;

/// Nothing listens on this port.
const ABSENT: &str = "postgres://127.0.0.1:1/orders";

const FILE: &str = "[route.audit]
queue = 'audit'
to = 'stdout:'

[sync.pages]
table = 'page'
index = 'postgres:'
delay = '0s'
period = '1s'

[capture.orders]
outbox = 'public.outbox'
";

const TABLES: &str = "CREATE TABLE page (id bigint PRIMARY KEY, title text);
    INSERT INTO page VALUES (1, 'haste'), (2, 'less');
    CREATE TABLE outbox (type text, payload text, headers text)";

/// Inserts three dead jobs.
const FAILED: &str =
    "INSERT INTO posthaste.dead (id, died_at, enqueued_at, scheduled_at, expires_at,
      priority, attempt, kwargs_bytes, crashes, state, queue, name, tag, kwargs, last_error)
    SELECT nextval('posthaste.job_id'), now(), now(), now(), now() + interval '30 days', 0, 25, 2,
      0, 'dead', 'mail', 'mail.send', '', '{}', '550 no such mailbox' FROM generate_series(1, 3)";

#[tokio::test(flavor = "multi_thread")]
async fn commands_print_the_recorded_sentences() -> anyhow::Result<()> {
    let settings = [("wal_level", "logical"), ("max_prepared_transactions", "0")];
    let server = PgServer::start(PgVersion::V15, &settings)?;
    let database = TestDb::empty(&server).await?;
    let mut all = Transcripts::new(Stage::new()?, &database).await?;
    let client = database.client().await?;
    usage(&mut all).await?;
    setup(&mut all, &client).await?;
    jobs(&mut all, &client).await?;
    queues(&mut all).await?;
    destinations(&mut all, &client).await?;
    captures(&mut all, &client).await?;
    two_phase(&mut all).await?;
    observe(&mut all, &client).await?;
    workers(&mut all, &client).await?;
    unreachable_destination(&mut all, &client).await?;
    drop(client);
    all.compare()
}

/// Invalid arguments, and commands that need no database.
async fn usage(all: &mut Transcripts) -> anyhow::Result<()> {
    for line in [
        "",
        "statsu",
        "jobs",
        "jobs enqeue",
        "relay",
        "status --wach",
        "sync run --repair",
        "completions fish2",
        "manual jobs nope",
        "health http://127.0.0.1:1/ready",
        "work",
        "work --exec mail.send",
        "exporter --listen nope",
        "console --listen 0.0.0.0:0",
        "top --every often",
    ] {
        all.run(line).await?;
    }
    for line in ["status", "up --exec x=true", "migrate"] {
        all.run_at(ABSENT, line).await?;
    }
    all.run_at("orders", "status").await?;
    Ok(())
}

/// A database without the schema, then with it.
async fn setup(all: &mut Transcripts, client: &Client) -> anyhow::Result<()> {
    for line in [
        "status",
        "doctor",
        "jobs list",
        "queues list",
        "capture status",
        "work --exec x=true",
        "rebase",
    ] {
        all.run(line).await?;
    }
    for line in ["relay run", "sync run", "capture run", "init", "init"] {
        all.run(line).await?;
    }
    for line in ["migrate", "migrate", "migrate --roles"] {
        all.run(line).await?;
    }
    std::fs::remove_file(all.stage.folder.join("posthaste.toml"))?;
    all.run("demo /nonexistent --once").await?;
    client.batch_execute(TABLES).await?;
    all.stage.write("posthaste.toml", FILE)?;
    Ok(())
}

async fn jobs(all: &mut Transcripts, client: &Client) -> anyhow::Result<()> {
    all.stage
        .write("lines", "{\"name\": \"a\"}\n{\"name\": \"b\"}\n")?;
    all.stage
        .write("broken", "{\"name\": \"a\"}\n{\"nam\": \"b\"}\n")?;
    for line in [
        "jobs list",
        "jobs enqueue mail.send '{\"to\": 7}' --queue mail --priority 10",
        "jobs enqueue mail.send nonsense",
        "jobs enqueue ''",
        "jobs enqueue --file lines",
        "jobs enqueue --file broken",
        "jobs list",
        "jobs list --queue none",
        "jobs list --state lost",
        "jobs show 1",
        "jobs show 999",
        "jobs retry 1 999",
        "jobs retry 1 --queue other",
        "jobs retry --name none",
        "jobs cancel 1 999",
        "jobs cancel 1",
        "jobs cancel --name none",
        "jobs cancel --state dead",
        "jobs cancel",
        "jobs retry 1",
        "jobs redrive 1",
        "jobs redrive 1",
        "jobs redrive --name none",
        "jobs redrive --state scheduled",
    ] {
        all.run(line).await?;
    }
    client.batch_execute(FAILED).await?;
    all.run("jobs list --state dead").await?;
    all.run("jobs show 4").await?;
    Ok(())
}

async fn queues(all: &mut Transcripts) -> anyhow::Result<()> {
    for line in [
        "queues list",
        "queues pause mail",
        "queues pause mail",
        "queues pause ''",
        "queues list",
        "queues resume mail",
        "queues resume mail",
        "queues resume ''",
        "queues limit mail 90/m --burst 3",
        "queues limit mail often",
        "queues keep mail 24h",
        "queues keep mail soon",
        "queues list",
        "queues keep mail none",
        "queues limit mail none",
    ] {
        all.run(line).await?;
    }
    Ok(())
}

/// A relay to standard output, and an index in Postgres.
async fn destinations(all: &mut Transcripts, client: &Client) -> anyhow::Result<()> {
    all.run("relay preview nope").await?;
    all.run("relay preview audit").await?;
    all.run("relay run --once").await?;
    all.run_until("relay run", "Ctrl-C stops").await?;
    for line in [
        "sync search haste",
        "sync install",
        "sync install",
        "sync install nope",
        "sync audit",
        "sync audit nope",
        "sync reindex pages",
        "sync reindex pages --all --dry-run",
        "sync reindex pages --all",
        "sync reindex pages --progress",
        "sync reindex pages --pause",
        "sync reindex pages --resume",
        "sync reindex pages --cancel",
        "sync run --once",
        "sync audit",
        "sync search haste",
        "sync search nothing",
        "sync rebuild pages",
    ] {
        all.run(line).await?;
    }
    client
        .batch_execute("DELETE FROM posthaste.search WHERE id = '2'")
        .await?;
    all.run("sync audit").await?;
    all.run("sync audit --repair").await?;
    all.run_until("sync run", "Ctrl-C stops").await
}

async fn captures(all: &mut Transcripts, client: &Client) -> anyhow::Result<()> {
    for line in [
        "capture status",
        "capture gaps",
        "capture preview orders",
        "capture pause orders",
        "capture install nope",
        "capture install",
    ] {
        all.run(line).await?;
    }
    client
        .batch_execute("INSERT INTO outbox VALUES ('a', 'b')")
        .await?;
    for line in [
        "capture install",
        "capture status",
        "capture preview orders",
        "capture run --once",
    ] {
        all.run(line).await?;
    }
    all.run_until("capture run", "into queue").await?;
    client
        .batch_execute("INSERT INTO outbox VALUES ('a', 'b', '[]')")
        .await?;
    let stopped = all.run("capture run").await?;
    let position = stopped
        .err
        .split("--at ")
        .nth(1)
        .and_then(|rest| rest.split('\'').next());
    all.run("capture skip orders --at 00").await?;
    let skip = format!("capture skip orders --at {}", position.unwrap_or_default());
    all.run(&skip).await?;
    for line in [
        "capture gaps",
        "capture gaps --accept 1",
        "capture gaps --accept 1",
        "capture pause orders",
        "capture pause orders",
        "capture status",
        "capture resume orders",
        "capture resume orders",
        "capture resume nope",
        "capture begin orders",
        "capture begin nope",
        "capture copy orders public.outbox",
        "capture copy orders public.outbox --cancel",
        "capture copy orders public.outbox --cancel",
        "capture copy orders nope",
        "capture copy nope public.outbox",
        "capture remove orders",
        "capture remove orders",
        "capture remove nope",
    ] {
        all.run(line).await?;
    }
    Ok(())
}

async fn two_phase(all: &mut Transcripts) -> anyhow::Result<()> {
    all.run("two-phase list").await?;
    for command in ["list", "audit", "prepare", "recover --once", "adopt"] {
        let line = format!("two-phase {command} --elastic http://127.0.0.1:1");
        all.run(&line).await?;
    }
    let fake = FakeElastic::start(7).await?;
    fake.script("posthaste-two-phase-advance-1", |ctx, params| {
        ctx["_source"]["transaction_state"] = params["to"].clone();
        Ok(())
    });
    for line in [
        "two-phase prepare --replicas 0",
        "two-phase open alice=1000 bob=0",
        "two-phase open alice=7",
        "two-phase create rent --transfer alice bob 9",
        "two-phase create rent --transfer alice bob 9",
        "two-phase create rent --transfer alice bob 10",
        "two-phase create odd --add alice=many",
        "two-phase list",
        "two-phase show rent",
        "two-phase show nope",
        "two-phase recover --once",
        "two-phase create late --transfer alice bob 1",
        "two-phase roll-back late",
        "two-phase roll-back nope",
        "two-phase balance alice bob carol",
        "two-phase audit",
        "two-phase prune --older-than 1h",
        "two-phase prune --older-than 1s",
        "two-phase adopt",
    ] {
        all.run(&format!("{line} --elastic {}", fake.url())).await?;
    }
    Ok(())
}

/// Commands that report the state of the store, with findings.
async fn observe(all: &mut Transcripts, client: &Client) -> anyhow::Result<()> {
    let firing = "alerts --once --lasting 1s --queue mail --length-above 0";
    for line in [
        "status",
        "doctor",
        "top --once",
        "top",
        firing,
        "txwatch --once",
    ] {
        all.run(line).await?;
    }
    client
        .batch_execute("BEGIN; SELECT FROM posthaste.job LIMIT 1; SELECT pg_sleep(1.1)")
        .await?;
    all.stage
        .write("watch.toml", "[observe]\nlong_transaction = '1s'\n")?;
    all.run("txwatch --once --config watch.toml").await?;
    client.batch_execute("ROLLBACK").await?;
    all.run("txwatch --timeouts app").await?;
    all.run_until("txwatch", "Ctrl-C stops").await?;
    all.run_until("alerts --queue mail --length-above 1000", "Ctrl-C stops")
        .await?;
    all.run_until("exporter --listen 127.0.0.1:0", "metrics at")
        .await?;
    all.run_until("console --listen 127.0.0.1:0", "console at")
        .await
}

/// A worker that runs jobs, and commands that need all workers to be stopped.
async fn workers(all: &mut Transcripts, client: &Client) -> anyhow::Result<()> {
    all.run_until("work --queue none --exec x=true", "Ctrl-C stops")
        .await?;
    let (stage, url) = (&all.stage, &all.url);
    let mut worker = stage.spawn_at(url, &["work", "--queue", "none", "--exec", "x=true"])?;
    worker.error_line("Ctrl-C stops", BOUND).await?;
    all.run("rebase").await?;
    all.run("adopt").await?;
    worker.terminate()?;
    worker.exit(BOUND).await?;
    // Workers that were killed above must count as running, whatever time has passed since.
    let living = "UPDATE posthaste.worker SET seen_at = clock_timestamp() WHERE stopped_at IS NULL";
    client.batch_execute(living).await?;
    for line in ["rebase", "adopt", "adopt --force", "status"] {
        all.run(line).await?;
    }
    Ok(())
}

/// A route whose destination does not answer.
async fn unreachable_destination(all: &mut Transcripts, client: &Client) -> anyhow::Result<()> {
    let route = "[route.mail]\nqueue = 'relayed'\nto = 'sidekiq://127.0.0.1:1/0'\n";
    all.stage.write("sidekiq.toml", route)?;
    client
        .batch_execute("SELECT posthaste.enqueue('mail.send', queue => 'relayed')")
        .await?;
    all.run("relay preview --config sidekiq.toml").await?;
    all.run("relay run --once --config sidekiq.toml").await?;
    Ok(())
}
