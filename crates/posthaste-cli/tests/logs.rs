//! The log as read by a log collector.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use posthaste_testkit::{Child, eventually};
use serde_json::{Map, Value};

use crate::stage::{self, BOUND, CommandOutput, Stage};

/// Occurs in the arguments of jobs and must be in no line.
const MARK: &str = "geheim7719";
/// The name of a queue with control characters.
const HOSTILE: &str = "a\u{1b}[2J\n\"b";

fn document(line: &str) -> anyhow::Result<Map<String, Value>> {
    let read: Map<String, Value> = serde_json::from_str(line).with_context(|| line.to_owned())?;
    for field in ["timestamp", "level", "message", "target"] {
        ensure!(read.get(field).is_some_and(Value::is_string), "{line}");
    }
    Ok(read)
}

/// Returns the fields that docs/operate/logs.md lists.
fn documented() -> anyhow::Result<BTreeSet<String>> {
    let page = include_str!("../../../docs/operate/logs.md");
    let (_, table) = page.split_once("## Fields\n").context("no fields")?;
    let table = table.split("\n#").next().unwrap_or_default();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let columns = rows.filter_map(|row| row.split(" | ").next());
    let names = columns.flat_map(|column| column.split(['`', ',', ' ']));
    let names = names.filter(|name| !name.is_empty());
    Ok(names.map(str::to_owned).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn json_logs_have_only_documented_fields() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let enqueue = "SELECT posthaste.enqueue($1::text, jsonb_build_object('n', $2::text), $3::text,
        max_attempts => 1)";
    let mut jobs: Vec<i64> = Vec::new();
    for (name, queue) in [("ok", "mail"), ("no", "mail"), ("other", HOSTILE)] {
        let row = client.query_one(enqueue, &[&name, &MARK, &queue]).await?;
        jobs.push(row.try_get(0)?);
    }
    let work = ["work", "--exec", "ok=true", "--exec", "no=false", "--queue"];
    let mut command = stage.command(&work);
    command
        .args(["mail", "--queue", HOSTILE, "--listen", "127.0.0.1:0"])
        .env("DATABASE_URL", database.url())
        .env("POSTHASTE_LOG", "posthaste=trace")
        .env("POSTHASTE_LOG_FORMAT", "json");
    let mut worker = Child::spawn(&mut command)?;
    eventually(BOUND, "each job's line is there", async || {
        let stderr = worker.stderr().join("\n");
        let all = ["a job is done", "a job is dead", "no handler knows"];
        Ok(all.iter().all(|one| stderr.contains(one)))
    })
    .await?;
    worker.terminate()?;
    assert!(worker.exit(BOUND).await?.success());

    let documented = documented()?;
    assert!(
        documented.contains("job") && documented.len() > 20,
        "{documented:?}"
    );
    let lines = worker.stderr();
    let mut all = Vec::new();
    for line in &lines {
        assert!(!line.contains(MARK), "{line}");
        assert!(!line.chars().any(char::is_control), "{line}");
        let read = document(line)?;
        let other: Vec<_> = read
            .keys()
            .filter(|name| !documented.contains(*name))
            .collect();
        assert!(other.is_empty(), "{other:?} in {line}");
        all.push(read);
    }
    let of = |message: &str| {
        let mut found = all
            .iter()
            .filter(|line| line["message"].as_str() == Some(message));
        found
            .next()
            .with_context(|| format!("{message}: {lines:?}"))
    };
    let done = of("a job is done")?;
    for (field, expected) in [
        ("level", "debug".into()),
        ("target", "posthaste::consumer::ticket".into()),
        ("name", "ok".into()),
        ("queue", "mail".into()),
        ("job", jobs[0].into()),
        ("attempt", Value::from(1)),
    ] {
        assert_eq!(done[field], expected, "{done:?}");
    }
    let dead = of("a job is dead: no attempt is left")?;
    assert_eq!(
        (&dead["level"], &dead["job"]),
        (&"error".into(), &jobs[1].into())
    );
    let unknown = of("no handler knows this job name; its jobs are rescheduled")?;
    assert_eq!(unknown["queue"], HOSTILE);
    // Messages for people are lines too.
    of("stopping gracefully; a second signal stops at once")?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_log_settings_fail_at_startup() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let run = async |name: &str, value: &str, arguments: &[&str]| {
        CommandOutput::by(Child::spawn(stage.command(arguments).env(name, value))?).await
    };
    let status = ["status", "--database-url", "postgres://127.0.0.1:1/x"];
    for (name, value, expected) in [
        (
            "POSTHASTE_LOG_FORMAT",
            "jsn",
            "error: POSTHASTE_LOG_FORMAT must be 'text' or 'json'",
        ),
        (
            "POSTHASTE_LOG",
            "posthaste=loud",
            "error: POSTHASTE_LOG is invalid: ",
        ),
    ] {
        let output = run(name, value, &status).await?;
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(output.err.starts_with(expected), "{output:?}");
    }
    for name in ["POSTHASTE_LOG_FORMAT", "POSTHASTE_LOG"] {
        let output = run(name, "", &status).await?;
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(output.err.starts_with("error: "), "{output:?}");
    }
    for (arguments, code) in [(&status[..], 1), (&["stauts"][..], 2)] {
        let output = run("POSTHASTE_LOG_FORMAT", "json", arguments).await?;
        assert_eq!(
            (output.code, output.out.as_str()),
            (Some(code), ""),
            "{output:?}"
        );
        let lines: Vec<_> = output.err.lines().collect();
        assert_eq!(lines.len(), 1, "{output:?}");
        assert_eq!(document(lines[0])?["level"], "error", "{output:?}");
    }
    Ok(())
}
