//! Every interface reports the same findings of the same store: `status`, `top`, `doctor`, the
//! metrics, the console and `posthaste alerts`.
//!
//! Other tests cover findings of `doctor` alone (`server.*`, `rights.*`, `schema.*`,
//! `store.sequence`, `sync.triggers`, `sync.dropped`, `transaction.lock`), stepped clocks and
//! restores (`store.*`, in `doctor::unfit` and the tests of clocks), and findings that take minutes
//! or need a destination or an index (`worker.silent`, `worker.no_leader`, `periodic.*`, `relay.*`,
//! `sync.*`, `transaction.replica`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use posthaste_observe::{Kind, Level, is_alert};
use posthaste_testkit::{Child, PgServer, PgVersion, Sql as _, TestDb, eventually};
use serde_json::Value;
use tokio::net::TcpListener;

use crate::exporter::{got, served};
use crate::stage::{BOUND, Stage};

const THRESHOLDS: &str = "[observe]\nqueue_late = '1s'\nlong_transaction = '1s'\nfailing_job = 3\n\
                          length_above = { late = 0 }\ncompleted_below = { late = 1 }\n";

type Ids = BTreeSet<&'static str>;

fn ids<'a>(ids: impl IntoIterator<Item = &'a str>) -> anyhow::Result<Ids> {
    let kinds = ids
        .into_iter()
        .map(|id| Kind::by_id(id).context(id.to_owned()));
    kinds.map(|kind| Ok(kind?.id())).collect()
}

/// Returns the findings of these kinds.
fn urgent(found: &Ids, is_meant: impl Fn(Kind) -> bool) -> Ids {
    let kinds = found.iter().filter_map(|id| Kind::by_id(id));
    kinds.filter(|kind| is_meant(*kind)).map(Kind::id).collect()
}

struct Surfaces {
    stage: Stage,
    url: String,
    _exporter: Child,
    metrics: String,
    _console: Child,
    console: String,
}

impl Surfaces {
    async fn new(db: &TestDb) -> anyhow::Result<Self> {
        let stage = Stage::new()?;
        stage.write("posthaste.toml", THRESHOLDS)?;
        stage.run_with_url(db.url(), &["migrate"]).await?.good()?;
        let mut exporter = stage.spawn_at(db.url(), &["exporter", "--listen", "127.0.0.1:0"])?;
        let metrics = served(&mut exporter).await?;
        let mut console = stage.spawn_at(db.url(), &["console", "--listen", "127.0.0.1:0"])?;
        let line = console.error_line("console at http://", BOUND).await?;
        let address = line.split("console at ").nth(1).context("no address")?;
        let address = address.split('/').take(3).collect::<Vec<_>>().join("/");
        Ok(Self {
            stage,
            url: db.url().to_owned(),
            _exporter: exporter,
            metrics,
            _console: console,
            console: address,
        })
    }

    /// Starts a worker of this site.
    fn work_as(&self, site: &str, work: &[&str]) -> anyhow::Result<Child> {
        let mut command = self.stage.command(work);
        command
            .env("DATABASE_URL", &self.url)
            .env("POSTHASTE_SITE", site);
        // A proxy that the environment configures cannot reach the loopback interface.
        Child::spawn(command.env("NO_PROXY", "127.0.0.1"))
    }

    /// Returns the findings of a command.
    async fn by_command(&self, command: &[&str]) -> anyhow::Result<Ids> {
        let arguments = [&["--json"], command].concat();
        let output = self.stage.run_with_url(&self.url, &arguments).await?;
        let document: Value = serde_json::from_str(&output.out).context(output.err)?;
        let findings = document.get("findings").unwrap_or(&document);
        let findings = findings.as_array().context("no findings")?.iter();
        ids(findings.filter_map(|one| one["id"].as_str()))
    }

    async fn by_metrics(&self) -> anyhow::Result<Ids> {
        let (_, text) = got(&self.metrics, "/metrics").await?;
        let lines = text.lines().filter(|line| !line.ends_with(" 0"));
        let lines = lines.filter_map(|line| line.strip_prefix("posthaste_findings{id=\""));
        ids(lines.filter_map(|rest| rest.split('"').next()))
    }

