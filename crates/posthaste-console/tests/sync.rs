//! Synced tables: the lag of their indexes, and re-indexes that are selected, started, paused and
//! cancelled.

use posthaste_console::Settings;
use posthaste_testkit::{Sql as _, TestDb};
use reqwest::StatusCode;
use tokio_postgres::Client;

use crate::bulk;
use crate::support::{console, console_with, database, given_up};

/// Creates a synced table of twenty pages of four owners, whose jobs are removed.
pub async fn pages(database: &TestDb) -> Client {
    let client = database.client().await.unwrap();
    let table = "CREATE TABLE page (id bigint PRIMARY KEY, \"own\"\"er\" text NOT NULL, \
                   edited_at timestamptz NOT NULL); \
                 SELECT posthaste.sync_table('page', enqueue => false); \
                 INSERT INTO page (id, \"own\"\"er\", edited_at) \
                 SELECT g, CASE g % 4 WHEN 0 THEN 'it''s' ELSE 'user ' || g % 4 END, \
                        timestamptz '2026-11-01 00:00 UTC' + g * interval '1 day' \
                 FROM generate_series(1, 20) g";
    client.run(table).await.unwrap();
    client
}

/// Returns the ids of waiting jobs of re-indexes.
pub async fn waiting(client: &Client) -> Vec<i64> {
    let sql = "SELECT (kwargs ->> 'id')::bigint FROM posthaste.job \
               WHERE queue = 'sync.page.reindex' AND state = 'available' ORDER BY 1";
    client.rows(sql).await.unwrap()
}

#[tokio::test]
async fn a_synced_table_shows_its_lag_and_failed_jobs() {
    let database = database().await;
    let empty = console(&database).await.page("/sync").await;
    assert!(empty.contains("posthaste.sync_table("), "{empty}");
    let client = pages(&database).await;
    let sync = "SELECT posthaste.sync('page', '7', interval '0'), \
                       posthaste.sync('page', '8', interval '1 day')";
    client.query(sync, &[]).await.unwrap();
    let dead = given_up(&client, "dead", "sync.page", "the mapping refuses it").await;
    let move_it = "UPDATE posthaste.dead SET queue = 'sync.page' WHERE id = $1";
    client.execute(move_it, &[&dead]).await.unwrap();
    let page = console(&database).await.page("/sync").await;
    for part in [
        "<strong>page</strong>",
        "data-cell=\"queue.sync.page.available\">1</td>",
        "data-cell=\"queue.sync.page.scheduled\">1</td>",
        "1 job given up",
        "the mapping refuses it",
        "none has run yet",
        "posthaste sync audit page",
        "<option>edited_at</option>",
        "<option>own&#34;er</option>",
    ] {
        assert!(page.contains(part), "no {part} in {page}");
    }
}

#[tokio::test]
async fn a_synced_table_shows_its_last_audit() {
    let database = database().await;
    let client = pages(&database).await;
    let audited = async |found: &str| {
        let keep = format!(
            "DELETE FROM posthaste.audited;
             INSERT INTO posthaste.audited (name, audited_at, contents, rows, documents, differed,
                                            repaired)
             SELECT 'page', now() - interval '3 h', false, {found}"
        );
        client.run(&keep).await.unwrap();
        console(&database).await.page("/sync").await
    };
    let equal = audited("1200, 1200, 0, 0").await;
    assert!(
        equal.contains("The last audit: 1,200 rows, 1,200 documents, equal by their versions, 3 h"),
        "{equal}"
    );
    let differs = audited("1, 1200, 1199, 0").await;
    assert!(differs.contains("1 row, 1,200 documents, 1,199 differ, 3 h ago."));
    assert!(
        differs.contains("<p class=\"late\">The last audit"),
        "{differs}"
    );
    let repaired = audited("20, 12, 8, 8").await;
    assert!(repaired.contains("8 differed, 8 repaired"), "{repaired}");
    assert!(!repaired.contains("class=\"late\">The last"), "{repaired}");
    client
        .run("SELECT posthaste.unsync_table('page')")
        .await
        .unwrap();
    let kept = "SELECT count(*) FROM posthaste.audited";
    let kept: i64 = client.one(kept).await.unwrap();
    assert_eq!(kept, 0, "it goes with the sync");
}

