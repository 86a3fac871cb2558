//! Missing rights of the doctor's user, and holders that are hidden from it.

use posthaste_testkit::{PgServer, PgVersion, Sql as _, TestDb};

use super::ask;
use crate::stage::{self, Stage};

/// Returns the address of a database for another user.
fn url_of(db: &TestDb, user: &str) -> String {
    let user = format!("postgres://{user}@");
    db.url().replace("postgres://postgres@", &user)
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_rights_are_reported_without_guesses() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let (_server, db, client) = stage::with_roles(&stage).await?;
    client
        .run(
            "SELECT posthaste.check_identity(); CREATE ROLE nobody_special LOGIN;
             CREATE ROLE lone LOGIN; GRANT USAGE ON SCHEMA posthaste TO lone;
             GRANT SELECT ON ALL TABLES IN SCHEMA posthaste TO lone",
        )
        .await?;
    for user in ["nobody_special", "lone"] {
        let report = ask(&stage, &url_of(&db, user)).await?;
        report.finds("error", "rights.none");
        report.finds("hint", "rights.sessions");
        assert_eq!(report.findings.len(), 2, "{user}: {}", report.text);
    }
    let nobody = url_of(&db, "nobody_special");
    client
        .run("GRANT posthaste_producer TO nobody_special")
        .await?;
    let report = ask(&stage, &nobody).await?;
    report.finds("hint", "rights.partial");
    assert_eq!(
        (report.code, report.findings.len()),
        (Some(0), 2),
        "{}",
        report.text
    );
    client
        .run("GRANT posthaste_worker TO nobody_special")
        .await?;
    let report = ask(&stage, &nobody).await?;
    report.finds("hint", "worker.idle");
    assert_eq!(report.findings.len(), 1, "{}", report.text);
    Ok(())
}

/// A session is one finding, regardless of the number of tables that it has locked, and even if its
/// transaction began before the clock was set back, so that its age is unknown.
#[tokio::test(flavor = "multi_thread")]
async fn transactions_started_before_a_clock_step_are_reported_once() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let server =
        PgServer::start_with_clock(PgVersion::any(), &[("max_prepared_transactions", "4")])?;
    let db = TestDb::empty(&server).await?;
    stage.run_with_url(db.url(), &["migrate"]).await?.good()?;
    server.turn_clock(5_000)?;
    let (holder, other) = (db.client().await?, db.client().await?);
    holder.run("BEGIN; SELECT posthaste.enqueue('x')").await?;
    other
        .run("BEGIN; SELECT posthaste.enqueue('x'); PREPARE TRANSACTION 'forgotten'")
        .await?;
    server.turn_clock(0)?;
    let output = stage
        .run_with_url(db.url(), &["doctor", "--older-than", "1h"])
        .await?
        .out;
    for finding in [
        "A lock on the queue's tables has been held since before the clock stepped back: ",
        "A transaction has been open since before the clock stepped back: ",
        "was prepared before the clock stepped back and has not ended",
    ] {
        assert_eq!(output.matches(finding).count(), 1, "{finding}: {output}");
    }
    Ok(())
}
