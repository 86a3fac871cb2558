//! Metrics and health, as requested by Prometheus and by containers.

mod files;
mod prometheus;
mod reasons;
mod segments;

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use posthaste_testkit::{Child, PgServer, PgVersion, Proxy, Sql as _, TestDb, eventually, number};

use crate::stage::{self, BOUND, Stage};

/// Returns the address of a command that was started with `--listen 127.0.0.1:0`.
pub(crate) async fn served(child: &mut Child) -> anyhow::Result<String> {
    let line = child.error_line("metrics at ", BOUND).await?;
    let url = line.split("metrics at ").nth(1).context("no address")?;
    let root = url.strip_suffix("/metrics").context("no metrics")?;
    Ok(root.to_owned())
}

/// Requests a path, and returns the status and the body.
pub(crate) async fn got(root: &str, path: &str) -> anyhow::Result<(u16, String)> {
    // Shared, because each client reads the certificates of the machine. Connections are not
    // reused: each belongs to the runtime of its test.
    static CLIENT: LazyLock<reqwest::Result<reqwest::Client>> = LazyLock::new(|| {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy();
        client.pool_max_idle_per_host(0).build()
    });
    let client = CLIENT.as_ref().map_err(|error| anyhow!("{error}"))?;
    let answer = client.get(format!("{root}{path}")).send().await?;
    Ok((answer.status().as_u16(), answer.text().await?))
}

/// Returns the value of a series, by its whole text.
fn value(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find(|line| {
        line.strip_prefix(series)
            .is_some_and(|rest| rest.starts_with(' '))
    });
    line?.rsplit_once(' ')?.1.parse().ok()
}

