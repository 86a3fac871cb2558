//! Queues that are drained or that keep completed jobs, workers with their jobs, and settings.

use posthaste_console::{Access, Role, Settings};
use posthaste_testkit::{Sql as _, TestResult, eventually};
use reqwest::StatusCode;

use crate::support::{SOON, connected, console, console_with, database, enqueue};

#[tokio::test]
async fn completed_jobs_are_retained_for_the_configured_time() {
    let database = database().await;
    let client = database.client().await.unwrap();
    enqueue(&client, "mail.send", "mail", "{}").await;
    let console = console(&database).await;
    let kept = async || {
        let sql = "SELECT extract(epoch FROM keep)::int FROM posthaste.queue WHERE name = 'mail'";
        let row = client.query_opt(sql, &[]).await.unwrap();
        row.and_then(|row| row.get::<_, Option<i32>>(0))
    };
    let fields = [
        ("queue", "mail"),
        ("keep", "2"),
        ("unit", "86400"),
        ("back", "/queue?queue=mail"),
    ];
    let to = console.act("/queues/keep", &fields).await;
    assert_eq!(to, "/queue?queue=mail#keep.0");
    assert_eq!(kept().await, Some(172_800));
    let page = console.page(&to).await;
    assert!(page.contains("Completed jobs are kept for 2 d."), "{page}");
    assert!(
        page.contains("<option value=\"86400\" selected>days"),
        "{page}"
    );
    let none = [("queue", "mail"), ("keep", "")];
    assert_eq!(console.act("/queues/keep", &none).await, "/#forget.0");
    assert_eq!(kept().await, None);
    let answer = console
        .post("/queues/keep", &[("queue", "mail"), ("keep", "long")])
        .await;
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn no_action_creates_a_queue_of_a_misspelled_name() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let console = console(&database).await;
    for path in ["pause", "resume", "limit", "keep", "drain"] {
        let fields = [("queue", "nosuchqueue"), ("rate", "1"), ("keep", "1")];
        let answer = console.post(&format!("/queues/{path}"), &fields).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
    }
    let sql = "SELECT count(*) FROM posthaste.queue";
    let rows: i64 = client.one(sql).await.unwrap();
    assert_eq!(rows, 0);
}

#[tokio::test]
async fn queues_are_drained_once_their_running_jobs_end() -> TestResult {
    let (database, client) = connected().await?;
    enqueue(&client, "slow", "mail", "{}").await;
    let (release, released) = tokio::sync::watch::channel(false);
    let worker = posthaste::Worker::builder(database.pool(4)?)
        .queue("mail", 1)
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
    eventually(SOON, "the worker has one job in its hands", async || {
        let page = console.page("/workers").await;
        Ok(page.contains("mail") && page.contains(">1</a></td>"))
    })
    .await?;
    let to = console.act("/queues/drain", &[("queue", "mail")]).await;
    assert_eq!(to, "/queues/drain?queue=mail#pause.0");
    enqueue(&client, "next", "mail", "{}").await;
    let one = "<span data-cell=\"queue.mail.running\">1</span>";
    eventually(SOON, "it is paused, and one job still runs", async || {
        let page = console.page(&to).await;
        Ok(page.contains("Paused since") && page.contains(one) && page.contains("At 0 deploy"))
    })
    .await?;
    release.send(true).unwrap();
    eventually(SOON, "nothing runs, and the next job waits", async || {
        let page = console.page(&to).await;
        Ok(page.contains("Deploy now, then resume it.") && page.contains("1 job waits"))
    })
    .await?;
    worker.stop().await?;
    eventually(SOON, "the worker has ended in good order", async || {
        let page = console.page("/workers").await;
        Ok(page.contains("No worker is running.") && page.contains("state idle\">stopped"))
    })
    .await?;
    let resume = [("queue", "mail"), ("back", "/queues")];
    console.act("/queues/resume", &resume).await;
    let page = console.page("/queues/drain?queue=mail").await;
    assert!(page.contains("It is active:"), "{page}");
    Ok(())
}

#[tokio::test]
async fn settings_show_versions_and_limits_but_no_secrets() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let limited =
        "SELECT posthaste.limit_rate('mail', 90, '1 minute'), posthaste.keep('mail', '24h')";
    client.query(limited, &[]).await.unwrap();
    let settings = Settings {
        access: Access::Token("a long secret".to_owned()),
        role: Role::Operator,
        redacted: vec!["pin".to_owned()],
        ..Settings::default()
    };
    let console = console_with(&database, settings).await;
    let request = console.http.get(format!("{}/settings", console.base));
    let answer = request.bearer_auth("a long secret").send().await.unwrap();
    let page = answer.text().await.unwrap();
    for part in [
        "holders of the token",
        "Operator",
        "<dd>pin</dd>",
        env!("CARGO_PKG_VERSION"),
        "functions",
        "at most 90 a minute",
        "<td>24 h</td>",
        "none: the oldest segment is truncated in time",
    ] {
        assert!(page.contains(part), "no {part} in {page}");
    }
    assert!(!page.contains("a long secret") && !page.contains("password="));
}

#[tokio::test]
async fn a_job_page_shows_its_neighbours_in_order() -> TestResult {
    let (database, client) = connected().await?;
    let sql = "SELECT posthaste.enqueue( \
                   'step ' || g, queue => 'mail', ordering_key => 'account 7' \
               ) \
               FROM generate_series(1, 14) g";
    let ids: Vec<i64> = client.rows(sql).await?;
    let console = console(&database).await;
    // A leader gives the jobs their turns; no worker serves their queue.
    let worker = posthaste::Worker::builder(database.pool(4)?)
        .queue("nothing", 1)
        .handler("*", |_, _| async { Ok(posthaste::Outcome::Done) })
        .start()
        .await?;
    let first = format!("/jobs/{}", ids[0]);
    eventually(SOON, "all have their turns", async || {
        let page = console.page(&first).await;
        Ok(page.contains("Jobs after it") && page.contains("3 more."))
    })
    .await?;
    let page = console.page(&first).await;
    assert!(
        page.contains("step 2<") && page.contains("step 11<"),
        "{page}"
    );
    assert!(!page.contains("step 12<"), "{page}");
    let last = console.page(&format!("/jobs/{}", ids[13])).await;
    assert!(last.contains("No jobs are waiting after it."), "{last}");
    assert!(last.contains("12 jobs wait before it."), "{last}");
    worker.stop().await?;
    Ok(())
}
