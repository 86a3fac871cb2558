//! PgBouncer in transaction mode, without named statements, whose server sessions are shared:
//! workers and producers connect through it.

use std::process::Command;
use std::time::Duration;

use posthaste::__private::is_direct;
use posthaste::{NewJob, Outcome, Unnamed, enqueue, enqueue_copy, enqueue_many};
use posthaste_testkit::{Child, PgServer, PgVersion, Sql as _, TestDb, ran};
use serde_json::json;
use sqlx::Connection;

use crate::stress::store::Store;
use crate::support::{all_done, count, database, unfinished, worker};

/// Test modules that must also pass through a pooler.
const CORE: [&str; 12] = [
    "awaiting::",
    "claims::",
    "find::",
    "history::",
    "lifecycle::",
    "operate::",
    "order::",
    "periodic::",
    "rate::",
    "rescue::",
    "scheduled::jobs_",
    "shutdown::",
];
/// Their handlers run statements on the worker's pool, by a driver that names them.
const NAMING: [&str; 3] = [
    "awaiting::confirmation_before_acknowledgement_completes_the_job",
    "history::completed_jobs_are_retained_once_if_their_queue_is_configured",
    "rescue::complete_in_commits_with_the_handlers_writes",
];
/// The timeout of the suite, whose tests take seconds each.
const WITHIN: Duration = Duration::from_secs(600);

/// Runs the same tests again, in a process whose pools connect through PgBouncer.
#[tokio::test(flavor = "multi_thread")]
async fn the_core_suite_passes_through_pgbouncer() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(CORE)
        .args(NAMING.iter().flat_map(|name| ["--skip", name]))
        .args(["--test-threads", "2"])
        .env("POSTHASTE_TEST_POOLED", "1")
        // Its record of tests that ran would hide tests that did not run here.
        .env_remove("POSTHASTE_RAN");
    let mut suite = Child::spawn(&mut command).unwrap();
    let result = suite.line("test result:", WITHIN).await.unwrap();
    let status = suite.exit(WITHIN).await.unwrap();
    assert!(status.success(), "{result}\n{}", suite.stdout().join("\n"));
    let passed = result.split_once("ok. ").unwrap().1;
    let passed = passed.split_once(' ').unwrap().0.parse().unwrap();
    ran::count("pgbouncer", passed);
}

async fn pooled_url(db: &TestDb) -> String {
    let server = PgServer::shared(PgVersion::any()).unwrap();
    server.pooled_url(db.name()).unwrap()
}

fn jobs() -> Vec<NewJob> {
    let job = |n: usize| NewJob::new("n", &json!({ "n": n })).unwrap();
    (0..3)
        .map(job)
        .chain([job(3).unique_key("key"), job(4).priority(7)])
        .collect()
}

/// Producers that share server sessions with others, with the drivers' settings that
/// docs/guides/drivers.md names.
#[tokio::test(flavor = "multi_thread")]
async fn every_driver_enqueues_through_pgbouncer() {
    let db = database(PgVersion::any()).await;
    let url = pooled_url(&db).await;
    let direct = db.client().await.unwrap();
    for round in 1..=3 {
        let mut bare = posthaste_testkit::connect(&url).await.unwrap();
        let tx = bare.transaction().await.unwrap();
        enqueue(&tx, &jobs()[0]).await.unwrap();
        enqueue_many(&tx, &jobs()).await.unwrap();
        enqueue_copy(&tx, &jobs()[..3]).await.unwrap();
        tx.commit().await.unwrap();

        let manager = deadpool_postgres::Manager::new(url.parse().unwrap(), tokio_postgres::NoTls);
        let pool = deadpool_postgres::Pool::builder(manager).build().unwrap();
        let mut pooled = pool.get().await.unwrap();
        let tx = pooled.transaction().await.unwrap();
        enqueue(Unnamed(&tx), &jobs()[0]).await.unwrap();
        enqueue_many(Unnamed(&tx), &jobs()).await.unwrap();
        tx.commit().await.unwrap();

        let options: sqlx::postgres::PgConnectOptions = url.parse().unwrap();
        let options = options.extra_float_digits(None);
        let mut connection = sqlx::PgConnection::connect_with(&options).await.unwrap();
        let mut tx = connection.begin().await.unwrap();
        enqueue(Unnamed(&mut *tx), &jobs()[0]).await.unwrap();
        enqueue_many(Unnamed(&mut *tx), &jobs()).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(unfinished(&direct).await, 18 * round + 1, "round {round}");
    }
    let left = "SELECT count(*) FROM pg_prepared_statements";
    let through = posthaste_testkit::connect(&url).await.unwrap();
    for _ in 0..20 {
        let row = through.query_typed_one(left, &[]).await.unwrap();
        assert_eq!(row.get::<_, i64>(0), 0, "a name was left in a session");
    }
}