async fn exporter(stage: &Stage, database: &TestDb) -> anyhow::Result<(Child, String)> {
    let arguments = ["exporter", "--listen", "127.0.0.1:0", "--tags-of", "mail"];
    let mut child = stage.spawn_on(database, &arguments)?;
    let root = served(&mut child).await?;
    Ok((child, root))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exporter_counts_jobs_with_any_names() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    client
        .run(
            r#"SELECT posthaste.enqueue('a', queue => 'mail', tag => 't"x')
                 FROM generate_series(1, 3);
               SELECT posthaste.enqueue(E'b\\\n"', queue => E'q"\\',
                                        scheduled_at => now() + interval '1 day');
               SELECT posthaste.pause('empty');
               INSERT INTO posthaste.job (name, queue)
               SELECT 'n' || n, 'many' FROM generate_series(1, 300) n"#,
        )
        .await?;
    let (mut child, root) = exporter(&stage, &database).await?;
    let (status, text) = got(&root, "/metrics").await?;
    assert_eq!(status, 200);
    let of = |series: &str| value(&text, series);
    let jobs = r#"posthaste_jobs{queue="mail",state="available"}"#;
    assert_eq!(of(jobs), Some(3.0), "{text}");
    let hostile = r#"posthaste_jobs{queue="q\"\\",state="scheduled"}"#;
    assert_eq!(of(hostile), Some(1.0), "{text}");
    let tagged = r#"posthaste_tag_jobs{queue="mail",tag="t\"x",state="available"}"#;
    assert_eq!(of(tagged), Some(3.0), "{text}");
    let age = of(r#"posthaste_oldest_available_age_seconds{queue="mail"}"#);
    assert!(age > Some(0.0), "{text}");
    let unworked = r#"posthaste_queue_unworked{queue="mail"}"#;
    assert_eq!(of(unworked), Some(1.0), "{text}");
    let finding = r#"posthaste_findings{id="worker.none",level="error",subject=""}"#;
    assert_eq!(of(finding), Some(1.0), "{text}");
    for (queue, paused) in [("mail", 0.0), ("empty", 1.0)] {
        let series = format!("posthaste_queue_paused{{queue=\"{queue}\"}}");
        assert_eq!(of(&series), Some(paused), "{text}");
    }
    assert_eq!(of("posthaste_database_up"), Some(1.0), "{text}");
    let names = text.matches(r#"posthaste_attempts_failed_total{queue="many""#);
    assert_eq!(names.count(), 101, "a hundred names, and all others");
    for (path, expected) in [
        ("/live", 200),
        ("/ready", 200),
        ("/live/x", 404),
        ("/readyz", 404),
        ("/", 404),
    ] {
        assert_eq!(got(&root, path).await?.0, expected, "{path}");
    }
    for (host, expected) in [("evil.example", 403), ("localhost", 200)] {
        let request = reqwest::Client::builder().no_proxy().build()?;
        let request = request.get(format!("{root}/metrics")).header("host", host);
        assert_eq!(request.send().await?.status().as_u16(), expected, "{host}");
    }
    child.terminate()?;
    assert!(child.exit(BOUND).await?.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_scrapes_share_one_database_read() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let clock = async || {
        let sql = "SELECT extract(epoch FROM clock_timestamp())::float8";
        anyhow::Ok(client.one::<f64>(sql).await?)
    };
    let before = clock().await?;
    let (_child, root) = exporter(&stage, &database).await?;
    let (_, first) = got(&root, "/metrics").await?;
    let after = clock().await?;
    let enqueue = "SELECT posthaste.enqueue('a', queue => 'new')";
    client.run(enqueue).await?;
    // A new read would include this queue.
    let when = |text: &str| value(text, "posthaste_read_timestamp_seconds");
    let read = when(&first).context("no time")?;
    assert!((before..=after).contains(&read), "{before} {read} {after}");
    for _ in 0..50 {
        let (_, again) = got(&root, "/metrics").await?;
        if again.contains(r#"queue="new""#) {
            assert!(when(&again) > when(&first));
            break;
        }
        assert_eq!(when(&again), when(&first));
    }
    let series = r#"posthaste_jobs{queue="new",state="available"}"#;
    eventually(BOUND, "it is read again", async || {
        let (_, text) = got(&root, "/metrics").await?;
        Ok(value(&text, series) == Some(1.0))
    })
    .await?;
    let sessions = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    assert_eq!(number(&client, sessions).await?, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn uncounted_jobs_are_reported_until_counted() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let many = "INSERT INTO posthaste.job (name, queue)
                SELECT 'n', 'bulk' FROM generate_series(1, 50000)";
    client.run(many).await?;
    let (_child, root) = exporter(&stage, &database).await?;
    let available = r#"posthaste_jobs{queue="bulk",state="available"}"#;
    let found = r#"posthaste_findings{id="jobs.uncounted",level="hint",subject=""}"#;
    let (_, text) = got(&root, "/metrics").await?;
    let shown = (value(&text, available), value(&text, found));
    assert_eq!(shown, (Some(20_000.0), Some(1.0)));
    let count = "SELECT posthaste.count_new_jobs(20000, 1000, 65536) IS NULL";
    while client.one(count).await? {}
    eventually(BOUND, "all of them are shown", async || {
        let (_, text) = got(&root, "/metrics").await?;
        let is_found = value(&text, found).is_some_and(|found| found > 0.0);
        Ok(value(&text, available) == Some(50_000.0) && !is_found)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_export_wait_and_run_times() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let work = [
        "work",
        "--exec",
        "ok=true",
        "--exec",
        "no=false",
        "--listen",
        "127.0.0.1:0",
    ];
    let mut child = stage.spawn_on(&database, &work)?;
    let root = served(&mut child).await?;
    let client = database.client().await?;
    let enqueue = "SELECT posthaste.enqueue('ok'); SELECT posthaste.enqueue('no')";
    client.run(enqueue).await?;
    let (of_ok, of_no) = (
        r#"posthaste_run_seconds_count{queue="default",name="ok",outcome="completed"}"#,
        r#"posthaste_run_seconds_count{queue="default",name="no",outcome="retried"}"#,
    );
    eventually(BOUND, "both have run", async || {
        let (_, text) = got(&root, "/metrics").await?;
        Ok(value(&text, of_ok) == Some(1.0) && value(&text, of_no) >= Some(1.0))
    })
    .await?;
    let (_, text) = got(&root, "/metrics").await?;
    let buckets = r#"posthaste_wait_seconds_bucket{queue="default",name="ok",le="900"}"#;
    assert_eq!(value(&text, buckets), Some(1.0), "{text}");
    assert!(!text.contains("posthaste_jobs{"), "that is the exporter's");
    let ready = format!("{root}/ready");
    let asked = stage.run(&["health", &ready]).await?;
    assert_eq!(asked.good()?, "ready");
    child.terminate()?;
    assert!(child.exit(BOUND).await?.success());
    let asked = stage.run(&["health", &ready]).await?.failure()?;
    assert!(asked.contains("cannot connect"), "{asked}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_database_leaves_a_worker_alive_but_not_ready() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let server = PgServer::start(PgVersion::any(), &[])?;
    let database = TestDb::empty(&server).await?;
    stage.run_on(&database, &["migrate"]).await?.good()?;
    let work = ["work", "--exec", "ok=true", "--listen", "127.0.0.1:0"];
    let mut child = stage.spawn_on(&database, &work)?;
    let root = served(&mut child).await?;
    let mut exporter = stage.spawn_on(&database, &["exporter", "--listen", "127.0.0.1:0"])?;
    let exported = served(&mut exporter).await?;
    child.error_line("working on", BOUND).await?;
    assert_eq!(got(&root, "/ready").await?.0, 200);
    server.stop_immediate()?;
    let is = async |root: &str, status: u16| Ok(got(root, "/ready").await?.0 == status);
    let bound = BOUND + Duration::from_secs(30);
    eventually(bound, "the worker is not ready", async || {
        is(&root, 503).await
    })
    .await?;
    eventually(bound, "nor is the exporter", async || {
        is(&exported, 503).await
    })
    .await?;
    assert_eq!(got(&root, "/live").await?.0, 200);
    let (status, text) = got(&exported, "/metrics").await?;
    assert_eq!(
        (status, value(&text, "posthaste_database_up")),
        (200, Some(0.0))
    );
    server.restart()?;
    eventually(bound, "the worker is ready again", async || {
        is(&root, 200).await
    })
    .await?;
    eventually(bound, "and the exporter", async || is(&exported, 200).await).await
}

/// Prometheus waits for ten seconds, measured from an earlier start.
#[tokio::test(flavor = "multi_thread")]
async fn silent_databases_are_reported_within_a_scrape() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let server = PgServer::shared(PgVersion::any())?;
    let proxy = Proxy::start(server.address()).await?;
    let url = proxy.url(database.name());
    let mut alerts = stage.spawn_at(&url, &["alerts", "--lasting", "1"])?;
    alerts.error_line("watching", BOUND).await?;
    let mut exporter = stage.spawn_at(&url, &["exporter", "--listen", "127.0.0.1:0"])?;
    let root = served(&mut exporter).await?;
    let up = async || {
        let begun = Instant::now();
        let (status, text) = got(&root, "/metrics").await?;
        let up = value(&text, "posthaste_database_up");
        anyhow::Ok(((status, up), begun.elapsed()))
    };
    assert_eq!(up().await?.0, (200, Some(1.0)));
    proxy.half_open();
    let mut took = Duration::ZERO;
    eventually(BOUND, "the failure is reported", async || {
        let (reported, now) = up().await?;
        took = now;
        Ok(reported == (200, Some(0.0)))
    })
    .await?;
    // Generous, because of other load on a shared machine.
    assert!(took < Duration::from_secs(20), "{took:?}");
    alerts
        .error_line("alerts could not be evaluated", BOUND)
        .await?;
    // Both stop gracefully, even while they wait.
    alerts.terminate()?;
    assert!(alerts.exit(BOUND).await?.success());
    exporter.terminate()?;
    assert!(exporter.exit(BOUND).await?.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_in_use_are_reported() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?.to_string();
    let arguments = ["exporter", "--listen", &address];
    let failure = stage.run_on(&database, &arguments).await?.failure()?;
    assert!(
        failure.contains(&format!("cannot listen at {address}")),
        "{failure}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn abandoned_reads_are_cancelled_on_the_server() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let (client, mut holder) = (database.client().await?, database.client().await?);
    let (_child, root) = exporter(&stage, &database).await?;
    let lock = holder.transaction().await?;
    lock.run("LOCK TABLE posthaste.stats_sum IN ACCESS EXCLUSIVE MODE")
        .await?;
    let down = "posthaste_database_up 0";
    eventually(BOUND, "it says that the database is down", async || {
        Ok(got(&root, "/metrics").await?.1.contains(down))
    })
    .await?;
    let readings = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'active'";
    eventually(BOUND, "the statement has ended", async || {
        Ok(number(&client, readings).await? == 0)
    })
    .await?;
    lock.rollback().await?;
    Ok(())
}
