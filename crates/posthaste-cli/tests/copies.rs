//! A copy of a database: the messages of commands there, and its adoption.

mod destinations;

use posthaste_testkit::{PgServer, PgVersion, Sql as _, TestDb, connect, eventually};
use serde_json::Value;

use crate::exporter::{got, served};
use crate::stage::{BOUND, Stage};

#[tokio::test(flavor = "multi_thread")]
async fn every_command_rejects_an_unadopted_copy() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let server = PgServer::start(PgVersion::any(), &[])?;
    let database = TestDb::empty(&server).await?;
    stage.run_on(&database, &["migrate"]).await?.good()?;
    let work = [
        "work",
        "--queue",
        "mail",
        "--exec",
        "*=echo ran",
        "--listen",
        "127.0.0.1:0",
    ];
    let mut original = stage.spawn_on(&database, &work)?;
    original.error_line("working on", BOUND).await?;
    let client = database.client().await?;
    eventually(BOUND, "the original's worker is there", async || {
        let known = "SELECT EXISTS (SELECT FROM posthaste.site)";
        client.one(known).await
    })
    .await?;
    client
        .run("SELECT posthaste.enqueue('x') FROM generate_series(1, 3)")
        .await?;
    let copy = tokio::task::block_in_place(|| server.start_backup(&[]))?;
    let url = copy.url(database.name());
    let mut copied = stage.spawn_at(&url, &work)?;
    let root = served(&mut copied).await?;
    let line = copied.error_line("another site owns", BOUND).await?;
    assert!(line.contains("posthaste adopt"), "{line}");
    eventually(BOUND, "it is not ready, and says why", async || {
        let (status, output) = got(&root, "/ready").await?;
        Ok(status == 503 && output.contains("owns this store, not"))
    })
    .await?;
    for command in ["status", "doctor"] {
        let output = stage.run_with_url(&url, &[command, "--json"]).await?;
        let document: Value = serde_json::from_str(&output.out)?;
        let findings = document["findings"].as_array().cloned().unwrap_or_default();
        let has = findings.iter().any(|one| one["id"] == "store.site");
        assert!(has, "{command}: {}", output.out);
    }
    let metrics = stage.spawn_at(&url, &["exporter", "--listen", "127.0.0.1:0"]);
    let mut exporter = metrics?;
    let exported = served(&mut exporter).await?;
    let (_, text) = got(&exported, "/metrics").await?;
    assert!(text.contains("id=\"store.site\""), "{text}");
    let there = connect(&url).await?;
    there
        .run("SELECT posthaste.enqueue('in', queue => 'mail')")
        .await?;
    let sandbox = [
        "work",
        "--queue",
        "mail",
        "--exec",
        "*=echo ran",
        "--sandbox",
    ];
    let mut printed = stage.spawn_at(&url, &sandbox)?;
    let line = printed.line("would run job", BOUND).await?;
    assert!(line.ends_with("in of queue mail: echo ran"), "{line}");
    stage.write("posthaste.toml", "[route.mail]\nto = 'stdout:'\n")?;
    let mut printed = stage.spawn_at(&url, &["relay", "run", "--sandbox"])?;
    printed.line("\"name\":\"in\"", BOUND).await?;
    let once = stage
        .run_with_url(&url, &["relay", "run", "--once"])
        .await?;
    let refused = once.failure()?;
    assert!(refused.contains("posthaste adopt"), "{refused}");
    let waiting = "SELECT count(*) FROM posthaste.job WHERE state = 'available'";
    let waits: i64 = there.one(waiting).await?;

    let file = "[site]\nname = \"staging\"\n";
    stage.write("posthaste.toml", file)?;
    let adopted = stage
        .run_with_url(&url, &["adopt", "--discard"])
        .await?
        .good()?;
    assert!(
        adopted.contains(&format!("{waits} unfinished job")),
        "{adopted}"
    );
    // The waiting worker has no site name; one with the file has.
    copied.terminate()?;
    copied.exit(BOUND).await?;
    let mut staging = stage.spawn_at(&url, &work)?;
    let root = served(&mut staging).await?;
    eventually(BOUND, "it is ready", async || {
        Ok(got(&root, "/ready").await?.0 == 200)
    })
    .await?;
    there
        .run("SELECT posthaste.enqueue('y', queue => 'mail')")
        .await?;
    eventually(BOUND, "a new job ran", async || {
        Ok(there
            .one::<i64>("SELECT count(*) FROM posthaste.job")
            .await?
            == 0)
    })
    .await?;
    let name = "SELECT name FROM posthaste.site";
    let name: Option<String> = there.one(name).await?;
    assert_eq!(name.as_deref(), Some("staging"));
    let left: i64 = client.one(waiting).await?;
    assert_eq!(left, 3, "the original keeps its jobs");
    Ok(())
}
