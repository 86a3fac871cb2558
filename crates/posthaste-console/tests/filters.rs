//! Filters by priority, ordering key and worker, in lists of every place and in actions.

use std::collections::BTreeSet;

use posthaste::{Outcome, Worker};
use posthaste_testkit::{Sql as _, TestResult, eventually};
use reqwest::StatusCode;
use tokio_postgres::Client;

use crate::bulk;
use crate::lists::all;
use crate::support::{Console, SOON, connected, console, database, enqueue, given_up, state};

/// Jobs with priorities and keys in every place of jobs that no worker runs.
const JOBS: &str = "
    INSERT INTO posthaste.job (name, queue, priority, ordering_key, scheduled_at) VALUES
      ('now', 'mail', 5, NULL, now()),
      ('first', 'mail', 0, 'customer-7', now()), ('second', 'mail', 0, 'customer-7', now()),
      ('later', 'mail', 5, NULL, now() + interval '1 day'),
      ('later', 'mail', 0, 'customer-70', now() + interval '1 day')";

async fn dead(client: &Client, column: &str) -> i64 {
    let id = given_up(client, "dead", "mail.send", "refused").await;
    let sql = format!("UPDATE posthaste.dead SET {column} WHERE id = $1");
    client.execute(&sql, &[&id]).await.unwrap();
    id
}

/// Returns the states of waiting jobs that match.
async fn states(client: &Client, filter: &str) -> Vec<String> {
    let sql = format!(
        "SELECT state FROM posthaste.job
          WHERE {filter} AND state IN ('available', 'scheduled') ORDER BY id"
    );
    client.rows(&sql).await.unwrap()
}

async fn act(console: &Console, kind: &str, filter: &str) {
    let path = console
        .act("/bulk", &[("do", kind), ("filter", filter)])
        .await;
    bulk::ended(console, &path, "finished").await;
}

#[tokio::test]
async fn waiting_and_dead_jobs_are_listed_and_acted_on_by_priority_and_key() {
    let database = database().await;
    let client = database.client().await.unwrap();
    client.run(JOBS).await.unwrap();
    let urgent = dead(&client, "priority = 5").await;
    let keyed = dead(&client, "ordering_key = 'customer-7'").await;
    let other = dead(&client, "priority = 4").await;
    let console = console(&database).await;
    for (path, jobs) in [
        ("/jobs?filter=priority:5", 2),
        ("/jobs?filter=priority:-1", 0),
        ("/scheduled?filter=priority:5", 1),
        ("/jobs?filter=key:customer-7", 2),
        ("/jobs?filter=key:customer-7*", 3),
        ("/scheduled?filter=key:customer-7*", 1),
        ("/dead?filter=priority:5", 1),
        ("/dead?filter=key:customer-7", 1),
        ("/jobs?filter=worker:1", 0),
        ("/scheduled?filter=worker:1", 0),
        ("/dead?filter=worker:1", 0),
    ] {
        assert_eq!(all(&console, path).await.len(), jobs, "{path}");
    }
    let page = console.page("/jobs?filter=priority:5").await;
    assert!(page.contains("Cancel all 2 that match"), "{page}");
    let page = console
        .page("/bulk?do=redrive&filter=state:dead+key:customer-7")
        .await;
    assert!(page.contains("<strong>1 job</strong>"), "{page}");
    let answer = console.get("/bulk?do=cancel&filter=worker:1").await;
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);

    act(&console, "retry", "state:scheduled priority:5").await;
    assert_eq!(
        states(&client, "priority = 5").await,
        ["available", "available"]
    );
    act(&console, "cancel", "key:customer-7").await;
    assert_eq!(
        states(&client, "ordering_key = 'customer-7'").await.len(),
        0
    );
    assert_eq!(
        states(&client, "ordering_key = 'customer-70'").await,
        ["scheduled"]
    );
    act(&console, "redrive", "state:dead priority:5").await;
    act(&console, "delete", "state:dead key:customer-7").await;
    assert_eq!(state(&client, urgent).await, "available");
    assert_eq!(state(&client, other).await, "dead");
    let gone = console.get(&format!("/jobs/{keyed}")).await;
    assert_eq!(gone.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn running_and_completed_jobs_are_listed_by_their_worker() -> TestResult {
    let (database, client) = connected().await?;
    let (release, released) = tokio::sync::watch::channel(false);
    let start = async |queue: &'static str| {
        let keep = "SELECT posthaste.keep($1, '1 day')";
        client.execute(keep, &[&queue]).await.unwrap();
        let released = released.clone();
        let worker = Worker::builder(database.pool(4).unwrap()).queue(queue, 2);
        let worker = worker.handler("*", move |_, _| {
            let mut released = released.clone();
            async move {
                released.wait_for(|over| *over).await?;
                Ok(Outcome::Done)
            }
        });
        worker.start().await.unwrap()
    };
    let workers = [start("mail").await, start("sms").await];
    let mut jobs = BTreeSet::new();
    for _ in 0..2 {
        jobs.insert(enqueue(&client, "slow", "mail", "{}").await);
        enqueue(&client, "slow", "sms", "{}").await;
    }
    let console = console(&database).await;
    eventually(SOON, "all run", async || {
        Ok(all(&console, "/jobs?filter=state:running").await.len() == 4)
    })
    .await?;
    let sql = "SELECT worker FROM posthaste.find($1)";
    let row = client.query_one(sql, &[&jobs.first()]).await?;
    let worker: i64 = row.get(0);
    let running = format!("/jobs?filter=state%3Arunning+worker%3A{worker}");
    assert_eq!(all(&console, &running).await, jobs);
    let page = console.page("/workers").await;
    let link = format!("href=\"/jobs?filter=state%3Arunning+worker%3A{worker}\">2</a>");
    assert!(page.contains(&link), "{page}");
    let page = console.page(&running).await;
    assert!(
        !page.contains("that match"),
        "no counter knows them: {page}"
    );
    release.send(true).unwrap();
    let completed = async |filter: &str| {
        let path = format!("/jobs?filter=state:completed+{filter}");
        console.page(&path).await.matches("<tr data-row>").count()
    };
    eventually(SOON, "all are completed", async || {
        Ok(completed("").await == 4)
    })
    .await?;
    assert_eq!(completed(&format!("worker:{worker}")).await, 2);
    assert_eq!(completed("worker:0").await, 0);
    assert_eq!(completed("priority:0").await, 4);
    assert_eq!(completed("priority:1").await, 0);
    assert_eq!(completed("key:a").await, 0);
    for worker in workers {
        worker.stop().await?;
    }
    Ok(())
}
