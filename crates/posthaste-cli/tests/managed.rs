//! A server with the restrictions of managed platforms: no functions about the write-ahead log, a
//! role that may not create schemas, event triggers that rewrite and reject statements, no sessions
//! without TLS, and a pooler.

use anyhow::{Context as _, ensure};
use posthaste_testkit::{PgServer, PgVersion, Sql as _, connect, eventually};
use serde_json::Value;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::stage::{BOUND, Stage};
use crate::tls::require_tls;

/// Sessions of the pooler act as the owner too.
const REFUSED: &str = "
    DO $do$ DECLARE f regprocedure; BEGIN
      FOR f IN SELECT p.oid::regprocedure FROM pg_proc p
         WHERE p.pronamespace = 'pg_catalog'::regnamespace
           AND (p.proname LIKE 'pg\\_control\\_%' OR p.proname LIKE 'pg\\_walfile\\_%'
             OR p.proname LIKE 'pg\\_current\\_wal\\_%' OR p.proname LIKE 'pg\\_last\\_wal\\_%'
             OR p.proname LIKE 'pg\\_ls\\_%' OR p.proname LIKE 'pg\\_read\\_%file%'
             OR p.proname IN ('pg_switch_wal', 'pg_stat_file', 'pg_logical_emit_message')) LOOP
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', f);
      END LOOP;
    END $do$;
    CREATE ROLE owner LOGIN; CREATE ROLE supabase_admin;
    REVOKE CREATE ON DATABASE managed FROM PUBLIC;
    CREATE SCHEMA posthaste AUTHORIZATION owner; CREATE SCHEMA app AUTHORIZATION owner;
    ALTER DATABASE managed SET role = 'owner';
    CREATE SCHEMA platform;
    CREATE FUNCTION platform.secure() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER AS $f$
    DECLARE c record; BEGIN
      FOR c IN SELECT * FROM pg_event_trigger_ddl_commands() WHERE object_type = 'table' LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', c.object_identity);
      END LOOP;
    END $f$;
    CREATE FUNCTION platform.tell() RETURNS event_trigger LANGUAGE plpgsql AS $f$
    BEGIN PERFORM pg_notify('platform', tg_tag); END $f$;
    CREATE FUNCTION platform.refuse() RETURNS event_trigger LANGUAGE plpgsql AS $f$
    BEGIN RAISE EXCEPTION 'the platform refuses %', tg_tag; END $f$;
    CREATE EVENT TRIGGER secure ON ddl_command_end WHEN tag IN ('CREATE TABLE')
      EXECUTE FUNCTION platform.secure();
    CREATE EVENT TRIGGER tell ON ddl_command_end EXECUTE FUNCTION platform.tell();
    CREATE EVENT TRIGGER tell_dropped ON sql_drop EXECUTE FUNCTION platform.tell();
    CREATE EVENT TRIGGER refuse ON ddl_command_start
      WHEN tag IN ('CREATE EXTENSION', 'CREATE SCHEMA', 'CREATE PUBLICATION', 'CREATE LANGUAGE',
                   'CREATE CAST', 'CREATE OPERATOR', 'ALTER DEFAULT PRIVILEGES')
      EXECUTE FUNCTION platform.refuse();";

const FILE: &str = "[route.lines]\nqueue = 'lines'\nto = 'stdout:'\n\
    [sync.pages]\ntable = 'app.page'\ndelay = '0s'\nperiod = '1s'\nindex = 'postgres:'\n";

const JOBS: &str = "SELECT posthaste.enqueue('ok', queue => 'mail') FROM generate_series(1, 5);
    SELECT posthaste.enqueue('ok', queue => 'mail', ordering_key => 'o') FROM generate_series(1, 3);
    SELECT posthaste.enqueue('ok', queue => 'mail', unique_key => 'u');
    SELECT posthaste.enqueue('ok', queue => 'mail',
      scheduled_at => clock_timestamp() + interval '1 s');
    SELECT posthaste.enqueue('fails', queue => 'mail', max_attempts => 1)";

/// Returns the single value of a statement, without a prepared statement, which the pooler's next
/// session would lack.
async fn text(client: &Client, sql: &str) -> anyhow::Result<String> {
    let messages = client.simple_query(sql).await?;
    let row = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    Ok(row.context("no row")?.to_owned())
}

async fn number(client: &Client, sql: &str) -> anyhow::Result<i64> {
    Ok(text(client, sql).await?.parse()?)
}

