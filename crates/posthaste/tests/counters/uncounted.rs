//! Jobs that the leader has not counted yet.

use posthaste_testkit::PgVersion;
use tokio_postgres::Client;

use super::account;
use crate::support::{database, jobs};

/// Makes a worker leader that does not exist, so that no leader works.
async fn lead(client: &Client) {
    let sql = "INSERT INTO posthaste.leader (worker, until)
               VALUES (0, clock_timestamp() + interval '1 h')";
    client.batch_execute(sql).await.unwrap();
}

#[tokio::test]
async fn readers_see_the_number_of_uncounted_jobs() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    client
        .batch_execute(
            "SELECT posthaste.enqueue('n' || i % 3, queue => 'q' || i % 2, priority => i % 5)
               FROM generate_series(1, 9000) i;
             SELECT posthaste.enqueue('later', scheduled_at => now() + interval '1 hour')
               FROM generate_series(1, 1000)",
        )
        .await
        .unwrap();
    let mut jobs = jobs(&client);
    assert_eq!(jobs.uncounted(1 << 20).await.unwrap(), 0, "nobody leads");
    lead(&client).await;
    assert_eq!(jobs.uncounted(1 << 20).await.unwrap(), 10_000);
    for most in [0, 1, 999, 9_500] {
        assert_eq!(jobs.uncounted(most).await.unwrap(), most);
    }
    let some = "SELECT posthaste.count_new_jobs(3000, 100, 65536)";
    client.batch_execute(some).await.unwrap();
    let left = jobs.uncounted(1 << 20).await.unwrap();
    assert!((1_000..=7_000).contains(&left), "{left}");
    account(&client).await;
    // Fewer jobs than a step of a lane are not worth a mark.
    let left = jobs.uncounted(1 << 20).await.unwrap();
    assert!(left < 250 * 11, "{left}");
    client
        .batch_execute("SELECT posthaste.enqueue('n') FROM generate_series(1, 5000)")
        .await
        .unwrap();
    let now = jobs.uncounted(1 << 20).await.unwrap();
    assert_eq!(now, left + 5_000);
}

#[tokio::test]
async fn small_counting_budgets_do_not_skip_scheduled_jobs() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    client
        .batch_execute(
            "SELECT posthaste.enqueue('later', scheduled_at => now() + interval '1 hour')
               FROM generate_series(1, 1000)",
        )
        .await
        .unwrap();
    lead(&client).await;
    let less = "SELECT posthaste.count_new_jobs(100, 125, 65536) IS NULL";
    for left in [875, 750] {
        let is_more: bool = client.query_one(less, &[]).await.unwrap().get(0);
        assert!(is_more);
        assert_eq!(jobs(&client).uncounted(1 << 20).await.unwrap(), left);
    }
}

#[tokio::test]
async fn bounded_counts_stop_at_the_limit_and_report_more() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    client
        .batch_execute(
            "SELECT posthaste.enqueue('n') FROM generate_series(1, 5000);
             SELECT posthaste.enqueue('later', scheduled_at => now() + interval '1 hour')
               FROM generate_series(1, 3000)",
        )
        .await
        .unwrap();
    let mut jobs = jobs(&client);
    let mut read = async |most: u32| {
        let counters = jobs.counters_within(most).await.unwrap();
        let waiting = counters.jobs.iter().map(|of| of.available).sum::<i64>();
        let later = counters.jobs.iter().map(|of| of.scheduled).sum::<i64>();
        (waiting, later, counters.is_partial)
    };
    // Also without a leader.
    assert_eq!(read(100).await, (100, 100, true));
    assert_eq!(read(4_000).await, (4_000, 3_000, true));
    assert_eq!(read(10_000).await, (5_000, 3_000, false));
    account(&client).await;
    let (waiting, later, _) = read(300).await;
    assert_eq!(
        (waiting, later),
        (5_000, 3_000),
        "what is counted is read whole"
    );
}
