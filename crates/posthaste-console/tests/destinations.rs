//! The states of relays and of their queues.

use posthaste_console::Settings;
use posthaste_testkit::{Sql as _, TestResult};
use tokio_postgres::Client;

use crate::support::{connected, console, console_with, database, enqueue};

/// Inserts a live worker whose relay reported this state.
pub async fn relay(client: &Client, queue: &str, state: &str, error: Option<&str>) {
    let worker = "INSERT INTO posthaste.worker (name, queues) VALUES ('relay', ARRAY[$1]) \
                  RETURNING id";
    let worker: i64 = client.one_with(worker, &[&queue]).await.unwrap();
    let insert = "INSERT INTO posthaste.relay (slot, worker, queue, route, destination, state, \
                  accepted, rejected, retried, unavailable, down_since, failing_since, last_error, \
                  rejections, failures) \
                SELECT (SELECT posthaste.volume('relay')), $1, $2::text, 'to-' || $2::text, \
                  'webhook https://example.org', $3, 1204, 2, 31, 45, \
                  CASE WHEN $3 = 'down' THEN clock_timestamp() - interval '12 min' END, NULL, $4, \
                  '{\"410 Gone\": 2}', '{}'";
    client
        .execute(insert, &[&worker, &queue, &state, &error])
        .await
        .unwrap();
}

#[tokio::test]
async fn each_relay_shows_its_state_and_last_failure() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let empty = console(&database).await.page("/destinations").await;
    assert!(empty.contains("posthaste relay run"), "{empty}");
    enqueue(&client, "mail.send", "mail", "{}").await;
    relay(&client, "mail", "down", Some("connection refused")).await;
    relay(&client, "events", "up", None).await;
    let page = console(&database).await.page("/destinations").await;
    for part in [
        "to-mail",
        "to-events",
        "webhook https://example.org",
        "connection refused",
        "12 min",
        "1,204",
        "410 Gone",
        "state failing\" data-cell=\"relay.mail.",
        "state up\" data-cell=\"relay.events.",
    ] {
        assert!(page.contains(part), "no {part} in {page}");
    }
}

#[tokio::test]
async fn the_page_of_a_destination_pauses_and_resumes_its_queue() -> TestResult {
    let (database, client) = connected().await?;
    enqueue(&client, "mail.send", "mail", "{}").await;
    relay(&client, "mail", "up", None).await;
    let console = console(&database).await;
    let fields = [("queue", "mail"), ("back", "/destinations")];
    let to = console.act("/queues/pause", &fields).await;
    assert_eq!(to, "/destinations#pause.0");
    let page = console.page(&to).await;
    assert!(page.contains(">Resume</button>"), "{page}");
    let paused =
        "SELECT count(*) FROM posthaste.queue WHERE name = 'mail' AND paused_at IS NOT NULL";
    let is_paused = async || client.one::<i64>(paused).await.unwrap();
    assert_eq!(is_paused().await, 1);
    console.act("/queues/resume", &fields).await;
    assert_eq!(is_paused().await, 0);
    let observer = console_with(&database, Settings::default()).await;
    let page = observer.page("/destinations").await;
    assert!(
        page.contains("to-mail") && !page.contains("data-key="),
        "{page}"
    );
    Ok(())
}
