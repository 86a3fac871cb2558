//! Every test has a separate database.

use std::sync::atomic::{AtomicU32, Ordering};

use posthaste_testkit::{PgServer, PgVersion, TestDb, connect};

async fn notes(database: &TestDb) -> anyhow::Result<i64> {
    Ok(database
        .client()
        .await?
        .query_one("SELECT count(*) FROM note", &[])
        .await?
        .get(0))
}

#[tokio::test]
async fn copies_of_a_template_are_isolated_and_the_template_is_prepared_once() -> anyhow::Result<()>
{
    let prepared = AtomicU32::new(0);
    let prepare = async |url: String| {
        prepared.fetch_add(1, Ordering::Relaxed);
        let client = connect(&url).await?;
        client
            .batch_execute("CREATE TABLE note (body text); INSERT INTO note VALUES ('template')")
            .await?;
        Ok(())
    };
    for version in PgVersion::ALL {
        let server = PgServer::shared(version)?;
        let (one, two, three) = tokio::try_join!(
            TestDb::from_template(server, "notes", prepare),
            TestDb::from_template(server, "notes", prepare),
            TestDb::from_template(server, "notes", prepare),
        )?;
        one.client()
            .await?
            .batch_execute("INSERT INTO note VALUES ('one')")
            .await?;
        two.client()
            .await?
            .batch_execute("DELETE FROM note")
            .await?;
        assert_eq!(
            (notes(&one).await?, notes(&two).await?, notes(&three).await?),
            (2, 0, 1)
        );
    }
    assert_eq!(prepared.into_inner(), 2, "once on each server");
    Ok(())
}

#[tokio::test]
async fn separate_servers_prepare_one_database_and_copy_it() -> anyhow::Result<()> {
    let prepared = AtomicU32::new(0);
    let prepare = async |url: String| {
        prepared.fetch_add(1, Ordering::Relaxed);
        connect(&url)
            .await?
            .batch_execute("CREATE TABLE note (body text)")
            .await?;
        Ok(())
    };
    let server = PgServer::start(PgVersion::any(), &[])?;
    for time in [1, 2, 2] {
        let database = TestDb::from_template(&server, "notes", prepare).await?;
        assert_eq!(notes(&database).await?, 0);
        assert_eq!(prepared.load(Ordering::Relaxed), time);
    }
    Ok(())
}

#[tokio::test]
async fn the_first_client_runs_the_greeting_once() -> anyhow::Result<()> {
    let database = TestDb::empty(PgServer::shared(PgVersion::any())?).await?;
    connect(database.url())
        .await?
        .batch_execute("CREATE TABLE note (body text)")
        .await?;
    let database = database.with_first_statement("INSERT INTO note VALUES ('welcome')");
    let (one, two) = tokio::join!(notes(&database), notes(&database));
    assert_eq!((one?, two?), (1, 1));
    Ok(())
}

#[tokio::test]
async fn databases_are_dropped_after_a_server_restart() -> anyhow::Result<()> {
    let server = PgServer::start(PgVersion::any(), &[])?;
    let database = TestDb::empty(&server).await?;
    server.restart()?;
    drop(database);
    let admin = connect(&server.url("postgres")).await?;
    let left = "SELECT FROM pg_database WHERE datname LIKE 'test%'";
    assert!(admin.query(left, &[]).await?.is_empty());
    // A stopped server takes its databases along.
    let database = TestDb::empty(&server).await?;
    server.stop_immediate()?;
    drop(database);
    Ok(())
}

#[tokio::test]
async fn failed_preparations_are_repeated_from_the_start() -> anyhow::Result<()> {
    let server = PgServer::shared(PgVersion::any())?;
    let fails = async |url: String| {
        connect(&url)
            .await?
            .batch_execute("CREATE TABLE note (body text); SELECT 1 / 0")
            .await?;
        Ok(())
    };
    let error = TestDb::from_template(server, "fails at first", fails)
        .await
        .unwrap_err();
    assert!(format!("{error:#}").contains("preparing"), "{error:#}");
    let works = async |url: String| {
        Ok(connect(&url)
            .await?
            .batch_execute("CREATE TABLE note (body text)")
            .await?)
    };
    let database = TestDb::from_template(server, "fails at first", works).await?;
    assert_eq!(notes(&database).await?, 0);
    Ok(())
}

#[tokio::test]
async fn databases_are_dropped_despite_sessions_and_prepared_transactions() -> anyhow::Result<()> {
    let server = PgServer::shared(PgVersion::any())?;
    let database = TestDb::empty(server).await?;
    let name = database.name().to_owned();
    let pool = database.pool(2)?;
    let client = pool.get().await?;
    client
        .batch_execute("CREATE TABLE note (body text); BEGIN; INSERT INTO note VALUES ('a')")
        .await?;
    client
        .batch_execute("PREPARE TRANSACTION 'it''s open'")
        .await?;
    drop(database);
    let admin = connect(&server.url("postgres")).await?;
    let left = admin
        .query("SELECT 1 FROM pg_database WHERE datname = $1", &[&name])
        .await?;
    assert!(left.is_empty());
    Ok(())
}

#[tokio::test]
async fn pools_have_the_requested_size() -> anyhow::Result<()> {
    let database = TestDb::empty(PgServer::shared(PgVersion::V18)?).await?;
    let pool = database.pool(3)?;
    let held = (pool.get().await?, pool.get().await?, pool.get().await?);
    let none = deadpool_postgres::Timeouts::wait_millis(10);
    assert!(pool.timeout_get(&none).await.is_err());
    drop(held);
    pool.get().await?.batch_execute("SELECT 1").await?;
    Ok(())
}
