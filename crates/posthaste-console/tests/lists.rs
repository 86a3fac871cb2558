//! Lists of jobs: their content, their pages, and their limits.

use std::collections::BTreeSet;

use posthaste::Worker;
use posthaste_testkit::{Sql as _, TestResult, eventually};
use reqwest::StatusCode;
use tokio_postgres::Client;

use crate::support::{Console, SOON, connected, console, database, enqueue, given_up};
use crate::{bulk, schedules};

/// Returns the ids of the jobs on a page.
fn numbers(page: &str) -> Vec<i64> {
    let boxes = page.split("name=\"id\" value=\"").skip(1);
    boxes
        .map(|rest| rest.split('"').next().unwrap().parse().unwrap())
        .collect()
}

/// Returns the address of the next page.
fn next(page: &str) -> Option<String> {
    let rest = page.split("rel=\"next\" href=\"").nth(1)?;
    let address = rest.split('"').next()?;
    Some(address.replace("&#38;", "&").replace("&amp;", "&"))
}

/// Follows a list to its end, and returns all ids, none of which may appear twice.
pub async fn all(console: &Console, first: &str) -> BTreeSet<i64> {
    let mut found = BTreeSet::new();
    let mut address = Some(first.to_owned());
    while let Some(path) = address {
        let page = console.page(&path).await;
        for id in numbers(&page) {
            assert!(found.insert(id), "job {id} came twice");
        }
        address = next(&page);
    }
    found
}

async fn many(client: &Client, queue: &str, jobs: i32) -> BTreeSet<i64> {
    let sql = "INSERT INTO posthaste.job (name, queue, tag) \
               SELECT 'job.' || g % 2, $1, 'tag ' || g % 3 \
               FROM generate_series(1, $2) g RETURNING id";
    let ids = client.rows_with(sql, &[&queue, &jobs]).await.unwrap();
    ids.into_iter().collect()
}

#[tokio::test]
async fn cursors_visit_each_job_once() -> TestResult {
    let (database, client) = connected().await?;
    let mut jobs = many(&client, "mail", 120).await;
    let sql = "INSERT INTO posthaste.job (name, queue, scheduled_at) \
               SELECT 'later', 'mail', now() + interval '1 day' \
               FROM generate_series(1, 30) RETURNING id";
    jobs.extend(
        client
            .query(sql, &[])
            .await?
            .iter()
            .map(|row| row.get::<_, i64>(0)),
    );
    let console = console(&database).await;
    assert_eq!(all(&console, "/jobs?limit=17").await, jobs);
    let some = all(&console, "/jobs?limit=17&filter=state:scheduled").await;
    assert_eq!(some.len(), 30);
    let some = all(&console, "/jobs?limit=17&filter=name:job.1+queue:mail").await;
    assert_eq!(some.len(), 60);
    let some = all(&console, "/jobs?filter=tag:%22tag+1%22").await;
    assert_eq!(some.len(), 40);
    assert_eq!(all(&console, "/jobs?filter=queue:other").await.len(), 0);
    Ok(())
}

#[tokio::test]
async fn failed_jobs_are_listed_by_state_and_error_across_pages() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let mut dead = BTreeSet::new();
    for n in 0..23 {
        dead.insert(
            given_up(
                &client,
                "dead",
                "mail.send",
                &format!("50%_{} refused", n % 2),
            )
            .await,
        );
    }
    let expired = given_up(&client, "expired", "mail.send", "").await;
    let console = console(&database).await;
    assert_eq!(all(&console, "/dead?limit=5").await, dead);
    assert_eq!(
        all(&console, "/dead?filter=state:expired").await,
        [expired].into()
    );
    assert_eq!(
        all(&console, "/dead?filter=error:50%25_1&limit=3")
            .await
            .len(),
        11
    );
    assert_eq!(all(&console, "/dead?filter=error:50x_1").await.len(), 0);
    assert_eq!(
        all(&console, "/jobs").await.len(),
        0,
        "they have a page of their own"
    );
    let page = console.page("/dead?filter=state:running").await;
    assert!(page.contains("The filter is invalid"), "{page}");
}

