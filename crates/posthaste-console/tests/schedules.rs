//! Jobs that are due later, and periodic jobs.

use posthaste_testkit::{Sql as _, TestDb, TestResult, eventually};
use reqwest::StatusCode;
use tokio_postgres::Client;

use crate::support::{self, SOON, connected, console, database, enqueue, state};

/// Returns the ids of the jobs on a page, in their order.
fn numbers(page: &str) -> Vec<i64> {
    let boxes = page.split("name=\"id\" value=\"").skip(1);
    boxes
        .map(|rest| rest.split('"').next().unwrap().parse().unwrap())
        .collect()
}

/// Enqueues a job that is due this many minutes from now.
pub async fn later(client: &Client, name: &str, minutes: i32) -> i64 {
    let sql = "SELECT posthaste.enqueue($1, queue => 'mail', \
               scheduled_at => now() + make_interval(mins => $2))";
    client.one_with(sql, &[&name, &minutes]).await.unwrap()
}

#[tokio::test]
async fn scheduled_jobs_are_listed_by_time_across_pages() {
    let database = database().await;
    let client = database.client().await.unwrap();
    enqueue(&client, "now", "mail", "{}").await;
    let mut jobs = Vec::new();
    for (name, minutes) in [("c", 30), ("a", 10), ("d", 40), ("b", 20)] {
        jobs.push((minutes, later(&client, name, minutes).await));
    }
    jobs.sort_unstable();
    let by_time: Vec<i64> = jobs.iter().map(|(_, id)| *id).collect();
    let console = console(&database).await;
    let page = console.page("/scheduled").await;
    assert_eq!(numbers(&page), by_time);
    assert!(
        page.contains("in 10 min") && page.contains(">Due</th>"),
        "{page}"
    );
    let first = console.page("/scheduled?limit=3").await;
    assert_eq!(numbers(&first), by_time[..3]);
    let next = first.split("rel=\"next\" href=\"").nth(1).unwrap();
    let next = next.split('"').next().unwrap().replace("&#38;", "&");
    assert_eq!(numbers(&console.page(&next).await), by_time[3..]);
    let only = console.page("/scheduled?filter=name:c").await;
    assert_eq!(numbers(&only), [by_time[2]]);
    let none = console.page("/scheduled?filter=state:retrying").await;
    assert_eq!(numbers(&none), Vec::<i64>::new());
    let other = console.page("/scheduled?filter=state:running").await;
    assert!(other.contains("The filter is invalid"), "{other}");
    assert_eq!(
        console.get("/scheduled?at=due-x").await.status(),
        StatusCode::BAD_REQUEST
    );
}

#[tokio::test]
async fn scheduled_jobs_can_be_run_now_or_cancelled() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let now = later(&client, "now", 10).await;
    let never = later(&client, "never", 20).await;
    let stays = later(&client, "stays", 30).await;
    let console = console(&database).await;
    let field = now.to_string();
    let fields = [("id", field.as_str()), ("back", "/scheduled")];
    let to = console.act("/jobs/retry", &fields).await;
    assert_eq!(to, "/scheduled#retry.1");
    assert_eq!(state(&client, now).await, "available");
    let field = never.to_string();
    console.act("/jobs/cancel", &[("id", field.as_str())]).await;
    assert_eq!(state(&client, never).await, "cancelled");
    assert_eq!(numbers(&console.page("/scheduled").await), [stays]);
}

/// Inserts a periodic job with this next time.
pub async fn put(client: &Client, name: &str, next_at: &str) {
    let sql = "INSERT INTO posthaste.periodic \
                   (name, schedule, time_zone, job, kwargs, queue, next_at) \
               VALUES ($1, '30 3 1 1 *', 'Europe/Berlin', 'report', \
                       '{\"kind\": \"daily\", \"api_key\": \"s3cr3t\"}', 'reports', \
                       now() + $2::text::interval)";
    client.execute(sql, &[&name, &next_at]).await.unwrap();
}

/// Returns how many jobs it enqueued.
pub async fn jobs_of(client: &Client, database: &TestDb) -> i64 {
    let sql = "SELECT count(*) FROM posthaste.job WHERE name = 'report' AND queue = 'reports'";
    let row = client.query_one(sql, &[]).await;
    row.unwrap_or_else(|error| panic!("{}: {error}", database.name()))
        .get(0)
}

