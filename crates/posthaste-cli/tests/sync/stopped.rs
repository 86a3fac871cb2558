//! A demo that is stopped while it loads packages, or whose database cannot be captured.

use posthaste_testkit::{Child, eventually, number};
use serde_json::Value;

use crate::stage::{self, BOUND, Stage};

fn stage_with_packages(count: u64) -> anyhow::Result<Stage> {
    let stage = Stage::new()?;
    std::fs::create_dir(stage.folder.join("files"))?;
    stage.write("files/one", "x")?;
    let line = |n: u64| format!("{{\"name\": \"p{n}\", \"summary\": \"message queue {n}\"}}\n");
    stage.write("packages", &(0..count).map(line).collect::<String>())?;
    Ok(stage)
}

/// Checks that the captured changes result in the rows of the index, and that the file has them.
pub(super) fn assert_captured(report: &Value, least: u64) -> anyhow::Result<()> {
    let captured = &report["captured"];
    assert_eq!(
        (&captured["rows"], &captured["digest"]),
        (&report["documents"], &report["digest"]),
        "{report}"
    );
    let changes = captured["changes"].as_u64().unwrap_or_default();
    let changed = report["changed"].as_u64().unwrap_or_default();
    assert!(changes >= least + changed, "{report}");
    let file = std::fs::read_to_string(captured["file"].as_str().unwrap_or_default())?;
    let lines = file.lines().filter(|line| line.ends_with('}')).count();
    let repeats = captured["repeats"].as_u64().unwrap_or_default();
    assert_eq!(lines as u64, changes + repeats, "{report}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn demos_capture_nothing_without_logical_wal() -> anyhow::Result<()> {
    let (stage, database) = (stage_with_packages(200)?, stage::empty_database().await?);
    let demo = "demo --once --rescue-after 3 --packages-from packages files";
    let demo: Vec<&str> = demo.split(' ').collect();
    let output = stage.run_on(&database, &demo).await?;
    assert!(
        output
            .err
            .contains("the packages are not captured: the server has wal_level = replica"),
        "{output:?}"
    );
    let report = output.good()?;
    assert!(report.contains("index      equal to Postgres"), "{report}");
    assert!(!report.contains("captured"), "{report}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_demo_resumes_loading_packages() -> anyhow::Result<()> {
    let (_server, database) = stage::with_logical_log().await?;
    let stage = stage_with_packages(4_000)?;
    let up = "demo --json --rescue-after 3 --packages-from packages files";
    let mut first = stage.spawn_on(&database, &up.split(' ').collect::<Vec<_>>())?;
    let client = database.client().await?;
    eventually(BOUND, "some packages are loaded", async || {
        let far = "SELECT coalesce(max(loaded), 0) FROM public.package_run";
        // Before that the table is not synced.
        Ok(number(&client, far).await.is_ok_and(|loaded| loaded > 0))
    })
    .await?;
    first.terminate()?;
    assert!(first.exit(BOUND).await?.success());
    // The files change after their proof, which is not repeated.
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
    assert_captured(packages, 4_000)?;
    let left = "SELECT (SELECT count(*) FROM pg_replication_slots) +
                       (SELECT count(*) FROM pg_publication)";
    assert_eq!(number(&client, left).await?, 0, "nothing keeps the log");
    assert_eq!(
        number(&client, "SELECT count(*) FROM public.package_run").await?,
        1,
        "the load that had {before} packages went on"
    );
    // A proven run is complete: the next demo makes a new list.
    let next = stage.run_on(&database, &["demo", "--once", "--json", "files"]);
    let next: Value = serde_json::from_str(&next.await?.good()?)?;
    assert_eq!((&next["run"], &next["listed"]), (&2.into(), &2.into()));
    Ok(())
}
