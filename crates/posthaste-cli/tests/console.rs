//! `posthaste console`, as it is started; what it shows and does has tests of its own.

use anyhow::Context as _;
use posthaste_testkit::{Child, TestDb, eventually};

use crate::stage::{self, BOUND, Stage, count};

/// Started with these options, and where it is.
async fn console(
    stage: &Stage,
    database: &TestDb,
    options: &[&str],
) -> anyhow::Result<(Child, String)> {
    let mut arguments = vec!["console", "--listen", "127.0.0.1:0"];
    arguments.extend(options);
    let mut child = stage.spawn_on(database, &arguments)?;
    let line = child.error_line("console at http://", BOUND).await?;
    let address = line.split("console at ").nth(1).context("no address")?;
    let url = address.split('/').take(3).collect::<Vec<_>>().join("/");
    Ok((child, url))
}

fn client() -> anyhow::Result<reqwest::Client> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let redirect = reqwest::redirect::Policy::none();
    Ok(reqwest::Client::builder()
        .no_proxy()
        .redirect(redirect)
        .build()?)
}

#[tokio::test(flavor = "multi_thread")]
async fn it_shows_the_queues_and_lets_nobody_act_unless_it_was_told_to() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    stage
        .run_on(&database, &["jobs", "enqueue", "a", "--queue", "mail"])
        .await?
        .good()?;
    let (mut child, url) = console(&stage, &database, &[]).await?;
    let page = client()?.get(&url).send().await?;
    assert_eq!(page.status(), 200);
    assert!(page.text().await?.contains("mail"));
    let pause = client()?
        .post(format!("{url}/queues/pause"))
        .header("origin", &url);
    let pause = pause.header("content-type", "application/x-www-form-urlencoded");
    assert_eq!(pause.body("queue=mail").send().await?.status(), 403);
    let paused = "SELECT count(*) FROM posthaste.queue WHERE paused_at IS NOT NULL";
    assert_eq!(count(&database.client().await?, paused).await?, 0);
    child.terminate()?;
    assert!(child.exit(BOUND).await?.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_does_is_done_and_is_a_line_of_the_log() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    stage
        .run_on(&database, &["jobs", "enqueue", "a", "--queue", "mail"])
        .await?
        .good()?;
    let (mut child, url) = console(&stage, &database, &["--operate"]).await?;
    let pause = client()?
        .post(format!("{url}/queues/pause"))
        .header("origin", &url);
    let pause = pause.header("content-type", "application/x-www-form-urlencoded");
    let status = pause.body("queue=mail").send().await?.status();
    assert!(status.is_redirection() || status.is_success(), "{status}");
    let observer = database.client().await?;
    let paused = "SELECT count(*) FROM posthaste.queue WHERE paused_at IS NOT NULL";
    eventually(BOUND, "it is paused", async || {
        Ok(count(&observer, paused).await? == 1)
    })
    .await?;
    child.error_line("mail", BOUND).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn other_machines_are_served_only_behind_a_token_and_a_proxy() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let refused = ["console", "--listen", "0.0.0.0:0"];
    let failure = stage.run_on(&database, &refused).await?.failure()?;
    assert!(
        failure.contains("can be reached from other machines"),
        "{failure}"
    );
    stage.write("short", "abc\n")?;
    let short = ["console", "--token-file", "short"];
    let failure = stage.run_on(&database, &short).await?.failure()?;
    assert!(failure.contains("16 letters"), "{failure}");
    stage.write("token", "a-long-secret-token-of-ours\n")?;
    let (child, url) = console(&stage, &database, &["--token-file", "token"]).await?;
    let asked = client()?.get(&url).send().await?;
    assert_ne!(asked.status(), 200, "nobody gets in without it");
    let asked = client()?
        .get(&url)
        .bearer_auth("a-long-secret-token-of-ours");
    assert_eq!(asked.send().await?.status(), 200);
    let said = child.stderr().join("\n");
    assert!(!said.contains("a-long-secret"), "{said}");
    Ok(())
}
