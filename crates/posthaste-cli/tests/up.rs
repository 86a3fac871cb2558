//! `up`: a system for a user's own jobs, without a demo.

use posthaste_testkit::{eventually, is_alive, number};

use crate::stage::{self, BOUND, Stage};

const OPEN_JOBS: &str = "SELECT count(*) FROM posthaste.job";

#[tokio::test(flavor = "multi_thread")]
async fn up_without_file_or_handler_reports_waiting_jobs() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let mut up = stage.spawn(&["up"])?;
    let output = up.error_line("private Postgres started", BOUND).await?;
    let url = format!("DATABASE_URL=$(cat {})", stage.private("url").display());
    assert!(output.ends_with(&url), "{output}");
    let output = up.error_line("jobs will wait", BOUND).await?;
    assert!(
        output.contains("--exec") && output.contains("--http") && output.contains("posthaste.toml"),
        "{output}"
    );
    // The schema exists, for clients with that address and for commands in this folder.
    let client = stage.client().await?;
    stage.run(&["jobs", "enqueue", "x"]).await?.good()?;
    assert_eq!(number(&client, OPEN_JOBS).await?, 1);
    assert!(is_alive(up.pid()));
    let server = stage.server()?;
    up.terminate()?;
    assert!(up.exit(BOUND).await?.success());
    eventually(BOUND, "its server is gone", async || Ok(!is_alive(server))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn up_installs_the_schema_and_runs_the_given_handlers() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::empty_database().await?);
    let mut up = stage.spawn_on(&database, &["up", "--exec", "mail.*=true"])?;
    up.error_line("working on queue default;", BOUND).await?;
    stage
        .run_on(&database, &["jobs", "enqueue", "mail.send"])
        .await?
        .good()?;
    let client = database.client().await?;
    eventually(BOUND, "the job is done", async || {
        Ok(number(&client, OPEN_JOBS).await? == 0)
    })
    .await?;
    up.terminate()?;
    assert!(up.exit(BOUND).await?.success());
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    assert_eq!(number(&client, tables).await?, 0, "that is the demo's");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn up_rejects_queues_without_a_consumer_before_any_change() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    for command in ["up", "demo"] {
        let output = stage.run(&[command, "--queue", "mail"]).await?;
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(
            output
                .err
                .starts_with("error: --queue needs a handler. Give "),
            "{output:?}"
        );
    }
    assert!(!stage.folder.join(".posthaste").exists());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn init_writes_a_working_file_and_never_overwrites_it() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::empty_database().await?);
    stage.run(&["init"]).await?.good()?;
    let file = stage.folder.join("posthaste.toml");
    let written = std::fs::read_to_string(&file)?;
    let mut up = stage.spawn_on(&database, &["up"])?;
    up.error_line("running routes, captures and syncs only", BOUND)
        .await?;
    // As the beginning of the file describes.
    let enqueue = [
        "jobs",
        "enqueue",
        "hello",
        r#"{"to": "world"}"#,
        "--queue",
        "audit",
    ];
    assert!(written.contains("posthaste jobs enqueue hello '{\"to\": \"world\"}' --queue audit"));
    stage.run_on(&database, &enqueue).await?.good()?;
    let line = up.line("hello", BOUND).await?;
    assert!(line.contains("world"), "{line}");
    up.terminate()?;
    assert!(up.exit(BOUND).await?.success());
    let again = stage.run(&["init"]).await?.failure()?;
    assert!(again.contains("was not changed"), "{again}");
    assert_eq!(std::fs::read_to_string(&file)?, written);
    Ok(())
}
