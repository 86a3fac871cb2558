//! Enqueue and completion in transactions of other drivers: all drivers write the same rows.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, Mutex};

use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection, TransactionManager};
use jiff::Timestamp;
use posthaste::{
    Context, Executor, HandlerResult, JobId, NewJob, Outcome, enqueue, enqueue_many, enqueue_nowait,
};
use posthaste_testkit::{PgVersion, TestDb, eventually, ran};
use sea_orm::{ConnectionTrait, TransactionTrait};
use serde_json::json;
use sqlx::Connection;
use tokio_postgres::Client;

use crate::support::{SOON, all_done, count, database, number, unfinished, worker};

type DieselTransactions = <AsyncPgConnection as AsyncConnection>::TransactionManager;

/// The number of jobs that [`every_kind`] enqueues.
const JOBS: usize = 9;

/// Enqueues one job of each kind whose rows must not differ between drivers.
async fn every_kind<E: Executor>(mut transaction: E) -> Vec<JobId> {
    let time = |text: &str| text.parse::<Timestamp>().unwrap();
    let kwargs = json!({"text": "\"quoted\", \\ and \u{1F680}", "deep": [[1, 2.50]], "none": null});
    let plain = NewJob::new("plain", &kwargs).unwrap();
    let full = NewJob::new("full", &kwargs)
        .unwrap()
        .queue("q'ueue")
        .priority(-7)
        .scheduled_at(time("2999-12-31T23:59:59.999999Z"))
        .expires_at(time("3000-01-01T00:00:00Z"))
        .tag("t\u{e4}g")
        .max_attempts(None)
        .trace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 a=b");
    let keyed = NewJob::new("keyed", &json!({})).unwrap().unique_key("key");
    let mut ids = vec![
        enqueue(&mut transaction, &plain).await.unwrap(),
        enqueue(&mut transaction, &full).await.unwrap(),
        enqueue(&mut transaction, &keyed).await.unwrap(),
    ];
    let again = enqueue(&mut transaction, &keyed).await.unwrap();
    assert_eq!(again, ids[2], "the key is held");
    let ordered = NewJob::new("ordered", &kwargs).unwrap();
    let ordered = ordered.ordering_key("l\u{ef}ne").queue("q").priority(3);
    ids.push(enqueue(&mut transaction, &ordered).await.unwrap());
    let again = enqueue_nowait(&mut transaction, &keyed).await.unwrap();
    assert_eq!(again, Some(ids[2]), "the key is held");
    let free = NewJob::new("keyed", &json!({})).unwrap().unique_key("free");
    for job in [&free, &plain] {
        let id = enqueue_nowait(&mut transaction, job).await.unwrap();
        ids.extend(id);
    }
    let many = [plain, full, keyed, ordered];
    let many = enqueue_many(&mut transaction, &many).await.unwrap();
    assert_eq!(many[2], ids[2], "the key is held");
    ids.extend([many[0], many[1], many[3]]);
    assert_eq!(ids.len(), JOBS);
    ids
}

/// Returns the rows of the jobs, except for their ids and times of enqueue.
async fn rows(client: &Client, ids: &[JobId]) -> Vec<String> {
    let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
    client
        .query(
            "SELECT concat_ws(' | ', name, kwargs, queue, priority, tag, unique_key, ordering_key,
                              coalesce(max_attempts, 0), state, trace,
                              CASE WHEN scheduled_at > now() THEN scheduled_at END,
                              CASE WHEN scheduled_at > now() THEN expires_at END)
               FROM posthaste.job WHERE id = ANY($1) ORDER BY id",
            &[&ids],
        )
        .await
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect()
}

/// Returns the rows that tokio-postgres writes.
async fn expected() -> Vec<String> {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let ids = every_kind(&client).await;
    rows(&client, &ids).await
}

