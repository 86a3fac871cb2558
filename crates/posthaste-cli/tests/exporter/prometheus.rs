//! A real Prometheus scrapes exporters and evaluates the rules of the documentation, and a real
//! Alertmanager notifies a webhook.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::routing::post;
use posthaste_testkit::receivers::{self, Alertmanager, Prometheus, Receiver};
use posthaste_testkit::{Sql as _, eventually};
use serde_json::Value;
use tokio::sync::mpsc;

use super::{exporter, got};
use crate::stage::{self, BOUND, Stage};

/// Starts the receiver of Alertmanager; returns its URL and the requests that it receives.
async fn webhook() -> anyhow::Result<(String, mpsc::UnboundedReceiver<Value>)> {
    let (sender, received) = mpsc::unbounded_channel::<Value>();
    let hear = async |State(sender): State<mpsc::UnboundedSender<Value>>, body: String| {
        let _ = sender.send(serde_json::from_str(&body).unwrap_or(Value::String(body)));
    };
    let router = Router::new().route("/", post(hear)).with_state(sender);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok((url, received))
}

/// Waits for the next notification; returns status, name, finding and subject of each alert.
async fn next(received: &mut mpsc::UnboundedReceiver<Value>) -> anyhow::Result<Vec<[String; 4]>> {
    let notification = tokio::time::timeout(BOUND, received.recv()).await?;
    let notification = notification.context("the webhook has ended")?;
    let alerts = notification["alerts"]
        .as_array()
        .context("no alerts")?
        .iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(alerts
        .map(|one| {
            let labels = &one["labels"];
            [
                &one["status"],
                &labels["alertname"],
                &labels["id"],
                &labels["subject"],
            ]
            .map(text)
        })
        .collect())
}

/// Returns the rules of the documentation with seconds instead of minutes.
fn quick_rules() -> anyhow::Result<String> {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/operate/prometheus/posthaste.rules.yml");
    let rules = std::fs::read_to_string(rules)?;
    let quick = rules
        .replace("for: 2m", "for: 2s")
        .replace("keep_firing_for: 10m", "keep_firing_for: 5s")
        .replace("[2m]", "[10s]");
    anyhow::ensure!(quick != rules, "the durations have changed");
    Ok(quick)
}

/// Returns the value of a query to Prometheus, `None` if it is empty.
async fn queried(prometheus: &Prometheus, query: &str) -> anyhow::Result<Option<String>> {
    let (_, answer) = got(&prometheus.url(), &format!("/api/v1/query?query={query}")).await?;
    let answer: Value = serde_json::from_str(&answer)?;
    let value = &answer["data"]["result"][0]["value"][1];
    Ok(value.as_str().map(str::to_owned))
}

#[tokio::test(flavor = "multi_thread")]
async fn two_exporters_raise_one_alert_that_survives_one_of_them() -> anyhow::Result<()> {
    let needed = [Receiver::Prometheus, Receiver::Alertmanager];
    if !receivers::are_here("Prometheus fires for dead and expired jobs", &needed) {
        return Ok(());
    }
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let work = ["work", "--queue", "mail", "--exec", "fails=false"];
    let _worker = stage.spawn_on(&database, &work)?;
    let (mut first, first_root) = exporter(&stage, &database).await?;
    let (_second, second_root) = exporter(&stage, &database).await?;
    let (url, mut heard) = webhook().await?;
    let alertmanager = Alertmanager::start(&url)?;
    let address = |root: &str| root.trim_start_matches("http://").to_owned();
    let (one, other) = (address(&first_root), address(&second_root));
    let prometheus = Prometheus::start(&quick_rules()?, &[&one, &other], &alertmanager)?;
    eventually(BOUND, "both exporters are scraped", async || {
        Ok(queried(&prometheus, "sum(posthaste_database_up)").await? == Some("2".into()))
    })
    .await?;
    let nothing = tokio::time::timeout(Duration::ZERO, heard.recv()).await;
    assert!(nothing.is_err(), "{nothing:?}");

    // With default settings: a job that always fails, and one that expires.
    let alert =
        |status: &str, id: &str| [status, "PosthasteWarning", id, "mail"].map(str::to_owned);
    let jobs = "SELECT posthaste.enqueue('fails', queue => 'mail', max_attempts => 1)";
    client.run(jobs).await?;
    assert_eq!(next(&mut heard).await?, [alert("firing", "jobs.dead")]);
    let jobs = "SELECT posthaste.enqueue('fails', queue => 'mail',
                       scheduled_at => now() - interval '2 s',
                       expires_at => now() - interval '1 s')";
    client.run(jobs).await?;
    assert_eq!(next(&mut heard).await?, [alert("firing", "jobs.expired")]);

    // The alert continues, without a second message, after one exporter has ended.
    first.terminate()?;
    assert!(first.exit(BOUND).await?.success());
    eventually(BOUND, "one exporter is scraped", async || {
        Ok(queried(&prometheus, "sum(posthaste_database_up)").await? == Some("1".into()))
    })
    .await?;
    client
        .run("DELETE FROM posthaste.dead WHERE state = 'dead'")
        .await?;
    assert_eq!(next(&mut heard).await?, [alert("resolved", "jobs.dead")]);
    client.run("DELETE FROM posthaste.dead").await?;
    assert_eq!(next(&mut heard).await?, [alert("resolved", "jobs.expired")]);
    Ok(())
}
