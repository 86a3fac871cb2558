//! A step of the next version is applied while workers and producers of this one are running.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use posthaste::{check_schema, migrations_sql_after};
use posthaste_testkit::{PgVersion, Sql as _, TestDb};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::{noted, version};
use crate::support::{all_done, counting, database, number};

/// Changes the tables that each enqueue, claim, heartbeat and acknowledgement writes to. A column
/// of the store itself would also need other functions, those that create its rows.
///
/// All tables are locked first, in the order in which claims and acknowledgements use them: ALTER
/// alone locks the store before its partitions, and would hardly ever get all of them while others
/// work.
const STEP: &str =
    "LOCK TABLE posthaste.queue, posthaste.lane, posthaste.worker, posthaste.claim_0,
  posthaste.ready_0, posthaste.ready_1, posthaste.ready_2, posthaste.ready_3, posthaste.ready_4,
  posthaste.ready_5, posthaste.scheduled_6, posthaste.scheduled_7,
  posthaste.job_done_0, posthaste.batch_done_0, posthaste.store;
ALTER TABLE posthaste.store ADD CONSTRAINT next_one CHECK (name <> '') NOT VALID;
ALTER TABLE posthaste.claim_0 ADD COLUMN next_one text;
ALTER TABLE posthaste.batch_done_0 ADD COLUMN next_one text;
ALTER TABLE posthaste.job_done_0 ADD COLUMN next_one text;
ALTER TABLE posthaste.worker ADD COLUMN next_one integer NOT NULL DEFAULT 0;
ALTER TABLE posthaste.lane ADD COLUMN next_one text;
ALTER TABLE posthaste.queue ADD COLUMN next_one text;
";

/// The longest allowed wait: for a lock that `migrate` waits for, and then for all of its
/// statements.
const MOMENT: Duration = Duration::from_secs(10);

/// Returns what `migrate` of the next version would run: its lock, its timeouts, the step and all
/// functions in one transaction.
fn script() -> String {
    let printed = migrations_sql_after(1);
    let (head, functions) = printed.split_once("\nCREATE OR REPLACE").unwrap();
    format!(
        "BEGIN;\n{head}\nSET LOCAL lock_timeout = '200ms';\n{STEP}CREATE OR REPLACE{functions};\n\
         COMMIT"
    )
}

/// Returns how often it was refused a lock before it was done.
async fn migrated(client: &Client) -> u32 {
    let script = script();
    for refused in 0..300 {
        match client.batch_execute(&script).await {
            Ok(()) => return refused,
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                client.run("ROLLBACK").await.unwrap();
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    panic!("it never gets its locks");
}

/// Enqueues until `over`, in transactions that stay open for this long. Returns the number of jobs,
/// and the longest time of a statement.
async fn produced(db: &TestDb, open: Duration, over: &AtomicBool) -> (usize, Duration) {
    let mut client = db.client().await.unwrap();
    let by_function = "SELECT posthaste.enqueue('x', ordering_key => $1)";
    let by_function = client.prepare(by_function).await.unwrap();
    let by_view = "INSERT INTO posthaste.job (name) SELECT 'x' FROM generate_series(1, 10)";
    let by_view = client.prepare(by_view).await.unwrap();
    let (mut jobs, mut longest) = (0, Duration::ZERO);
    while !over.load(Ordering::SeqCst) {
        let started = Instant::now();
        let tx = client.transaction().await.unwrap();
        let key = (jobs % 100).to_string();
        tx.query(&by_function, &[&key]).await.unwrap();
        tx.execute(&by_view, &[]).await.unwrap();
        longest = longest.max(started.elapsed());
        tokio::time::sleep(open).await;
        tx.commit().await.unwrap();
        jobs += 11;
        tokio::time::sleep(open).await;
    }
    (jobs, longest)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_versions_step_applies_under_a_running_worker() {
    for pg in PgVersion::tried() {
        let db = database(pg).await;
        let client = db.client().await.unwrap();
        let (worker, runs) = counting(&db).await;
        let over = AtomicBool::new(false);
        let refused = async {
            let works = async |more: usize| {
                let before = runs.load(Ordering::SeqCst);
                while runs.load(Ordering::SeqCst) < before + more {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            works(100).await;
            let refused = migrated(&client).await;
            noted(&client, "0002_next", &version(1, 0)).await;
            noted(&client, "functions", &version(1, 0)).await;
            works(500).await;
            over.store(true, Ordering::SeqCst);
            refused
        };
        // One of them uses the tables for longer than the step waits.
        let (quick, slow) = (Duration::from_millis(20), Duration::from_millis(300));
        let producers = async {
            tokio::join!(
                produced(&db, quick, &over),
                produced(&db, quick, &over),
                produced(&db, slow, &over)
            )
        };
        let (refused, (one, other, slow)) = tokio::join!(refused, producers);
        check_schema(&client).await.unwrap();
        all_done(&client).await;
        let jobs = one.0 + other.0 + slow.0;
        assert_eq!(runs.load(Ordering::SeqCst), jobs, "each job once");
        let kept = "SELECT count(*) FROM posthaste.dead";
        assert_eq!(number(&client, kept).await, 0, "none was given up");
        let longest = one.1.max(other.1).max(slow.1);
        println!("{pg:?}: {jobs} jobs, refused {refused} times, the longest wait was {longest:?}");
        assert!(longest < MOMENT, "somebody waited for {longest:?}");
        worker.stop().await.unwrap();

        // A worker that starts on the next version's schema works too.
        let more = "INSERT INTO posthaste.job (name) SELECT 'x' FROM generate_series(1, 10)";
        let (worker, again) = counting(&db).await;
        client.run(more).await.unwrap();
        all_done(&client).await;
        assert_eq!(again.load(Ordering::SeqCst), 10);
        worker.stop().await.unwrap();
    }
}
