mod rights;
mod trapped;
mod unfit;

use anyhow::Context as _;
use posthaste_testkit::{PgServer, PgVersion, Sql as _, TestDb, connect, eventually, number};
use serde_json::Value;

use crate::stage::{self, Stage};

/// The exit code of `posthaste doctor`, and (level, id) of each finding.
struct Diagnosis {
    code: Option<i32>,
    findings: Vec<(String, String)>,
    text: String,
}

impl Diagnosis {
    fn has(&self, level: &str, id: &str) -> bool {
        let is_it = |(l, a): &(String, String)| l == level && a == id;
        self.findings.iter().any(is_it)
    }

    #[track_caller]
    fn finds(&self, level: &str, id: &str) {
        assert!(self.has(level, id), "no {level} {id}: {}", self.text);
        assert_eq!(
            self.code == Some(3),
            self.findings.iter().any(|(l, _)| l == "error")
        );
    }
}

async fn ask(stage: &Stage, url: &str) -> anyhow::Result<Diagnosis> {
    let arguments = ["doctor", "--json", "--older-than", "0"];
    let output = stage.run_with_url(url, &arguments).await?;
    let report: Value = serde_json::from_str(&output.out).with_context(|| output.err.clone())?;
    let findings = report["findings"].as_array().into_iter().flatten();
    let word = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
    Ok(Diagnosis {
        code: output.code,
        findings: findings
            .map(|one| (word(one, "level"), word(one, "id")))
            .collect(),
        text: format!("{} {}", output.out, output.err),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_server_problems() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let settings = [
        ("fsync", "off"),
        ("synchronous_commit", "off"),
        ("max_prepared_transactions", "4"),
    ];
    let server = PgServer::start(PgVersion::any(), &settings)?;
    let db = TestDb::empty(&server).await?;
    let report = ask(&stage, db.url()).await?;
    for (level, id) in [
        ("error", "server.fsync"),
        ("hint", "server.synchronous_commit"),
        ("hint", "server.prepared_transactions"),
        ("hint", "rights.roles"),
        ("error", "schema.mismatch"),
    ] {
        report.finds(level, id);
    }
    assert_eq!(report.findings.len(), 5, "{}", report.text);
    stage
        .run_with_url(db.url(), &["migrate", "--roles"])
        .await?
        .good()?;
    let client = db.client().await?;
    client
        .run(
            "INSERT INTO posthaste.migration (name, checksum, version)
             VALUES ('9999_later', '', '99.0.0')",
        )
        .await?;
    let report = ask(&stage, db.url()).await?;
    report.finds("error", "schema.mismatch");
    assert!(
        report.text.contains("newer") && !report.has("hint", "rights.roles"),
        "{}",
        report.text
    );

    // Holders of space: a session with jobs in an open transaction, a forgotten one, a slot, and a
    // reader on a replica.
    client
        .run("DELETE FROM posthaste.migration WHERE name = '9999_later'")
        .await?;
    client
        .run("BEGIN; INSERT INTO posthaste.job (name) VALUES ('x')")
        .await?;
    let report = ask(&stage, db.url()).await?;
    report.finds("hint", "transaction.lock");
    report.finds("warning", "transaction.long");
    client.run("PREPARE TRANSACTION 'forgotten'").await?;
    ask(&stage, db.url())
        .await?
        .finds("error", "transaction.prepared");
    client.run("ROLLBACK PREPARED 'forgotten'").await?;
    client
        .run("SELECT pg_create_physical_replication_slot('left', true)")
        .await?;
    ask(&stage, db.url())
        .await?
        .finds("hint", "transaction.slot");
    client
        .run("SELECT pg_drop_replication_slot('left')")
        .await?;
    a_reader_on_a_replica_is_named(&stage, &server, &db).await
}

/// A reader on a replica is found whether it holds the horizon by its connection or by its slot. A
/// replica without readers is not a finding.
async fn a_reader_on_a_replica_is_named(
    stage: &Stage,
    server: &PgServer,
    db: &TestDb,
) -> anyhow::Result<()> {
    let client = db.client().await?;
    let feedback = [
        ("hot_standby_feedback", "on"),
        ("wal_receiver_status_interval", "1s"),
    ];
    let with_slot = [("primary_slot_name", "its"), ("cluster_name", "follower")];
    let make_slot = "SELECT pg_create_physical_replication_slot('its', true)";
    client.run(make_slot).await?;
    for more in [&[][..], &with_slot] {
        let replica = server.start_replica(&[&feedback, more].concat())?;
        let on_replica = replica.url(db.name());
        ask(stage, &on_replica)
            .await?
            .finds("error", "server.replica");
        // The replica reports its horizon, which advances.
        let replica = "SELECT count(*) FROM pg_stat_replication r LEFT JOIN pg_replication_slots s
                     ON s.active_pid = r.pid
                     WHERE coalesce(r.backend_xmin, s.xmin) IS NOT NULL";
        eventually(stage::BOUND, "the replica tells", async || {
            Ok(number(&client, replica).await? == 1)
        })
        .await?;
        many(&client).await?;
        eventually(stage::BOUND, "nobody reads there", async || {
            Ok(!ask(stage, db.url())
                .await?
                .has("hint", "transaction.replica"))
        })
        .await?;
        let reader = connect(&on_replica).await?;
        reader
            .run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
            .await?;
        many(&client).await?;
        // After its next report, a replica without a reader would cause no finding.
        let row = client
            .query_one("SELECT clock_timestamp()::text", &[])
            .await?;
        let again = format!(
            "SELECT count(*) FROM pg_stat_replication WHERE reply_time > '{}'::timestamptz + \
             interval '1500 ms'",
            row.try_get::<_, &str>(0)?
        );
        eventually(stage::BOUND, "the replica tells again", async || {
            Ok(number(&client, &again).await? == 1)
        })
        .await?;
        let report = ask(stage, db.url()).await?;
        report.finds("hint", "transaction.replica");
        assert!(
            report.text.contains("pg_terminate_backend"),
            "{}",
            report.text
        );
        assert!(
            !report.has("hint", "transaction.slot") || more.is_empty(),
            "a slot that is read is not a finding: {}",
            report.text
        );
        if !more.is_empty() {
            assert!(
                report.text.contains("follower (127.0.0.1)"),
                "{}",
                report.text
            );
        }
        reader.run("COMMIT").await?;
        eventually(stage::BOUND, "the reader is gone", async || {
            Ok(!ask(stage, db.url())
                .await?
                .has("hint", "transaction.replica"))
        })
        .await?;
    }
    Ok(())
}

/// Uses more transactions than a replica without readers may lag.
async fn many(client: &tokio_postgres::Client) -> anyhow::Result<()> {
    client.run("SET synchronous_commit = off").await?;
    let use_up =
        "DO $$ BEGIN FOR i IN 1..11000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$";
    client.run(use_up).await
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_store_problems() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let (server, db, client) = stage::with_roles(&stage).await?;
    let report = ask(&stage, db.url()).await?;
    report.finds("hint", "worker.idle");
    assert_eq!(
        (report.code, report.findings.len()),
        (Some(0), 1),
        "hints are no reason to fail: {}",
        report.text
    );
    client.run("SELECT posthaste.enqueue('x')").await?;
    ask(&stage, db.url()).await?.finds("error", "worker.none");
    client
        .run("INSERT INTO posthaste.worker (name) VALUES ('w')")
        .await?;
    ask(&stage, db.url())
        .await?
        .finds("error", "worker.no_leader");
    client
        .run("INSERT INTO posthaste.leader (worker, until) VALUES (1, 'infinity')")
        .await?;
    let fine = stage.run_with_url(db.url(), &["doctor"]).await?;
    assert_eq!(fine.good()?.trim(), "no problems found");

    // The promoter ran while the clock was an hour ahead.
    let tell = |ahead: &str| {
        format!(
            "SELECT setval('posthaste.promote_horizon', \
             (extract(epoch FROM clock_timestamp() + interval '{ahead}') * 1000000)::bigint)"
        )
    };
    client.run(&tell("1 hour")).await?;
    ask(&stage, db.url())
        .await?
        .finds("error", "store.clock_back");
    client.run(&tell("0")).await?;

    client
        .run("REVOKE INSERT ON posthaste.store FROM posthaste_producer")
        .await?;
    ask(&stage, db.url())
        .await?
        .finds("error", "rights.outdated");
    stage
        .run_with_url(db.url(), &["migrate", "--roles"])
        .await?
        .good()?;
    client
        .run("SELECT setval('posthaste.job_id', 1, false); SELECT posthaste.lock_out_workers(true)")
        .await?;
    let report = ask(&stage, db.url()).await?;
    report.finds("error", "store.restored");
    report.finds("error", "store.sequence");
    let refused = stage
        .run_with_url(db.url(), &["work", "--exec", "x=true"])
        .await?;
    assert!(refused.err.contains("posthaste rebase"), "{}", refused.err);
    ask(&stage, &server.pooled_url(db.name())?)
        .await?
        .finds("hint", "server.pooler");
    let rebased = stage.run_with_url(db.url(), &["rebase"]).await?.good()?;
    assert!(rebased.starts_with("1 unfinished"), "{rebased}");
    let report = ask(&stage, db.url()).await?;
    assert!(
        !report.has("error", "store.restored") && !report.has("error", "store.sequence"),
        "{}",
        report.text
    );
    // An id that occurs in the history only.
    client
        .run(
            "INSERT INTO posthaste.attempt (job, attempt, slot, outcome, queue, name) \
             VALUES (1000000, 1, 0, 'dead', 'q', 'x')",
        )
        .await?;
    let report = ask(&stage, db.url()).await?;
    report.finds("error", "store.sequence");
    // The remedy sets the sequence beyond that id, although no job has an id that high.
    assert!(!report.text.contains("setval"), "{}", report.text);
    client
        .run("UPDATE posthaste.worker SET stopped_at = now()")
        .await?;
    stage.run_with_url(db.url(), &["rebase"]).await?.good()?;
    let report = ask(&stage, db.url()).await?;
    assert!(!report.has("error", "store.sequence"), "{}", report.text);
    let next = "SELECT nextval('posthaste.job_id')";
    assert!(number(&client, next).await? > 1_000_000);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_shows_space_holders_to_observers() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let (_server, db, as_looker) = stage::somebody_who_looks(&stage).await?;
    let client = db.client().await?;
    client
        .run("BEGIN; INSERT INTO posthaste.job (name) VALUES ('x')")
        .await?;
    let report = ask(&stage, &as_looker).await?;
    report.finds("warning", "transaction.long");
    report.finds("hint", "transaction.lock");
    report.finds("hint", "worker.idle");
    assert!(!report.has("hint", "rights.sessions"), "{}", report.text);
    assert!(
        !report.text.contains(" for :"),
        "each has an age: {}",
        report.text
    );
    // A read-only role is supposed to be read-only, so that is not a finding.
    report.finds("hint", "rights.partial");
    assert_eq!(report.code, Some(0), "{}", report.text);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_missing_session_visibility() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let (_server, db, as_looker) = stage::somebody_who_looks(&stage).await?;
    let client = db.client().await?;
    client
        .run("REVOKE pg_read_all_stats FROM posthaste_observer")
        .await?;
    client
        .run("BEGIN; INSERT INTO posthaste.job (name) VALUES ('x')")
        .await?;
    let report = ask(&stage, &as_looker).await?;
    report.finds("hint", "rights.sessions");
    let remedy = "GRANT pg_read_all_stats TO looker";
    assert!(report.text.contains(remedy), "{}", report.text);
    // The short lock of a claim could not be distinguished from it.
    assert!(!report.has("hint", "transaction.lock"), "{}", report.text);
    assert!(
        !report.has("warning", "transaction.long"),
        "{}",
        report.text
    );
    assert_eq!(report.code, Some(0), "{}", report.text);
    Ok(())
}
