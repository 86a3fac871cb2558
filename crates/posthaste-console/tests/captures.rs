//! Captures, as rows of their tables: no process runs them in these tests.

use posthaste_testkit::Sql as _;
use reqwest::StatusCode;
use tokio_postgres::Client;

use crate::support::{self, console, database};

async fn installed(client: &Client, name: &str) {
    let sql = "INSERT INTO posthaste.capture (epoch, published, slot, publication, name, identity) \
               VALUES (gen_random_uuid(), 0, 'slot_of_' || $1, 'p', $1, '{}')";
    client.execute(sql, &[&name]).await.unwrap();
}

async fn marked(client: &Client, name: &str, events: i64) {
    let sql = "INSERT INTO posthaste.capture_mark_0 \
               (at, done, commit, record, row, epoch, events, bytes) \
               SELECT now() - interval '2 hours', '0/A1', '0/0', '0/0', 0, epoch, $2, 8 \
               FROM posthaste.capture WHERE name = $1";
    client.execute(sql, &[&name, &events]).await.unwrap();
}

async fn is_paused(client: &Client) -> bool {
    let sql = "SELECT paused_at IS NOT NULL FROM posthaste.capture WHERE name = 'orders'";
    client.one(sql).await.unwrap()
}

#[tokio::test]
async fn captures_show_state_and_lag_and_are_paused_and_resumed() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let console = console(&database).await;
    let empty = console.page("/captures").await;
    assert!(empty.contains("No capture is installed."), "{empty}");
    installed(&client, "orders").await;
    marked(&client, "orders", 4711).await;
    let fields = [("capture", "orders"), ("back", "/captures")];
    let to = console.act("/captures/pause", &fields).await;
    assert_eq!(to, "/captures#rest.1");
    assert!(is_paused(&client).await);
    let page = console.page(&to).await;
    for part in [
        "The capture is paused",
        "<strong>orders</strong>",
        "slot_of_orders",
        // The wal_level of this server is too low for a slot.
        "its slot is lost",
        "state failing\">stopped",
        "2 h",
        "4,711",
        "0/A1",
        "Resume",
    ] {
        assert!(page.contains(part), "no {part} in {page}");
    }
    let to = console.act("/captures/pause", &fields).await;
    assert_eq!(to, "/captures#rest.0", "it is paused already");
    let copies = "INSERT INTO posthaste.capture_copy \
                  (capture, schema_name, table_name, rows, expected) \
                  VALUES ('orders', 'public', 'item', 1200, 5000)";
    client.run(copies).await.unwrap();
    console.act("/captures/pause", &fields).await;
    let page = console.page("/captures").await;
    assert!(page.contains("1,200 of about 5,000 rows copied"), "{page}");
    let to = console.act("/captures/resume", &fields).await;
    assert_eq!(to, "/captures#wake.1");
    assert!(!is_paused(&client).await);
    let to = console.act("/captures/pause", &[("capture", "none")]).await;
    assert_eq!(to, "/#rest.0");
}

#[tokio::test]
async fn gaps_are_shown_with_a_remedy_until_accepted() {
    let database = database().await;
    let client = database.client().await.unwrap();
    installed(&client, "orders").await;
    let sql = "INSERT INTO posthaste.capture_gap (epoch, begins, ends, capture, reason, tables) \
               SELECT epoch, '0/5', CASE n WHEN 1 THEN '0/9'::pg_lsn END, name, 'it is <lost>', \
                      '{public.item}' \
               FROM posthaste.capture, generate_series(1, 2) n";
    client.run(sql).await.unwrap();
    let console = console(&database).await;
    let page = console.page("/captures").await;
    for part in [
        "2 gaps",
        "it is &#60;lost&#62;",
        "public.item",
        "posthaste capture begin orders",
        "then accept it",
        "Accept</button>",
    ] {
        assert!(page.contains(part), "no {part} in {page}");
    }
    let fields = [("gap", "1"), ("back", "/captures")];
    let to = console.act("/captures/accept", &fields).await;
    assert_eq!(to, "/captures#accept.1");
    let page = console.page(&to).await;
    assert!(
        page.contains("1 gaps") && page.contains("The gap is accepted"),
        "{page}"
    );
    let to = console.act("/captures/accept", &fields).await;
    assert_eq!(to, "/captures#accept.0", "it is accepted already");
    let answer = console.post("/captures/accept", &[("gap", "x")]).await;
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn observers_see_captures_but_cannot_change_them() {
    let database = database().await;
    let client = database.client().await.unwrap();
    installed(&client, "orders").await;
    let console = support::console_with(&database, posthaste_console::Settings::default()).await;
    assert!(!console.page("/captures").await.contains("Pause"));
    for path in ["/captures/pause", "/captures/resume", "/captures/accept"] {
        let fields = [("capture", "orders"), ("gap", "1")];
        let answer = console.post(path, &fields).await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{path}");
    }
    assert!(!is_paused(&client).await);
}
