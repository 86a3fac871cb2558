//! Programs of several versions on one schema, and functions that are installed again.

mod recorded;
mod stepped;

use std::sync::atomic::Ordering;

use posthaste::{check_schema, migrate, migrations_sql_after};
use posthaste_testkit::{PgVersion, Sql as _, TestDb};
use tokio_postgres::Client;

use crate::support::{all_done, counting, database};

/// Returns a version that differs from this one by these numbers.
fn version(minor: i32, patch: i32) -> String {
    let ours: Vec<i32> = env!("CARGO_PKG_VERSION")
        .split('.')
        .map(|part| part.parse().unwrap())
        .collect();
    format!("{}.{}.{}", ours[0], ours[1] + minor, ours[2] + patch)
}

async fn refused(client: &mut Client) -> String {
    let message = check_schema(client).await.unwrap_err().to_string();
    let by_migrate = migrate(client).await.unwrap_err().to_string();
    assert_eq!(by_migrate, message);
    message
}

async fn database_and_client() -> (TestDb, Client) {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    (db, client)
}

/// Records in the ledger what another program's migration would.
async fn noted(client: &Client, name: &str, version: &str) {
    let note = "INSERT INTO posthaste.migration (name, checksum, version) VALUES ($1, 'x', $2)
                ON CONFLICT (name) DO UPDATE SET checksum = 'x', version = excluded.version";
    client.execute(note, &[&name, &version]).await.unwrap();
}

#[tokio::test]
async fn workers_accept_this_and_the_next_minor_schema_version_unchanged() {
    let (_db, mut client) = database_and_client().await;
    for version in [version(0, 1), version(1, 0), version(1, 7)] {
        noted(&client, "0002_later", &version).await;
        noted(&client, "functions", &version).await;
        check_schema(&client).await.unwrap();
        assert!(migrate(&mut client).await.unwrap().applied.is_empty());
    }
}

#[tokio::test]
async fn rejects_schemas_two_minor_versions_ahead() {
    let (_db, mut client) = database_and_client().await;
    noted(&client, "functions", &version(2, 0)).await;
    let message = refused(&mut client).await;
    assert!(
        message.contains("more than one minor version newer"),
        "{message}"
    );
    assert!(message.contains(&version(2, 0)), "{message}");
}

#[tokio::test]
async fn functions_of_an_older_version_are_replaced() {
    let (_db, mut client) = database_and_client().await;
    let bit = "SELECT posthaste.listener_bit('')";
    let broken = "CREATE OR REPLACE FUNCTION posthaste.listener_bit(queue text) RETURNS bigint
                  LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT 0::bigint'";
    client.run(broken).await.unwrap();
    noted(&client, "functions", &version(-1, 0)).await;
    let message = check_schema(&client).await.unwrap_err().to_string();
    assert!(message.contains("older than this program"), "{message}");
    assert!(message.contains("posthaste migrate"), "{message}");
    let applied = migrate(&mut client).await.unwrap().applied;
    assert_eq!(applied, ["functions"]);
    check_schema(&client).await.unwrap();
    let row = client.one::<i64>(bit).await.unwrap();
    assert_eq!(row, 2);
    assert!(migrate(&mut client).await.unwrap().applied.is_empty());
}

#[tokio::test]
async fn workers_accept_changed_functions_of_the_same_version() {
    let (_db, mut client) = database_and_client().await;
    noted(&client, "functions", &version(0, 0)).await;
    check_schema(&client).await.unwrap();
    let applied = migrate(&mut client).await.unwrap().applied;
    assert_eq!(applied, ["functions"]);
}

#[tokio::test]
async fn rejects_steps_whose_text_changed() {
    let (_db, mut client) = database_and_client().await;
    noted(&client, "0001_initial", &version(0, 0)).await;
    let message = refused(&mut client).await;
    assert!(message.contains("with a different text"), "{message}");
}

#[tokio::test]
async fn rejects_prerelease_schema_ledgers() {
    let (_db, mut client) = database_and_client().await;
    let before = "ALTER TABLE posthaste.migration DROP COLUMN version";
    client.run(before).await.unwrap();
    let message = refused(&mut client).await;
    assert!(message.contains("never released"), "{message}");
}

#[tokio::test]
async fn printed_steps_apply_on_top_of_the_previous_ones() {
    for pg in PgVersion::ALL {
        let db = database(pg).await;
        let client = db.client().await.unwrap();
        // Bodies are checked now that everything they refer to exists.
        let printed = migrations_sql_after(1);
        assert!(!printed.contains("CREATE TABLE posthaste.store"));
        let off = "set_config('check_function_bodies', 'off', v_local)";
        let checked = printed.replace(off, &off.replace("'off'", "'on'"));
        assert_ne!(checked, printed);
        client.run(&checked).await.unwrap();
        check_schema(&client).await.unwrap();
    }
}

/// Prepared statements and a worker's connections survive it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_can_be_replaced_under_a_running_worker() {
    const ROUNDS: usize = 4;
    for pg in PgVersion::tried() {
        let db = database(pg).await;
        let mut client = db.client().await.unwrap();
        let producer = db.client().await.unwrap();
        let by_function = "SELECT posthaste.enqueue('x', unique_key => $1)";
        let by_function = producer.prepare(by_function).await.unwrap();
        let by_view = "INSERT INTO posthaste.job (name) SELECT 'x' FROM generate_series(1, $1)";
        let by_view = producer.prepare(by_view).await.unwrap();
        let (worker, runs) = counting(&db).await;
        for round in 0..ROUNDS {
            let enqueued = async {
                for key in 0..20 {
                    let key = format!("{round} {key}");
                    producer.query(&by_function, &[&key]).await.unwrap();
                    producer.execute(&by_view, &[&10]).await.unwrap();
                }
            };
            let installed = async {
                noted(&client, "functions", &version(0, 0)).await;
                let applied = migrate(&mut client).await.unwrap().applied;
                assert_eq!(applied, ["functions"]);
            };
            tokio::join!(enqueued, installed);
        }
        all_done(&client).await;
        assert_eq!(
            runs.load(Ordering::SeqCst),
            ROUNDS * 20 * 11,
            "each job once"
        );
        worker.stop().await.unwrap();
    }
}
