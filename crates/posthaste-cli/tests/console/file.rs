//! The console as configured by `[console]` of posthaste.toml.

use super::{client, started};
use crate::stage::{self, BOUND, Stage};

#[tokio::test(flavor = "multi_thread")]
async fn up_serves_the_console_from_the_same_process() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::empty_database().await?);
    stage.write("token", "a-long-secret-token-of-ours\n")?;
    let file = "[console]\nlisten = '127.0.0.1:0'\noperate = true\ntoken_file = 'token'\n";
    stage.write("posthaste.toml", file)?;
    let (mut up, port) = started(&stage, &database, &["up", "--exec", "a=true"]).await?;
    up.error_line("working on", BOUND).await?;
    stage
        .run_on(&database, &["jobs", "enqueue", "b", "--queue", "mail"])
        .await?
        .good()?;
    let url = format!("http://127.0.0.1:{port}");
    assert_eq!(client()?.get(&url).send().await?.status(), 401);
    let ask = |path: &str| {
        let ask = client()?.get(format!("{url}{path}"));
        anyhow::Ok(ask.bearer_auth("a-long-secret-token-of-ours").send())
    };
    assert!(ask("/jobs")?.await?.text().await?.contains("mail"));
    let workers = ask("/workers")?.await?.text().await?;
    assert!(!workers.contains("No worker is running"), "{workers}");
    let pause = client()?.post(format!("{url}/queues/pause"));
    let pause = pause.header("content-type", "application/x-www-form-urlencoded");
    let pause = pause
        .bearer_auth("a-long-secret-token-of-ours")
        .body("queue=mail");
    assert_eq!(pause.send().await?.status(), 303);
    up.terminate()?;
    assert!(up.exit(BOUND).await?.success());

    stage.write("posthaste.toml", "[console]\nlisten = '0.0.0.0:0'\n")?;
    let failure = stage.run_on(&database, &["up"]).await?.failure()?;
    assert!(
        failure.contains("give token_file or trust_proxy"),
        "{failure}"
    );
    let all = ["up", "--console", "127.0.0.1:0"];
    let (mut up, port) = started(&stage, &database, &all).await?;
    let url = format!("http://127.0.0.1:{port}/queues");
    let page = client()?.get(&url).send().await?;
    assert_eq!(page.status(), 200, "this machine only, and read-only");
    assert!(page.text().await?.contains("Observer"));
    up.terminate()?;
    assert!(up.exit(BOUND).await?.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn defaults_come_from_the_file() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    stage.write("token", "a-long-secret-token-of-ours\n")?;
    let file = "[console]\nlisten = '0.0.0.0:0'\noperate = true\ntoken_file = 'token'\n";
    stage.write("posthaste.toml", file)?;
    let failure = stage.run_on(&database, &["console"]).await?.failure()?;
    assert!(failure.contains("tls_cert with tls_key"), "{failure}");
    let typed = ["console", "--listen", "127.0.0.1:0"];
    let (mut console, port) = started(&stage, &database, &typed).await?;
    let url = format!("http://127.0.0.1:{port}/queues");
    assert_eq!(client()?.get(&url).send().await?.status(), 401);
    let page = client()?
        .get(&url)
        .bearer_auth("a-long-secret-token-of-ours");
    assert!(page.send().await?.text().await?.contains("Operator"));
    console.terminate()?;
    assert!(console.exit(BOUND).await?.success());
    Ok(())
}