#[tokio::test]
async fn periodic_jobs_are_shown_and_run_once_beside_their_schedule() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let console = console(&database).await;
    let empty = console.page("/periodic").await;
    assert!(empty.contains("No periodic job."), "{empty}");
    put(&client, "nightly & co", "2 hours").await;
    let page = console.page("/periodic").await;
    for part in [
        "nightly &#38; co",
        "30 3 1 1 *",
        "Europe/Berlin",
        "in 2 h",
        "daily",
        "redacted",
        "state up\">on",
        "Switch off",
    ] {
        assert!(page.contains(part), "no {part} in {page}");
    }
    assert!(!page.contains("s3cr3t"), "{page}");
    let fields = [("name", "nightly & co"), ("back", "/periodic")];
    let to = console.act("/periodic/run", &fields).await;
    assert_eq!(to, "/periodic#run.1");
    assert!(console.page(&to).await.contains("enqueued once"));
    assert_eq!(jobs_of(&client, &database).await, 1);
    let next = "SELECT next_at > now() + interval '1 hour' FROM posthaste.periodic";
    assert!(client.query_one(next, &[]).await.unwrap().get::<_, bool>(0));
    let to = console.act("/periodic/run", &[("name", "none")]).await;
    assert_eq!(to, "/#run.0");
}

#[tokio::test]
async fn unreadable_periodic_jobs_are_shown_with_the_reason() {
    let database = database().await;
    let client = database.client().await.unwrap();
    put(&client, "nightly", "2 hours").await;
    let fail = "SELECT posthaste.fail_ticks('{nightly}', '{30 3 1 1 *}', '{Europe/Berlin}', \
                '{no time zone is named \"Europe/Berlin\"}')";
    let fail = fail.replace("\"Europe/Berlin\"", "<Europe/Berlin>");
    client.run(&fail).await.unwrap();
    let page = console(&database).await.page("/periodic").await;
    let shown = "invalid: no time zone is named &#60;Europe/Berlin&#62;";
    assert!(page.contains(shown), "{page}");
}

#[tokio::test]
async fn disabled_periodic_jobs_enqueue_nothing_until_enabled() -> TestResult {
    let (database, client) = connected().await?;
    put(&client, "off", "-1 minute").await;
    let console = console(&database).await;
    let fields = [("name", "off"), ("back", "/periodic")];
    let to = console.act("/periodic/off", &fields).await;
    assert_eq!(to, "/periodic#off.1");
    let page = console.page(&to).await;
    assert!(
        page.contains("The periodic job is off:") && page.contains("Switch on"),
        "{page}"
    );
    // Another periodic job is due too, so that its job shows that the leader has checked. A program
    // declares the first one again.
    let other = "INSERT INTO posthaste.periodic (name, schedule, job, next_at) \
                 VALUES ('other', '* * * * *', 'other', now() - interval '1 minute')";
    client.run(other).await?;
    let report = posthaste::NewJob::new("report", &serde_json::json!({}))?;
    let periodic = posthaste::Periodic::new("off", "30 3 1 1 *", report).unwrap();
    let periodic = periodic.time_zone("Europe/Berlin").unwrap();
    let worker = posthaste::Worker::builder(database.pool(4)?)
        .queue("nothing", 1)
        .handler("*", |_, _| async { Ok(posthaste::Outcome::Done) })
        .periodic(periodic)
        .start()
        .await?;
    eventually(SOON, "the other one has come", async || {
        let sql = "SELECT count(*) FROM posthaste.job WHERE name = 'other'";
        Ok(client.one::<i64>(sql).await? > 0)
    })
    .await?;
    assert_eq!(jobs_of(&client, &database).await, 0);
    let to = console.act("/periodic/on", &fields).await;
    assert_eq!(to, "/periodic#on.1");
    eventually(SOON, "the leader has found its next time", async || {
        let sql = "SELECT coalesce(next_at BETWEEN now() AND '9998-01-01Z', false) \
                   FROM posthaste.periodic WHERE name = 'off'";
        client.one(sql).await
    })
    .await?;
    assert_eq!(
        jobs_of(&client, &database).await,
        0,
        "the tick that passed is passed"
    );
    worker.stop().await?;
    let to = console.act("/periodic/on", &fields).await;
    assert_eq!(to, "/periodic#on.0", "it is on already");
    Ok(())
}

#[tokio::test]
async fn observers_see_schedules_read_only() {
    let database = database().await;
    let client = database.client().await.unwrap();
    put(&client, "nightly", "2 hours").await;
    later(&client, "later", 10).await;
    let settings = posthaste_console::Settings::default();
    let console = support::console_with(&database, settings).await;
    for path in ["/scheduled", "/periodic"] {
        let page = console.page(path).await;
        assert!(
            page.contains("Observer") && !page.contains("data-key="),
            "{path}: {page}"
        );
    }
    for path in ["/periodic/run", "/periodic/off", "/periodic/on"] {
        let answer = console.post(path, &[("name", "nightly")]).await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{path}");
    }
    assert_eq!(jobs_of(&client, &database).await, 0);
}