/// Waits until all jobs have ended, and those that fail are dead.
async fn does_all(client: &Client, says: &str) -> anyhow::Result<()> {
    let dead = "SELECT count(*) FROM posthaste.dead";
    let before = number(client, dead).await?;
    client.run(JOBS).await?;
    eventually(BOUND, says, async || {
        let left = "SELECT count(*) FROM posthaste.job WHERE queue = 'mail' AND state <> 'dead'";
        Ok(number(client, left).await? == 0 && number(client, dead).await? == before + 1)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_workflow_works_on_managed_platforms() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let server = PgServer::start(PgVersion::V15, &[])?;
    let admin = connect(&server.url("postgres")).await?;
    admin.run("CREATE DATABASE managed").await?;
    let admin = connect(&server.url("managed")).await?;
    admin.run(REFUSED).await?;
    drop(admin);
    require_tls(&server, &stage).await?;
    let url = format!("postgres://owner@{}/managed", server.address());
    let good = async |arguments: &[&str]| stage.run_with_url(&url, arguments).await?.good();
    let plain = stage
        .run_with_url(&format!("{url}?sslmode=disable"), &["status"])
        .await?
        .failure()?;
    assert!(plain.contains("no encryption"), "{plain}");
    good(&["migrate"]).await?;
    let pooled = server.pooled_url("managed")?;
    let client = connect(&pooled).await?;
    let role = text(&client, "SELECT current_user::text").await?;
    assert_eq!(role, "owner");
    let secured = "SELECT count(*) FROM pg_class WHERE relrowsecurity";
    assert!(number(&client, secured).await? > 10);
    let refused = client.batch_execute("CREATE SCHEMA refused").await;
    assert!(refused.is_err());

    let work = [
        "work",
        "--queue",
        "mail",
        "--exec",
        "ok=true",
        "--exec",
        "fails=false",
    ];
    let mut worker = stage.spawn_at(&url, &work)?;
    does_all(&client, "jobs of each kind end").await?;
    relay_and_sync(&stage, &url, &client).await?;
    let doctor = stage.run_with_url(&url, &["doctor", "--json"]).await?;
    let document: Value = serde_json::from_str(&doctor.out)?;
    let ids = document["findings"].as_array().into_iter().flatten();
    let ids: Vec<&str> = ids.filter_map(|one| one["id"].as_str()).collect();
    assert!(ids.contains(&"server.platform"), "{}", doctor.out);
    for lacking in ["rights.none", "rights.functions", "rights.outdated"] {
        assert!(!ids.contains(&lacking), "{}", doctor.out);
    }

    // Each restart of the server is a new epoch there. Neither the server nor the pooler rejects a
    // session because of it.
    drop(client);
    tokio::task::block_in_place(|| {
        server.stop_immediate()?;
        server.restart()
    })?;
    let client = connect(&pooled).await?;
    does_all(&client, "they do after a crash").await?;
    worker.terminate()?;
    assert!(worker.exit(BOUND).await?.success());
    let mut worker = stage.spawn_at(&pooled, &work)?;
    does_all(&client, "they do through the pooler").await?;
    let answer = worker.stderr().join("\n");
    assert!(!answer.contains("another site"), "{answer}");
    worker.terminate()?;
    assert!(worker.exit(BOUND).await?.success());
    good(&["migrate"]).await?;
    Ok(())
}

async fn relay_and_sync(stage: &Stage, url: &str, client: &Client) -> anyhow::Result<()> {
    let good = async |arguments: &[&str]| stage.run_with_url(url, arguments).await?.good();
    stage.write("posthaste.toml", FILE)?;
    client
        .run(
            "CREATE TABLE app.page (id bigint PRIMARY KEY, title text);
             INSERT INTO app.page SELECT n, 'page' FROM generate_series(1, 5) n;
             SELECT posthaste.enqueue('line', queue => 'lines')",
        )
        .await?;
    let sent = good(&["relay", "run", "--once"]).await?;
    ensure!(sent.contains("lines: 1 sent"), "{sent}");
    for command in ["install", "run --once", "audit"] {
        let arguments: Vec<&str> = ["sync"].into_iter().chain(command.split(' ')).collect();
        let answer = good(&arguments).await?;
        ensure!(command != "audit" || answer.ends_with("equal"), "{answer}");
    }
    Ok(())
}
