//! The proxy loses exactly what it is ordered to lose.

use std::time::{Duration, Instant};

use posthaste_testkit::{PgServer, PgVersion, Proxy, RequestMatcher, TestDb, connect};
use tokio_postgres::Client;

use crate::BOUND;

/// Long compared with a round trip on loopback, short compared with [`BOUND`].
const SILENCE: Duration = Duration::from_millis(300);

struct Stage {
    database: TestDb,
    proxy: Proxy,
}

impl Stage {
    async fn new(version: PgVersion) -> anyhow::Result<Self> {
        let server = PgServer::shared(version)?;
        let database = TestDb::empty(server).await?;
        database
            .client()
            .await?
            .batch_execute("CREATE TABLE note (body text)")
            .await?;
        Ok(Self {
            database,
            proxy: Proxy::start(server.address()).await?,
        })
    }

    async fn client(&self) -> anyhow::Result<Client> {
        connect(&self.proxy.url(self.database.name())).await
    }

    /// The number of notes, read without the proxy.
    async fn notes(&self) -> anyhow::Result<i64> {
        Ok(self
            .database
            .client()
            .await?
            .query_one("SELECT count(*) FROM note", &[])
            .await?
            .get(0))
    }
}

#[tokio::test]
async fn large_answers_pass_unchanged() -> anyhow::Result<()> {
    let stage = Stage::new(PgVersion::any()).await?;
    let sent = "x".repeat(3 << 20);
    let row = stage
        .client()
        .await?
        .query_one("SELECT $1::text || 'y'", &[&sent])
        .await?;
    assert_eq!(row.get::<_, String>(0), sent + "y");
    Ok(())
}