/// Checks that a rolled-back transaction leaves nothing, and a committed one exactly its rows.
async fn judged(db: &TestDb, driver: &str, undone: &[JobId], done: &[JobId]) {
    let client = db.client().await.unwrap();
    assert_eq!(
        rows(&client, undone).await,
        [""; 0],
        "{driver}: rolled back"
    );
    assert_eq!(rows(&client, done).await, expected().await, "{driver}");
    assert_eq!(unfinished(&client).await, JOBS as i64, "{driver}");
    ran::note(driver);
}

/// Checks that each call in a failed transaction fails with the server's code, if the driver
/// exposes it.
async fn refused<E: Executor>(mut broken: E, code: Option<&str>) {
    let job = NewJob::new("late", &json!({})).unwrap();
    let error = enqueue(&mut broken, &job).await.unwrap_err();
    assert!(!error.is_connection(), "{error}");
    assert_eq!(error.sqlstate().map(|state| state.code()), code, "{error}");
}

/// Checks the error on a closed connection.
async fn cut<E: Executor>(mut connection: E) {
    let job = NewJob::new("late", &json!({})).unwrap();
    let error = enqueue(&mut connection, &job).await.unwrap_err();
    assert!(error.is_connection(), "{error:?}");
}

const CUT: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE datname = current_database() AND pid <> pg_backend_pid()";

#[tokio::test]
async fn sqlx_and_tokio_postgres_write_the_same_rows() {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let mut connection = sqlx::PgConnection::connect(db.url()).await.unwrap();
        let mut tx = connection.begin().await.unwrap();
        let undone = every_kind(&mut *tx).await;
        tx.rollback().await.unwrap();
        let mut tx = connection.begin().await.unwrap();
        let done = every_kind(&mut *tx).await;
        tx.commit().await.unwrap();
        judged(&db, "sqlx", &undone, &done).await;

        let mut tx = connection.begin().await.unwrap();
        sqlx::query("SELECT 1 / 0")
            .execute(&mut *tx)
            .await
            .unwrap_err();
        refused(&mut *tx, Some("25P02")).await;
        tx.rollback().await.unwrap();
        let client = db.client().await.unwrap();
        client.batch_execute(CUT).await.unwrap();
        cut(&mut connection).await;
    }
}

#[tokio::test]
async fn diesel_async_and_tokio_postgres_write_the_same_rows() {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let mut connection = AsyncPgConnection::establish(db.url()).await.unwrap();
        DieselTransactions::begin_transaction(&mut connection)
            .await
            .unwrap();
        let undone = every_kind(&mut connection).await;
        DieselTransactions::rollback_transaction(&mut connection)
            .await
            .unwrap();
        let done = connection
            .transaction(async |tx| Ok::<_, diesel::result::Error>(every_kind(tx).await))
            .await
            .unwrap();
        judged(&db, "diesel-async", &undone, &done).await;

        DieselTransactions::begin_transaction(&mut connection)
            .await
            .unwrap();
        connection.batch_execute("SELECT 1 / 0").await.unwrap_err();
        refused(&mut connection, None).await;
        DieselTransactions::rollback_transaction(&mut connection)
            .await
            .unwrap();
        let client = db.client().await.unwrap();
        client.batch_execute(CUT).await.unwrap();
        // The first call gets the server's last message, which diesel does not distinguish from
        // other errors.
        connection.batch_execute("SELECT 1").await.unwrap_err();
        cut(&mut connection).await;
    }
}

#[tokio::test]
async fn sea_orm_and_tokio_postgres_write_the_same_rows() {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let mut options = sea_orm::ConnectOptions::new(db.url());
        options
            .max_connections(1)
            .test_before_acquire(false)
            .sqlx_logging(false);
        let connection = sea_orm::Database::connect(options).await.unwrap();
        let tx = connection.begin().await.unwrap();
        let undone = every_kind(&tx).await;
        tx.rollback().await.unwrap();
        let tx = connection.begin().await.unwrap();
        let done = every_kind(&tx).await;
        tx.commit().await.unwrap();
        judged(&db, "sea-orm", &undone, &done).await;

        let tx = connection.begin().await.unwrap();
        tx.execute_unprepared("SELECT 1 / 0").await.unwrap_err();
        refused(&tx, Some("25P02")).await;
        tx.rollback().await.unwrap();
        // The pool checks a returned connection: if it were cut before that, it would be replaced.
        let pool = connection.get_postgres_connection_pool();
        eventually(SOON, "the connection is back", async || {
            Ok(pool.num_idle() == 1)
        })
        .await
        .unwrap();
        let client = db.client().await.unwrap();
        client.batch_execute(CUT).await.unwrap();
        cut(&connection).await;
    }
}