    async fn by_console(&self) -> anyhow::Result<Ids> {
        let (status, page) = got(&self.console, "/").await?;
        ensure!(status == 200, "{page}");
        let parts = page.split("data-id=\"").skip(1);
        ids(parts
            .filter_map(|rest| rest.split('"').next())
            .filter(|id| !id.is_empty()))
    }

    /// Fails with the difference unless all interfaces report these findings and no others; hints
    /// of the server depend on its settings.
    async fn compare(&self, expected: &Ids) -> anyhow::Result<()> {
        let status = self.by_command(&["status"]).await?;
        let found = urgent(&status, |kind| {
            let id = kind.id();
            let is_of_server = id.starts_with("server.") || id.starts_with("rights.");
            kind.level() != Level::Hint || !is_of_server
        });
        ensure!(found == *expected, "status has {found:?}, not {expected:?}");
        let surfaces = [
            ("top", self.by_command(&["top"]).await?),
            ("metrics", self.by_metrics().await?),
        ];
        for (surface, found) in surfaces {
            ensure!(found == status, "{surface} has {found:?}, not {status:?}");
        }
        let doctor = self.by_command(&["doctor"]).await?;
        ensure!(
            doctor.is_superset(&status),
            "doctor has {doctor:?}, not {status:?}"
        );
        let shown = urgent(&status, |kind| kind.level() != Level::Hint);
        let console = self.by_console().await?;
        ensure!(
            console == shown,
            "the console has {console:?}, not {shown:?}"
        );
        let firing = urgent(&status, is_alert);
        let alerts = self
            .by_command(&["alerts", "--once", "--lasting", "1"])
            .await?;
        ensure!(alerts == firing, "alerts has {alerts:?}, not {firing:?}");
        Ok(())
    }

