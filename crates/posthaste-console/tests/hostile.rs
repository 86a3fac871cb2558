//! Names, arguments and addresses that contain markup or control characters.

use posthaste_testkit::Sql as _;
use reqwest::StatusCode;
use tokio_postgres::Client;

use crate::support::{console, database, enqueue, given_up};

/// Texts that no page may contain unescaped.
const MARKS: [&str; 4] = ["<script>alert", "<img src=x", "\" onload=", "\u{202e}"];

fn is_harmless(page: &str, path: &str) {
    for mark in MARKS {
        assert!(!page.contains(mark), "{path} has {mark:?}: {page}");
    }
    let controls = page.chars().filter(|one| one.is_control() && *one != '\n');
    assert_eq!(controls.count(), 0, "{path} has controls");
}

const QUEUE: &str = "<img src=x onerror=alert(2)>'\"&";

/// Inserts hostile names and arguments in every place: into a waiting job and a dead one.
pub async fn seed(client: &Client) -> (i64, i64) {
    let name = "<script>alert(1)</script>\" onload='x' \u{1b}[31m\u{202e}\r\n<img src=x onerror=y>";
    let kwargs = serde_json::json!({
        name: [name, { "k": name, "\u{7}": "\u{1b}" }],
        "body": format!("{{\"password\": \"{}\"}}", "s3cr3t"),
    });
    let kwargs = kwargs.to_string();
    let queue = QUEUE;
    let id = enqueue(client, name, queue, &kwargs).await;
    let given_up_job = given_up(client, "dead", name, name).await;
    client
        .execute("SELECT posthaste.pause($1)", &[&queue])
        .await
        .unwrap();
    client
        .execute(
            "INSERT INTO posthaste.worker (name, queues) VALUES ($1, ARRAY[$1])",
            &[&name],
        )
        .await
        .unwrap();
    let periodic = "INSERT INTO posthaste.periodic \
                    (name, schedule, time_zone, job, queue, tag, kwargs) \
                    VALUES ($1, '@daily', 'UTC', $1, $2, $1, $3::text::jsonb)";
    client
        .execute(periodic, &[&name, &queue, &kwargs])
        .await
        .unwrap();
    let fails = "UPDATE posthaste.periodic SET error = $1, looked_at = now()";
    client.execute(fails, &[&name]).await.unwrap();
    let relay = "INSERT INTO posthaste.relay (slot, worker, queue, route, destination, state, \
                   accepted, rejected, retried, unavailable, failing_since, last_error, \
                   rejections, failures) \
                 SELECT (SELECT posthaste.volume('relay')), w.id, $2::text, $1::text, $1::text, \
                   'down', 1, 1, 1, 1, now(), $1::text, jsonb_build_object($1::text, 1), \
                   '{}' \
                 FROM posthaste.worker w";
    client.execute(relay, &[&name, &queue]).await.unwrap();
    let later = "SELECT posthaste.enqueue($1, $3::text::jsonb, queue => $2, tag => $1, \
                 scheduled_at => now() + interval '1 day')";
    client
        .execute(later, &[&name, &queue, &kwargs])
        .await
        .unwrap();
    (id, given_up_job)
}

#[tokio::test]
async fn hostile_names_and_arguments_are_text_on_every_page() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let (id, given_up_job) = seed(&client).await;
    let console = console(&database).await;
    let filter = "/jobs?filter=%3Cscript%3Ealert(1)%22%20onload%3D";
    let job = format!("/jobs/{id}");
    let dead = format!("/jobs/{given_up_job}");
    let encoded: String = url::form_urlencoded::byte_serialize(QUEUE.as_bytes()).collect();
    let past = format!("/queue?queue={encoded}&over=week");
    let sample = "SELECT posthaste.take_sample(clock_timestamp() - n * interval '1 min')
                    FROM generate_series(9, 0, -1) n";
    client.run(sample).await.unwrap();
    for path in [
        "/",
        "/queues",
        "/jobs",
        "/scheduled",
        "/periodic",
        "/destinations",
        "/transactions",
        "/sync",
        "/workers",
        "/settings",
        "/queues/drain?queue=mail",
        "/dead",
        &job,
        &dead,
        &past,
        "/?over=day",
    ] {
        let page = console.page(path).await;
        is_harmless(&page, path);
        assert!(!page.contains("s3cr3t"), "{path}");
    }
    let odd = [
        filter,
        "/%3Cscript%3Ealert(1)%3C/script%3E",
        "/jobs/%3Cimg%20src%3Dx%3E",
        "/jobs?at=%3Cimg%20src%3Dx%3E",
        "/queues/drain?queue=%3Cimg%20src%3Dx%3E",
        "/queue?queue=%3Cimg%20src%3Dx%3E",
        "/?over=%3Cscript%3Ealert(1)%3C/script%3E",
        "/sync/reindex?table=%3Cimg%20src%3Dx%3E&by=all",
        "/bulk?do=cancel&filter=%22%3Cimg%20src%3Dx%3E%22",
        "/bulk?do=delete&filter=state:dead+%22%3Cimg%20src%3Dx%3E%22",
        "/bulk?do=redrive&filter=%22%3Cimg%20src%3Dx%3E%22",
    ];
    for path in odd {
        let page = console.get(path).await.text().await.unwrap();
        is_harmless(&page, path);
    }
}

#[tokio::test]
async fn large_arguments_are_truncated_on_their_page_and_sized_in_the_list() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let kwargs = serde_json::json!({
        "text": "<b>".repeat(100_000),
        "list": vec!["\"'<&>"; 40_000],
        "password": "s3cr3t".repeat(50_000),
    });
    let id = enqueue(&client, "large", "mail", &kwargs.to_string()).await;
    let console = console(&database).await;
    let page = console.page(&format!("/jobs/{id}")).await;
    assert!(
        page.contains("cut") && page.len() < 700_000,
        "{} bytes",
        page.len()
    );
    assert!(!page.contains("s3cr3t") && !page.contains("<b>"));
    let list = console.page("/jobs").await;
    assert!(
        list.contains(" KiB") && list.len() < 20_000,
        "{} bytes",
        list.len()
    );
}

#[tokio::test]
async fn deep_arguments_and_oversized_forms_are_handled() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let deep = format!("{{\"a\": {}{}}}", "[".repeat(60), "]".repeat(60));
    let id = enqueue(&client, "deep", "mail", &deep).await;
    let console = console(&database).await;
    assert!(console.page(&format!("/jobs/{id}")).await.contains("deep"));
    assert!(console.page("/jobs").await.contains("deep"));
    let long = "x".repeat(300 * 1024);
    let answer = console.post("/queues/pause", &[("queue", &long)]).await;
    assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
}
