//! The content of the pages.

use posthaste_console::Settings;
use posthaste_testkit::PgVersion;
use posthaste_testkit::{PgServer, Sql as _, TestResult};
use reqwest::StatusCode;

use crate::support::{self, connected, console, database, enqueue, given_up};

#[tokio::test]
async fn empty_stores_show_one_green_verdict_and_the_next_step() {
    let database = database().await;
    let console = console(&database).await;
    let page = console.page("/").await;
    assert!(page.contains("verdict good"), "{page}");
    assert!(page.contains("all jobs are completed") && page.contains("No queue yet."));
    assert!(
        console
            .page("/dead")
            .await
            .contains("posthaste jobs redrive --queue mail")
    );
    assert!(console.page("/jobs").await.contains("No jobs"));
    assert!(console.page("/queues").await.contains("No queue yet."));
}

#[tokio::test]
async fn every_page_names_the_environment() {
    let database = database().await;
    let settings = Settings {
        name: "staging".to_owned(),
        ..support::operator()
    };
    let console = support::console_with(&database, settings).await;
    for path in [
        "/",
        "/queues",
        "/jobs",
        "/workers",
        "/transactions",
        "/settings",
    ] {
        let page = console.page(path).await;
        assert!(page.contains(" · staging · posthaste</title>"), "{path}");
        assert!(page.contains("<p class=\"place\">staging</p>"), "{path}");
    }
}

#[tokio::test]
async fn invalid_filters_select_no_job() {
    let database = database().await;
    let client = database.client().await.unwrap();
    enqueue(&client, "mail.send", "mail", "{}").await;
    let page = console(&database)
        .await
        .page("/jobs?filter=since:never")
        .await;
    assert!(page.contains("The filter is invalid"), "{page}");
    assert!(!page.contains("name=\"id\""), "{page}");
}

#[tokio::test]
async fn the_overview_begins_with_problems_and_their_start() -> TestResult {
    let (database, client) = connected().await?;
    enqueue(&client, "mail.send", "mail", "{}").await;
    enqueue(&client, "report", "reports", "{}").await;
    client.run("SELECT posthaste.pause('reports')").await?;
    given_up(&client, "dead", "old", "refused").await;
    let page = console(&database).await.page("/").await;
    let main = page.split("<main").nth(1).unwrap();
    let verdicts = main.split("<h2>").next().unwrap();
    assert!(
        verdicts.contains("No worker is running: 2 jobs waiting in 2 queues"),
        "{verdicts}"
    );
    assert!(
        !verdicts.contains("queue.no_worker"),
        "one cause, one sentence: {verdicts}"
    );
    assert!(
        verdicts.contains("Queue reports is paused since"),
        "{verdicts}"
    );
    assert!(
        verdicts.contains(
            "Queue mail: 1 job failed permanently in the last hour (1 dead in total): refused"
        ),
        "{verdicts}"
    );
    assert!(!verdicts.contains("verdict good"));
    let (bad, warn) = (verdicts.find("verdict bad"), verdicts.find("verdict warn"));
    assert!(bad < warn, "the worst comes first");
    Ok(())
}

#[tokio::test]
async fn the_overview_names_the_transaction_that_holds_the_horizon() -> TestResult {
    let server = PgServer::start(PgVersion::any(), &[])?;
    let database = support::migrated(&server).await;
    let mut holder = database.client().await?;
    let transaction = holder.transaction().await?;
    transaction.run("CREATE TEMP TABLE held (n int)").await?;
    let row = transaction.one::<i32>("SELECT pg_backend_pid()").await?;
    let pid = format!("session {}", row);
    let console = console(&database).await;
    for path in ["/", "/transactions"] {
        posthaste_testkit::eventually(support::SOON, "the holder is named", async || {
            Ok(console.page(path).await.contains(&pid))
        })
        .await?;
    }
    let page = console.page("/transactions").await;
    for part in [
        "None: claims are not affected",
        "idle in transaction",
        "pg_terminate_backend",
        "posthaste doctor",
    ] {
        assert!(page.contains(part), "no {part} in {page}");
    }
    transaction
        .run("SELECT posthaste.enqueue('a', '{}')")
        .await?;
    for path in ["/", "/transactions"] {
        let page = console.page(path).await;
        let cost = "1 open transaction has enqueued: workers get these jobs after the commit";
        assert!(
            page.contains(cost) && !page.contains("None: claims"),
            "{page}"
        );
    }
    transaction.rollback().await?;
    Ok(())
}

