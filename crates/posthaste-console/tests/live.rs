//! Figures that change while a page is open.

use posthaste_testkit::{Sql as _, eventually};
use reqwest::Response;

use crate::support::{self, SOON, console, database, enqueue};

/// Reads a stream until it contains a text.
async fn until(stream: &mut Response, received: &mut String, text: &str) {
    let reads = async {
        while !received.contains(text) {
            let chunk = stream.chunk().await.unwrap().expect("the stream goes on");
            received.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    };
    let within = tokio::time::timeout(SOON, reads).await;
    assert!(within.is_ok(), "no {text} in {received}");
}

#[tokio::test]
async fn changed_figures_are_pushed_to_open_pages() {
    let database = database().await;
    let client = database.client().await.unwrap();
    enqueue(&client, "mail.send", "mail", "{}").await;
    let console = console(&database).await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        let stream = console.get("/events").await;
        assert_eq!(stream.headers()["content-type"], "text/event-stream");
        streams.push((stream, String::new()));
    }
    for (stream, received) in &mut streams {
        until(stream, received, r#"["queue.mail.available","1",""]"#).await;
    }
    enqueue(&client, "mail.send", "mail", "{}").await;
    for (stream, received) in &mut streams {
        until(stream, received, r#"["queue.mail.available","2",""]"#).await;
        let (_, later) = received.split_once("queue.mail.available").unwrap();
        assert!(!later.contains("queue.mail.scheduled\",\"0\",\"zero\"],[\"queue.mail.scheduled"));
        assert_eq!(
            received.matches("[\"queue.mail.retrying\"").count(),
            1,
            "{received}"
        );
    }
}

#[tokio::test]
async fn open_pages_show_database_outages() {
    let server = posthaste_testkit::PgServer::start(posthaste_testkit::PgVersion::any(), &[]);
    let server = server.unwrap();
    let database = crate::support::migrated(&server).await;
    let console = console(&database).await;
    let mut stream = console.get("/events").await;
    let mut received = String::new();
    until(&mut stream, &mut received, "event: cells").await;
    server.stop_fast().unwrap();
    until(
        &mut stream,
        &mut received,
        "event: fault\ndata: \"No figures since ",
    )
    .await;
    assert_eq!(console.get("/").await.status(), 503);
    server.restart().unwrap();
    until(&mut stream, &mut received, "event: fault\ndata: \"\"").await;
    eventually(SOON, "the page is there again", async || {
        Ok(console.get("/").await.status() == 200)
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn one_database_read_serves_all_viewers() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let console = console(&database).await;
    let requests = tokio::task::JoinSet::from_iter((0..40).map(|n| {
        let path = if n % 2 == 0 { "/" } else { "/queues" };
        let request = console.http.get(format!("{}{path}", console.base));
        async move { request.send().await.unwrap().text().await.unwrap() }
    }));
    let pages = requests.join_all().await;
    let as_of = |page: &String| {
        let rest = page.split("counts as of ").nth(1).unwrap();
        rest.split('<').next().unwrap().to_owned()
    };
    let mut seen: Vec<String> = pages.iter().map(as_of).collect();
    seen.sort();
    seen.dedup();
    assert!(seen.len() <= 2, "{seen:?}");
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
               AND pid <> pg_backend_pid()";
    let sessions: i64 = client.one(sql).await.unwrap();
    assert!(sessions <= 4, "{sessions} sessions");
}

#[tokio::test]
async fn figures_do_not_wait_for_uncounted_jobs() {
    let database = database().await;
    let client = database.client().await.unwrap();
    support::lead(&client).await;
    let many = "INSERT INTO posthaste.job (name, queue)
                SELECT 'n', 'archive' FROM generate_series(1, 50000)";
    client.run(many).await.unwrap();
    let console = console(&database).await;
    let page = console.page("/").await;
    assert!(page.contains("archive"), "{page}");
}
