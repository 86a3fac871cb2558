//! Rows of another store that are loaded into a migrated one are detected, whatever the tool.

use std::path::Path;
use std::process::Output;
use std::time::Instant;

use posthaste::{Outcome, rebase};
use posthaste_testkit::{PgServer, PgVersion, Sql as _, TestDb, TestResult, connect, eventually};
use tokio_postgres::Client;

use super::story::{next_xid, use_up_to};
use super::tempfile;
use crate::stress::store::Store;
use crate::support::{self, SOON, number};

/// Jobs of the copied store: this many are done, and this many are not.
const DONE: i64 = 30;
const OPEN: i64 = 7;

/// How the copy is loaded.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// `pg_restore --data-only`, with these options.
    Restore(&'static [&'static str]),
    /// A plain script of `pg_dump --data-only`, read by psql, with these options for each.
    Script(&'static [&'static str], &'static [&'static str]),
    /// A script that is read by a session in which ordinary triggers do not fire.
    Replica,
}

const WAYS: &[Way] = &[
    Way::Restore(&[]),
    Way::Restore(&["--disable-triggers"]),
    Way::Restore(&["--jobs=2"]),
    Way::Restore(&["--table=ready_0"]),
    Way::Restore(&["--disable-triggers", "--table=ready_0"]),
    Way::Restore(&["--table=claim_0"]),
    Way::Restore(&["--table=store_identity"]),
    Way::Script(&[], &[]),
    // It ends at the first table that already has rows, after some that had none.
    Way::Script(&[], &["--set=ON_ERROR_STOP=1"]),
    Way::Script(&["--inserts"], &[]),
    Way::Script(&["--load-via-partition-root"], &[]),
    Way::Replica,
];

/// Creates a store in which some jobs are done and some are not.
async fn filled(server: &PgServer) -> anyhow::Result<TestDb> {
    let db = support::migrated(server).await;
    drop(db.client().await?);
    let store = Store::new(db.url()).await?;
    store.enqueue_many("done", DONE.try_into()?).await?;
    store.done(&store.claim(100).await?).await?;
    store.enqueue_many("open", OPEN.try_into()?).await?;
    Ok(db)
}

fn fed(server: &PgServer, tool: &str, words: &[&str], script: &Path) -> anyhow::Result<Output> {
    let mut tool = server.tool(tool);
    tool.args(words).stdin(std::fs::File::open(script)?);
    Ok(tool.output()?)
}

fn dump(server: &PgServer, name: &str, words: &[&str]) -> anyhow::Result<std::path::PathBuf> {
    let to = tempfile();
    let mut tool = server.tool("pg_dump");
    tool.args(words).arg("--file").arg(&to).arg(name);
    let output = tool.output()?;
    anyhow::ensure!(output.status.success(), "{output:?}");
    // Tools that are newer than the server first set a parameter that it may not know.
    if let Ok(script) = std::fs::read_to_string(&to) {
        std::fs::write(&to, script.replace("SET transaction_timeout = 0;", ""))?;
    }
    Ok(to)
}

/// Loads a copy. Most tools report errors: tables that have one row each already have one here.
fn load(way: Way, from: (&PgServer, &str), to: (&PgServer, &str)) -> anyhow::Result<()> {
    let (dumped, read) = match way {
        Way::Restore(how) => {
            let dumped = dump(from.0, from.1, &["--format=custom", "--compress=0"])?;
            let mut tool = to.0.tool("pg_restore");
            tool.args(["--data-only", "--dbname", to.1]).args(how);
            let read = tool.arg(&dumped).output()?;
            (dumped, read)
        }
        Way::Script(dumps, reads) => {
            let dumped = dump(from.0, from.1, &[&["--data-only"], dumps].concat())?;
            let words = [&["--quiet", "--dbname", to.1], reads].concat();
            let read = fed(to.0, "psql", &words, &dumped)?;
            (dumped, read)
        }
        Way::Replica => {
            let dumped = dump(from.0, from.1, &["--data-only"])?;
            let script = std::fs::read(&dumped)?;
            let first = b"SET session_replication_role = replica;\n".as_slice();
            std::fs::write(&dumped, [first, &script].concat())?;
            let read = fed(to.0, "psql", &["--quiet", "--dbname", to.1], &dumped)?;
            (dumped, read)
        }
    };
    std::fs::remove_file(dumped)?;
    drop(read);
    Ok(())
}

async fn refused(client: &Client) -> String {
    let answer = client
        .batch_execute("SELECT posthaste.check_identity()")
        .await;
    let error = answer.expect_err("work may go on");
    let error = error.as_db_error().expect("a refusal");
    assert_eq!(error.code().code(), "55000", "{error}");
    format!("{error} {}", error.hint().unwrap_or_default())
}

