//! `posthaste txwatch` on real servers: the transactions that it finds, those that it ends, and
//! those that it never ends.

mod replica_readers;

use posthaste_testkit::{PgServer, PgVersion, Sql as _, TestDb, connect, eventually, number};
use serde_json::Value;
use tokio_postgres::Client;

use crate::stage::{self, CommandOutput, Stage};

/// Warns about each transaction at once and terminates it after a second, except those of pg_dump.
const RULES: &str = "act = true\nevery = '1s'\nterminations_per_minute = 100\n\
                     [[txwatch.rule]]\napplication = 'pg_dump'\n\
                     [[txwatch.rule]]\nwarn = '0s'\nterminate = '1s'\n";

/// Starts a server with roles that are not superusers.
async fn server_with_roles(stage: &Stage) -> anyhow::Result<(PgServer, TestDb, Client)> {
    let settings = [("max_prepared_transactions", "4"), ("wal_level", "logical")];
    let server = PgServer::start(PgVersion::any(), &settings)?;
    let db = TestDb::empty(&server).await?;
    stage
        .run_with_url(db.url(), &["migrate", "--roles"])
        .await?
        .good()?;
    let owner = db.client().await?;
    owner
        .run(
            "CREATE ROLE app LOGIN; GRANT posthaste_producer TO app;
             CREATE ROLE watcher LOGIN; GRANT pg_monitor, pg_signal_backend TO watcher",
        )
        .await?;
    Ok((server, db, owner))
}

/// Returns the database's URL for another role.
fn url_of(url: &str, role: &str, application: &str) -> String {
    let url = url.replacen("://postgres@", &format!("://{role}@"), 1);
    let sign = if url.contains('?') { '&' } else { '?' };
    format!("{url}{sign}application_name={application}")
}

async fn once(stage: &Stage, db: &TestDb, more: &[&str]) -> anyhow::Result<(CommandOutput, Value)> {
    let arguments = [&["--json", "txwatch", "--once"], more].concat();
    let url = url_of(db.url(), "watcher", "watch");
    let output = stage.run_with_url(&url, &arguments).await?;
    let pass = serde_json::from_str(&output.out).unwrap_or_default();
    Ok((output, pass))
}