    async fn all_report(&self, expected: &[&'static str]) -> anyhow::Result<()> {
        let (begun, expected) = (Instant::now(), expected.iter().copied().collect());
        while let Err(error) = self.compare(&expected).await {
            ensure!(begun.elapsed() < BOUND, "{error:#}");
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_surface_reports_the_same_findings() -> anyhow::Result<()> {
    let settings = [("max_prepared_transactions", "2"), ("wal_level", "logical")];
    let server = PgServer::start(PgVersion::any(), &settings)?;
    let db = TestDb::empty(&server).await?;
    let surfaces = Surfaces::new(&db).await?;
    let (client, holder) = (db.client().await?, db.client().await?);
    client
        .run(
            "SELECT posthaste.enqueue('slow', queue => 'late') FROM generate_series(1, 3);
             SELECT posthaste.enqueue('fails', queue => 'other') FROM generate_series(1, 12)",
        )
        .await?;
    // No job was completed in the last ten minutes.
    for minutes in (4..=10).rev() {
        let sample = "SELECT posthaste.take_sample(clock_timestamp() - $1 * interval '1 min')";
        client.execute(sample, &[&f64::from(minutes)]).await?;
    }
    surfaces
        .all_report(&["worker.none", "queue.long", "queue.slow"])
        .await?;

    client
        .run(
            "SELECT posthaste.enqueue('fails', queue => 'other', max_attempts => 1);
             SELECT posthaste.enqueue('fails', queue => 'other',
                                      scheduled_at => now() - interval '2 s',
                                      expires_at => now() - interval '1 s');
             SELECT posthaste.enqueue('ok', queue => 'unserved');
             SELECT posthaste.enqueue('hook', queue => 'hooks') FROM generate_series(1, 2);
             SELECT posthaste.pause('paused');
             SELECT posthaste.enqueue('ok', queue => 'paused');
             INSERT INTO posthaste.txwatch_action (server, kind, pid, action, rule, result)
             VALUES ('primary', 'session', 7, 'terminate', 1, 'done')",
        )
        .await?;
    client
        .run("SELECT pg_create_logical_replication_slot('unread', 'test_decoding')")
        .await?;
    holder
        .run(
            "BEGIN; CREATE TABLE own (); PREPARE TRANSACTION 'forgotten';
             BEGIN; SELECT pg_current_xact_id()",
        )
        .await?;
    let is_repaired = Arc::new(AtomicBool::new(false));
    let endpoint = endpoint(Arc::clone(&is_repaired)).await?;
    let work = [
        "work",
        "--queue",
        "late=1",
        "--queue",
        "other=4",
        "--queue",
        "paused",
        "--exec",
        "slow=sleep 600",
        "--exec",
        "fails=false",
        "--exec",
        "ok=true",
        "--queue",
        "hooks=1",
        "--http",
        &endpoint,
    ];
    let _worker = surfaces.work_as("production", &work)?;
    let named = "SELECT EXISTS (SELECT FROM posthaste.site WHERE name = 'production')";
    eventually(BOUND, "the store has a site", async || {
        client.one(named).await
    })
    .await?;
    let _refused = surfaces.work_as("staging", &work)?;
    let lasting = [
        "jobs.dead",
        "jobs.expired",
        "jobs.failing",
        "queue.failing",
        "queue.late",
        "queue.long",
        "queue.no_worker",
        "queue.paused",
        "queue.slow",
        "store.site",
        "transaction.ended",
        "transaction.long",
        "transaction.prepared",
        "transaction.slot",
    ];
    let with_endpoint = [&lasting[..], &["worker.failing"]].concat();
    surfaces.all_report(&with_endpoint).await?;
    is_repaired.store(true, Ordering::SeqCst);
    surfaces.all_report(&lasting).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_surface_names_each_refused_site() -> anyhow::Result<()> {
    let server = PgServer::start(PgVersion::any(), &[])?;
    let db = TestDb::empty(&server).await?;
    let surfaces = Surfaces::new(&db).await?;
    let client = db.client().await?;
    let work = ["work", "--queue", "mail", "--exec", "ok=true"];
    let _worker = surfaces.work_as("production", &work)?;
    let named = "SELECT EXISTS (SELECT FROM posthaste.site WHERE name = 'production')";
    eventually(BOUND, "the store has a site", async || {
        client.one(named).await
    })
    .await?;
    let sites = ["staging", "preview"];
    let mut refused = Vec::new();
    for site in sites {
        let mut worker = surfaces.work_as(site, &work)?;
        worker.error_line("another site owns", BOUND).await?;
        refused.push(worker);
    }
    let names_both = |surface: &str, text: &str| {
        let missing = sites.iter().find(|site| !text.contains(**site));
        ensure!(missing.is_none(), "{surface} lacks {missing:?}: {text}");
        Ok(())
    };
    for arguments in [
        &["status"][..],
        &["doctor"],
        &["status", "--json"],
        &["alerts", "--once", "--lasting", "1"],
    ] {
        let output = surfaces.stage.run_with_url(db.url(), arguments).await?;
        names_both(&arguments.join(" "), &output.out)?;
    }
    eventually(BOUND, "the metrics name both", async || {
        let (_, text) = got(&surfaces.metrics, "/metrics").await?;
        let series = text
            .lines()
            .filter(|line| line.contains("id=\"store.site\""));
        let series = series.collect::<Vec<_>>().join("\n");
        Ok(names_both("metrics", &series).is_ok())
    })
    .await?;
    eventually(BOUND, "the console names both", async || {
        let (_, page) = got(&surfaces.console, "/").await?;
        let verdict = page
            .split("data-id=\"")
            .find(|part| part.starts_with("store.site"));
        Ok(names_both("console", verdict.unwrap_or_default()).is_ok())
    })
    .await?;
    // The number of recorded sites is limited.
    let noted = "SELECT cardinality(refused) FROM posthaste.site";
    client
        .run("SELECT posthaste.enter_site(concat('copy ', n), '{}') FROM generate_series(1, 40) n")
        .await?;
    let noted: i32 = client.one(noted).await?;
    ensure!(noted == 16, "{noted} are noted");
    Ok(())
}

/// Returns the option of an endpoint that rejects requests until it is repaired.
async fn endpoint(is_repaired: Arc<AtomicBool>) -> anyhow::Result<String> {
    let answer = post(async move || match is_repaired.load(Ordering::SeqCst) {
        true => StatusCode::OK,
        false => StatusCode::UNAUTHORIZED,
    });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let routes = Router::new().route("/", answer);
    tokio::spawn(async move { axum::serve(listener, routes).await });
    Ok(format!("hook=http://{address}/"))
}