/// The cluster's ids have passed all those of the copied store, so ids alone show nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn loaded_rows_stop_workers_until_a_rebase() {
    for version in PgVersion::ALL {
        let old = PgServer::start(version, &[]).unwrap();
        let new = PgServer::start(version, &[]).unwrap();
        let source = filled(&old).await.unwrap();
        let next = next_xid(&source.client().await.unwrap()).await.unwrap();
        let admin = connect(&new.url("postgres")).await.unwrap();
        use_up_to(&admin, next + 2_000).await.unwrap();
        for way in WAYS {
            let target = support::migrated(&new).await;
            let mut client = target.client().await.unwrap();
            client
                .run("SELECT posthaste.check_identity()")
                .await
                .unwrap();
            load(*way, (&old, source.name()), (&new, target.name())).unwrap();
            let output = refused(&client).await;
            assert!(output.contains("posthaste rebase"), "{way:?}: {output}");
            let jobs = number(&client, "SELECT count(*) FROM posthaste.store").await;
            let taken_over = rebase(&mut client, false).await.unwrap();
            let whole = match way {
                Way::Restore(words) => !words.iter().any(|word| word.starts_with("--table")),
                Way::Script(_, reads) => reads.is_empty(),
                Way::Replica => true,
            };
            // A whole copy shows which jobs are done; in a partial one each job is taken for open.
            match whole {
                true => assert_eq!(taken_over, OPEN.unsigned_abs(), "{way:?}"),
                false => assert_eq!(taken_over, jobs.unsigned_abs(), "{way:?}"),
            }
            client
                .batch_execute("SELECT posthaste.check_identity()")
                .await
                .unwrap_or_else(|error| panic!("{way:?}: {error:?}"));
            // It is detected again.
            let again = "INSERT INTO posthaste.ready_1 SELECT * FROM posthaste.ready_1 WHERE false";
            client.run(again).await.unwrap();
            refused(&client).await;
            posthaste_testkit::ran::count("ways of loading", 1);
        }
    }
}

#[tokio::test]
async fn a_failed_load_changes_nothing() {
    let server = PgServer::shared(PgVersion::any()).unwrap();
    let source = filled(server).await.unwrap();
    let target = support::migrated(server).await;
    let way = Way::Restore(&["--single-transaction", "--exit-on-error"]);
    load(way, (server, source.name()), (server, target.name())).unwrap();
    let client = target.client().await.unwrap();
    let rows = "SELECT count(*) FROM posthaste.store";
    assert_eq!(number(&client, rows).await, 0);
    let goes_on = client
        .batch_execute("SELECT posthaste.check_identity()")
        .await;
    goes_on.unwrap();
}

/// It is unknown which jobs belong to which store.
#[tokio::test]
async fn rows_of_another_store_are_accepted_only_with_force() {
    let server = PgServer::shared(PgVersion::any()).unwrap();
    let source = filled(server).await.unwrap();
    let target = support::migrated(server).await;
    let mut client = target.client().await.unwrap();
    let own = "SELECT setval('posthaste.job_id', 1000), posthaste.enqueue('own')";
    client.run(own).await.unwrap();
    let way = Way::Restore(&["--table=ready_0"]);
    load(way, (server, source.name()), (server, target.name())).unwrap();
    refused(&client).await;
    let error = rebase(&mut client, false).await.unwrap_err().to_string();
    assert!(error.contains("already had jobs"), "{error}");
    refused(&client).await;
    let jobs = rebase(&mut client, true).await.unwrap();
    assert_eq!(jobs, (DONE + OPEN + 1).unsigned_abs());
}

/// The commit that loads the rows stops the running worker, which logs this rarely.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn running_workers_stop_claiming_when_rows_are_loaded() -> TestResult {
    let server = PgServer::shared(PgVersion::any())?;
    let source = filled(server).await?;
    let target = support::migrated(server).await;
    let client = target.client().await?;
    let worker = support::worker(&target.pool(2)?)
        .queue("default", 4)
        .handler("*", |_, job| async move {
            assert_eq!(&*job.name, "own", "a job of another store ran");
            Ok(Outcome::Done)
        })
        .start()
        .await?;
    let own = "INSERT INTO posthaste.job (name) VALUES ('own')";
    client.run(own).await?;
    support::all_done(&client).await;
    let way = Way::Restore(&[]);
    load(way, (server, source.name()), (server, target.name())).unwrap();
    let living = "SELECT count(*) FROM posthaste.worker WHERE stopped_at IS NULL";
    eventually(SOON, "nobody works", async || {
        Ok(number(&client, living).await == 0)
    })
    .await?;
    let tries = async || number(&client, "SELECT last_value FROM posthaste.worker_id").await;
    let (before, begun) = (tries().await, Instant::now());
    client.run("SELECT pg_sleep(3)").await?;
    // There is a delay between two attempts; without one there would be hundreds.
    let (tried, within) = (tries().await - before, begun.elapsed());
    assert!(
        (tried as f64) < within.as_secs_f64() * 40.0,
        "{tried} tries to begin anew within {within:?}"
    );
    worker.stop().await.ok();
    Ok(())
}

/// After `pg_dump --schema-only` the error says what the schema is.
#[tokio::test]
async fn empty_schemas_differ_from_missing_ones() {
    let server = PgServer::shared(PgVersion::any()).unwrap();
    let source = filled(server).await.unwrap();
    let target = TestDb::empty(server).await.unwrap();
    let script = dump(server, source.name(), &["--schema-only"]).unwrap();
    let words = ["--quiet", "--dbname", target.name()];
    fed(server, "psql", &words, &script).unwrap();
    std::fs::remove_file(script).unwrap();
    let mut client = target.client().await.unwrap();
    for error in [
        posthaste::migrate(&mut client).await.unwrap_err(),
        posthaste::check_schema(&client).await.unwrap_err(),
        rebase(&mut client, false).await.unwrap_err(),
    ] {
        let error = error.to_string();
        assert!(error.contains("has no rows"), "{error}");
        assert!(error.contains("posthaste rebase"), "{error}");
    }
    let enqueue = client.batch_execute("SELECT posthaste.enqueue('x')").await;
    let error = enqueue.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert!(error.message().contains("has no rows"), "{error}");
    // Its rows are loaded, and it works.
    let way = Way::Script(&["--exclude-schema=public"], &[]);
    load(way, (server, source.name()), (server, target.name())).unwrap();
    refused(&client).await;
    let jobs = rebase(&mut client, false).await.unwrap();
    assert_eq!(jobs, OPEN.unsigned_abs());
    client
        .run("SELECT posthaste.check_identity(), posthaste.enqueue('x')")
        .await
        .unwrap();
}
