//! A demo that is stopped while it loads packages.

use posthaste_testkit::{Child, eventually, number};
use serde_json::Value;

use crate::stage::{self, BOUND, Stage};

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_demo_resumes_loading_packages() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::empty_database().await?);
    std::fs::create_dir(stage.folder.join("files"))?;
    stage.write("files/one", "x")?;
    let line = |n: u64| format!("{{\"name\": \"p{n}\", \"summary\": \"message queue {n}\"}}\n");
    stage.write("packages", &(0..4_000).map(line).collect::<String>())?;
    let up = "demo --json --rescue-after 3 --packages-from packages files";
    let mut first = stage.spawn_on(&database, &up.split(' ').collect::<Vec<_>>())?;
    let client = database.client().await?;
    eventually(BOUND, "some packages are loaded", async || {
        let far = "SELECT coalesce(max(loaded), 0) FROM public.package_run";
        // Until then this table is not synced.
        Ok(number(&client, far).await.is_ok_and(|loaded| loaded > 0))
    })
    .await?;
    first.terminate()?;
    assert!(first.exit(BOUND).await?.success());
    // The files change after their proof, which is not made again.
    stage.write("files/one", "y")?;
    stage.write("files/two", "y")?;
    let before = number(&client, "SELECT loaded FROM public.package_run").await?;
    let up = format!("{} --once", up);
    let mut command = stage.command(&up.split(' ').collect::<Vec<_>>());
    let child = Child::spawn(command.env("DATABASE_URL", database.url()))?;
    let report: Value = serde_json::from_str(&stage::CommandOutput::by(child).await?.good()?)?;
    assert_eq!(
        (&report["run"], &report["listed"], &report["same"]),
        (&1.into(), &1.into(), &1.into()),
        "{report}"
    );
    let packages = &report["packages"];
    assert_eq!(packages["problem"], Value::Null, "{report}");
    assert_eq!(packages["packages"], 4_000);
    assert_eq!(
        number(&client, "SELECT count(*) FROM public.package_run").await?,
        1,
        "the load that had {before} packages went on"
    );
    // What is proven is over: the next demo takes a new list.
    let next = stage.run_on(&database, &["demo", "--once", "--json", "files"]);
    let next: Value = serde_json::from_str(&next.await?.good()?)?;
    assert_eq!((&next["run"], &next["listed"]), (&2.into(), &2.into()));
    Ok(())
}
