//! Actions: their effect on the database, and their lines in the log.

use std::io::Write;
use std::sync::{Arc, Mutex};

use posthaste_testkit::{Sql as _, TestResult, eventually};
use reqwest::StatusCode;
use tracing_subscriber::fmt::MakeWriter;

use crate::bulk;
use crate::support::{Console, SOON, connected, console, database, enqueue, given_up, state};

#[tokio::test]
async fn a_queue_is_paused_and_resumed() -> TestResult {
    let (database, client) = connected().await?;
    enqueue(&client, "mail.send", "mail & more", "{}").await;
    let console = console(&database).await;
    let fields = [("queue", "mail & more"), ("back", "/queues")];
    let to = console.act("/queues/pause", &fields).await;
    assert_eq!(to, "/queues#pause.0");
    let paused = "SELECT paused_at IS NOT NULL FROM posthaste.queue WHERE name = 'mail & more'";
    assert!(client.query_one(paused, &[]).await?.get::<_, bool>(0));
    let page = console.page(&to).await;
    assert!(
        page.contains("The queue is paused.") && page.contains(">Resume<"),
        "{page}"
    );
    console.act("/queues/resume", &fields).await;
    let rows = client.query(paused, &[]).await?;
    assert!(rows.iter().all(|row| !row.get::<_, bool>(0)));
    Ok(())
}

