//! How often a notified worker polls.

use std::time::Duration;

use posthaste_testkit::{PgVersion, Sql as _};

use super::{ENQUEUE, all_asleep, sleeper, starts};
use crate::support::{all_done, database, number};

const JOBS: i64 = 100;

/// Polls of other kinds: after its last find the worker polls once more, and then less and less
/// often.
const OTHER_POLLS: i64 = 70;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notified_worker_that_claimed_everything_does_not_poll_again() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let track = format!(
        "ALTER DATABASE \"{}\" SET track_functions = 'all'",
        db.name()
    );
    client.run(&track).await.unwrap();
    let (worker, mut jobs) = sleeper(&db, Duration::from_millis(100)).await;
    all_asleep(&client).await;
    for _ in 0..JOBS {
        starts(&client, ENQUEUE, &mut jobs).await;
        all_done(&client).await;
    }
    // A session reports its counts when it ends, a moment after its client has disconnected.
    worker.stop().await.unwrap();
    let polls = "SELECT calls FROM pg_stat_user_functions \
                 WHERE schemaname = 'posthaste' AND funcname = 'claim'";
    let sessions = format!(
        "SELECT count(*) FROM pg_stat_activity \
         WHERE datname = '{}' AND pid <> pg_backend_pid() AND backend_type = 'client backend'",
        db.name()
    );
    let reported = async {
        while number(&client, &sessions).await > 0 || number(&client, polls).await < JOBS {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reported)
        .await
        .expect("all sessions of the worker end");
    let polls = number(&client, polls).await;
    assert!(polls < JOBS + OTHER_POLLS, "{polls} polls for {JOBS} jobs");
}
