//! A database in another encoding than UTF-8 stores every error text of a worker.

use posthaste::{NewJob, Outcome, enqueue};
use posthaste_testkit::{PgServer, PgVersion, Sql as _, TestResult, eventually};
use serde_json::json;
use tokio_postgres::Client;

use crate::support::{SOON, quick, quick_queue, worker};

/// Returns a client of a new database in this encoding, and its URL.
async fn database_in(server: &PgServer, encoding: &str) -> (Client, String) {
    let url = |name: &str| server.url(name);
    let connect = async |name: &str| {
        let (client, connection) = tokio_postgres::connect(&url(name), tokio_postgres::NoTls)
            .await
            .unwrap();
        tokio::spawn(connection);
        client
    };
    let create =
        format!("CREATE DATABASE other TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'");
    let admin = connect("postgres").await;
    admin.run(&create).await.unwrap();
    let mut client = connect("other").await;
    posthaste::migrate(&mut client).await.unwrap();
    (client, url("other"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unencodable_text_is_escaped_and_stored() -> TestResult {
    let server = PgServer::start(PgVersion::any(), &[])?;
    let (client, url) = database_in(&server, "LATIN1").await;
    let manager = deadpool_postgres::Manager::new(url.parse()?, tokio_postgres::NoTls);
    let pool = deadpool_postgres::Pool::builder(manager).build().unwrap();
    let text = |jobs: &str| format!("{jobs}: caf\u{e9} \u{2013} \u{1f680}");
    let mut config = quick();
    config.name = text("worker");
    let worker = worker(&pool)
        .config(config)
        .queue_config(quick_queue())
        .handler(
            "fails",
            move |_, _| async move { Err(text("failed").into()) },
        )
        .handler("discards", move |_, _| async move {
            let reason = text("discarded");
            Ok(Outcome::Discard { reason })
        })
        .handler("panics", move |_, _| async move {
            panic!("{}", text("panicked"))
        })
        .start()
        .await?;
    for name in ["fails", "discards", "panics"] {
        let job = NewJob::new(name, &json!({}))?.max_attempts(Some(2));
        enqueue(&client, &job).await?;
    }
    let dead = "SELECT name || ' ' || attempt || ' ' || last_error FROM posthaste.dead ORDER BY 1";
    let mut ended: Vec<String> = Vec::new();
    eventually(SOON, "all have ended", async || {
        let rows = client.query(dead, &[]).await?;
        ended = rows.iter().map(|row| row.get(0)).collect();
        Ok(ended.len() == 3)
    })
    .await?;
    let escaped = "caf<U+00E9> <U+2013> <U+1F680>";
    assert_eq!(
        ended,
        [
            format!("discards 1 discarded: {escaped}"),
            format!("fails 2 failed: {escaped}"),
            format!("panics 2 panicked: panicked: {escaped}"),
        ]
    );
    let name = "SELECT name FROM posthaste.worker";
    let name: String = client.one(name).await?;
    assert_eq!(name, format!("worker: {escaped}"));
    worker.stop().await?;
    Ok(())
}
