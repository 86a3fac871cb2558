//! A real Prometheus scrapes the exporter and judges by the rule file of the documentation, and a
//! real Alertmanager tells somebody.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::routing::post;
use posthaste_testkit::eventually;
use posthaste_testkit::receivers::{self, Alertmanager, Prometheus, Receiver};
use serde_json::Value;
use tokio::sync::mpsc;

use super::{exporter, got};
use crate::stage::{self, BOUND, Stage};

/// The receiver of Alertmanager: its URL, and what it got.
async fn webhook() -> anyhow::Result<(String, mpsc::UnboundedReceiver<Value>)> {
    let (told, heard) = mpsc::unbounded_channel::<Value>();
    let hear = async |State(told): State<mpsc::UnboundedSender<Value>>, body: String| {
        let _ = told.send(serde_json::from_str(&body).unwrap_or(Value::String(body)));
    };
    let router = Router::new().route("/", post(hear)).with_state(told);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok((url, heard))
}

/// What it gets next: its status, name and queue of each alert.
async fn next(heard: &mut mpsc::UnboundedReceiver<Value>) -> anyhow::Result<Vec<[String; 3]>> {
    let told = tokio::time::timeout(BOUND, heard.recv()).await?;
    let told = told.context("the webhook has ended")?;
    let alerts = told["alerts"].as_array().context("no alerts")?.iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(alerts
        .map(|one| {
            let labels = &one["labels"];
            [&one["status"], &labels["alertname"], &labels["queue"]].map(text)
        })
        .collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_job_is_told_by_prometheus_and_alertmanager_until_it_is_deleted()
-> anyhow::Result<()> {
    let needed = [Receiver::Prometheus, Receiver::Alertmanager];
    if !receivers::are_here("Prometheus fires for an expired job", &needed) {
        return Ok(());
    }
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let expiring = "SELECT posthaste.enqueue('ok', queue => 'mail',
                           expires_at => now() + interval '50 ms')";
    client.batch_execute(expiring).await?;
    client.batch_execute("SELECT pg_sleep(0.1)").await?;
    let (_exporter, root) = exporter(&stage, &database).await?;
    let (url, mut heard) = webhook().await?;
    let target = root.strip_prefix("http://").context("no address")?;
    let rules = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/operate/prometheus/posthaste.rules.yml");
    let alertmanager = Alertmanager::start(&url)?;
    let prometheus = Prometheus::start(&rules, target, &alertmanager)?;

    // It sees a database in which nothing fires.
    let asked = "/api/v1/query?query=posthaste_database_up";
    eventually(BOUND, "the exporter is scraped", async || {
        let (_, answer) = got(&prometheus.url(), asked).await?;
        let answer: Value = serde_json::from_str(&answer)?;
        Ok(answer["data"]["result"][0]["value"][1] == "1")
    })
    .await?;
    let nothing = tokio::time::timeout(Duration::ZERO, heard.recv()).await;
    assert!(nothing.is_err(), "{nothing:?}");

    // A worker finds what has expired.
    let work = ["work", "--queue", "mail", "--exec", "ok=true"];
    let mut worker = stage.spawn_on(&database, &work)?;
    let alert = |status: &str| [[status, "PosthasteJobsExpired", "mail"].map(str::to_owned)];
    assert_eq!(next(&mut heard).await?, alert("firing"));
    worker.terminate()?;
    assert!(worker.exit(BOUND).await?.success());
    client.batch_execute("DELETE FROM posthaste.dead").await?;
    assert_eq!(next(&mut heard).await?, alert("resolved"));
    Ok(())
}
