//! A job's whole life, with every role, while an attacker controls everything that posthaste leaves
//! open.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use posthaste::{
    Config, Filter, NewJob, Outcome, Rate, State, enqueue, enqueue_copy, enqueue_many,
    enqueue_nowait,
};
use posthaste_testkit::{PgServer, PgVersion, Sql as _, TestDb, TestResult, connect, eventually};
use serde_json::json;
use tokio_postgres::Client;

use crate::support::{SOON, all_done, database, jobs, number, quick, quick_queue, worker};

const TRAPS: &str = include_str!("traps.sql");

/// Enqueues by every method as a producer, and lets a worker run all jobs: due and scheduled ones,
/// ones that fail once, ones with a unique or an ordering key; then a few more after the first were
/// done.
async fn live(db: &TestDb) {
    let client = db.client().await.unwrap();
    let settings = "SET statement_timeout = 0; SET lock_timeout = 0; SET jit = off";
    client.run(settings).await.unwrap();
    let pool = db.pool_as("posthaste_worker", 8).unwrap();
    let handlers = pool.clone();
    let worker = worker(&pool)
        .config(Config {
            segment_bytes: 64 * 1024,
            ..quick()
        })
        .queue_config(quick_queue())
        .handler("*", move |context, job| {
            let handlers = handlers.clone();
            async move {
                if &*job.name == "again" && job.attempt == 1 {
                    return Err("once more".into());
                }
                if &*job.name == "within" {
                    let mut client = handlers.get().await?;
                    let tx = client.transaction().await?;
                    context.complete_in(&tx).await?;
                    tx.commit().await?;
                }
                Ok(Outcome::Done)
            }
        })
        .start()
        .await
        .unwrap();
    let producers = db.pool_as("posthaste_producer", 1).unwrap();
    let mut producer = producers.get().await.unwrap();
    producer.run(settings).await.unwrap();
    let soon = Timestamp::now() + SignedDuration::from_millis(300);
    let job = |name: &str| NewJob::new(name, &json!({ "deep": [[1]] })).unwrap();
    for round in 0..2 {
        enqueue(&*producer, &job("plain")).await.unwrap();
        enqueue(&*producer, &job("within")).await.unwrap();
        enqueue(&*producer, &job("again").queue("default"))
            .await
            .unwrap();
        enqueue(&*producer, &job("later").scheduled_at(soon))
            .await
            .unwrap();
        let keyed = job("keyed").unique_key("k");
        enqueue(&*producer, &keyed).await.unwrap();
        enqueue_nowait(&*producer, &keyed).await.unwrap();
        let lined = [
            job("first").ordering_key("o"),
            job("second").ordering_key("o"),
        ];
        enqueue_many(&*producer, &lined).await.unwrap();
        let tx = producer.transaction().await.unwrap();
        enqueue_copy(&tx, &lined).await.unwrap();
        tx.commit().await.unwrap();
        producer
            .run(
                "INSERT INTO posthaste.job (name) SELECT 'view' FROM generate_series(1, 200);
                 INSERT INTO posthaste.staged_jobs (job_name, job_args) VALUES ('staged', '[1]');
                 INSERT INTO posthaste.outbox (type, payload) VALUES ('outbox', 'x')",
            )
            .await
            .unwrap();
        // The second round has notifications on for a sleeping worker, and a rate.
        all_done(&client).await;
        if round == 0 {
            let limit = "SELECT posthaste.limit_rate('default', 100000)";
            client.run(limit).await.unwrap();
        }
    }
    let counted = "SELECT count(*) FROM posthaste.attempt WHERE error LIKE '%once more%'";
    assert_eq!(number(&client, counted).await, 2);
    operate(&client).await;
    // Rotated, sealed and truncated.
    eventually(SOON, "the ready log has rotated", async || {
        let low = "SELECT pg_sequence_last_value('posthaste.ready_low'::regclass) > 0";
        client
            .run("SELECT posthaste.enqueue('plain') FROM generate_series(1, 100)")
            .await?;
        client.one(low).await
    })
    .await
    .unwrap();
    all_done(&client).await;
    worker.stop().await.unwrap();
}

