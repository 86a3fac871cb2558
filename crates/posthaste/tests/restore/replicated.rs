//! Logical replication as described in docs/operate/failover-and-restore.md: with the store, and
//! without.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use posthaste::{Outcome, rebase};
use posthaste_testkit::{PgServer, PgVersion, Sql as _, TestDb, TestResult, eventually};
use tokio_postgres::Client;

use super::tempfile;
use crate::support::{self, SOON, number};

/// Publishes everything, or one schema, and subscribes to it.
async fn replicate(from: &TestDb, what: &str, at: &PgServer, to: &Client) -> anyhow::Result<()> {
    let publisher = from.client().await?;
    let publish = format!("CREATE PUBLICATION everything FOR {what}");
    publisher.run(&publish).await?;
    let subscribe = format!(
        "CREATE SUBSCRIPTION everything
           CONNECTION 'host=127.0.0.1 port={} user=postgres dbname={}' PUBLICATION everything",
        at.address().port(),
        from.name()
    );
    to.run(&subscribe).await?;
    eventually(SOON, "what there was has come", async || {
        let late = "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'";
        Ok(number(to, late).await == 0)
    })
    .await
}

/// Commits arrive in order: once this one has arrived, all earlier ones have.
async fn caught_up(publisher: &Client, subscriber: &Client) -> anyhow::Result<()> {
    let mark = "INSERT INTO app SELECT count(*) FROM app RETURNING id::bigint";
    let mark = number(publisher, mark).await;
    eventually(SOON, "the subscription goes on", async || {
        let come = format!("SELECT count(*) FROM app WHERE id = {mark}");
        Ok(number(subscriber, &come).await == 1)
    })
    .await
}

const APP: &str = "CREATE TABLE app (id integer PRIMARY KEY)";

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn replicated_stores_continue_after_a_rebase() -> TestResult {
    for version in PgVersion::ALL {
        let old = PgServer::start(version, &[("wal_level", "logical")])?;
        let new = PgServer::start(version, &[])?;
        let source = support::migrated(&old).await;
        let publisher = source.client().await?;
        publisher.run(APP).await?;
        // The schema without its rows: the subscription copies these.
        let target = TestDb::empty(&new).await?;
        let script = tempfile();
        let mut tool = old.tool("pg_dump");
        tool.args(["--schema-only", "--file"]).arg(&script);
        assert!(tool.arg(source.name()).status().unwrap().success());
        let mut tool = new.tool("psql");
        tool.args(["--quiet", "--dbname", target.name(), "--file"]);
        assert!(tool.arg(&script).status().unwrap().success());
        std::fs::remove_file(script)?;
        let mut subscriber = target.client().await?;
        replicate(&source, "ALL TABLES", &old, &subscriber).await?;
        // Jobs continue there, with every kind of write.
        let worker = support::worker(&source.pool(4)?)
            .queue_config(support::quick_queue())
            .handler("done", |_, _| async { Ok(Outcome::Done) })
            .handler("fails", |_, _| async { Err("no".into()) })
            .start()
            .await?;
        publisher
            .run(
                "SELECT posthaste.limit_rate('q3', 90, '1 minute'), posthaste.pause('paused'),
                        posthaste.keep('default', '1 hour');
                 INSERT INTO posthaste.job (name) SELECT 'done' FROM generate_series(1, 300);
                 INSERT INTO posthaste.job (name, max_attempts) VALUES ('fails', 2);
                 SELECT posthaste.enqueue('done', unique_key => 'k', ordering_key => 'o'),
                        posthaste.enqueue('open', queue => 'q3'),
                        posthaste.enqueue('open', queue => 'paused'),
                        posthaste.enqueue('open', queue => 'q3',
                                          scheduled_at => now() + interval '1 hour')",
            )
            .await?;
        eventually(SOON, "the others are done or dead", async || {
            let left =
                "SELECT count(*) FROM posthaste.job WHERE name <> 'open' AND state <> 'dead'";
            Ok(number(&publisher, left).await == 0)
        })
        .await?;
        worker.stop().await?;
        caught_up(&publisher, &subscriber).await?;

        let refused = subscriber
            .batch_execute("SELECT posthaste.check_identity()")
            .await;
        assert!(refused.is_err(), "a subscriber's store is worked");
        subscriber.run("DROP SUBSCRIPTION everything").await?;
        assert_eq!(rebase(&mut subscriber, false).await?, 3);
        let resume = "SELECT posthaste.resume('paused');
            SELECT posthaste.retry(name => 'open');
            SELECT posthaste.enqueue('new', queue => 'q3')";
        subscriber.run(resume).await?;
        let ran = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&ran);
        let worker = support::worker(&target.pool(4)?)
            .queue("default", 4)
            .queue("q3", 4)
            .queue("paused", 4)
            .handler("*", move |_, job| {
                sink.lock().unwrap().push((job.name.to_string(), job.id.0));
                async { Ok(Outcome::Done) }
            })
            .start()
            .await?;
        eventually(SOON, "what was open is done", async || {
            let left = "SELECT count(*) FROM posthaste.job WHERE state <> 'dead'";
            Ok(number(&subscriber, left).await == 0)
        })
        .await?;
        worker.stop().await?;
        let ran = ran.lock().unwrap().clone();
        let names: Vec<&str> = ran.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names.len(), 4, "{names:?}");
        assert!(!names.contains(&"done"), "{names:?}");
        let ids: BTreeSet<i64> = ran.iter().map(|(_, id)| *id).collect();
        assert_eq!(ids.len(), 4, "a new job has an old one's id");
        let rate = "SELECT count(*) FROM posthaste.queue WHERE name = 'q3' AND rate = 90";
        assert_eq!(number(&subscriber, rate).await, 1);
        posthaste_testkit::ran::count("replicated stores", 1);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn both_sides_work_when_the_store_is_not_published() -> TestResult {
    let old = PgServer::start(PgVersion::any(), &[("wal_level", "logical")])?;
    let new = PgServer::start(PgVersion::any(), &[])?;
    let (source, target) = (support::migrated(&old).await, support::migrated(&new).await);
    let publisher = source.client().await?;
    let subscriber = target.client().await?;
    publisher.run(APP).await?;
    subscriber.run(APP).await?;
    replicate(&source, "TABLES IN SCHEMA public", &old, &subscriber).await?;
    let mut workers = Vec::new();
    for (db, client) in [(&source, &publisher), (&target, &subscriber)] {
        let (worker, _) = support::counting(db).await;
        workers.push(worker);
        let limit = "SELECT posthaste.limit_rate('q3', 90, '1 minute'), posthaste.enqueue('x')";
        client.run(limit).await?;
        support::all_done(client).await;
    }
    caught_up(&publisher, &subscriber).await?;
    let goes_on = subscriber
        .batch_execute("SELECT posthaste.check_identity()")
        .await;
    goes_on.unwrap();
    subscriber.run("DROP SUBSCRIPTION everything").await?;
    for worker in workers {
        worker.stop().await?;
    }
    Ok(())
}
