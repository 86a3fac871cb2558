//! Template databases, and servers that deny what managed servers deny.

use posthaste::adopt;
use posthaste_testkit::{PgServer, PgVersion, Sql as _, TestDb, TestResult, connect, eventually};

use super::{of, start};
use crate::support::{SOON, number};

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn databases_created_from_a_template_need_no_adoption() -> TestResult {
    let server = PgServer::start(PgVersion::any(), &[])?;
    let template = TestDb::empty(&server).await?;
    let mut client = template.client().await?;
    posthaste::migrate(&mut client).await?;
    // A worker used it, and a job waits.
    let pool = template.pool(2)?;
    let (worker, _) = start(&pool, Some("tests"), &["default"]).await?;
    worker.stop().await?;
    client
        .run("DELETE FROM posthaste.periodic; SELECT posthaste.enqueue('job')")
        .await?;
    drop((client, pool));
    let admin = connect(&server.url("postgres")).await?;
    let copy = format!("CREATE DATABASE copy TEMPLATE {}", template.name());
    eventually(SOON, "nobody uses the template", async || {
        Ok(admin.batch_execute(&copy).await.is_ok())
    })
    .await?;
    let copy = TestDb::of(&server, "copy");
    let (worker, runs) = start(&copy.pool(2)?, None, &["default"]).await?;
    eventually(SOON, "the copy's job ran", async || {
        Ok(of(&runs, "job") == 1)
    })
    .await?;
    worker.stop().await?;
    Ok(())
}

/// Revokes the functions that managed servers deny to the owner of a database.
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
    CREATE ROLE owner LOGIN; GRANT CREATE ON DATABASE managed TO owner;";

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_plain_owner_can_work_on_a_managed_server() -> TestResult {
    for version in PgVersion::ALL {
        let server = PgServer::start(version, &[])?;
        let admin = connect(&server.url("postgres")).await?;
        admin.run("CREATE DATABASE managed").await?;
        let admin = connect(&server.url("managed")).await?;
        admin.run(REFUSED).await?;
        let db = TestDb::of(&server, "managed");
        let pool = db.pool_as("owner", 2)?;
        let mut client = pool.get().await?;
        posthaste::migrate(&mut client).await?;
        let refused = client.simple_query("SELECT pg_control_system()").await;
        assert!(refused.is_err());
        let (worker, runs) = start(&pool, None, &["default", "left"]).await?;
        let enqueue = "SELECT posthaste.enqueue('first'), posthaste.enqueue('failing'),
            posthaste.enqueue('scheduled', scheduled_at => clock_timestamp() + interval '1 s'),
            posthaste.enqueue('ordered', ordering_key => 'o')";
        client.run(enqueue).await?;
        let done = async |name: &'static str, times: usize| {
            let says = format!("{name} on {version:?}");
            let ran = eventually(SOON, &says, async || Ok(of(&runs, name) >= times));
            ran.await.unwrap();
        };
        for (name, times) in [
            ("first", 1),
            ("failing", 2),
            ("scheduled", 1),
            ("ordered", 1),
        ] {
            done(name, times).await;
        }
        let last = number(&client, "SELECT posthaste.enqueue('known')").await;
        done("known", 1).await;
        eventually(SOON, "the leader has noted its id", async || {
            let known = "SELECT last_value FROM posthaste.known_id";
            Ok(number(&client, known).await >= last)
        })
        .await?;
        let id = "SELECT posthaste.delivery_id($1)::text";
        let before: String = client.one_with(id, &[&last]).await?;
        tokio::task::block_in_place(|| {
            server.stop_immediate()?;
            server.restart()
        })
        .unwrap();
        let client = pool.get().await?;
        client.run("SELECT posthaste.enqueue('second')").await?;
        done("second", 1).await;
        let after: String = client.one_with(id, &[&last]).await?;
        assert_eq!(before, after, "an id that was given stays");
        worker.stop().await?;

        // Its copy waits, as on any other server.
        let server = tokio::task::block_in_place(|| server.start_backup(&[])).unwrap();
        let copy = TestDb::of(&server, "managed");
        let pool = copy.pool_as("owner", 2)?;
        let (copied, runs) = start(&pool, None, &["default"]).await?;
        eventually(SOON, "the copy waits", async || {
            Ok(copied.refused().is_some())
        })
        .await?;
        adopt(&pool, None, false, false).await?;
        let client = pool.get().await?;
        client.run("SELECT posthaste.enqueue('third')").await?;
        eventually(SOON, "the copy works", async || Ok(of(&runs, "third") == 1)).await?;
        copied.stop().await?;
    }
    Ok(())
}
