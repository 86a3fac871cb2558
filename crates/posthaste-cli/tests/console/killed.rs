//! A console that is killed while it executes an action.

use posthaste_testkit::{Sql as _, eventually, number};

use super::{client, console};
use crate::stage::{self, BOUND, Stage};

const CANCELLED: &str = "SELECT posthaste.enqueue('old') FROM generate_series(1, 5000);
    SELECT count(*) FROM posthaste.cancel_many(ARRAY(SELECT id FROM posthaste.job))";

#[tokio::test(flavor = "multi_thread")]
async fn bulk_actions_of_a_killed_console_are_finished_without_double_counting()
-> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let (observer, holds) = (database.client().await?, database.client().await?);
    for statement in CANCELLED.split(';') {
        observer.run(statement).await?;
    }
    let hold = "BEGIN; SELECT FROM posthaste.dead WHERE id = (
                  SELECT id FROM posthaste.dead ORDER BY died_at, id OFFSET 2500 LIMIT 1
                ) FOR UPDATE";
    holds.run(hold).await?;
    let (mut first, url) = console(&stage, &database, &["--operate"]).await?;
    let begin = client()?
        .post(format!("{url}/bulk"))
        .header("origin", &url)
        .header("content-type", "application/x-www-form-urlencoded");
    let begun = begin.body("do=delete&filter=state%3Acancelled").send();
    assert_eq!(begun.await?.status(), 303);
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                 AND wait_event_type = 'Lock'";
    let is_at_it = async || {
        let some = number(
            &observer,
            "SELECT sum(jobs)::bigint FROM posthaste.bulk_action",
        )
        .await?;
        Ok(some > 0 && number(&observer, waits).await? > 0)
    };
    eventually(BOUND, "it is in the middle of a batch", is_at_it).await?;
    first.kill()?;
    holds.run("ROLLBACK").await?;
    // As if the lease of the action had expired.
    let later = "UPDATE posthaste.bulk_action SET driven_until = now() - interval '1 s'";
    observer.run(later).await?;
    let (mut second, _) = console(&stage, &database, &["--operate"]).await?;
    let ended = "SELECT count(*) FROM posthaste.bulk_action
                  WHERE state = 'finished' AND jobs = 5000";
    eventually(BOUND, "the other ends it", async || {
        Ok(number(&observer, ended).await? == 1)
    })
    .await?;
    assert_eq!(
        number(&observer, "SELECT count(*) FROM posthaste.dead").await?,
        0
    );
    second.terminate()?;
    assert!(second.exit(BOUND).await?.success());
    Ok(())
}
