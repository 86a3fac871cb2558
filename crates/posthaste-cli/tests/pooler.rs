//! Every command through PgBouncer in transaction mode, which gives each transaction any of its
//! server sessions and supports no named statements here.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use posthaste_testkit::{Child, PgServer, PgVersion, Sql as _, TestDb, eventually, number, ran};
use serde_json::Value;

use crate::stage::{BOUND, CommandOutput, Stage};
use crate::tree;

/// A folder, a database with a pooler in front, and the commands that were run on it.
struct Pooled {
    stage: Stage,
    url: String,
    commands: BTreeSet<String>,
}

impl Pooled {
    async fn run(&mut self, line: &str) -> anyhow::Result<CommandOutput> {
        let arguments: Vec<&str> = line.split(' ').collect();
        let words = arguments.iter().take_while(|word| !word.starts_with('-'));
        let words: Vec<&str> = words.copied().collect();
        self.commands.extend([words[0].to_owned()]);
        self.commands
            .extend(words.get(..2).map(|two| two.join(" ")));
        self.stage.run_with_url(&self.url, &arguments).await
    }

    /// Returns the output of a successful command.
    async fn good(&mut self, line: &str) -> anyhow::Result<String> {
        let output = self.run(line).await?;
        output.good().with_context(|| line.to_owned())
    }
}

const WITHOUT_A_DATABASE: [&str; 5] = ["completions", "health", "init", "manual", "two-phase"];
/// It connects to the server directly, which must have wal_level = logical.
const BY_REPLICATION: &str = "capture";

#[tokio::test(flavor = "multi_thread")]
async fn every_command_passes_through_pgbouncer() -> anyhow::Result<()> {
    let server = PgServer::shared(PgVersion::any())?;
    let db = TestDb::empty(server).await?;
    let stage = Stage::new()?;
    tree::make(&stage.folder.join("files"), 40)?;
    stage.write("lines", &"{\"name\": \"line\"}\n".repeat(30))?;
    let url = server.pooled_url(db.name())?;
    let mut pooled = Pooled {
        stage,
        url,
        commands: BTreeSet::new(),
    };
    // Twice: session state that the first round left would break the second.
    for _ in 0..2 {
        round(&mut pooled, &db).await?;
    }
    for command in pooled.stage.commands().await? {
        let first = command.split(' ').next().unwrap_or("");
        let needs_none = WITHOUT_A_DATABASE.contains(&first) || first == BY_REPLICATION;
        ensure!(
            needs_none || pooled.commands.contains(&command),
            "{command} was not run"
        );
    }
    let left = "SELECT count(*) FROM pg_prepared_statements";
    let through = posthaste_testkit::connect(&pooled.url).await?;
    for _ in 0..20 {
        let row = through.query_typed_one(left, &[]).await?;
        ensure!(row.get::<_, i64>(0) == 0, "a name was left in a session");
    }
    ran::count("pgbouncer", 1);
    Ok(())
}

/// Runs each command at least once.
async fn round(pooled: &mut Pooled, db: &TestDb) -> anyhow::Result<()> {
    pooled.good("migrate --roles").await?;
    let proof = pooled.good("demo --once files").await?;
    ensure!(proof.ends_with("none differs"), "{proof}");
    let id = pooled
        .good("jobs enqueue mail.send {\"to\":7} --queue mail")
        .await?;
    pooled.good("jobs enqueue --file lines --batch 7").await?;
    pooled.good("queues pause mail").await?;
    pooled.good("queues limit mail 1000/s").await?;
    pooled.good("queues keep mail 1h").await?;
    ensure!(
        pooled
            .good("queues list")
            .await?
            .contains("queue mail is paused")
    );
    pooled.good("queues resume mail").await?;
    pooled.good("queues keep mail none").await?;
    pooled.good("queues limit mail none").await?;
    let found: Value = serde_json::from_str(&pooled.good("jobs list --queue mail --json").await?)?;
    ensure!(found[0]["id"] == id.parse::<i64>()?, "{found}");
    ensure!(
        pooled
            .good(&format!("jobs show {id}"))
            .await?
            .contains("available")
    );
    pooled.good(&format!("jobs cancel {id}")).await?;
    ensure!(
        pooled
            .good("jobs redrive --state cancelled")
            .await?
            .starts_with("1 job")
    );
    pooled.good(&format!("jobs retry {id}")).await?;
    ensure!(pooled.good("jobs retry --all").await? == "no waiting job matches");
    let status: Value = serde_json::from_str(&pooled.good("status --json").await?)?;
    ensure!(status["queues"]["default"]["available"] == 30, "{status}");
    let alerts = pooled.run("alerts --once --lasting 1").await?;
    ensure!(
        alerts.code == Some(3) && alerts.out.contains("worker.none"),
        "{alerts:?}"
    );
    ensure!(pooled.good("top --once").await?.contains("late"));
    let timeouts = pooled.good("txwatch --timeouts postgres").await?;
    ensure!(timeouts.contains("statement_timeout"), "{timeouts}");
    served(pooled, "exporter", "/metrics", "posthaste_database_up 1").await?;
    served(pooled, "console", "/jobs", "mail.send").await?;
    relay(pooled).await?;
    sync(pooled, db).await?;
    work(pooled, db, "work").await?;
    pooled.good("jobs enqueue mail.send").await?;
    work(pooled, db, "up").await?;
    // The report names the pooler, not a failure.
    ensure!(pooled.good("doctor").await?.contains("pooler"));
    ensure!(
        pooled
            .good("rebase --force")
            .await?
            .starts_with("0 unfinished")
    );
    let adopted = pooled.good("adopt --force --discard").await?;
    ensure!(adopted.contains("this site adopted the store"), "{adopted}");
    Ok(())
}

