//! Charts of the history of queues.

use posthaste_console::Settings;
use posthaste_testkit::{PgServer, PgVersion, Sql as _, TestResult, eventually};
use reqwest::StatusCode;
use tokio_postgres::Client;

use crate::support::{
    self, SOON, connected, console, console_of, console_with, database, enqueue, operator,
};

/// Inserts samples of the last hour, of a queue that completes sixty jobs a minute, without those
/// of some minutes.
async fn sampled(client: &Client, queue: &str, without: &str) {
    let sql = format!(
        "INSERT INTO posthaste.sample (span, at, queue, come, done, failed, started, waited,
                                       available, running, oldest)
         SELECT 1, clock_timestamp() - g * interval '1 min', q, 9000 - g * 60, 9000 - g * 60, 0,
                9000 - g * 60, 0, 1234, 7, 90
           FROM generate_series(0, 62) g, unnest(ARRAY['', $1]) q WHERE NOT {without}"
    );
    client.execute(&sql, &[&queue]).await.unwrap();
}

/// Returns the path of the line with this class in the first chart.
fn path<'a>(page: &'a str, class: &str) -> &'a str {
    let charts = page.split("<section id=\"charts\">").nth(1).unwrap();
    let line = charts
        .split(&format!("<path class=\"{class}\" d=\""))
        .nth(1);
    line.unwrap().split('"').next().unwrap()
}

async fn samples(client: &Client) -> i64 {
    let sql = "SELECT count(*) FROM posthaste.sample";
    client.one(sql).await.unwrap()
}

#[tokio::test]
async fn pages_without_samples_explain_how_to_get_them() {
    let database = database().await;
    let client = database.client().await.unwrap();
    let console = console_with(&database, Settings::default()).await;
    let page = console.page("/").await;
    assert!(page.contains("No samples of this\nhour yet."), "{page}");
    assert!(page.contains("posthaste work") && page.contains("posthaste console --operate"));
    assert_eq!(samples(&client).await, 0, "an observer is read-only");
}

#[tokio::test]
async fn history_of_all_queues_and_of_one_is_drawn() {
    let database = database().await;
    let client = database.client().await.unwrap();
    enqueue(&client, "mail.send", "mail", "{}").await;
    sampled(&client, "mail", "false").await;
    let console = console_with(&database, Settings::default()).await;
    for page in ["/?over=hour", "/queue?queue=mail"] {
        let text = console.page(page).await;
        assert_eq!(
            path(&text, "come").matches('M').count(),
            1,
            "{page}: {text}"
        );
        assert!(path(&text, "done").matches('L').count() >= 58, "{page}");
        for part in [
            "enqueued 1.0, between 1.0 and 1.0",
            "available 1,234, between 1,234 and 1,234",
            "oldest waiting job 1 min 30 s",
            "<td class=\"n\">1,234</td>",
            "over=week#charts",
            "role=\"img\"",
        ] {
            assert!(text.contains(part), "{page}: no {part} in {text}");
        }
        assert!(!text.contains("style="), "{page} styles itself");
        assert!(!text.contains("no sample was taken"), "{page}");
    }
    let day = console.page("/?over=day").await;
    assert!(day.contains("No samples of this\nday yet."), "{day}");
    let none = console.get("/queue?queue=nothing").await;
    assert_eq!(none.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn minutes_without_a_sample_are_gaps_in_the_line() {
    let database = database().await;
    let client = database.client().await.unwrap();
    sampled(&client, "mail", "g BETWEEN 20 AND 39").await;
    let console = console_with(&database, Settings::default()).await;
    let page = console.page("/").await;
    assert_eq!(path(&page, "come").matches('M').count(), 2, "{page}");
    assert!(
        page.contains("For 21 min of it no sample was taken."),
        "{page}"
    );
}

#[tokio::test]
async fn stores_with_reset_counters_have_no_negative_rate() {
    let database = database().await;
    let client = database.client().await.unwrap();
    sampled(&client, "mail", "false").await;
    let anew = "UPDATE posthaste.sample SET come = come - 8000, done = done - 8000
                 WHERE at > clock_timestamp() - interval '1790 s'";
    client.run(anew).await.unwrap();
    let console = console_with(&database, Settings::default()).await;
    let page = console.page("/").await;
    assert!(page.contains("enqueued 1.0, between 1.0 and 1.0"), "{page}");
    assert_eq!(path(&page, "done").matches('M').count(), 2, "{page}");
    assert!(!page.contains("-133"), "{page}");
}

/// Counts reads of the leader's table: before the first page, a console reads it only to check
/// whether a sample is due. The server reports them some seconds later.
const TRIED: &str = "SELECT coalesce(sum(seq_scan + idx_scan), 0)::bigint FROM pg_stat_user_tables
    WHERE schemaname = 'posthaste' AND relname = 'leader'";

#[tokio::test]
async fn operator_consoles_take_samples_without_viewers() -> TestResult {
    let (database, client) = connected().await?;
    enqueue(&client, "mail.send", "mail", "{}").await;
    let _console = console(&database).await;
    eventually(SOON, "a sample is taken", async || {
        // Samples of the queue and of the whole database, for a minute, ten minutes and an hour.
        Ok(samples(&client).await >= 6)
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_console_takes_no_samples_while_a_worker_leads() -> TestResult {
    let (database, client) = connected().await?;
    enqueue(&client, "mail.send", "mail", "{}").await;
    support::lead(&client).await;
    let observer = console(&database).await;
    eventually(SOON, "it has checked whether one is due", async || {
        Ok(client.one::<i64>(TRIED).await? > 0)
    })
    .await?;
    assert_eq!(samples(&client).await, 0);
    drop(observer);
    client
        .run("UPDATE posthaste.leader SET until = clock_timestamp()")
        .await?;
    let _another = console(&database).await;
    eventually(SOON, "a sample is taken", async || {
        Ok(samples(&client).await >= 6)
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_role_that_may_not_write_sees_charts_and_causes_no_error() {
    let server = PgServer::start(PgVersion::any(), &[]).unwrap();
    let database = support::migrated(&server).await;
    let mut client = database.client().await.unwrap();
    posthaste::grant_roles(&mut client).await.unwrap();
    let pool = database.pool_as("posthaste_observer", 2).unwrap();
    let console = console_of(pool, operator()).await;
    // No page was requested yet; a request would have taken a sample, or polled for actions.
    let ended = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                  AND query = 'COMMIT' AND state = 'idle' AND pid <> pg_backend_pid()";
    eventually(SOON, "it has begun by itself", async || {
        Ok(client.one::<i64>(ended).await? > 0)
    })
    .await
    .unwrap();
    assert_eq!(samples(&client).await, 0);
    sampled(&client, "mail", "false").await;
    let page = console.page("/").await;
    assert_eq!(path(&page, "come").matches('M').count(), 1, "{page}");
    assert!(!server.log().contains("ERROR"), "{}", server.log());
}
