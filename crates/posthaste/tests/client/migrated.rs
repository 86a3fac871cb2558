//! `Client::migrate`, in transactions of every driver.

use diesel_async::{AsyncConnection, AsyncPgConnection};
use posthaste::{Client, Executor, MigrationReport, check_schema};
use posthaste_testkit::{PgServer, PgVersion, Sql as _, TestDb, ran};
use sea_orm::TransactionTrait;
use sqlx::Connection;

use crate::support::{database, jobs};

const SETTINGS: &str = "SELECT current_setting('search_path') || current_setting('lock_timeout')
    || current_setting('statement_timeout')
    || current_setting('check_function_bodies') || current_setting('client_min_messages')";

async fn empty(version: PgVersion) -> (TestDb, tokio_postgres::Client) {
    let db = TestDb::empty(PgServer::shared(version).unwrap()).await;
    let db = db.unwrap();
    let client = db.client().await.unwrap();
    (db, client)
}

/// Migrates twice in one transaction: the second call has nothing to do.
async fn migrated(executor: impl Executor) {
    let mut client = Client::new(executor);
    let MigrationReport { applied } = client.migrate().await.unwrap();
    assert_eq!(applied, ["0001_initial", "functions"]);
    assert!(client.migrate().await.unwrap().applied.is_empty());
}

async fn has_schema(client: &tokio_postgres::Client) -> bool {
    let there = "SELECT to_regnamespace('posthaste') IS NOT NULL";
    client.one(there).await.unwrap()
}

/// Returns all objects of the schema, and the contents of the ledger.
async fn shape(client: &tokio_postgres::Client) -> Vec<String> {
    let all = "SELECT concat(c.relkind, c.relname, c.relacl) FROM pg_class c
                WHERE c.relnamespace = 'posthaste'::regnamespace
                UNION ALL
               SELECT concat(p.oid::regprocedure, md5(p.prosrc), p.proconfig, p.proacl)
                 FROM pg_proc p
                WHERE p.pronamespace = 'posthaste'::regnamespace
                UNION ALL
               SELECT concat(r.rulename, pg_get_ruledef(r.oid)) FROM pg_rewrite r
                 JOIN pg_class c ON c.oid = r.ev_class
                WHERE c.relnamespace = 'posthaste'::regnamespace
                UNION ALL
               SELECT concat(name, checksum, version) FROM posthaste.migration
                ORDER BY 1";
    client.rows(all).await.unwrap()
}

/// Checks that the schema equals the one of `posthaste::migrate`.
async fn judged(client: &tokio_postgres::Client, version: PgVersion, driver: &str) {
    check_schema(client).await.unwrap();
    let expected = database(version).await;
    let expected = shape(&expected.client().await.unwrap()).await;
    assert!(expected.len() > 300, "{}", expected.len());
    assert!(shape(client).await == expected, "{driver}: another schema");
    ran::note(driver);
}

#[tokio::test]
async fn migrating_in_a_transaction_restores_its_settings() {
    for version in PgVersion::tried() {
        let (db, mut client) = empty(version).await;
        let tx = client.transaction().await.unwrap();
        migrated(&tx).await;
        tx.rollback().await.unwrap();
        assert!(!has_schema(&client).await, "it was rolled back");
        let tx = client.transaction().await.unwrap();
        let before: String = tx.one(SETTINGS).await.unwrap();
        migrated(&tx).await;
        let after: String = tx.one(SETTINGS).await.unwrap();
        assert_eq!(after, before);
        tx.commit().await.unwrap();
        judged(&client, version, "tokio-postgres").await;

        let mut pooled = db.pool(1).unwrap().get().await.unwrap();
        let tx = pooled.transaction().await.unwrap();
        let again = Client::new(&tx).migrate().await.unwrap();
        assert!(again.applied.is_empty());
    }
}

#[tokio::test]
async fn migrates_in_a_sqlx_transaction() {
    for version in PgVersion::tried() {
        let (db, client) = empty(version).await;
        let mut connection = sqlx::PgConnection::connect(db.url()).await.unwrap();
        let mut tx = connection.begin().await.unwrap();
        migrated(&mut *tx).await;
        tx.rollback().await.unwrap();
        assert!(!has_schema(&client).await, "it was rolled back");
        let mut tx = connection.begin().await.unwrap();
        migrated(posthaste::Unnamed(&mut *tx)).await;
        tx.commit().await.unwrap();
        judged(&client, version, "sqlx").await;
    }
}

#[tokio::test]
async fn migrates_in_a_diesel_async_transaction() {
    for version in PgVersion::tried() {
        let (db, client) = empty(version).await;
        let mut connection = AsyncPgConnection::establish(db.url()).await.unwrap();
        let migration = connection.transaction(async |tx| {
            migrated(tx).await;
            Ok::<_, diesel::result::Error>(())
        });
        migration.await.unwrap();
        judged(&client, version, "diesel-async").await;
    }
}

#[tokio::test]
async fn migrates_in_a_sea_orm_transaction() {
    for version in PgVersion::tried() {
        let (db, client) = empty(version).await;
        let connection = sea_orm::Database::connect(db.url()).await.unwrap();
        let tx = connection.begin().await.unwrap();
        migrated(&tx).await;
        tx.commit().await.unwrap();
        judged(&client, version, "sea-orm").await;
    }
}

#[tokio::test]
async fn migrate_rejects_snapshot_isolation() {
    let (db, mut client) = empty(PgVersion::any()).await;
    let error = jobs(&client).migrate().await.unwrap_err();
    assert!(error.is_invalid(), "{error}");
    assert!(error.to_string().contains("begin a transaction"), "{error}");
    let mut other = sqlx::PgConnection::connect(db.url()).await.unwrap();
    let error = Client::new(&mut other).migrate().await.unwrap_err();
    assert!(error.is_invalid(), "{error}");
    let serializable = client
        .build_transaction()
        .isolation_level(tokio_postgres::IsolationLevel::Serializable)
        .start()
        .await
        .unwrap();
    let error = Client::new(&serializable).migrate().await.unwrap_err();
    assert!(error.is_invalid(), "{error}");
    assert!(error.to_string().contains("READ COMMITTED"), "{error}");
    serializable.commit().await.unwrap();
    assert!(!has_schema(&client).await);
}

#[tokio::test]
async fn rejects_a_schema_of_another_version_without_aborting_the_transaction() {
    let db = database(PgVersion::any()).await;
    let mut client = db.client().await.unwrap();
    let newer = "UPDATE posthaste.migration SET version = '999.0.0'";
    client.run(newer).await.unwrap();
    let tx = client.transaction().await.unwrap();
    let before: String = tx.one(SETTINGS).await.unwrap();
    let error = Client::new(&tx).migrate().await.unwrap_err().to_string();
    assert!(error.contains("use a newer version"), "{error}");
    let after: String = tx.one(SETTINGS).await.unwrap();
    assert_eq!(after, before);
}
