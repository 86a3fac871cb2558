use std::fs;
use std::path::Path;

use serde_json::Value;

use posthaste_testkit::{Sql as _, number};

use crate::stage::{self, BOUND, Stage};
use crate::tree;

#[tokio::test(flavor = "multi_thread")]
async fn demo_needs_no_setup_and_verifies_its_results() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    tree::make(&stage.folder.join("files"), 60)?;
    let report = stage.run(&["demo", "--once", "files"]).await?.good()?;
    let place = stage.folder.join("files");
    assert!(
        report.contains(&format!(
            "committed  60 rows, each with its job (run 1, {})",
            place.display()
        )),
        "{report}"
    );
    assert!(report.contains("retried    0\ndead       0\n"), "{report}");
    assert!(
        report.ends_with("proof      60 of 60 listed files match sha256sum -z; none differs"),
        "{report}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_has_its_job_from_the_same_transaction() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::database().await?;
    tree::make(&stage.folder.join("files"), 40)?;
    run(&stage, &database, "files").await?;
    let client = database.client().await?;
    // A constraint that rejects the row of the job must roll back the row of the file too.
    client
        .run(
            "ALTER TABLE posthaste.store ADD CONSTRAINT no_more CHECK (name <> 'file.digest') NOT
             VALID;
             DELETE FROM public.file_run",
        )
        .await?;
    let line = stage
        .run_on(&database, &["demo", "--once", "files"])
        .await?
        .failure()?;
    assert!(line.contains("no_more"), "{line}");
    assert_eq!(
        number(&client, "SELECT count(*) FROM public.file").await?,
        0
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_skips_links_and_pipes_and_accepts_any_file_name() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::database().await?;
    let folder = stage.folder.join("files");
    tree::make(&folder, 30)?;
    let report = run(&stage, &database, "files").await?;
    assert_eq!(report["listed"], 30);
    assert_eq!(report["same"], 30);
    let client = database.client().await?;
    let odd = number(
        &client,
        r"SELECT count(*) FROM public.file
           WHERE position('\x0a'::bytea IN path) > 0 AND sha256 IS NOT NULL",
    )
    .await?;
    assert!(odd > 1, "names with a newline: {odd}");
    let links = number(
        &client,
        "SELECT count(*) FROM public.file WHERE position('link'::bytea IN path) > 0",
    )
    .await?;
    assert_eq!(links, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_accepts_an_empty_folder() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::empty_database().await?;
    fs::create_dir(stage.folder.join("nothing"))?;
    let report = run(&stage, &database, "nothing").await?;
    assert_eq!(
        (&report["listed"], &report["differing"]),
        (&Value::from(0), &Value::from(0))
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_ignores_its_state_folder() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    fs::write(stage.folder.join("only"), "one")?;
    let report = stage
        .run(&["demo", "--once", "--json", "."])
        .await?
        .good()?;
    let report: Value = serde_json::from_str(&report)?;
    assert_eq!(report["listed"], 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_names_differences_and_fails() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::database().await?;
    let folder = stage.folder.join("files");
    tree::make(&folder, 20)?;
    run(&stage, &database, "files").await?;
    let client = database.client().await?;
    // A run that was killed before its proof, on files that have changed since: one differs, one is
    // shorter than its row in the table, one is deleted, and one was lost from the table.
    client
        .run(
            r"UPDATE public.file_run SET finished_at = NULL, proof = NULL;
              UPDATE public.file SET sha256 = sha256('x') WHERE n = 1;
              UPDATE public.file SET size = size + 1 WHERE n = 2;
              DELETE FROM public.file WHERE n = 4",
        )
        .await?;
    fs::remove_file(path_of(&client, 3).await?)?;
    let output = stage
        .run_on(&database, &["demo", "--once", "--json", "files"])
        .await?;
    assert_eq!(output.code, Some(1), "{output:?}");
    let report: Value = serde_json::from_str(&output.out)?;
    assert_eq!(
        (&report["same"], &report["differing"]),
        (&Value::from(16), &Value::from(4))
    );
    let examples = report["examples"].to_string();
    for how in [
        "the digest differs",
        "the size differs",
        "sha256sum cannot read it",
        "not in the table",
    ] {
        assert!(examples.contains(how), "{how}: {examples}");
    }
    assert!(
        output
            .err
            .contains("error: the table differs from sha256sum in 4 of 20 files, the first being "),
        "{output:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_records_vanished_files() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::database().await?;
    let folder = stage.folder.join("files");
    tree::make(&folder, 20)?;
    run(&stage, &database, "files").await?;
    let client = database.client().await?;
    fs::remove_file(path_of(&client, 7).await?)?;
    // The same run again, as if nothing had been committed.
    client
        .run(
            "DELETE FROM public.file; UPDATE public.file_run SET finished_at = NULL, \
             proof = NULL, committed = 0",
        )
        .await?;
    let report = run(&stage, &database, "files").await?;
    assert_eq!(
        (&report["same"], &report["unreadable"], &report["differing"]),
        (&19.into(), &1.into(), &0.into())
    );
    let problem = client
        .query_one("SELECT problem FROM public.file WHERE n = 7", &[])
        .await?;
    assert_eq!(problem.get::<_, &str>(0), "vanished");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_leaves_foreign_tables_alone() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::empty_database().await?;
    let client = database.client().await?;
    client
        .run("CREATE TABLE public.file (name text); INSERT INTO public.file VALUES ('mine')")
        .await?;
    let line = stage
        .run_on(&database, &["demo", "--once", "."])
        .await?
        .failure()?;
    assert_eq!(
        line,
        "error: this database has a table public.file that is not posthaste's. Run 'posthaste \
         demo' on another database, or leave DATABASE_URL unset."
    );
    assert_eq!(
        number(&client, "SELECT count(*) FROM public.file").await?,
        1
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_folders_are_reported() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::database().await?;
    let line = stage
        .run_on(&database, &["demo", "--once", "/no/such/folder"])
        .await?
        .failure()?;
    assert_eq!(
        line,
        "error: cannot list /no/such/folder: no such file or directory. Give a folder that can be \
         read."
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_keeps_running_and_processes_new_jobs() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::database().await?;
    tree::make(&stage.folder.join("files"), 20)?;
    let mut child = stage.spawn_on(&database, &["demo", "files", "--exec", "x=true"])?;
    let goes_on = "the worker continues with queues default, file;";
    child.error_line(goes_on, BOUND).await?;
    let client = database.client().await?;
    stage
        .run_on(&database, &["jobs", "enqueue", "x"])
        .await?
        .good()?;
    posthaste_testkit::eventually(BOUND, "the job is done", async || {
        Ok(number(&client, "SELECT count(*) FROM posthaste.job").await? == 0)
    })
    .await?;
    child.terminate()?;
    assert!(child.exit(BOUND).await?.success());
    Ok(())
}

async fn run(
    stage: &Stage,
    database: &posthaste_testkit::TestDb,
    folder: &str,
) -> anyhow::Result<Value> {
    let report = stage
        .run_on(database, &["demo", "--once", "--json", folder])
        .await?
        .good()?;
    Ok(serde_json::from_str(&report)?)
}

async fn path_of(client: &tokio_postgres::Client, n: i64) -> anyhow::Result<std::path::PathBuf> {
    let row = client
        .query_one("SELECT path FROM public.file WHERE n = $1", &[&n])
        .await?;
    let name: std::ffi::OsString = std::os::unix::ffi::OsStringExt::from_vec(row.get(0));
    Ok(Path::new(&name).to_owned())
}
