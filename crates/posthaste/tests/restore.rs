//! What happens to jobs in a database that was restored from a dump, copied or promoted.

mod loaded;
mod promoted;
mod replica_role;
mod replicated;
mod story;
mod upgraded;

use posthaste::{Outcome, rebase};
use posthaste_testkit::{PgServer, PgVersion, Sql as _, TestDb, TestResult, connect, eventually};

use crate::find::hands::{Hands, id_of};
use crate::stress::store::Store;
use crate::support::{self, SOON, number};
use story::{Past, dump, next_xid, restore, use_up, use_up_to};

/// The transaction ids of the cluster that jobs are restored into, relative to those in the jobs'
/// rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ids {
    /// The next ones are among those that old claims covered.
    Among,
    /// It has not reached them.
    Below,
    /// It is far past them.
    Above,
    /// It is the original cluster.
    Own,
}

async fn every_job_once(version: PgVersion) -> anyhow::Result<()> {
    let [old, new] = [
        PgServer::start(version, &[])?,
        PgServer::start(version, &[])?,
    ];
    for (ids, to, how) in [
        (Ids::Among, &new, &[][..]),
        (Ids::Below, &new, &["--jobs=2"][..]),
        (Ids::Above, &new, &["--single-transaction"][..]),
        // Another database in the same cluster.
        (Ids::Own, &old, &[][..]),
    ] {
        let source = support::migrated(&old).await;
        let client = source.client().await?;
        match ids {
            Ids::Among | Ids::Own => {}
            Ids::Below => use_up(&client, 20_000).await?,
            Ids::Above => {
                let beyond = next_xid(&client).await? + 20_000;
                use_up_to(&connect(&to.url("postgres")).await?, beyond).await?;
            }
        }
        let past = Past::fill(&source, if ids == Ids::Among { 4000 } else { 1000 }).await?;
        let folder = tempfile();
        dump(&old, source.name(), &folder)?;
        let target = TestDb::empty(to).await?;
        restore(to, target.name(), &folder, how)?;
        let client = target.client().await?;
        if ids == Ids::Among {
            use_up_to(&client, past.claimed_xids.0 + 10).await?;
            let next = next_xid(&client).await?;
            assert!(next + 100 < past.claimed_xids.1, "{next} {past:?}");
        }
        past.goes_on_in(&target, ids != Ids::Among)
            .await
            .map_err(|error| error.context(format!("{ids:?}")))?;
        posthaste_testkit::ran::count("restored", 1);
    }
    Ok(())
}

