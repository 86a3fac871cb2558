//! `posthaste capture`: an outbox of an existing program becomes jobs with no Rust at all.

mod quickstart;
mod standbys;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use posthaste_testkit::{PgServer, PgVersion, TestDb, eventually, number, ran};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use crate::exporter::{got, served};
use crate::stage::{BOUND, Stage};

const FILE: &str = "[capture.orders]\noutbox = 'public.outbox'\n";
const DIRECT: &str = "[route.lines]\nto = 'stdout:'\nordered = true\n\
     [capture.orders]\noutbox = 'public.outbox'\nroute = 'lines'\n";
const TABLE: &str = "CREATE TABLE outbox (id bigserial PRIMARY KEY, \
     type text NOT NULL DEFAULT 'a', payload text)";
const JOBS: &str = "SELECT count(*) FROM posthaste.job WHERE queue = 'orders'";
const KILLS: u64 = 20;

struct World {
    stage: Stage,
    // Dropped before its server.
    database: TestDb,
    client: Client,
    server: PgServer,
}

async fn world() -> anyhow::Result<World> {
    world_on(PgVersion::any()).await
}

async fn world_on(version: PgVersion) -> anyhow::Result<World> {
    let stage = Stage::new()?;
    let server = PgServer::start(version, &[("wal_level", "logical")])?;
    let database = TestDb::empty(&server).await?;
    let client = database.client().await?;
    client.batch_execute(TABLE).await?;
    stage.run_on(&database, &["migrate"]).await?.good()?;
    stage.write("posthaste.toml", FILE)?;
    Ok(World {
        stage,
        database,
        client,
        server,
    })
}

impl World {
    async fn good(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.stage.run_on(&self.database, arguments).await?.good()
    }

    /// Returns the findings about captures.
    async fn found(&self) -> anyhow::Result<Vec<String>> {
        let run = self.stage.run_on(&self.database, &["doctor", "--json"]);
        let report: Value = serde_json::from_str(&run.await?.out)?;
        let findings = report["findings"].as_array().cloned().unwrap_or_default();
        let ids = findings.iter().filter_map(|one| one["id"].as_str());
        let ids = ids.filter(|id| id.starts_with("capture."));
        Ok(ids.map(str::to_owned).collect())
    }

    async fn insert(&self, payload: &str) -> anyhow::Result<()> {
        let sql = "INSERT INTO outbox (payload) VALUES ($1)";
        self.client.execute(sql, &[&payload]).await?;
        Ok(())
    }

    /// Writes rows until it is stopped.
    async fn write(&self) -> anyhow::Result<(Arc<AtomicBool>, JoinHandle<anyhow::Result<()>>)> {
        let writer = self.database.client().await?;
        let is_over = Arc::new(AtomicBool::new(false));
        let their_end = Arc::clone(&is_over);
        let writes = tokio::spawn(async move {
            for n in 0.. {
                if their_end.load(Ordering::Relaxed) {
                    break;
                }
                let count = if n % 50 == 7 { 900 } else { 1 };
                let sql = format!(
                    "INSERT INTO outbox (payload) \
                     SELECT '{n}-' || i FROM generate_series(1, {count}) i"
                );
                writer.batch_execute(&sql).await?;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            anyhow::Ok(())
        });
        Ok((is_over, writes))
    }

    /// Returns the payloads in the order of their rows.
    async fn written(&self) -> anyhow::Result<Vec<String>> {
        let sql = "SELECT payload FROM outbox ORDER BY id";
        let rows = self.client.query(sql, &[]).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// Returns the payloads in the order of the jobs.
    async fn captured(&self) -> anyhow::Result<Vec<String>> {
        let sql = "SELECT kwargs -> 'posthaste.outbox' ->> 'text' FROM posthaste.job \
                   WHERE queue = 'orders' ORDER BY id";
        let rows = self.client.query(sql, &[]).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_captures_lose_and_repeat_nothing() -> anyhow::Result<()> {
    let world = world().await?;
    world.good(&["capture", "install"]).await?;
    let (is_over, writes) = world.write().await?;
    for _ in 0..KILLS {
        let arguments = ["capture", "run"];
        let mut run = world.stage.spawn_on(&world.database, &arguments)?;
        run.error_line("capture orders", BOUND).await?;
        let before = number(&world.client, JOBS).await?;
        let moves = async || Ok(number(&world.client, JOBS).await? > before);
        eventually(BOUND, "jobs are written", moves).await?;
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..60))).await;
        run.kill()?;
    }
    is_over.store(true, Ordering::Relaxed);
    writes.await??;
    world.good(&["capture", "run", "--once"]).await?;
    assert_eq!(world.captured().await?, world.written().await?);
    ran::count("kills", KILLS);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_direct_captures_repeat_only_under_the_same_ids() -> anyhow::Result<()> {
    let world = world().await?;
    world.stage.write("posthaste.toml", DIRECT)?;
    world.good(&["capture", "install"]).await?;
    let (is_over, writes) = world.write().await?;
    let mut arrived = Arrived::default();
    for _ in 0..KILLS {
        let arguments = ["capture", "run"];
        let mut run = world.stage.spawn_on(&world.database, &arguments)?;
        run.error_line("capture orders: to lines", BOUND).await?;
        let some = async || Ok(run.stdout().len() > 20);
        eventually(BOUND, "lines are written", some).await?;
        // A mark is written each second.
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..1_300))).await;
        run.kill()?;
        run.exit(BOUND).await?;
        arrived.take(&run.stdout(), true)?;
    }
    is_over.store(true, Ordering::Relaxed);
    writes.await??;
    let arguments = ["capture", "run", "--once"];
    let mut once = world.stage.spawn_on(&world.database, &arguments)?;
    anyhow::ensure!(once.exit(BOUND).await?.success(), "{:?}", once.stderr());
    arrived.take(&once.stdout(), false)?;
    assert_eq!(arrived.first, world.written().await?);
    assert!(
        arrived.repeats > 0,
        "it was killed between sending and marking"
    );
    assert_eq!(
        number(&world.client, "SELECT count(*) FROM posthaste.job").await?,
        0
    );
    ran::count("kills", KILLS);
    Ok(())
}

