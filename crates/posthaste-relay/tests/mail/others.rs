//! The other Rust examples, run as their headers describe: started twice at once, and again.

use posthaste_testkit::{Child, PgVersion, Sql as _, TestDb, TestResult, eventually};

use crate::examples::example;
use crate::support::{SOON, database, number};

fn start(name: &str, db: &TestDb) -> Child {
    let mut command = example(name);
    command.env("DATABASE_URL", db.url());
    Child::spawn(command.env("LISTEN", "127.0.0.1:0")).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finite_examples_start_twice_at_once_and_keep_their_table() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    for (name, table) in [("claims", "audit"), ("complete_in", "purse")] {
        let oid = format!("SELECT coalesce(to_regclass('{table}')::oid::int8, 0)");
        let mut made = 0;
        for starts in [2, 1] {
            let started: Vec<Child> = (0..starts).map(|_| start(name, &db)).collect();
            for mut one in started {
                let status = one.exit(SOON).await.unwrap();
                assert!(status.success(), "{name}: {:?}", one.stderr());
                let error = one.stdout().concat();
                let counts: Vec<&str> = error.split(", ").collect();
                let [jobs, effects] = counts[..] else {
                    panic!("{name}: {error}");
                };
                let first = |text: &str| text.split(' ').next().map(str::to_owned);
                assert_eq!(first(jobs), first(effects), "{name}: {error}");
            }
            let now = number(&client, &oid).await;
            assert!(made == 0 || made == now, "{name} has made its table anew");
            made = now;
        }
        assert_ne!(made, 0);
    }
    assert_eq!(number(&client, "SELECT coins::int8 FROM purse").await, 300);
    assert_eq!(number(&client, "SELECT count(*) FROM audit").await, 1000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_running_examples_start_twice_at_once() -> TestResult {
    for (name, line) in [("welcome", "welcome, Ada"), ("web", "listening on ")] {
        // The other example has another table of this name.
        let db = database(PgVersion::any()).await;
        let mut both = [start(name, &db), start(name, &db)];
        if name == "welcome" {
            // Either process may greet both.
            let client = db.client().await?;
            eventually(SOON, "both are welcome", async || {
                let greeted: Vec<String> = both.iter().flat_map(Child::stdout).collect();
                Ok(greeted.iter().filter(|error| *error == line).count() == 2)
            })
            .await?;
            assert_eq!(number(&client, "SELECT count(*) FROM account").await, 2);
        } else {
            for one in &mut both {
                one.line(line, SOON).await?;
            }
        }
        for one in &mut both {
            // It may still be starting: the other has done the work.
            eventually(SOON, "it listens for signals", async || one.catches_term()).await?;
            one.terminate().unwrap();
            let status = one.exit(SOON).await?;
            assert!(status.success(), "{name}: {:?}", one.stderr());
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn examples_wait_for_concurrent_table_creation() {
    for (name, table, columns, line) in [
        (
            "claims",
            "audit",
            "entry text PRIMARY KEY",
            "1000 jobs, 1000 entries",
        ),
        (
            "complete_in",
            "purse",
            "jobs integer, coins integer",
            "100 jobs, 100 coins",
        ),
        ("welcome", "account", "name text", "welcome, Ada"),
        (
            "web",
            "account",
            "name text PRIMARY KEY, welcomed bool",
            "listening on ",
        ),
    ] {
        let db = database(PgVersion::any()).await;
        let (mut making, client) = (db.client().await.unwrap(), db.client().await.unwrap());
        let transaction = making.transaction().await.unwrap();
        // The other process, which has not committed yet.
        let make = format!(
            "SELECT pg_advisory_xact_lock(hashtext('{table}')); CREATE TABLE {table} ({columns})"
        );
        transaction.run(&make).await.unwrap();
        let mut second = start(name, &db);
        let waiting = "SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let waits = async || Ok(number(&client, waiting).await == 1);
        eventually(SOON, "it waits", waits).await.unwrap();
        transaction.commit().await.unwrap();
        second.line(line, SOON).await.unwrap();
    }
}
