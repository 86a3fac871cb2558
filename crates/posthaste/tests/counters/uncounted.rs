//! Jobs that the leader has not counted yet.

use posthaste_testkit::{PgVersion, Sql as _, TestResult};
use tokio_postgres::Client;

use super::account;
use crate::support::{connected, jobs};

/// Makes a worker leader that does not exist, so that no leader works.
async fn lead(client: &Client) {
    let sql = "INSERT INTO posthaste.leader (worker, until)
               VALUES (0, clock_timestamp() + interval '1 h')";
    client.run(sql).await.unwrap();
}

#[tokio::test]
async fn readers_see_the_number_of_uncounted_jobs() -> TestResult {
    let (_db, client) = connected(PgVersion::any()).await?;
    client
        .run(
            "SELECT posthaste.enqueue('n' || i % 3, queue => 'q' || i % 2, priority => i % 5)
               FROM generate_series(1, 9000) i;
             SELECT posthaste.enqueue('later', scheduled_at => now() + interval '1 hour')
               FROM generate_series(1, 1000)",
        )
        .await?;
    let mut jobs = jobs(&client);
    assert_eq!(jobs.uncounted(1 << 20).await?, 0, "nobody leads");
    lead(&client).await;
    assert_eq!(jobs.uncounted(1 << 20).await?, 10_000);
    for most in [0, 1, 999, 9_500] {
        assert_eq!(jobs.uncounted(most).await?, most);
    }
    let some = "SELECT posthaste.count_new_jobs(3000, 100, 65536)";
    client.run(some).await?;
    let left = jobs.uncounted(1 << 20).await?;
    assert!((1_000..=7_000).contains(&left), "{left}");
    account(&client).await;
    // Fewer jobs than a step of a lane are not worth a mark.
    let left = jobs.uncounted(1 << 20).await?;
    assert!(left < 250 * 11, "{left}");
    client
        .run("SELECT posthaste.enqueue('n') FROM generate_series(1, 5000)")
        .await?;
    let now = jobs.uncounted(1 << 20).await?;
    assert_eq!(now, left + 5_000);
    Ok(())
}

#[tokio::test]
async fn small_counting_budgets_do_not_skip_scheduled_jobs() -> TestResult {
    let (_db, client) = connected(PgVersion::any()).await?;
    client
        .run(
            "SELECT posthaste.enqueue('later', scheduled_at => now() + interval '1 hour')
               FROM generate_series(1, 1000)",
        )
        .await?;
    lead(&client).await;
    let less = "SELECT posthaste.count_new_jobs(100, 125, 65536) IS NULL";
    for left in [875, 750] {
        let is_more: bool = client.one(less).await?;
        assert!(is_more);
        assert_eq!(jobs(&client).uncounted(1 << 20).await?, left);
    }
    Ok(())
}

#[tokio::test]
async fn bounded_counts_stop_at_the_limit_and_report_more() -> TestResult {
    let (_db, client) = connected(PgVersion::any()).await?;
    client
        .run(
            "SELECT posthaste.enqueue('n') FROM generate_series(1, 5000);
             SELECT posthaste.enqueue('later', scheduled_at => now() + interval '1 hour')
               FROM generate_series(1, 3000)",
        )
        .await?;
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
    Ok(())
}