/// Lines in their order of arrival.
#[derive(Default)]
struct Arrived {
    known: HashMap<String, String>,
    /// The payloads of new ids.
    first: Vec<String>,
    repeats: usize,
}

impl Arrived {
    /// Takes lines. The last line of a killed process may be incomplete.
    fn take(&mut self, lines: &[String], was_killed: bool) -> anyhow::Result<()> {
        let lines: Vec<_> = lines.iter().filter(|line| line.starts_with('{')).collect();
        for (number, line) in lines.iter().copied().enumerate() {
            let message: Value = match serde_json::from_str(line) {
                Err(_) if was_killed && number + 1 == lines.len() => continue,
                message => message?,
            };
            let id = message["id"].to_string();
            match self.known.insert(id, line.clone()) {
                Some(before) => {
                    assert_eq!(&before, line, "another content under an id");
                    self.repeats += 1;
                }
                None => self
                    .first
                    .push(message["payload"].as_str().unwrap_or_default().into()),
            }
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outbox_capture_is_installed_run_previewed_and_removed() -> anyhow::Result<()> {
    let world = world().await?;
    let printed = world.good(&["capture", "install", "--print"]).await?;
    assert!(printed.contains("CREATE PUBLICATION posthaste_orders FOR TABLE public.outbox"));
    assert!(
        printed.contains("pg_create_logical_replication_slot"),
        "{printed}"
    );
    assert_eq!(
        number(&world.client, "SELECT count(*) FROM pg_publication").await?,
        0
    );
    let installed = world.good(&["capture", "install"]).await?;
    assert!(
        installed.starts_with("orders: capturing from "),
        "{installed}"
    );
    world.insert("one").await?;
    let once = world.good(&["capture", "run", "--once", "--json"]).await?;
    let once: Value = serde_json::from_str(&once)?;
    assert_eq!(
        (&once[0]["capture"], &once[0]["events"]),
        (&"orders".into(), &1.into())
    );
    let status = world.good(&["capture", "status"]).await?;
    assert!(
        status.starts_with("orders: not running, captured up to "),
        "{status}"
    );
    assert_eq!(world.good(&["capture", "gaps"]).await?, "no gaps");
    world.good(&["capture", "remove", "orders"]).await?;
    assert_eq!(
        number(&world.client, "SELECT count(*) FROM pg_replication_slots").await?,
        0
    );
    assert_eq!(
        world.good(&["capture", "status"]).await?,
        "no capture is installed"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_copy_is_started_followed_cancelled_and_restarted() -> anyhow::Result<()> {
    let world = world().await?;
    world.insert("before").await?;
    world.good(&["capture", "install"]).await?;
    let copy = ["capture", "copy", "orders", "public.outbox"];
    let begun = world.good(&copy).await?;
    assert!(begun.contains("public.outbox: 0 of about "), "{begun}");
    let twice = world.stage.run_on(&world.database, &copy).await?;
    assert_eq!(twice.code, Some(1), "{twice:?}");
    assert!(twice.err.contains("is already in progress"), "{twice:?}");
    let cancelled = world.good(&[&copy[..], &["--cancel"]].concat()).await?;
    assert!(cancelled.contains(": cancelled at "), "{cancelled}");
    world.good(&["capture", "run", "--once"]).await?;
    assert!(world.captured().await?.is_empty());
    let filter = ["--where", "payload = 'before'"];
    world.good(&[&copy[..], &filter].concat()).await?;
    world.good(&["capture", "run", "--once"]).await?;
    assert_eq!(world.captured().await?, ["before"]);
    let shown = world
        .good(&["capture", "copy", "orders", "--progress"])
        .await?;
    let first = shown.lines().next().unwrap_or_default();
    assert!(
        first.contains(" where payload = 'before': ended at "),
        "{shown}"
    );
    assert!(first.ends_with(", 1 row"), "{shown}");
    assert_eq!(shown.lines().count(), 2, "{shown}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_external_damage_to_a_capture() -> anyhow::Result<()> {
    let world = world().await?;
    let file = "[capture.orders]\ntables = ['public.outbox']\n";
    world.stage.write("posthaste.toml", file)?;
    assert!(world.found().await?.is_empty(), "without a capture");
    world.good(&["capture", "install"]).await?;
    assert_eq!(world.found().await?, ["capture.limit"]);
    for statement in [
        "ALTER SYSTEM SET max_slot_wal_keep_size = '10GB'",
        "SELECT pg_reload_conf()",
        "ALTER TABLE outbox DROP CONSTRAINT outbox_pkey",
    ] {
        world.client.batch_execute(statement).await?;
    }
    let is_found = async || Ok(world.found().await? == ["capture.identity"]);
    eventually(BOUND, "the lost identity is found", is_found).await?;
    let update = "INSERT INTO outbox (payload) VALUES ('a'); UPDATE outbox SET payload = 'b'";
    assert!(world.client.batch_execute(update).await.is_err());
    for statement in [
        "ALTER TABLE outbox ADD PRIMARY KEY (id)",
        "DROP PUBLICATION posthaste_orders",
    ] {
        world.client.batch_execute(statement).await?;
    }
    assert_eq!(world.found().await?, ["capture.publication"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn captures_export_metrics_and_paused_ones_are_reported() -> anyhow::Result<()> {
    let world = world().await?;
    world.good(&["capture", "install"]).await?;
    world.insert("one").await?;
    world.good(&["capture", "run", "--once"]).await?;
    let paused = world.good(&["capture", "pause", "orders"]).await?;
    assert!(paused.starts_with("orders is paused"), "{paused}");
    let once = world
        .stage
        .run_on(&world.database, &["capture", "run", "--once"]);
    let once = once.await?.err;
    assert!(once.contains("it is paused"), "{once}");
    let status = world.good(&["capture", "status"]).await?;
    assert!(status.starts_with("orders: paused"), "{status}");
    let listen = ["exporter", "--listen", "127.0.0.1:0"];
    let mut child = world.stage.spawn_on(&world.database, &listen)?;
    let root = served(&mut child).await?;
    let (_, text) = got(&root, "/metrics").await?;
    for line in [
        "posthaste_capture_events_total{capture=\"orders\"} 1\n",
        "posthaste_capture_bytes_total{capture=\"orders\"} ",
        "posthaste_capture_unconfirmed_bytes{capture=\"orders\"} ",
        "posthaste_capture_retained_bytes{capture=\"orders\"} ",
        "posthaste_capture_lag_seconds{capture=\"orders\"} ",
        "posthaste_capture_gaps{capture=\"orders\"} 0\n",
        "posthaste_capture_state{capture=\"orders\",state=\"paused\"} 1\n",
        "posthaste_capture_state{capture=\"orders\",state=\"not_running\"} 0\n",
        "posthaste_findings{id=\"capture.paused\",level=\"warning\",subject=\"orders\"} 1\n",
    ] {
        assert!(text.contains(line), "no {line} in {text}");
    }
    child.kill()?;
    let resumed = world.good(&["capture", "resume", "orders"]).await?;
    assert_eq!(resumed, "orders is resumed");
    world.good(&["capture", "run", "--once"]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_slot_is_reported_as_a_gap_with_its_remedy() -> anyhow::Result<()> {
    let world = world().await?;
    world.good(&["capture", "install"]).await?;
    world
        .client
        .batch_execute("SELECT pg_drop_replication_slot('posthaste_orders')")
        .await?;
    let run = world
        .stage
        .run_on(&world.database, &["capture", "run"])
        .await?;
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(
        run.err.contains("posthaste capture begin orders"),
        "{run:?}"
    );
    let gaps = world
        .stage
        .run_on(&world.database, &["capture", "gaps"])
        .await?;
    assert_eq!(gaps.code, Some(3), "{gaps:?}");
    assert!(gaps.out.contains("(public.outbox)"), "{gaps:?}");
    world.good(&["capture", "begin", "orders"]).await?;
    world.insert("one").await?;
    world.good(&["capture", "run", "--once"]).await?;
    assert_eq!(world.captured().await?, ["one"]);
    let number = gaps.out.split(':').next().unwrap_or_default().to_owned();
    world
        .good(&["capture", "gaps", "--accept", &number])
        .await?;
    world.good(&["capture", "gaps"]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn up_runs_the_captures_of_posthaste_toml() -> anyhow::Result<()> {
    let world = world().await?;
    world.good(&["capture", "install"]).await?;
    let mut up = world.stage.spawn_on(&world.database, &["up"])?;
    up.error_line("capture orders: into queue orders", BOUND)
        .await?;
    world.insert("one").await?;
    let is_captured = async || Ok(number(&world.client, JOBS).await? == 1);
    eventually(BOUND, "the row became a job", is_captured).await?;
    up.terminate()?;
    assert!(up.exit(BOUND).await?.success(), "{:?}", up.stderr());
    Ok(())
}
