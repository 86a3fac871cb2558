//! Databases in which no worker should run, or none can.

use posthaste_testkit::{PgServer, PgVersion, Sql as _, connect, eventually};

use super::ask;
use crate::stage::{self, Stage};

/// A copy lists the workers and the leader of the original, and none of them runs in it.
#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_one_finding_for_an_unadopted_copy() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let (server, db, client) = stage::with_roles(&stage).await?;
    client
        .run(
            "INSERT INTO posthaste.worker (name) VALUES ('w');
             INSERT INTO posthaste.leader (worker, until) VALUES (1, 'infinity');
             SELECT posthaste.enqueue('x')",
        )
        .await?;
    let claim = "SELECT posthaste.claim('default', '{0}', 1, gen_random_uuid(), 1, 1000)";
    client.run(claim).await?;
    drop(client);
    let admin = connect(&server.url("postgres")).await?;
    let copy = format!("CREATE DATABASE its_copy TEMPLATE {}", db.name());
    eventually(stage::BOUND, "nobody is connected to it", async || {
        Ok(admin.batch_execute(&copy).await.is_ok())
    })
    .await?;
    let report = ask(&stage, &server.url("its_copy")).await?;
    report.finds("error", "store.restored");
    assert_eq!(report.findings.len(), 1, "{}", report.text);
    Ok(())
}

/// If functions are not executable by all users, rights to the tables alone start no worker.
#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_missing_functions_that_workers_need() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let (server, db, _) = stage::somebody_who_looks(&stage).await?;
    let client = db.client().await?;
    client
        .run(
            "CREATE ROLE runner LOGIN; GRANT posthaste_worker TO runner;
             REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA posthaste
               FROM PUBLIC, posthaste_worker, posthaste_producer, posthaste_observer",
        )
        .await?;
    let as_runner = server
        .url(db.name())
        .replace("postgres://postgres@", "postgres://runner@");
    let report = ask(&stage, &as_runner).await?;
    report.finds("error", "rights.functions");
    assert_eq!(report.code, Some(3), "{}", report.text);
    // A superuser gets the finding too.
    ask(&stage, db.url())
        .await?
        .finds("error", "rights.outdated");
    let refused = stage
        .run_with_url(&as_runner, &["work", "--exec", "x=true"])
        .await?
        .failure()?;
    assert!(refused.contains("posthaste doctor"), "{refused}");
    stage
        .run_with_url(db.url(), &["migrate", "--roles"])
        .await?
        .good()?;
    let report = ask(&stage, db.url()).await?;
    assert!(!report.has("error", "rights.outdated"), "{}", report.text);
    let report = ask(&stage, &as_runner).await?;
    assert!(!report.has("error", "rights.functions"), "{}", report.text);
    let as_looker = as_runner.replace("runner@", "looker@");
    let status = stage.run_with_url(&as_looker, &["status"]).await?;
    status.good()?;
    let enqueue = "SET ROLE posthaste_producer; SELECT posthaste.enqueue('x')";
    client.run(enqueue).await
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_hints_at_sql_ascii_databases() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let server = PgServer::start(PgVersion::any(), &[])?;
    let admin = connect(&server.url("postgres")).await?;
    let create = "CREATE DATABASE bytes TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'";
    admin.run(create).await?;
    ask(&stage, &server.url("bytes"))
        .await?
        .finds("hint", "server.encoding");
    Ok(())
}

/// All commands report whether the schema or the program is the older one.
#[tokio::test(flavor = "multi_thread")]
async fn doctor_distinguishes_an_older_schema_from_a_missing_one() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let db = stage::database().await?;
    let older = "UPDATE posthaste.migration SET version = '0.0.0', checksum = 'x'
                  WHERE name = 'functions'";
    db.client().await?.run(older).await?;
    let report = ask(&stage, db.url()).await?;
    report.finds("error", "schema.mismatch");
    assert!(
        report.text.contains("older than this program"),
        "{}",
        report.text
    );
    let work = ["work", "--exec", "x=true"];
    let output = stage.run_on(&db, &work).await?.failure()?;
    assert!(output.contains("older than this program"), "{output}");
    assert!(output.contains("posthaste migrate"), "{output}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_the_detected_platform() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let (server, db, client) = stage::with_roles(&stage).await?;
    let report = ask(&stage, db.url()).await?;
    assert!(!report.has("hint", "server.platform"), "{}", report.text);
    client.run("CREATE ROLE rdsadmin").await?;
    let report = ask(&stage, &server.url(db.name())).await?;
    report.finds("hint", "server.platform");
    assert!(report.text.contains("Amazon RDS"), "{}", report.text);
    Ok(())
}