#[tokio::test]
async fn rate_limits_are_set_changed_and_removed() -> TestResult {
    let (database, client) = connected().await?;
    enqueue(&client, "mail.send", "mail", "{}").await;
    let console = console(&database).await;
    let rate = [
        ("queue", "mail"),
        ("rate", "90"),
        ("per", "60"),
        ("burst", "3"),
    ];
    console.act("/queues/limit", &rate).await;
    let sql =
        "SELECT rate, extract(epoch FROM per)::int, burst FROM posthaste.queue WHERE name = 'mail'";
    let row = client.query_one(sql, &[]).await?;
    assert_eq!(
        (row.get(0), row.get(1), row.get(2)),
        (Some(90), Some(60), Some(3))
    );
    let page = console.page("/queue?queue=mail").await;
    assert!(page.contains("At most 90 a minute, burst 3."), "{page}");
    console
        .act("/queues/limit", &[("queue", "mail"), ("rate", "")])
        .await;
    let rows = client.query(sql, &[]).await?;
    assert!(
        rows.iter()
            .all(|row| row.get::<_, Option<i32>>(0).is_none())
    );
    for (rate, per) in [("many", "1"), ("0", "1"), ("1", "0"), ("1", "99999999999")] {
        let fields = [("queue", "mail"), ("rate", rate), ("per", per)];
        let answer = console.post("/queues/limit", &fields).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{rate} in {per}");
    }
    // A period that is not one of the choices stays selected.
    let tenths = "SELECT posthaste.limit_rate('mail', 90, '10 min')";
    client.run(tenths).await?;
    eventually(SOON, "it is seen", async || {
        let page = console.page("/queue?queue=mail").await;
        Ok(page.contains("<option value=\"600\" selected>every 10 min</option>"))
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn bulk_actions_need_an_unambiguous_filter() {
    let database = database().await;
    let client = database.client().await.unwrap();
    enqueue(&client, "now", "mail", "{}").await;
    let later = "SELECT posthaste.enqueue('later', queue => 'mail', \
                 scheduled_at => now() + interval '1 day')";
    client.run(later).await.unwrap();
    given_up(&client, "dead", "gone", "why").await;
    let console = console(&database).await;
    let all = "that match";
    for (path, offered) in [
        ("/jobs?filter=queue:mail", true),
        ("/scheduled?filter=queue:mail", false),
        ("/scheduled?filter=queue:mail+state:scheduled", true),
        ("/dead?filter=name:gone", true),
        ("/dead?filter=nam:gone", false),
    ] {
        let page = console.page(path).await;
        assert_eq!(page.contains(all), offered, "{path}");
    }
}

#[tokio::test]
async fn selected_jobs_are_cancelled_retried_and_redriven() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let one = enqueue(&client, "mail.send", "mail", "{}").await;
    let two = enqueue(&client, "mail.send", "mail", "{}").await;
    let sql = "SELECT posthaste.enqueue('later', scheduled_at => now() + interval '1 day')";
    let later: i64 = client.one(sql).await.unwrap();
    let dead = given_up(&client, "dead", "mail.send", "refused").await;
    let console = console(&database).await;
    let (one, two) = (one.to_string(), two.to_string());
    let both = [
        ("id", one.as_str()),
        ("id", two.as_str()),
        ("back", "/jobs"),
    ];
    let to = console.act("/jobs/cancel", &both).await;
    assert_eq!(to, "/jobs#cancel.2");
    assert!(console.page(&to).await.contains("2 jobs cancelled"));
    assert_eq!(state(&client, one.parse().unwrap()).await, "cancelled");
    assert_eq!(state(&client, two.parse().unwrap()).await, "cancelled");
    console
        .act("/jobs/retry", &[("id", &later.to_string())])
        .await;
    assert_eq!(state(&client, later).await, "available");
    console
        .act("/jobs/redrive", &[("id", &dead.to_string())])
        .await;
    assert_eq!(state(&client, dead).await, "available");
    for fields in [&[("id", "x")][..], &[][..]] {
        let answer = console.post("/jobs/cancel", fields).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    }
}

/// Returns how many jobs an action by filter did that ends within its request or soon after.
async fn done_at_once(console: &Console, fields: &[(&str, &str)]) -> String {
    let path = console.act("/bulk", fields).await;
    let page = bulk::ended(console, &path, "finished").await;
    bulk::done(&page)
}

#[tokio::test]
async fn matching_jobs_are_redriven_after_a_counted_preview() {
    let database = database().await;
    let client = database.client().await.unwrap();
    for n in 0..7 {
        given_up(
            &client,
            "dead",
            "mail.send",
            if n < 4 { "refused" } else { "other" },
        )
        .await;
    }
    let expired = given_up(&client, "expired", "mail.send", "").await;
    let console = console(&database).await;
    let page = console.page("/bulk?do=redrive&filter=state:dead").await;
    assert!(page.contains("<strong>7 jobs</strong>"), "{page}");
    assert!(
        page.contains("posthaste jobs redrive --state dead --limit 7"),
        "{page}"
    );
    let page = console
        .page("/bulk?do=redrive&filter=state:dead+error:refused")
        .await;
    assert!(page.contains("<strong>4 jobs</strong>"), "{page}");
    let fields = [
        ("do", "redrive"),
        ("filter", "state:dead error:refused"),
        ("at_most", "3"),
    ];
    assert_eq!(done_at_once(&console, &fields).await, "3");
    let count = "SELECT count(*) FROM posthaste.dead WHERE last_error = 'refused'";
    assert_eq!(
        client.query_one(count, &[]).await.unwrap().get::<_, i64>(0),
        1
    );
    let all = [("do", "redrive"), ("filter", "state:dead since:1h")];
    assert_eq!(done_at_once(&console, &all).await, "4");
    assert_eq!(state(&client, expired).await, "expired");
    for filter in ["text:x", "7", "state:running", "since:1"] {
        let fields = [("do", "redrive"), ("filter", filter)];
        let answer = console.post("/bulk", &fields).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{filter}");
    }
}

#[tokio::test]
async fn matching_jobs_are_retried_and_others_keep_waiting() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let sql = "SELECT posthaste.enqueue(n, scheduled_at => now() + interval '1 day') \
               FROM unnest(ARRAY['now', 'now', 'later']) n";
    client.query(sql, &[]).await.unwrap();
    let console = console(&database).await;
    let page = console.page("/bulk?do=retry&filter=name:now").await;
    assert!(page.contains("<strong>2 jobs</strong>"), "{page}");
    let fields = [("do", "retry"), ("filter", "name:now")];
    assert_eq!(done_at_once(&console, &fields).await, "2");
    let waiting = "SELECT name FROM posthaste.job WHERE state = 'scheduled'";
    let names: Vec<String> = client.rows(waiting).await.unwrap();
    assert_eq!(names, ["later"]);
}

#[tokio::test]
async fn matching_jobs_are_cancelled_in_every_state_and_others_stay() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let sql = "INSERT INTO posthaste.job (name, queue, scheduled_at) \
               SELECT CASE WHEN g % 3 = 0 THEN 'other' ELSE 'wrong' END, 'mail', \
                      now() + CASE WHEN g % 2 = 0 THEN interval '1 day' ELSE interval '0' END \
               FROM generate_series(1, 3000) g";
    client.run(sql).await.unwrap();
    let console = console(&database).await;
    let page = console.page("/bulk?do=cancel&filter=name:wrong").await;
    assert!(page.contains("<strong>2,000 jobs</strong>"), "{page}");
    assert!(page.contains("posthaste.cancel_many(ARRAY("), "{page}");
    assert!(
        page.contains("WHERE name = &#39;wrong&#39; LIMIT 2000"),
        "{page}"
    );
    let some = [
        ("do", "cancel"),
        ("filter", "name:wrong"),
        ("at_most", "300"),
    ];
    assert_eq!(done_at_once(&console, &some).await, "300");
    let rest = [
        ("do", "cancel"),
        ("filter", "name:wrong"),
        ("at_most", "100000"),
    ];
    assert_eq!(done_at_once(&console, &rest).await, "1,700");
    let left = "SELECT name, state, count(*) FROM posthaste.job GROUP BY 1, 2 ORDER BY 1, 2";
    let left: Vec<(String, String, i64)> = client.rows(left).await.unwrap();
    let of = |name: &str, state: &str, jobs| (name.to_owned(), state.to_owned(), jobs);
    assert_eq!(
        left,
        [
            of("other", "available", 500),
            of("other", "scheduled", 500),
            of("wrong", "cancelled", 2_000)
        ]
    );
}

