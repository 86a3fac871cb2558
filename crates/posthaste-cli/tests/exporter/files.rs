//! The files for Prometheus and Grafana use names of exposed metrics.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use posthaste_testkit::{Sql as _, ran};
use serde_json::Value;

use super::{exporter, got, served};
use crate::stage::{self, BOUND, Stage};

fn file(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operate")).join(name)
}

/// Returns the metrics that a text names; those of a histogram without the suffix.
fn named_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_lowercase() && letter != '_');
    let names = words.filter(|word| word.starts_with("posthaste_"));
    names
        .map(|word| word.trim_end_matches("_bucket").to_owned())
        .collect()
}

/// Collects all values of a key at any depth.
fn values<'a>(of: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match of {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let (true, Some(text)) = (name == key, value.as_str()) {
                    found.push(text);
                }
                values(value, key, found);
            }
        }
        Value::Array(all) => all.iter().for_each(|one| values(one, key, found)),
        _ => {}
    }
}

fn dashboard(name: &str) -> anyhow::Result<Value> {
    Ok(serde_json::from_slice(&fs::read(file(name))?)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_of_the_rules_and_dashboards_is_exported() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    stage.write(
        "posthaste.toml",
        "[route.audit]\nto = 'stdout:'\nqueue = 'audit'\n",
    )?;
    let client = database.client().await?;
    client
        .run(
            "CREATE TABLE page (id bigint PRIMARY KEY, title text);
             SELECT posthaste.sync_table('page');
             SELECT posthaste.enqueue('ok'), posthaste.enqueue('ok', queue => 'audit')",
        )
        .await?;
    let work = ["work", "--exec", "ok=true", "--listen", "127.0.0.1:0"];
    let mut worker = stage.spawn_on(&database, &work)?;
    let of_worker = served(&mut worker).await?;
    let mut relay = stage.spawn_on(&database, &["relay", "run"])?;
    relay.error_line("Ctrl-C stops", BOUND).await?;
    let (_exporter, of_database) = exporter(&stage, &database).await?;
    let served = posthaste_testkit::eventually;
    let run = "posthaste_run_seconds_count";
    served(
        BOUND,
        "a job has run and a relay has reported",
        async || {
            let (worker, database) = (
                got(&of_worker, "/metrics").await?,
                got(&of_database, "/metrics").await?,
            );
            Ok(worker.1.contains(run) && database.1.contains("posthaste_relay_up{"))
        },
    )
    .await?;
    let worker = got(&of_worker, "/metrics").await?.1;
    let database = got(&of_database, "/metrics").await?.1;
    let of_types = |text: &str| -> BTreeSet<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        lines
            .filter_map(|line| Some(line.split_once(' ')?.0.to_owned()))
            .collect()
    };
    let mut is_served = of_types(&worker);
    is_served.extend(of_types(&database));
    let mut is_named = named_in(&fs::read_to_string(file("prometheus/posthaste.rules.yml"))?);
    let grafana = dashboard("grafana/posthaste.json")?;
    let mut expressions = Vec::new();
    values(&grafana, "expr", &mut expressions);
    ensure!(expressions.len() > 10, "{expressions:?}");
    is_named.extend(expressions.iter().flat_map(|text| named_in(text)));
    let missing: Vec<_> = is_named.difference(&is_served).collect();
    assert!(missing.is_empty(), "{missing:?} of {is_served:?}");
    checked("metrics", &worker)?;
    checked("metrics", &database)
}

/// Fails unless promtool accepts the text without a warning.
fn checked(what: &str, text: &str) -> anyhow::Result<()> {
    let mut promtool = std::process::Command::new("promtool");
    promtool.args(["check", what]);
    let Ok(mut child) = promtool
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
    else {
        ran::not_run("promtool takes the metrics", "there is no promtool");
        return Ok(());
    };
    use std::io::Write as _;
    child
        .stdin
        .take()
        .context("no input")?
        .write_all(text.as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{output:?}\n{text}");
    Ok(())
}

#[test]
fn shipped_prometheus_files_pass_promtool() -> anyhow::Result<()> {
    for (what, name) in [
        ("check rules", "prometheus/posthaste.rules.yml"),
        ("test rules", "prometheus/posthaste.rules.test.yml"),
        ("check config", "prometheus/prometheus.yml"),
    ] {
        let mut promtool = std::process::Command::new("promtool");
        promtool.args(what.split(' ')).arg(file(name));
        match promtool.output() {
            Ok(output) => ensure!(output.status.success(), "{name}: {output:?}"),
            Err(error) => ran::not_run("the files for Prometheus", &error.to_string()),
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_statement_of_the_sql_dashboard_runs() -> anyhow::Result<()> {
    let client = stage::database().await?;
    let client = client.client().await?;
    let grafana = dashboard("grafana/posthaste-sql.json")?;
    let mut statements = Vec::new();
    values(&grafana, "rawSql", &mut statements);
    ensure!(statements.len() > 5, "{statements:?}");
    for statement in statements {
        let plan = client.query(&format!("EXPLAIN {statement}"), &[]).await;
        plan.with_context(|| statement.to_owned())?;
        client
            .query(statement, &[])
            .await
            .with_context(|| statement.to_owned())?;
    }
    Ok(())
}