/// Runs an operator's calls as a superuser: code of an attacker in this session would have all
/// privileges.
async fn operate(client: &Client) {
    let far = Timestamp::now() + Duration::from_secs(3600);
    let job = NewJob::new("waits", &json!({})).unwrap().scheduled_at(far);
    let id = enqueue(client, &job).await.unwrap();
    let found = jobs(client).find(id).await.unwrap().unwrap();
    assert_eq!(found.name, "waits");
    let begin = "BEGIN ISOLATION LEVEL READ COMMITTED";
    client.run(begin).await.unwrap();
    let mut all = jobs(client);
    let these = Filter::new()
        .ids([id])
        .queue("default")
        .name("waits")
        .tag("");
    assert_eq!(all.list(&these).await.unwrap().len(), 1);
    assert_eq!(all.retry(&[id]).await.unwrap(), [(id, State::Available)]);
    assert_eq!(all.cancel(&[id]).await.unwrap(), [(id, State::Cancelled)]);
    assert_eq!(all.dead(&these).await.unwrap().len(), 1);
    assert!(all.failures(id).await.unwrap().is_empty());
    assert!(all.confirm(found.delivery_id).await.unwrap());
    all.limit("q", Some(Rate::new(5, Duration::from_secs(1))))
        .await
        .unwrap();
    all.limit("q", None).await.unwrap();
    let (day, never) = (Some(Duration::from_secs(86_400)), "%never%");
    assert!(all.pause("q").await.unwrap() && all.resume("q").await.unwrap());
    assert!(all.keep("q", day).await.unwrap() && all.keep("q", None).await.unwrap());
    let none = Filter::new().state(State::Cancelled).error_like(never);
    assert!(all.redrive_where(&none).await.unwrap().is_empty());
    assert!(!all.counters().await.unwrap().jobs.is_empty());
    client.run("COMMIT").await.unwrap();
    client
        .run(&format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED;
             SELECT posthaste.pause('q'), posthaste.resume('q'), posthaste.keep('q', '1 day');
             SELECT * FROM posthaste.counts(); SELECT * FROM posthaste.segments();
             SELECT * FROM posthaste.oldest(); SELECT posthaste.needs_rebase();
             SELECT posthaste.delivery_id({id}); SELECT posthaste.cancel({id});
             CREATE TABLE IF NOT EXISTS public.note (id varchar PRIMARY KEY, body text);
             SELECT posthaste.sync_table('public.note', delay => '1 h');
             INSERT INTO public.note VALUES ('a', 'x'), ('b', 'y');
             UPDATE public.note SET id = 'c' WHERE id::text = 'a';
             DELETE FROM public.note;
             SELECT posthaste.unsync_table('note');
             SELECT posthaste.cancel(j.id) FROM posthaste.job j;
             DELETE FROM posthaste.dead;
             COMMIT",
            id = id.0
        ))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_in_the_public_schema_are_never_called() -> TestResult {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let mut client = db.client().await?;
        posthaste::grant_roles(&mut client).await?;
        let mallory = format!("mallory_{}", db.name());
        client
            .run(&format!(
                "CREATE ROLE {mallory}; GRANT CREATE ON SCHEMA public TO {mallory};
                 SET ROLE {mallory}; {TRAPS}; RESET ROLE"
            ))
            .await?;
        // The traps catch inexact calls, also in this session.
        let caught = client.batch_execute("SELECT 7::bigint % 4").await;
        assert!(caught.is_err(), "{}", version.name());
        let times = "SELECT last_value FROM public.trapped";
        let before = number(&client, times).await;
        live(&db).await;
        assert_eq!(number(&client, times).await, before, "{}", version.name());
        client
            .run(&format!(
                "DROP OWNED BY {mallory} CASCADE; DROP ROLE {mallory}"
            ))
            .await?;
    }
    Ok(())
}

/// Settings that a database may have for its applications or by mistake.
const SETTINGS: &str = "
    search_path = nowhere
    jit = on
    jit_above_cost = 0
    jit_inline_above_cost = 0
    jit_optimize_above_cost = 0
    statement_timeout = '2s'
    lock_timeout = '5ms'
    default_transaction_isolation = serializable
    default_transaction_deferrable = on
    datestyle = 'SQL, DMY'
    intervalstyle = sql_standard
    timezone = 'Asia/Kathmandu'
    bytea_output = escape
    standard_conforming_strings = off
    quote_all_identifiers = on
    extra_float_digits = -15
    row_security = off
    array_nulls = off
    transform_null_equals = on
    plan_cache_mode = force_custom_plan
    enable_indexscan = off
    enable_indexonlyscan = off
    enable_bitmapscan = off
    enable_nestloop = off
    enable_sort = off
    enable_partition_pruning = off
    join_collapse_limit = 1
    parallel_setup_cost = 0
    parallel_tuple_cost = 0
    min_parallel_table_scan_size = 0
    work_mem = '64kB'
    default_text_search_config = 'pg_catalog.simple'
    plpgsql.extra_errors = 'all'";

async fn apply_hostile_settings(db: &TestDb) {
    let client = db.client().await.unwrap();
    for setting in SETTINGS.trim().lines() {
        let alter = format!("ALTER DATABASE {} SET {}", db.name(), setting.trim());
        client.run(&alter).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_run_under_hostile_database_settings() {
    for version in PgVersion::tried() {
        let server = PgServer::shared(version).unwrap();
        let db = TestDb::empty(server).await.unwrap();
        apply_hostile_settings(&db).await;
        let mut client = connect(db.url()).await.unwrap();
        client.run("SET statement_timeout = 0").await.unwrap();
        posthaste::migrate(&mut client).await.unwrap();
        posthaste::grant_roles(&mut client).await.unwrap();
        live(&db).await;
    }
}