#[tokio::test]
async fn deleting_given_up_jobs_asks_for_confirmation() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let waits = enqueue(&client, "waits", "mail", "{}").await.to_string();
    let dead = given_up(&client, "dead", "old", "refused").await;
    let number = dead.to_string();
    let console = console(&database).await;
    let fields = [
        ("id", number.as_str()),
        ("id", waits.as_str()),
        ("back", "/dead"),
    ];
    let asked = console.post("/jobs/delete", &fields).await;
    assert_eq!(asked.status(), StatusCode::OK);
    let page = asked.text().await.unwrap();
    assert!(page.contains("<strong>2 jobs</strong>"), "{page}");
    assert!(
        page.contains("DELETE FROM posthaste.dead WHERE id IN ("),
        "{page}"
    );
    assert_eq!(state(&client, dead).await, "dead");
    let mut confirmed = fields.to_vec();
    confirmed.push(("confirmed", "yes"));
    assert_eq!(
        console.act("/jobs/delete", &confirmed).await,
        "/dead#delete.1"
    );
    let left = "SELECT count(*) FROM posthaste.dead";
    assert_eq!(
        client.query_one(left, &[]).await.unwrap().get::<_, i64>(0),
        0
    );
    assert_eq!(state(&client, waits.parse().unwrap()).await, "available");
}

#[tokio::test]
async fn matching_given_up_jobs_are_deleted_if_a_state_is_named() {
    let database = database().await;
    let client = database.client().await.unwrap();
    for n in 0..5 {
        given_up(&client, "dead", if n < 3 { "a" } else { "b" }, "refused").await;
    }
    let expired = given_up(&client, "expired", "a", "").await;
    let console = console(&database).await;
    let page = console
        .page("/bulk?do=delete&filter=state:dead+name:a")
        .await;
    assert!(page.contains("<strong>3 jobs</strong>"), "{page}");
    let fields = [("do", "delete"), ("filter", "state:dead name:a since:1h")];
    assert_eq!(done_at_once(&console, &fields).await, "3");
    let left = "SELECT count(*) FROM posthaste.dead WHERE state = 'dead' AND name = 'b'";
    assert_eq!(
        client.query_one(left, &[]).await.unwrap().get::<_, i64>(0),
        2
    );
    assert_eq!(state(&client, expired).await, "expired");
    let whichever = console
        .post("/bulk", &[("do", "delete"), ("filter", "name:b")])
        .await;
    assert_eq!(whichever.status(), StatusCode::BAD_REQUEST);
    assert!(whichever.text().await.unwrap().contains("choose a state"));
}

/// The log of the process.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

// The log is global to the process: cargo-nextest gives each test a process; with cargo test, this
// test returns early if another one has set it.
#[tokio::test]
async fn each_action_is_logged_with_user_target_and_count() -> TestResult {
    let log = Log::default();
    let written = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(log.clone());
    if written.try_init().is_err() {
        return Ok(());
    }
    let (database, client) = connected().await?;
    let id = given_up(&client, "dead", "mail.send", "refused").await;
    let console = console(&database).await;
    console
        .act("/jobs/redrive", &[("id", &id.to_string())])
        .await;
    console.act("/queues/pause", &[("queue", "mail")]).await;
    given_up(&client, "dead", "old", "refused").await;
    let all = [("do", "delete"), ("filter", "name:old state:dead")];
    done_at_once(&console, &all).await;
    eventually(SOON, "all lines are there", async || {
        let text = String::from_utf8(log.0.lock().unwrap().clone())?;
        let lines = text
            .lines()
            .filter(|line| line.contains("posthaste::console::audit"));
        let lines: Vec<&str> = lines.collect();
        let has = |all: &[&str]| {
            lines
                .iter()
                .any(|line| all.iter().all(|part| line.contains(part)))
        };
        let on = format!("on=\"jobs {id}\"");
        let bulk = "on=\"bulk action 1: filter state:dead name:old, at most 1\"";
        let of_bulk =
            |outcome, jobs| has(&["who=\"loopback\"", "action=\"delete\"", bulk, outcome, jobs]);
        Ok(has(&[
            "who=\"loopback\"",
            "peer=\"127.0.0.1\"",
            "action=\"redrive\"",
            &on,
            "jobs=1",
        ]) && has(&["action=\"pause\"", "on=\"mail\"", "outcome=\"done\""])
            && of_bulk("outcome=\"started\"", "jobs=0")
            && of_bulk("outcome=\"done\"", "jobs=1"))
    })
    .await?;
    Ok(())
}
