use posthaste_testkit::{PgServer, PgVersion, Sql as _, TestDb, number};
use serde_json::Value;

use crate::stage::{self, Stage};

#[tokio::test(flavor = "multi_thread")]
async fn printed_migrations_equal_executed_ones() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let printed = stage.run(&["migrate", "--print"]).await?.good()?;
    assert!(
        !stage.folder.join(".posthaste").exists(),
        "printing needs no database"
    );
    let (by_hand, by_us) = (
        stage::empty_database().await?,
        stage::empty_database().await?,
    );
    by_hand.client().await?.run(&printed).await?;
    stage.run_on(&by_us, &["migrate"]).await?.good()?;
    assert_eq!(objects(&by_hand).await?, objects(&by_us).await?);
    let again = stage.run_on(&by_hand, &["migrate"]).await?.good()?;
    assert_eq!(again, "the schema is up to date");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_migration_changes_nothing() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::empty_database().await?;
    let first = stage.run_on(&database, &["migrate"]).await?.good()?;
    assert!(first.starts_with("applied "), "{first}");
    let before = objects(&database).await?;
    let second = stage
        .run_on(&database, &["migrate", "--json"])
        .await?
        .good()?;
    assert_eq!(second, r#"{"applied":[]}"#);
    assert_eq!(objects(&database).await?, before);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_migrations_at_once_all_succeed() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::empty_database().await?;
    let runs = (0..8).map(|_| stage.run_on(&database, &["migrate"]));
    let outputs: Vec<_> = futures_util::future::join_all(runs).await;
    let mut applied = 0;
    for output in outputs {
        applied += usize::from(output?.good()?.starts_with("applied "));
    }
    assert_eq!(applied, 1, "one of them does it, the others find it done");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_without_createrole_get_the_sql_to_run() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let server = PgServer::start(PgVersion::any(), &[])?;
    let database = TestDb::empty(&server).await?;
    let superuser = database.client().await?;
    superuser
        .run(&format!(
            "CREATE ROLE keeper LOGIN; ALTER DATABASE {} OWNER TO keeper",
            database.name()
        ))
        .await?;
    let as_keeper = database
        .url()
        .replace("postgres://postgres@", "postgres://keeper@");
    let roles = "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'posthaste%'";

    let output = stage
        .run_with_url(&as_keeper, &["migrate", "--roles"])
        .await?;
    assert!(output.err.contains("may not create or grant"), "{output:?}");
    let printed = output.good()?;
    assert_eq!(number(&superuser, roles).await?, 0);
    let output = stage
        .run_with_url(&as_keeper, &["migrate", "--roles", "--json"])
        .await?;
    let document: Value = serde_json::from_str(&output.good()?)?;
    assert_eq!(document["roles"], false);
    assert_eq!(
        document["sql"].as_str().map(str::trim),
        Some(printed.trim()),
        "programs get the same"
    );

    superuser.run(&printed).await?;
    let given = "SELECT count(*) FROM unnest(ARRAY['posthaste_producer', 'posthaste_worker']) r
                  WHERE has_any_column_privilege(r, 'posthaste.store', 'INSERT')";
    assert_eq!(number(&superuser, given).await?, 2);
    let again = stage
        .run_with_url(&as_keeper, &["migrate", "--roles"])
        .await?
        .good()?;
    assert_eq!(again, "the schema is up to date; the roles are granted");
    assert_eq!(number(&superuser, given).await?, 2);
    Ok(())
}

