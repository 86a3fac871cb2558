//! SIGKILL at twenty points of progress: the result equals that of an undisturbed run.

use anyhow::Context as _;
use posthaste_testkit::{Child, TestDb, eventually, number, ran};
use serde_json::Value;
use tokio_postgres::Client;

use crate::stage::{self, BOUND, Stage};
use crate::tree;

const KILLS: i64 = 20;
const FILES: i64 = 1_000;

/// One job at a time, so that there are twenty distinct points. The jobs of a killed worker are
/// rescued early to shorten the test.
const DEMO: &str = "demo --once --json --concurrency 1 --rescue-after 3 files";
const JOIN: &str = "demo --join --concurrency 1 --rescue-after 3";

#[tokio::test(flavor = "multi_thread")]
async fn a_demo_killed_at_twenty_points_ends_like_an_undisturbed_one() -> anyhow::Result<()> {
    let (stage, undisturbed) = stage_with_files().await?;
    let database = stage::database().await?;
    let client = database.client().await?;
    for kill in 1..=KILLS {
        let mut demo = stage.spawn_on(&database, &words(DEMO))?;
        reached(&client, kill, &demo).await?;
        killed(&mut demo)?;
    }
    let report = stage.run_on(&database, &words(DEMO)).await?.good()?;
    let report: Value = serde_json::from_str(&report)?;
    assert_eq!(report["run"], 1, "it began anew instead of going on");
    assert_eq!(
        (&report["same"], &report["dead"]),
        (&FILES.into(), &0.into())
    );
    assert_eq!(table(&database).await?, undisturbed);
    assert_eq!(
        number(&client, "SELECT count(*) FROM posthaste.job").await?,
        0
    );
    ran::count("kills", KILLS.unsigned_abs());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_killed_at_twenty_points_lose_no_job_while_another_runs() -> anyhow::Result<()> {
    let (stage, undisturbed) = stage_with_files().await?;
    let database = stage::database().await?;
    let client = database.client().await?;
    let mut demo = stage.spawn_on(&database, &words(DEMO))?;
    for kill in 1..=KILLS {
        let mut worker = stage.spawn_on(&database, &words(JOIN))?;
        worker.error_line("working on", BOUND).await?;
        reached(&client, kill, &demo).await?;
        killed(&mut worker)?;
    }
    assert!(demo.exit(BOUND * 2).await?.success(), "{:?}", demo.stderr());
    assert_eq!(table(&database).await?, undisturbed);
    assert_eq!(
        number(&client, "SELECT count(*) FROM posthaste.job").await?,
        0
    );
    ran::count("kills", KILLS.unsigned_abs());
    Ok(())
}

/// Returns the folder, and the rows of the table after an undisturbed run.
async fn stage_with_files() -> anyhow::Result<(Stage, Vec<Row>)> {
    let stage = Stage::new()?;
    tree::make(&stage.folder.join("files"), usize::try_from(FILES)?)?;
    let database = stage::database().await?;
    stage
        .run_on(&database, &["demo", "--once", "files"])
        .await?
        .good()?;
    let undisturbed = table(&database).await?;
    assert_eq!(undisturbed.len(), usize::try_from(FILES)?);
    Ok((stage, undisturbed))
}

/// Waits for one of the points, which are evenly spaced between the first file and the last.
async fn reached(client: &Client, point: i64, demo: &Child) -> anyhow::Result<()> {
    let enough = FILES * point / (KILLS + 2);
    let waited = eventually(BOUND, "the next point of progress", async || {
        let worked = "SELECT count(*) FROM public.file WHERE worked_at IS NOT NULL";
        Ok(number(client, worked).await? >= enough)
    })
    .await;
    if waited.is_ok() {
        return Ok(());
    }
    let by_state = "SELECT string_agg(state || ' ' || n, ', ') FROM (SELECT state, count(*) AS n \
                    FROM posthaste.job GROUP BY state) AS by_state";
    let jobs: Option<String> = client.query_one(by_state, &[]).await?.try_get(0)?;
    waited.with_context(|| {
        format!(
            "before kill {point}, with jobs {jobs:?}: {:?}",
            demo.stderr()
        )
    })
}

fn killed(child: &mut Child) -> anyhow::Result<()> {
    let status = child.kill()?;
    anyhow::ensure!(
        status.code().is_none(),
        "it ended before it was killed: {:?}",
        child.stderr()
    );
    Ok(())
}

fn words(command: &str) -> Vec<&str> {
    command.split(' ').collect()
}

type Row = (i64, Vec<u8>, Option<i64>, Option<Vec<u8>>, Option<String>);

async fn table(database: &TestDb) -> anyhow::Result<Vec<Row>> {
    let client = database.client().await?;
    let rows = client
        .query(
            "SELECT n, path, size, sha256, problem FROM public.file ORDER BY n",
            &[],
        )
        .await?;
    Ok(rows
        .iter()
        .map(|row| (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4)))
        .collect())
}