#[tokio::test]
async fn a_job_page_shows_a_timeline_of_attempts_and_errors() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let id = enqueue(&client, "charge.capture", "payments", r#"{"order": 9911}"#).await;
    let sql = "INSERT INTO posthaste.attempt (job, attempt, slot, outcome, queue, name, \
               worker_name, error) VALUES ($1, 1, 0, 'retried', 'payments', 'charge.capture', \
               'worker-3', E'calling the provider\\n  timed out')";
    client.execute(sql, &[&id]).await.unwrap();
    let console = console(&database).await;
    let page = console.page(&format!("/jobs/{id}")).await;
    assert!(page.contains("Attempt 1 failed on worker-3"), "{page}");
    assert!(
        page.contains("<pre>calling the provider\n  timed out</pre>"),
        "{page}"
    );
    assert!(page.contains("&#34;order&#34;: 9911"), "{page}");
    assert!(page.contains(&format!("posthaste jobs cancel {id}")));
    assert_eq!(
        console.get("/jobs/999999").await.status(),
        StatusCode::NOT_FOUND
    );
    assert_eq!(console.get("/jobs/x").await.status(), StatusCode::NOT_FOUND);
    let by_number = console.get(&format!("/jobs?filter={id}")).await;
    assert_eq!(by_number.headers()["location"], format!("/jobs/{id}"));
}

#[tokio::test]
async fn arguments_are_redacted_at_any_depth_and_no_search_finds_them() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let kwargs = r#"{"a": [{"b": {"apiKey": "s3cr3t-one", "n": 1}}], 
                     "PASSWORD": {"x": "s3cr3t-two"},
                     "note": "seen", "pin": "s3cr3t-three"}"#;
    let id = enqueue(&client, "mail.send", "mail", kwargs).await;
    let settings = Settings {
        redacted: vec!["api_key".into(), "password".into(), "PIN".into()],
        ..support::operator()
    };
    let console = support::console_with(&database, settings).await;
    for path in [
        format!("/jobs/{id}"),
        "/jobs".to_owned(),
        "/jobs?filter=text:seen".to_owned(),
    ] {
        let page = console.page(&path).await;
        assert!(
            page.contains("seen") && page.contains("redacted"),
            "{path}: {page}"
        );
        assert!(!page.contains("s3cr3t"), "{path}: {page}");
    }
    assert!(
        console
            .page(&format!("/jobs/{id}"))
            .await
            .contains("3 redacted")
    );
    let page = console.page("/jobs?filter=text:s3cr3t").await;
    assert!(page.contains("No job matches."), "{page}");
}

#[tokio::test]
async fn the_observer_role_can_read_every_page() {
    let database = database().await;
    let mut client = database.client().await.unwrap();
    posthaste::grant_roles(&mut client).await.unwrap();
    let id = enqueue(&client, "mail.send", "mail", "{}").await;
    given_up(&client, "dead", "old", "refused").await;
    let pool = database.pool_as("posthaste_observer", 2).unwrap();
    let console = support::console_of(pool, support::operator()).await;
    let job = format!("/jobs/{id}");
    for path in [
        "/",
        "/queues",
        "/jobs",
        "/scheduled",
        "/periodic",
        "/destinations",
        "/transactions",
        "/sync",
        "/captures",
        "/workers",
        "/settings",
        "/queues/drain?queue=mail",
        "/queue?queue=mail",
        "/dead",
        &job,
        "/bulk?do=redrive&filter=error:x",
    ] {
        let page = console.page(path).await;
        assert!(page.contains("<main"), "{path}");
    }
    let refused = console
        .post("/jobs/cancel", &[("id", &id.to_string())])
        .await;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    let body = refused.text().await.unwrap();
    assert!(
        body.contains("the database role of the console lacks a right"),
        "{body}"
    );
}

#[tokio::test]
async fn databases_without_the_schema_are_not_ready() {
    let server = PgServer::shared(PgVersion::any()).unwrap();
    let database = posthaste_testkit::TestDb::empty(server).await.unwrap();
    let console = console(&database).await;
    let answer = console.get("/").await;
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(answer.text().await.unwrap().contains("posthaste migrate"));
    assert_eq!(
        console.get("/ready").await.status(),
        StatusCode::SERVICE_UNAVAILABLE
    );
    assert_eq!(console.get("/live").await.status(), StatusCode::OK);
}

#[tokio::test]
async fn health_checks_answer_only_at_their_exact_paths() {
    let database = database().await;
    let console = console(&database).await;
    assert_eq!(console.page("/live").await, "live\n");
    assert_eq!(console.page("/ready").await, "ready\n");
    for path in [
        "/live/x", "/live/", "/ready/", "/readyz", "/xlive", "/a/ready", "//live",
    ] {
        assert_eq!(
            console.get(path).await.status(),
            StatusCode::NOT_FOUND,
            "{path}"
        );
    }
}