/// Statements have names only on direct connections.
#[tokio::test]
async fn connections_through_pgbouncer_are_not_direct() {
    let db = database(PgVersion::any()).await;
    assert!(is_direct(&db.client().await.unwrap()).await);
    let url = pooled_url(&db).await;
    for _ in 0..3 {
        let through = posthaste_testkit::connect(&url).await.unwrap();
        assert!(!is_direct(&through).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_continue_after_their_statements_were_deallocated() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let deallocating = "CREATE OR REPLACE FUNCTION posthaste.begin_single_statement() \
                        RETURNS boolean LANGUAGE plpgsql VOLATILE AS $f$ \
                        BEGIN EXECUTE 'DEALLOCATE ALL'; RETURN true; END $f$";
    client.run(deallocating).await.unwrap();
    let worker = worker(&db.pool(4).unwrap())
        .queue("default", 4)
        .handler("n", |_, _| async { Ok(Outcome::Done) })
        .start()
        .await
        .unwrap();
    for _ in 0..3 {
        enqueue(&client, &jobs()[0]).await.unwrap();
        all_done(&client).await;
    }
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn migrates_and_completes_in_a_transaction_through_pgbouncer() {
    let server = PgServer::shared(PgVersion::any()).unwrap();
    let db = TestDb::empty(server).await.unwrap();
    let url = pooled_url(&db).await;
    let mut through = posthaste_testkit::connect(&url).await.unwrap();
    posthaste::migrate(&mut through).await.unwrap();
    posthaste::grant_roles(&mut through).await.unwrap();
    let direct = db.client().await.unwrap();
    let sql = "CREATE TABLE effect (id bigint PRIMARY KEY); SELECT posthaste.enqueue('effect') \
               FROM generate_series(1, 20)";
    direct.run(sql).await.unwrap();
    let manager = deadpool_postgres::Manager::new(url.parse().unwrap(), tokio_postgres::NoTls);
    let pool = deadpool_postgres::Pool::builder(manager).build().unwrap();
    let inner = pool.clone();
    let worker = worker(&pool)
        .queue("default", 4)
        .handler("effect", move |context, job| {
            let pool = inner.clone();
            async move {
                let mut client = pool.get().await?;
                let tx = client.transaction().await?;
                tx.run(&format!("INSERT INTO effect VALUES ({})", job.id))
                    .await?;
                context.complete_in(Unnamed(&tx)).await?;
                tx.commit().await?;
                Ok(Outcome::Done)
            }
        })
        .start()
        .await
        .unwrap();
    all_done(&direct).await;
    worker.stop().await.unwrap();
    let effects = "SELECT count(*) FROM effect";
    let effects: i64 = direct.one(effects).await.unwrap();
    assert_eq!((effects, count(&direct, "dead").await), (20, 0));
}

/// The place up to which a segment is verified is known to the session that verified it; through a
/// pooler the next step may use another session.
#[tokio::test]
async fn segments_are_reclaimed_across_pooled_sessions() {
    let db = database(PgVersion::any()).await;
    let sessions = [
        db.client().await.unwrap(),
        db.client().await.unwrap(),
        db.client().await.unwrap(),
    ];
    let store = Store::new(db.url()).await.unwrap();
    for _ in 0..20 {
        store.say("SELECT posthaste.enqueue('n')").await.unwrap();
        let jobs = store.claim_all().await.unwrap();
        store.finish(&jobs).await.unwrap();
    }
    store.say("SELECT posthaste.rotate(0)").await.unwrap();
    store.say("SELECT posthaste.seal()").await.unwrap();
    let (low, batches) = (0_i64, 3_i32);
    for step in 0..30 {
        let row = sessions[step % sessions.len()]
            .query_one(include_str!("../src/store/reclaim.sql"), &[&low, &batches])
            .await
            .unwrap();
        if row.get::<_, &str>(0) == "truncated" {
            return;
        }
    }
    panic!("each session began anew, again and again");
}