/// Runs a handler in a transaction of this driver: it writes a row, completes the job, and commits
/// or rolls back. Each job is rolled back first, so that it comes again, and then committed.
async fn completes<R: Future<Output = HandlerResult> + Send + 'static>(
    driver: &str,
    run: impl Fn(String, Context, JobId, bool) -> R + Send + Sync + 'static,
) {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    client
        .batch_execute("CREATE TABLE effect (id bigint PRIMARY KEY)")
        .await
        .unwrap();
    let url = db.url().to_owned();
    let undone = Arc::new(Mutex::new(BTreeSet::new()));
    let (runs, known) = (Arc::new(Mutex::new(0)), Arc::clone(&undone));
    let counted = Arc::clone(&runs);
    let worker = worker(&db.pool(4).unwrap())
        .queue("default", 1)
        .handler("effect", move |context, job| {
            *counted.lock().unwrap() += 1;
            let is_first = known.lock().unwrap().insert(job.id.0);
            run(url.clone(), context, job.id, !is_first)
        })
        .start()
        .await
        .unwrap();
    client
        .batch_execute("SELECT posthaste.enqueue('effect') FROM generate_series(1, 5)")
        .await
        .unwrap();
    all_done(&client).await;
    worker.stop().await.unwrap();
    assert_eq!(undone.lock().unwrap().len(), 5, "{driver}");
    let runs = *runs.lock().unwrap();
    assert_eq!(runs, 10, "{driver}: again after the rollback, and once");
    let effects = number(&client, "SELECT count(*) FROM effect").await;
    assert_eq!((effects, count(&client, "dead").await), (5, 0), "{driver}");
}

#[tokio::test]
async fn a_handler_completes_its_job_in_a_transaction_of_sqlx() {
    completes("sqlx", |url, context, id, commits| async move {
        let mut connection = sqlx::PgConnection::connect(&url).await?;
        let mut tx = connection.begin().await?;
        sqlx::query("INSERT INTO effect VALUES ($1)")
            .bind(id.0)
            .execute(&mut *tx)
            .await?;
        context.complete_in(&mut *tx).await?;
        match commits {
            true => tx.commit().await?,
            false => tx.rollback().await?,
        }
        Ok(Outcome::Done)
    })
    .await;
}

#[tokio::test]
async fn a_handler_completes_its_job_in_a_transaction_of_diesel_async() {
    completes("diesel-async", |url, context, id, commits| async move {
        let mut connection = AsyncPgConnection::establish(&url).await?;
        DieselTransactions::begin_transaction(&mut connection).await?;
        let effect = format!("INSERT INTO effect VALUES ({id})");
        connection.batch_execute(&effect).await?;
        context.complete_in(&mut connection).await?;
        match commits {
            true => DieselTransactions::commit_transaction(&mut connection).await?,
            false => DieselTransactions::rollback_transaction(&mut connection).await?,
        }
        Ok(Outcome::Done)
    })
    .await;
}

#[tokio::test]
async fn a_handler_completes_its_job_in_a_transaction_of_sea_orm() {
    completes("sea-orm", |url, context, id, commits| async move {
        let connection = sea_orm::Database::connect(url).await?;
        let tx = connection.begin().await?;
        let effect = format!("INSERT INTO effect VALUES ({id})");
        tx.execute_unprepared(&effect).await?;
        context.complete_in(&tx).await?;
        match commits {
            true => tx.commit().await?,
            false => tx.rollback().await?,
        }
        Ok(Outcome::Done)
    })
    .await;
}