fn tempfile() -> std::path::PathBuf {
    std::env::temp_dir().join(posthaste_testkit::unique("posthaste-dump"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_restored_store_runs_exactly_the_unfinished_jobs_once_on_15() {
    every_job_once(PgVersion::V15).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_restored_store_runs_exactly_the_unfinished_jobs_once_on_18() {
    every_job_once(PgVersion::V18).await.unwrap();
}

#[tokio::test]
async fn interrupted_rebases_roll_back_and_can_be_repeated() -> TestResult {
    for version in PgVersion::ALL {
        let db = support::database(version).await;
        let mut client = db.client().await?;
        let store = Store::new(db.url()).await?;
        store.enqueue_many("open", 10).await?;
        let done = store.claim(4).await?;
        store.done(&done).await?;
        store.say("SELECT posthaste.lock_out_workers(true)").await?;
        // Everything is done but the commit: cursors have moved, and they do not roll back.
        store
            .say("BEGIN; SELECT posthaste.rebase(); ROLLBACK")
            .await?;
        store.enqueue_many("open", 3).await?;
        assert_eq!(store.unfinished().await?, 9, "{version:?}");
        let refused = store.claim(1).await.unwrap_err();
        let refused = format!("{refused:?}");
        assert!(refused.contains("not registered here"), "{refused}");
        assert_eq!(rebase(&mut client, false).await?, 9);
        let store = Store::new(db.url()).await?;
        let ids: Vec<i64> = store.claim_all().await?.iter().map(|job| job.id).collect();
        let left: Vec<i64> = (5..=13).collect();
        assert_eq!(ids, left, "each once, in their order");
    }
    Ok(())
}

/// A dump reads each sequence at a different moment.
#[tokio::test]
async fn enqueue_tolerates_cursors_from_two_moments() -> TestResult {
    let db = support::database(PgVersion::any()).await;
    let mut client = db.client().await?;
    let store = Store::new(db.url()).await?;
    store
        .say("SELECT setval('posthaste.ready_scan', 3)")
        .await?;
    store.say("SET statement_timeout = '10s'").await?;
    store.enqueue_many("open", 2).await?;
    store.enqueue("open", 0).await?;
    store.enqueue("open", 3_600_000).await?;
    store.say("SELECT posthaste.lock_out_workers(true)").await?;
    assert_eq!(rebase(&mut client, false).await?, 4);
    let store = Store::new(db.url()).await?;
    assert_eq!(store.claim_all().await?.len(), 3);
    assert_eq!(support::count(&store.client, "scheduled").await, 1);
    Ok(())
}

#[tokio::test]
async fn rebase_refuses_while_a_worker_lives() -> TestResult {
    let db = support::database(PgVersion::any()).await;
    let mut client = db.client().await?;
    let worker = support::worker(&db.pool(2)?)
        .queue("default", 1)
        .handler("open", |_, _| async { Ok(Outcome::Done) })
        .start()
        .await?;
    let living = "SELECT count(*) FROM posthaste.worker";
    eventually(SOON, "the worker is registered", async || {
        Ok(client.one::<i64>(living).await? == 1)
    })
    .await?;
    let refused = rebase(&mut client, false).await.unwrap_err();
    assert!(refused.to_string().contains("is running"), "{refused}");
    assert!(
        refused.to_string().contains("Stop all workers"),
        "{refused}"
    );
    client
        .run("INSERT INTO posthaste.job (name) SELECT 'open' FROM generate_series(1, 20)")
        .await?;
    support::all_done(&client).await;
    worker.stop().await?;
    assert_eq!(rebase(&mut client, false).await?, 0);
    // Whatever belongs to a slot contains transaction ids, including tables added since this was
    // written; history does not.
    let slots = "SELECT relname::text FROM pg_class WHERE relnamespace = 'posthaste'::regnamespace \
                 AND relkind = 'r' AND relname ~ '_[0-7]$' \
                 AND relname !~ '^(attempt|finished|stats_delta)_'";
    for table in client.query(slots, &[]).await? {
        let table: String = table.get(0);
        let rows = format!("SELECT count(*) FROM posthaste.{table}");
        let rows: i64 = client.one(&rows).await?;
        assert_eq!(rows, 0, "{table} is not empty");
    }
    Ok(())
}

/// A template database is copied with all its jobs; the copy must not run them a second time.
#[tokio::test]
async fn only_copies_of_used_stores_need_a_rebase() -> TestResult {
    let server = PgServer::shared(PgVersion::any())?;
    // A cancel or the start of a worker is the first work in a fresh copy.
    let (check, cancel) = (
        "SELECT posthaste.check_identity()",
        "SELECT posthaste.cancel(2)",
    );
    for (worked, first) in [
        (false, check),
        (false, cancel),
        (true, check),
        (true, cancel),
    ] {
        let db = support::database(PgVersion::any()).await;
        // The next work happens in this database itself.
        drop(db.client().await?);
        {
            let store = Store::new(db.url()).await?;
            store.enqueue_many("open", 2).await?;
            if worked {
                assert_eq!(store.claim(1).await?.len(), 1);
            }
            let action = "INSERT INTO posthaste.bulk_action \
                            (id, driven_until, at_most, action, filter, who, identity) \
                          VALUES (1, now(), 9, 'cancel', '', 'ada', posthaste.current_identity())";
            store.say(action).await?;
        }
        let admin = connect(&server.url("postgres")).await?;
        let name = format!("copy_of_{}", db.name());
        let copy = format!(
            "CREATE DATABASE {name} TEMPLATE {} STRATEGY wal_log",
            db.name()
        );
        eventually(SOON, "nobody is connected to it", async || {
            Ok(admin.batch_execute(&copy).await.is_ok())
        })
        .await?;
        let mut client = connect(&server.url(&name)).await?;
        let before = "SELECT posthaste.delivery_id(1)::text";
        let original = db.client().await?.one::<String>(before).await?;
        let answer = client.batch_execute(first).await;
        if worked {
            let refused = answer.unwrap_err();
            let refused = refused.as_db_error().unwrap();
            assert_eq!(refused.code().code(), "55000");
            assert!(refused.hint().unwrap().contains("posthaste rebase"));
            assert_eq!(rebase(&mut client, false).await?, 2);
            let action = "SELECT state || ' by ' || stopped_by FROM posthaste.bulk_action";
            let action = client.one::<String>(action).await?;
            assert_eq!(action, "stopped by posthaste rebase");
        } else {
            answer.unwrap();
            let copied = client.one::<String>(before).await?;
            assert_ne!(copied, original);
        }
        client.run("SELECT posthaste.check_identity()").await?;
        drop(client);
        admin
            .run(&format!("DROP DATABASE {name} WITH (FORCE)"))
            .await?;
    }
    Ok(())
}

/// A sequence that was restored to an earlier moment than the tables.
#[tokio::test]
async fn job_ids_in_history_are_not_reused() {
    for version in PgVersion::ALL {
        for known in ["finished", "attempt"] {
            let db = support::database(version).await;
            let mut client = db.client().await.unwrap();
            let hands = Hands::new(&client).await;
            let keep = "SELECT posthaste.keep('default', '24h'), setval('posthaste.job_id', 100)";
            client.run(keep).await.unwrap();
            let id = id_of(&client, "SELECT posthaste.enqueue('x')").await;
            let fence = hands.claim(&client, 1).await;
            let ends = match known {
                "finished" => "ARRAY[0::smallint], NULL, NULL, NULL, NULL, NULL",
                _ => "ARRAY[2::smallint], ARRAY[1], NULL, NULL, ARRAY['dead'], ARRAY['no']",
            };
            fence.settle(&client, id, ends).await;
            client
                .run("DELETE FROM posthaste.dead; SELECT posthaste.lock_out_workers(true)")
                .await
                .unwrap();
            assert_eq!(rebase(&mut client, false).await.unwrap(), 0);
            let delivery = "SELECT posthaste.delivery_id($1)::text";
            let before: String = client.one_with(delivery, &[&id]).await.unwrap();
            // No slot contains it by now.
            let restored = "SELECT setval('posthaste.job_id', 1);
                            SELECT posthaste.lock_out_workers(true)";
            client.run(restored).await.unwrap();
            assert_eq!(rebase(&mut client, false).await.unwrap(), 0);
            let next = id_of(&client, "SELECT posthaste.enqueue('x')").await;
            assert!(next > id, "{known}: {next} after {id}");
            let after: String = client.one_with(delivery, &[&id]).await.unwrap();
            assert_eq!(
                before, after,
                "{known}: the old job's delivery id is what it was"
            );
        }
    }
}

#[tokio::test]
async fn rebase_ignores_statement_timeout() {
    let db = support::database(PgVersion::any()).await;
    let mut client = db.client().await.unwrap();
    let (holder, watch) = (db.client().await.unwrap(), db.client().await.unwrap());
    let hold = "BEGIN; LOCK TABLE posthaste.worker IN ACCESS EXCLUSIVE MODE";
    holder.run(hold).await.unwrap();
    let short = "SET statement_timeout = '250ms'";
    client.run(short).await.unwrap();
    let release = async {
        let waits = "SELECT count(*) FROM pg_stat_activity
                      WHERE datname = current_database() AND wait_event_type = 'Lock'
                        AND clock_timestamp() - query_start > interval '500 ms'";
        eventually(SOON, "it has waited for longer", async || {
            Ok(number(&watch, waits).await == 1)
        })
        .await?;
        anyhow::Ok(holder.run("COMMIT").await?)
    };
    let (rebased, released) = tokio::join!(rebase(&mut client, false), release);
    rebased.expect("a rebase");
    released.expect("its wait");
}