/// A migration waits for a session that holds a table which the migration writes.
#[tokio::test(flavor = "multi_thread")]
async fn blocked_migrations_do_not_block_others_for_long() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::empty_database().await?;
    stage.run_on(&database, &["migrate"]).await?.good()?;
    let user = database.client().await?;
    // As an older version left it.
    user.run(
        "UPDATE posthaste.migration SET checksum = '', version = '0.0.1' WHERE name = 'functions'",
    )
    .await?;
    let line = stage
        .run_on(&database, &["work", "--exec", "x=true"])
        .await?
        .failure()?;
    assert!(line.contains("older than this program"), "{line}");
    assert!(line.contains("posthaste migrate"), "{line}");
    let hold = "LOCK TABLE posthaste.migration IN SHARE MODE";
    user.run(&format!("BEGIN; {hold}")).await?;
    let migration = stage.run_on(&database, &["migrate"]);
    let others = async {
        let other = database.client().await?;
        let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted
                       AND relation = 'posthaste.migration'::regclass";
        for _ in 0..2 {
            posthaste_testkit::eventually(stage::BOUND, "the migration waits", async || {
                Ok(number(&other, waits).await? == 1)
            })
            .await?;
            let with_timeout = format!("SET statement_timeout = '5s'; {hold}");
            other.run(&with_timeout).await?;
        }
        user.run("COMMIT").await?;
        anyhow::Ok(())
    };
    let (output, others) = tokio::join!(migration, others);
    others?;
    let output = output?.good()?;
    assert_eq!(output, "applied functions");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn migrations_after_a_step_are_printed_alone() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let printed = stage.run(&["migrate", "--print", "--from", "1"]).await?;
    let printed = printed.good()?;
    assert!(printed.contains("FUNCTION posthaste.claim("));
    assert!(!printed.contains("CREATE TABLE posthaste.store"));
    let refused = stage.run(&["migrate", "--from", "1"]).await?;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    Ok(())
}

/// Other tools run the migration in their transaction or session and continue there.
#[tokio::test(flavor = "multi_thread")]
async fn printed_migrations_restore_session_settings() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let printed = stage.run(&["migrate", "--print"]).await?.good()?;
    let settings = "SELECT concat_ws('; ', current_setting('search_path'),
        current_setting('standard_conforming_strings'), current_setting('check_function_bodies'))";
    let set = |local: &str| {
        format!(
            "SET {local} search_path = app, public; SET {local} standard_conforming_strings = off"
        )
    };
    for (begin, end) in [
        (format!("BEGIN; {}", set("LOCAL")), "COMMIT"),
        (set(""), "SELECT 1"),
    ] {
        let database = stage::empty_database().await?;
        let client = database.client().await?;
        client.run("CREATE SCHEMA app").await?;
        client.run(&begin).await?;
        client.run(&printed).await?;
        let found: String = client.one(settings).await?;
        assert_eq!(found, "app, public; off; on", "{begin}");
        client.run("CREATE TABLE here ()").await?;
        client.run(end).await?;
        let here = "SELECT count(to_regclass('app.here'))";
        assert_eq!(number(&client, here).await?, 1);
    }
    Ok(())
}

/// Statement by statement, like a tool without transactions.
#[tokio::test(flavor = "multi_thread")]
async fn printed_migrations_build_the_same_schema_statement_by_statement() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let printed = stage.run(&["migrate", "--print"]).await?.good()?;
    let script = stage.write("script.sql", &printed)?;
    let (alone, by_us) = (
        stage::empty_database().await?,
        stage::empty_database().await?,
    );
    let psql = PgVersion::any().bin()?.join("psql");
    let done = std::process::Command::new(psql)
        .args(["-qAtX", "-v", "ON_ERROR_STOP=1"])
        .args(["-c", "SET search_path = app, public"])
        .arg("-f")
        .arg(&script)
        .args(["-c", "SHOW search_path", alone.url()])
        .output()?;
    let output = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(
        output.trim_end().lines().last(),
        Some("app, public"),
        "{output}"
    );
    stage.run_on(&by_us, &["migrate"]).await?.good()?;
    assert_eq!(objects(&alone).await?, objects(&by_us).await?);
    Ok(())
}

/// Returns all objects of the schema, by kind and name.
async fn objects(database: &posthaste_testkit::TestDb) -> anyhow::Result<Vec<String>> {
    let rows = database
        .client()
        .await?
        .query(
            "SELECT 'class ' || relname || ' ' || relkind::text FROM pg_class
             WHERE relnamespace = 'posthaste'::regnamespace
             UNION ALL SELECT 'function ' || oid::regprocedure::text || ' ' || md5(prosrc)
               FROM pg_proc WHERE pronamespace = 'posthaste'::regnamespace
             ORDER BY 1",
            &[],
        )
        .await?;
    assert!(rows.len() > 20);
    Ok(rows.iter().map(|row| row.get(0)).collect())
}
