//! The reason why a message was rejected or a document was written is a label.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use posthaste_testkit::{Sql as _, eventually, number};

use super::{exporter, got, served, value};
use crate::stage::{self, BOUND, Stage};

#[tokio::test(flavor = "multi_thread")]
async fn rejected_messages_are_counted_by_reason() -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let open = listener.local_addr()?;
    let status = |code: StatusCode| post(async move || code);
    let router = Router::new()
        .route("/unknown", status(StatusCode::UNAUTHORIZED))
        .route("/large", status(StatusCode::PAYLOAD_TOO_LARGE))
        .route("/busy", status(StatusCode::TOO_MANY_REQUESTS));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let closed = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let mut routes = String::new();
    let mut enqueue = String::new();
    for (name, address) in [
        ("unknown", open),
        ("large", open),
        ("busy", open),
        ("closed", closed),
    ] {
        routes.push_str(&format!(
            "[route.{name}]\nqueue = '{name}'\nto = 'http://{address}/{name}'\n\
             networks = ['127.0.0.1']\n"
        ));
        enqueue.push_str(&format!(
            "SELECT posthaste.enqueue('a', queue => '{name}');"
        ));
    }
    stage.write("posthaste.toml", &routes)?;
    let mut relay = stage.spawn_on(&database, &["relay", "run"])?;
    relay.error_line("Ctrl-C stops", BOUND).await?;
    database.client().await?.run(&enqueue).await?;
    let (_exporter, root) = exporter(&stage, &database).await?;
    let worker = "SELECT max(id) FROM posthaste.worker";
    let worker = number(&database.client().await?, worker).await?;
    for (queue, address, reason) in [
        ("unknown", open, "auth"),
        ("large", open, "too_large"),
        ("busy", open, "full"),
        ("closed", closed, "connect"),
    ] {
        let of = |reason: &str| {
            format!(
                "posthaste_relay_failures_total{{queue=\"{queue}\",\
                 destination=\"webhook at http://{address}\",worker=\"{worker}\",\
                 reason=\"{reason}\"}}"
            )
        };
        let known = of(reason);
        eventually(BOUND, &known, async || {
            let (_, text) = got(&root, "/metrics").await?;
            Ok(value(&text, &known) >= Some(1.0))
        })
        .await?;
        let (_, text) = got(&root, "/metrics").await?;
        assert_eq!(value(&text, &of("other")), Some(0.0), "{text}");
    }
    relay.terminate()?;
    assert!(relay.exit(BOUND).await?.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sync_documents_are_counted_by_tag_and_reason() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    stage.write(
        "posthaste.toml",
        "[sync.pages]\ntable = 'page'\nindex = 'postgres:'\ndelay = '0s'\nperiod = '1s'\n\
         document = { title = 'title' }\n",
    )?;
    let client = database.client().await?;
    let table = "CREATE TABLE page (id bigint PRIMARY KEY, title text)";
    client.run(table).await?;
    let install = ["sync", "install"];
    stage.run_on(&database, &install).await?.good()?;
    let mut sync = stage.spawn_on(&database, &["sync", "run", "--listen", "127.0.0.1:0"])?;
    let root = served(&mut sync).await?;
    let insert = "SET posthaste.tag = 'api.create';
                  INSERT INTO page SELECT n, 'page' FROM generate_series(1, 3) n";
    client.run(insert).await?;
    let done = "posthaste_sync_documents_total{queue=\"sync.pages\",tag=\"api.create\",\
                outcome=\"done\",reason=\"equal\"}";
    eventually(BOUND, "all are seen to be there", async || {
        let (_, text) = got(&root, "/metrics").await?;
        Ok(value(&text, done) == Some(3.0))
    })
    .await?;
    let (_, text) = got(&root, "/metrics").await?;
    // The first check of an empty index may have written them under another tag.
    let written = text.lines().filter(|line| {
        line.starts_with("posthaste_sync_documents_total{")
            && line.contains("outcome=\"written\",reason=\"missing\"}")
    });
    let written = written.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    assert!(written.sum::<f64>() >= 3.0, "{text}");
    sync.terminate()?;
    assert!(sync.exit(BOUND).await?.success());
    Ok(())
}