#[tokio::test]
async fn documents_of_one_user_are_previewed_and_reindexed() {
    let database = database().await;
    let client = pages(&database).await;
    let console = console(&database).await;
    let address = "/sync/reindex?table=page&by=value&column=own%22er&value=it%27s";
    let page = console.page(address).await;
    assert!(page.contains("<strong>About "), "{page}");
    assert!(
        page.contains("posthaste sync reindex page --where"),
        "{page}"
    );
    assert!(
        page.contains("posthaste.job"),
        "the statement is shown: {page}"
    );
    assert_eq!(waiting(&client).await, Vec::<i64>::new());
    let fields = [
        ("table", "page"),
        ("by", "value"),
        ("column", "own\"er"),
        ("value", "it's"),
    ];
    let to = console.act("/sync/reindex", &fields).await;
    assert_eq!(to, "/sync#reindex.5");
    assert_eq!(waiting(&client).await, [4, 8, 12, 16, 20]);
    let page = console.page(&to).await;
    assert!(
        page.contains("5 documents are to be checked again"),
        "{page}"
    );
    assert!(page.contains("5 left"), "{page}");
}

#[tokio::test]
async fn documents_are_reindexed_by_ids_time_or_all_paused_and_cancelled() {
    let database = database().await;
    let client = pages(&database).await;
    // All times of the console are in UTC, regardless of the database's time zone.
    let zone = format!(
        "ALTER DATABASE {} SET timezone = 'America/New_York'",
        database.name()
    );
    client.run(&zone).await.unwrap();
    let console = console(&database).await;
    let ids = [("table", "page"), ("by", "ids"), ("ids", "3, 1\n99")];
    assert_eq!(console.act("/sync/reindex", &ids).await, "/sync#reindex.3");
    let time = [
        ("table", "page"),
        ("by", "time"),
        ("column", "edited_at"),
        ("since", "2026-11-06 00:00"),
        ("until", "2026-11-08T00:00Z"),
    ];
    assert_eq!(console.act("/sync/reindex", &time).await, "/sync#reindex.2");
    assert_eq!(waiting(&client).await, [1, 3, 5, 6, 99]);
    let all = [("table", "page"), ("by", "all"), ("different", "yes")];
    assert_eq!(console.act("/sync/reindex", &all).await, "/sync#reindex.20");
    let forced = "SELECT count(*) FROM posthaste.job WHERE kwargs ->> 'force' = 'true'";
    assert_eq!(
        client
            .query_one(forced, &[])
            .await
            .unwrap()
            .get::<_, i64>(0),
        5
    );
    let queue = [("queue", "sync.page.reindex"), ("back", "/sync")];
    let to = console.act("/queues/pause", &queue).await;
    let page = console.page(&to).await;
    assert!(page.contains("state paused\">paused"), "{page}");
    assert!(
        page.contains("/bulk?do=cancel&#38;filter=queue%3Async.page.reindex"),
        "{page}"
    );
    console.act("/queues/resume", &queue).await;
    let left = [("do", "cancel"), ("filter", "queue:sync.page.reindex")];
    let to = console.act("/bulk", &left).await;
    let page = bulk::ended(&console, &to, "finished").await;
    assert_eq!(bulk::done(&page), "25");
    assert_eq!(waiting(&client).await, Vec::<i64>::new());
}

#[tokio::test]
async fn form_values_are_never_sql_and_invalid_choices_rejected() {
    let database = database().await;
    let client = pages(&database).await;
    let console = console(&database).await;
    let by_value = |column, value| {
        [
            ("table", "page"),
            ("by", "value"),
            ("column", column),
            ("value", value),
        ]
    };
    let harmless = by_value("own\"er", "x' OR true; DROP TABLE page; --");
    assert_eq!(
        console.act("/sync/reindex", &harmless).await,
        "/sync#reindex.0"
    );
    for fields in [
        &by_value("nothing", "7")[..],
        &by_value("id = 1 OR true --", "7"),
        &by_value("id\" = 1 OR t.\"id", "7"),
        &by_value("id", "seven"),
        &[("table", "page"), ("by", "where"), ("condition", "true")],
        &[("table", "page"), ("by", "ids"), ("ids", " , ")],
        &[("table", "page"), ("by", "time"), ("column", "edited_at")],
        &[("table", "page")],
    ] {
        let answer = console.post("/sync/reindex", fields).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{fields:?}");
    }
    let none = console
        .post("/sync/reindex", &[("table", "none"), ("by", "all")])
        .await;
    assert_eq!(none.status(), StatusCode::NOT_FOUND);
    assert_eq!(waiting(&client).await, Vec::<i64>::new());
    let observer = console_with(&database, Settings::default()).await;
    let page = observer.page("/sync").await;
    assert!(page.contains("page") && !page.contains("Preview"), "{page}");
    let all = [("table", "page"), ("by", "all")];
    let refused = observer.post("/sync/reindex", &all).await;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
}