/// Inserts as many claims of completed jobs as a busy segment has.
const FINISHED: &str = "
    INSERT INTO posthaste.claim_0 (batch, worker, queue, priority, token, lo, hi, from_xid, from_id,
                                   to_xid, to_id, n, exhausted)
    SELECT nextval('posthaste.batch_id'), 1, 'done', 0, gen_random_uuid(), '1:1:', '1:1:', '0', 0,
           '0', 0, 1, true
      FROM generate_series(1, 300000);
    INSERT INTO posthaste.batch_done_0 SELECT batch, 1 FROM posthaste.claim_0";

#[tokio::test]
async fn running_jobs_are_listed_beside_300_000_finished_attempts() -> TestResult {
    let (database, client) = connected().await?;
    client.run(FINISHED).await?;
    let mut ids = BTreeSet::new();
    for _ in 0..8 {
        ids.insert(enqueue(&client, "slow", "mail", "{}").await);
    }
    let (release, released) = tokio::sync::watch::channel(false);
    let worker = posthaste::Worker::builder(database.pool(4)?)
        .queue("mail", 8)
        .handler("*", move |_, _| {
            let mut released = released.clone();
            async move {
                released.wait_for(|over| *over).await?;
                Ok(posthaste::Outcome::Done)
            }
        })
        .start()
        .await?;
    let console = console(&database).await;
    eventually(SOON, "all eight are listed as running", async || {
        let page = console.page("/jobs?filter=state:running").await;
        let listed: BTreeSet<i64> = numbers(&page).into_iter().collect();
        Ok(listed == ids && page.contains("the newest 20,000 claims"))
    })
    .await?;
    let page = console.page("/jobs").await;
    assert_eq!(numbers(&page).len(), 8, "{page}");
    for path in [
        "/jobs?filter=error:x",
        "/jobs?filter=queue:mail",
        "/workers",
        "/sync",
    ] {
        let page = console.page(path).await;
        assert!(!page.contains("longer than two seconds"), "{path}: {page}");
    }
    release.send(true).unwrap();
    worker.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_running_job_is_listed_as_running() -> TestResult {
    let (database, client) = connected().await?;
    let id = enqueue(&client, "slow", "default", "{}").await;
    let (release, released) = tokio::sync::watch::channel(false);
    let worker = posthaste::Worker::builder(database.pool(4)?)
        .queue("default", 1)
        .handler("*", move |_, _| {
            let mut released = released.clone();
            async move {
                released.wait_for(|over| *over).await?;
                Ok(posthaste::Outcome::Done)
            }
        })
        .start()
        .await?;
    let console = console(&database).await;
    eventually(SOON, "the job is listed as running", async || {
        let page = console.page("/jobs?filter=state:running").await;
        Ok(numbers(&page) == [id] && page.contains("state running"))
    })
    .await?;
    let overview = console.page("/").await;
    assert!(
        overview.contains("id=\"workers\"") && overview.contains("default"),
        "{overview}"
    );
    release.send(true).unwrap();
    worker.stop().await?;
    Ok(())
}

#[tokio::test]
async fn limits_are_clamped_and_bad_cursors_rejected() {
    let database = database().await;
    let client = database.client().await.unwrap();
    many(&client, "mail", 230).await;
    let console = console(&database).await;
    let most = console.page("/jobs?limit=99999999999").await;
    assert_eq!(numbers(&most).len(), 200);
    assert_eq!(numbers(&console.page("/jobs?limit=0").await).len(), 1);
    assert_eq!(numbers(&console.page("/jobs").await).len(), 50);
    for path in [
        "/jobs?limit=x",
        "/jobs?at=x",
        "/jobs?at=slot0-1.-1",
        "/dead?at=dead-1",
    ] {
        assert_eq!(
            console.get(path).await.status(),
            StatusCode::BAD_REQUEST,
            "{path}"
        );
    }
    let page = console.page("/jobs?filter=before:11:30").await;
    assert!(page.contains("before is not a condition"), "{page}");
    let page = console.page("/jobs?filter=since:noon").await;
    assert!(page.contains("since:noon is not a time"), "{page}");
    for most in ["0", "99999999", "x"] {
        let path = format!("/bulk?do=redrive&at_most={most}");
        let status = console.get(&path).await.status();
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}");
    }
}