fn texts(pass: &Value, list: &str) -> Vec<String> {
    let all = pass[list].as_array().into_iter().flatten();
    all.map(|one| one["text"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn txwatch_only_warns_by_default() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let (_server, db, owner) = server_with_roles(&stage).await?;
    let file = "[txwatch]\n[[txwatch.rule]]\nwarn = '0s'\nterminate = '1s'\n";
    stage.write("posthaste.toml", file)?;
    let held = connect(&url_of(db.url(), "app", "report")).await?;
    held.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 'geheim' FROM pg_class LIMIT 1")
        .await?;
    let (output, pass) = once(&stage, &db, &[]).await?;
    assert_eq!(output.code, Some(3), "{output:?}");
    let findings = texts(&pass, "findings");
    assert_eq!(findings.len(), 1, "{pass}");
    assert!(findings[0].contains("(app, report, from "), "{pass}");
    assert!(findings[0].contains("VACUUM cannot remove rows"), "{pass}");
    let query = pass["findings"][0]["query"].as_str().unwrap_or_default();
    assert!(query.contains("SELECT ? FROM pg_class"), "{query}");
    assert!(!output.out.contains("geheim") && !output.err.contains("geheim"));
    // A dry run records nothing and ends no session.
    held.run("SELECT 1").await?;
    let recorded = "SELECT count(*) FROM posthaste.txwatch_action";
    assert_eq!(number(&owner, recorded).await?, 0);
    held.run("COMMIT").await?;
    let (output, _) = once(&stage, &db, &[]).await?;
    assert_eq!(output.code, Some(0), "{output:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn harmless_transactions_are_reported_as_such() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let (_server, db, owner) = server_with_roles(&stage).await?;
    stage.write("posthaste.toml", &format!("[txwatch]\n{RULES}"))?;
    let idle = connect(&url_of(db.url(), "app", "idle")).await?;
    idle.run("BEGIN; SELECT 1").await?;
    let old = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'idle'
                AND xact_start < clock_timestamp() - interval '1 second'";
    eventually(stage::BOUND, "the transaction is old enough", async || {
        Ok(number(&owner, old).await? == 1)
    })
    .await?;
    for _ in 0..2 {
        let (_, pass) = once(&stage, &db, &[]).await?;
        let findings = texts(&pass, "findings");
        assert!(findings[0].contains("it retains no rows"), "{pass}");
    }
    idle.run("COMMIT").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn old_transactions_are_ended_except_allowed_ones() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let (_server, db, owner) = server_with_roles(&stage).await?;
    stage.write("posthaste.toml", &format!("[txwatch]\n{RULES}"))?;
    let open = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM pg_class LIMIT 1";
    let (held, dump) = (
        connect(&url_of(db.url(), "app", "report")).await?,
        connect(&url_of(db.url(), "app", "pg_dump")).await?,
    );
    held.run(open).await?;
    // A role may disable the server's timeouts for itself; the supervisor ignores that.
    held.run("SET statement_timeout = 0").await?;
    dump.run(open).await?;
    // The superuser's own transaction, a slot and a prepared transaction are reported, never ended.
    // Creating a slot waits for writing transactions to end, so it comes first.
    owner
        .run("SELECT pg_create_logical_replication_slot('unread', 'test_decoding')")
        .await?;
    let admin = db.client().await?;
    admin.run(open).await?;
    let preparing = connect(&url_of(db.url(), "app", "forgetful")).await?;
    preparing
        .run("BEGIN; SELECT posthaste.enqueue('n', '{}'); PREPARE TRANSACTION 'forgotten'")
        .await?;
    let url = url_of(db.url(), "watcher", "watch");
    let mut watching = stage.spawn_at(&url, &["--json", "txwatch"])?;
    eventually(stage::BOUND, "the report's session ends", async || {
        Ok(held.is_closed())
    })
    .await?;
    let named = "SELECT count(DISTINCT name) FROM posthaste.txwatch_action
                  WHERE action = 'warn' AND name IN ('forgotten', 'unread')";
    eventually(stage::BOUND, "both are named", async || {
        Ok(number(&owner, named).await? == 2)
    })
    .await?;
    dump.run("SELECT 1; COMMIT").await?;
    admin.run("SELECT 1; COMMIT").await?;
    assert_eq!(
        number(&owner, "SELECT count(*) FROM pg_prepared_xacts").await?,
        1
    );
    // Each step is recorded before it is executed, with its result.
    let steps: Vec<(String, String)> = owner
        .rows(
            "SELECT action, result FROM posthaste.txwatch_action WHERE application = 'report'
              ORDER BY id",
        )
        .await?;
    let expected = [("warn", "done"), ("terminate", "done")];
    assert_eq!(steps, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    watching.terminate()?;
    let output = CommandOutput::by(watching).await?;
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(
        output.out.contains("\"action\":\"terminate\""),
        "{output:?}"
    );
    let doctor = stage.run_with_url(db.url(), &["--json", "status"]).await?;
    let status: Value = serde_json::from_str(&doctor.out)?;
    let ended = status["findings"].as_array().into_iter().flatten();
    let mut ended = ended.filter(|one| one["id"] == "transaction.ended");
    let summary = ended.next().map(|one| one["summary"].to_string());
    let summary = summary.unwrap_or_default();
    assert!(summary.contains("session terminated"), "{status}");
    assert!(summary.contains("of app (report)"), "{status}");
    owner.run("ROLLBACK PREPARED 'forgotten'").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_supervisor_does_not_act() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let (_server, db, owner) = server_with_roles(&stage).await?;
    stage.write("posthaste.toml", &format!("[txwatch]\n{RULES}"))?;
    owner.run("SELECT pg_advisory_lock(1885893482, 0)").await?;
    let held = connect(&url_of(db.url(), "app", "report")).await?;
    held.run("BEGIN; SELECT posthaste.enqueue('n', '{}')")
        .await?;
    let (output, pass) = once(&stage, &db, &[]).await?;
    assert_eq!(output.code, Some(3), "{output:?}");
    let problems = pass["problems"].to_string();
    assert!(problems.contains("another txwatch acts"), "{pass}");
    held.run("COMMIT").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn txwatch_ends_long_readers_on_a_replica() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let (server, db, owner) = server_with_roles(&stage).await?;
    let feedback = [
        ("hot_standby_feedback", "on"),
        ("wal_receiver_status_interval", "1s"),
    ];
    let follower = server.start_replica(&feedback)?;
    // A follower that is not watched is a problem.
    stage.write("posthaste.toml", &format!("[txwatch]\n{RULES}"))?;
    eventually(stage::BOUND, "the follower streams", async || {
        let (_, pass) = once(&stage, &db, &["--dry-run"]).await?;
        Ok(pass["problems"].to_string().contains("are not watched"))
    })
    .await?;
    let there = url_of(&follower.url(db.name()), "watcher", "watch");
    let file = format!("[txwatch]\nfollowers = ['{there}']\n{RULES}");
    stage.write("posthaste.toml", &file)?;
    let reader = connect(&url_of(&follower.url(db.name()), "app", "report")).await?;
    reader
        .run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM pg_class LIMIT 1")
        .await?;
    let url = url_of(db.url(), "watcher", "watch");
    let mut watching = stage.spawn_at(&url, &["txwatch"])?;
    eventually(stage::BOUND, "the reader's session ends", async || {
        Ok(reader.is_closed())
    })
    .await?;
    let recorded = "SELECT count(*) FROM posthaste.txwatch_action
                     WHERE server LIKE 'follower 1 %' AND action = 'terminate'
                       AND result = 'done'";
    eventually(stage::BOUND, "the result is recorded", async || {
        Ok(number(&owner, recorded).await? == 1)
    })
    .await?;
    watching.terminate()?;
    CommandOutput::by(watching).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn txwatch_names_missing_rights() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let (_server, db, owner) = server_with_roles(&stage).await?;
    owner.run("REVOKE pg_signal_backend FROM watcher").await?;
    stage.write("posthaste.toml", &format!("[txwatch]\n{RULES}"))?;
    let (output, _) = once(&stage, &db, &[]).await?;
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.err.contains("GRANT pg_signal_backend"), "{output:?}");
    let (output, _) = once(&stage, &db, &["--dry-run"]).await?;
    assert_eq!(output.code, Some(0), "{output:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn txwatch_prints_and_sets_role_timeouts() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let (_server, db, _owner) = server_with_roles(&stage).await?;
    let arguments = ["txwatch", "--timeouts", "app", "--longest", "5m", "--apply"];
    let output = stage.run_with_url(db.url(), &arguments).await?.good()?;
    assert!(
        output.contains("ALTER ROLE \"app\" SET idle_in_transaction_session_timeout = '300s';"),
        "{output}"
    );
    let app = connect(&url_of(db.url(), "app", "x")).await?;
    let row = app.query_one("SHOW statement_timeout", &[]).await?;
    assert_eq!(row.get::<_, String>(0), "5min");
    Ok(())
}
