//! Captures, which need a server with a logical log.

use anyhow::Context as _;
use posthaste_testkit::{PgServer, PgVersion, TestDb};

use super::Runs;

const FILE: &str = "[capture.orders]\noutbox = 'public.outbox'\n";
const OUTBOX: &str = "CREATE TABLE outbox (type text, payload text, headers text, \
                      id bigserial PRIMARY KEY)";
const SOUND: &str = "INSERT INTO outbox VALUES ('a', 'b')";
/// A row with invalid headers.
const BROKEN: &str = "INSERT INTO outbox VALUES ('a', 'b', '[]')";

pub(super) async fn captures(runs: &mut Runs) -> anyhow::Result<()> {
    let server = PgServer::start(PgVersion::any(), &[("wal_level", "logical")])?;
    let database = TestDb::empty(&server).await?;
    let others = std::mem::replace(&mut runs.database, database);
    let client = runs.database.client().await?;
    client.batch_execute(OUTBOX).await?;
    runs.stage.write("posthaste.toml", FILE)?;
    runs.run("migrate").await?.good()?;
    runs.ends("capture install --print", "").await?;
    runs.ends("capture install", "").await?;
    runs.ends("capture status", "").await?;
    runs.ends("capture copy", "orders outbox").await?;
    runs.ends("capture pause", "orders").await?;
    runs.ends("capture resume", "orders").await?;
    client.batch_execute(SOUND).await?;
    runs.ends("capture preview", "orders").await?;
    runs.ends("capture run --once", "").await?;
    runs.goes_on("capture run", "", "capture").await?;
    client.batch_execute(BROKEN).await?;
    let stopped = runs.run("capture run").await?;
    let (_, position) = stopped
        .err
        .split_once("--at ")
        .context(stopped.err.clone())?;
    let position = position.split('\'').next().unwrap_or_default();
    runs.ends("capture skip", &format!("orders --at {position}"))
        .await?;
    runs.ends("capture gaps", "").await?;
    runs.ends("capture begin", "orders").await?;
    runs.ends("capture remove", "orders").await?;
    std::fs::remove_file(runs.stage.folder.join("posthaste.toml"))?;
    drop(client);
    // Dropped before its server.
    drop(std::mem::replace(&mut runs.database, others));
    Ok(())
}