#[tokio::test]
async fn since_filters_exclude_jobs_enqueued_or_ended_earlier() -> TestResult {
    let (database, client) = connected().await?;
    let old = enqueue(&client, "old", "mail", "{}").await;
    let later = "SELECT posthaste.enqueue('later', scheduled_at => now() + interval '1 day')";
    let later: i64 = client.one(later).await?;
    let given_up_job = given_up(&client, "dead", "old", "").await;
    client
        .run("UPDATE posthaste.dead SET died_at = now() - interval '2 hours'")
        .await?;
    let fresh = given_up(&client, "dead", "fresh", "").await;
    let console = console(&database).await;
    let both: BTreeSet<i64> = [old, later].into();
    assert_eq!(all(&console, "/jobs?filter=since:1h").await, both);
    assert_eq!(all(&console, "/jobs?filter=since:0s").await.len(), 0);
    assert_eq!(
        all(&console, "/scheduled?filter=since:1h").await,
        [later].into()
    );
    assert_eq!(all(&console, "/scheduled?filter=since:0s").await.len(), 0);
    assert_eq!(all(&console, "/dead?filter=since:1h").await, [fresh].into());
    let all_given_up: BTreeSet<i64> = [given_up_job, fresh].into();
    assert_eq!(all(&console, "/dead?filter=since:3h").await, all_given_up);
    Ok(())
}

#[tokio::test]
async fn lists_and_actions_accept_name_prefixes_and_end_times() {
    let database = database().await;
    let client = database.client().await.unwrap();
    for name in ["mail.send", "mail.bounce", "mail*", "mai_.x", "order"] {
        enqueue(&client, name, "mail", "{}").await;
        given_up(&client, "dead", name, "refused").await;
        schedules::later(&client, name, 60).await;
    }
    let console = console(&database).await;
    for (path, rows) in [
        ("/jobs?filter=name:mail*", 6),
        ("/jobs?filter=name:%22mail*%22", 2),
        ("/jobs?filter=name:mai_*", 2),
        ("/jobs?filter=queue:ma*+name:order", 2),
        ("/scheduled?filter=mail.*", 2),
        ("/dead?filter=name:mail.*", 2),
        ("/jobs?filter=until:1h", 0),
        ("/dead?filter=until:1h", 0),
        ("/dead?filter=since:1h+until:2099-01-01", 5),
    ] {
        let page = console.page(path).await;
        assert_eq!(
            page.matches("<tr data-row>").count(),
            rows,
            "{path}: {page}"
        );
    }
    let page = console
        .page("/bulk?do=cancel&filter=name:%22mail*%22")
        .await;
    assert!(page.contains("<strong>2 jobs</strong>"), "{page}");
    let all = [("do", "redrive"), ("filter", "state:dead name:mail.*")];
    let path = console.act("/bulk", &all).await;
    bulk::ended(&console, &path, "finished").await;
    let left = "SELECT count(*) FROM posthaste.dead";
    let left: i64 = client.one(left).await.unwrap();
    assert_eq!(left, 3);
}

#[tokio::test]
async fn kept_completed_jobs_are_listed_without_actions() -> TestResult {
    let (database, client) = connected().await?;
    let keep = "SELECT posthaste.keep('mail', '1 day')";
    client.run(keep).await?;
    for name in ["mail.send", "mail.send", "mail.bounce"] {
        enqueue(&client, name, "mail", "{}").await;
    }
    let worker = Worker::builder(database.pool(4)?)
        .queue("mail", 1)
        .handler("*", |_, _| async { Ok(posthaste::Outcome::Done) });
    let worker = worker.start().await?;
    let console = console(&database).await;
    let lists = async |path: &str| {
        let page = console.page(path).await;
        (page.matches("<tr data-row>").count(), page)
    };
    eventually(SOON, "all are completed", async || {
        Ok(lists("/jobs?filter=state:completed").await.0 == 3)
    })
    .await?;
    worker.stop().await?;
    let (rows, page) = lists("/jobs?filter=state:completed+name:mail.s*&limit=1").await;
    assert!(rows == 1 && page.contains("next page"), "{page}");
    assert!(
        !page.contains("data-key=\"c\"") && !page.contains("name=\"id\""),
        "{page}"
    );
    assert_eq!(lists(&next(&page).unwrap()).await.0, 1);
    let (rows, page) = lists("/jobs?filter=state:completed+queue:other").await;
    assert!(
        rows == 0 && page.contains("posthaste queues keep"),
        "{page}"
    );
    Ok(())
}