/// Starts a command that serves, and checks its page at this path.
async fn served(pooled: &mut Pooled, command: &str, path: &str, shown: &str) -> anyhow::Result<()> {
    pooled.commands.insert(command.to_owned());
    let mut serves = pooled.stage.command(&[command, "--listen", "127.0.0.1:0"]);
    let mut serves = Child::spawn(serves.env("DATABASE_URL", &pooled.url))?;
    let line = serves.error_line(" at http://", BOUND).await?;
    let address = line.split(" at ").nth(1).context("no address")?;
    let root: Vec<&str> = address.split('/').take(3).collect();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build()?;
    // More than one poll, each in another session.
    for _ in 0..3 {
        let page = client
            .get(format!("{}{path}", root.join("/")))
            .send()
            .await?;
        let page = page.text().await?;
        ensure!(page.contains(shown), "{command}: {page}");
    }
    serves.terminate()?;
    ensure!(serves.exit(BOUND).await?.success(), "{command}");
    Ok(())
}

/// Relays of a queue without jobs.
async fn relay(pooled: &mut Pooled) -> anyhow::Result<()> {
    let route = "[route.lines]\nto = \"stdout:\"\nordered = true\n";
    pooled.stage.write("posthaste.toml", route)?;
    pooled.good("jobs enqueue x --queue lines").await?;
    ensure!(pooled.good("relay preview").await?.contains("\"x\""));
    let output = pooled.good("relay run --once --no-notify").await?;
    ensure!(output.ends_with("lines: 1 sent"), "{output}");
    std::fs::remove_file(pooled.stage.folder.join("posthaste.toml"))?;
    Ok(())
}

/// A table and its index.
async fn sync(pooled: &mut Pooled, db: &TestDb) -> anyhow::Result<()> {
    let table = "CREATE TABLE IF NOT EXISTS page (id bigint PRIMARY KEY, title text);
                 INSERT INTO page VALUES (1, 'haste') ON CONFLICT DO NOTHING";
    db.client().await?.run(table).await?;
    let synced = "[sync.pages]\ntable = 'page'\nindex = 'postgres:'\ndelay = '0s'\nperiod = '1s'\n";
    pooled.stage.write("posthaste.toml", synced)?;
    pooled.good("sync install").await?;
    // The rebuild reads rows as the sync does; an index in Postgres cannot be rebuilt.
    let refused = pooled.run("sync rebuild pages").await?;
    ensure!(refused.good().is_err(), "it was made anew");
    pooled.good("sync reindex pages --all").await?;
    pooled.good("sync run --once").await?;
    ensure!(pooled.good("sync audit").await?.ends_with("equal"));
    ensure!(pooled.good("sync search haste").await?.contains("haste"));
    std::fs::remove_file(pooled.stage.folder.join("posthaste.toml"))?;
    Ok(())
}

/// Runs a worker until all jobs have ended.
async fn work(pooled: &mut Pooled, db: &TestDb, command: &str) -> anyhow::Result<()> {
    pooled.commands.insert(command.into());
    let arguments = [
        command,
        "--no-notify",
        "--queue",
        "default",
        "--queue",
        "mail",
        "--exec",
        "*=true",
    ];
    let mut command = pooled.stage.command(&arguments);
    let mut worker = Child::spawn(command.env("DATABASE_URL", &pooled.url))?;
    let direct = db.client().await?;
    eventually(BOUND, "the jobs are done", async || {
        Ok(number(&direct, "SELECT count(*) FROM posthaste.job").await? == 0)
    })
    .await?;
    worker.terminate()?;
    ensure!(worker.exit(BOUND).await?.success());
    Ok(())
}
