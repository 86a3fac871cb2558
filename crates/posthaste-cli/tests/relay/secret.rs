//! Secrets in an address that come from a variable.

use posthaste_testkit::Child;
use posthaste_testkit::receivers::{Receiver, Redis, are_here};

use super::enqueue;
use crate::stage::{self, Stage};

const HARD: &str = "p/w#1%41?@:";

#[tokio::test(flavor = "multi_thread")]
async fn passwords_with_any_characters_work_and_are_never_shown() -> anyhow::Result<()> {
    let test = "passwords_with_any_characters_work_and_are_never_shown";
    if !are_here(test, &[Receiver::Redis]) {
        return Ok(());
    }
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let redis = Redis::start(&[("appendonly", "yes"), ("requirepass", HARD)])?;
    let port = redis.port();
    let run = async |password: &str| {
        let mut command = stage.command(&["relay", "run", "--once"]);
        command.env("DATABASE_URL", database.url());
        command.env("PW", password);
        stage::CommandOutput::by(Child::spawn(&mut command)?).await
    };
    let route = format!("[route.a]\nto = \"sidekiq://:${{PW}}@127.0.0.1:{port}/0\"\n");
    stage.write("posthaste.toml", &route)?;
    enqueue(&database.client().await?, 2).await?;
    assert_eq!(run(HARD).await?.good()?, "a: 2 sent");
    // The error for an invalid address contains the password neither raw nor encoded.
    let route = format!("[route.a]\nto = \"sidekiq://:${{PW}}@127.0.0.1:{port}/x y\"\n");
    stage.write("posthaste.toml", &route)?;
    let refused = run("geheim/7719").await?;
    let expected = format!("{refused:?}");
    assert!(!expected.contains("geheim"), "{expected}");
    assert_ne!(refused.code, Some(0), "{expected}");
    Ok(())
}