#[tokio::test]
async fn clients_that_request_encryption_first_can_connect() -> anyhow::Result<()> {
    for version in PgVersion::ALL {
        let stage = Stage::new(version).await?;
        let port = stage.proxy.address().port().to_string();
        let mut psql = PgServer::shared(version)?.tool("psql");
        psql.env("PGPORT", port).env("PGSSLMODE", "prefer").args([
            "-Atc",
            "SELECT 42",
            stage.database.name(),
        ]);
        let output = tokio::task::spawn_blocking(move || psql.output()).await??;
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "42\n",
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

#[tokio::test]
async fn cuts_reset_open_connections_and_refuse_new_ones_until_restored() -> anyhow::Result<()> {
    let stage = Stage::new(PgVersion::any()).await?;
    let client = stage.client().await?;
    client.batch_execute("SELECT 1").await?;
    stage.proxy.cut().await;
    assert!(client.batch_execute("SELECT 1").await.is_err());
    let refused = std::net::TcpStream::connect(stage.proxy.address()).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    stage.proxy.restore().await?;
    stage.client().await?.batch_execute("SELECT 1").await?;
    Ok(())
}

#[tokio::test]
async fn a_cut_ends_the_session_on_the_server() -> anyhow::Result<()> {
    let stage = Stage::new(PgVersion::any()).await?;
    let client = stage.client().await?;
    let pid: i32 = client
        .query_one("SELECT pg_backend_pid()", &[])
        .await?
        .get(0);
    stage.proxy.cut().await;
    let admin = stage.database.client().await?;
    posthaste_testkit::eventually(BOUND, "the session is gone", async || {
        Ok(admin
            .query("SELECT 1 FROM pg_stat_activity WHERE pid = $1", &[&pid])
            .await?
            .is_empty())
    })
    .await
}

#[tokio::test]
async fn half_open_connections_receive_nothing_and_never_recover() -> anyhow::Result<()> {
    let stage = Stage::new(PgVersion::any()).await?;
    let old = stage.client().await?;
    stage.proxy.half_open();
    let lost = old.batch_execute("INSERT INTO note VALUES ('lost')");
    assert!(tokio::time::timeout(SILENCE, lost).await.is_err());
    assert!(
        tokio::time::timeout(SILENCE, stage.client()).await.is_err(),
        "a new one is not answered either"
    );
    stage.proxy.restore().await?;
    stage
        .client()
        .await?
        .batch_execute("INSERT INTO note VALUES ('new')")
        .await?;
    assert!(
        tokio::time::timeout(SILENCE, old.batch_execute("SELECT 1"))
            .await
            .is_err()
    );
    assert_eq!(stage.notes().await?, 1);
    assert_eq!(
        stage.proxy.lost_connections(),
        1,
        "a connection dies once, and the new one has not"
    );
    stage.proxy.cut().await;
    assert!(
        tokio::time::timeout(BOUND, old.batch_execute("SELECT 1"))
            .await?
            .is_err()
    );
    Ok(())
}

#[tokio::test]
async fn a_delay_is_added_in_both_directions() -> anyhow::Result<()> {
    let stage = Stage::new(PgVersion::any()).await?;
    let client = stage.client().await?;
    stage.proxy.delay(Duration::from_millis(50));
    let start = Instant::now();
    client.batch_execute("SELECT 1").await?;
    assert!(
        start.elapsed() >= Duration::from_millis(100),
        "{:?}",
        start.elapsed()
    );
    stage.proxy.restore().await?;
    client.batch_execute("SELECT 1").await?;
    Ok(())
}

#[tokio::test]
async fn a_commit_happens_although_its_answer_is_lost() -> anyhow::Result<()> {
    for version in PgVersion::ALL {
        let stage = Stage::new(version).await?;
        let (mut client, bystander) = (stage.client().await?, stage.client().await?);
        let transaction = client.transaction().await?;
        transaction
            .execute("INSERT INTO note VALUES ('kept')", &[])
            .await?;
        let lost = stage.proxy.drop_answer_to(RequestMatcher::commit());
        assert!(transaction.commit().await.is_err());
        lost.wait(BOUND).await?;
        assert_eq!(stage.notes().await?, 1);
        assert!(client.is_closed());
        bystander.batch_execute("BEGIN; COMMIT").await?;
        stage.client().await?.batch_execute("BEGIN; COMMIT").await?;
    }
    Ok(())
}

#[tokio::test]
async fn answers_before_the_lost_one_arrive_when_requests_are_pipelined() -> anyhow::Result<()> {
    let stage = Stage::new(PgVersion::any()).await?;
    let client = stage.client().await?;
    let insert = client
        .prepare("INSERT INTO note VALUES ('kept') RETURNING body")
        .await?;
    let lost = stage.proxy.drop_answer_to(RequestMatcher::commit());
    // With the delay, all requests are in flight before the first is answered.
    stage.proxy.delay(Duration::from_millis(50));
    let (begun, inserted, committed, after) = tokio::join!(
        client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED"),
        client.query_one(&insert, &[]),
        client.batch_execute("COMMIT"),
        client.batch_execute("INSERT INTO note VALUES ('after')"),
    );
    begun?;
    assert_eq!(inserted?.get::<_, String>(0), "kept");
    assert!(committed.is_err() && after.is_err());
    lost.wait(BOUND).await?;
    assert!(stage.notes().await? >= 1);
    Ok(())
}

#[tokio::test]
async fn the_answer_to_a_prepared_statement_can_be_lost() -> anyhow::Result<()> {
    let stage = Stage::new(PgVersion::V18).await?;
    let client = stage.client().await?;
    let insert = client.prepare("INSERT INTO note VALUES ($1)").await?;
    client.execute(&insert, &[&"before"]).await?;
    let lost = stage
        .proxy
        .drop_answer_to(RequestMatcher::statement("insert into NOTE"));
    client.batch_execute("SELECT 1").await?;
    assert!(client.execute(&insert, &[&"kept"]).await.is_err());
    lost.wait(BOUND).await?;
    assert_eq!(stage.notes().await?, 2);
    Ok(())
}

#[tokio::test]
async fn the_answer_to_the_nth_request_can_be_lost() -> anyhow::Result<()> {
    let stage = Stage::new(PgVersion::any()).await?;
    let client = stage.client().await?;
    let lost = stage.proxy.drop_answer_to(RequestMatcher::nth(3));
    client
        .batch_execute("INSERT INTO note VALUES ('one')")
        .await?;
    client
        .batch_execute("INSERT INTO note VALUES ('two')")
        .await?;
    assert!(
        client
            .batch_execute("INSERT INTO note VALUES ('three')")
            .await
            .is_err()
    );
    lost.wait(BOUND).await?;
    assert_eq!(stage.notes().await?, 3);
    Ok(())
}
