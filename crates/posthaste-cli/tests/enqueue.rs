use std::fmt::Write as _;

use posthaste_testkit::number;

use crate::stage::{self, Stage};

#[tokio::test(flavor = "multi_thread")]
async fn enqueue_takes_one_job_from_arguments() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::database().await?;
    let id = stage
        .run_on(
            &database,
            &[
                "jobs",
                "enqueue",
                "mail.send",
                r#"{"to": 7}"#,
                "--queue",
                "mail",
                "--priority",
                "-5",
                "--tag",
                "spring",
                "--max-attempts",
                "unlimited",
            ],
        )
        .await?
        .good()?;
    let row = database
        .client()
        .await?
        .query_one(
            "SELECT id, name, kwargs::text, queue, priority, tag, max_attempts FROM posthaste.job",
            &[],
        )
        .await?;
    assert_eq!(row.get::<_, i64>("id"), id.parse::<i64>()?);
    assert_eq!(row.get::<_, &str>("name"), "mail.send");
    assert_eq!(row.get::<_, &str>("kwargs"), r#"{"to": 7}"#);
    assert_eq!(row.get::<_, &str>("queue"), "mail");
    assert_eq!(row.get::<_, i32>("priority"), -5);
    assert_eq!(row.get::<_, &str>("tag"), "spring");
    assert_eq!(row.get::<_, Option<i32>>("max_attempts"), None);
    let json = stage
        .run_on(&database, &["jobs", "enqueue", "again", "--json"])
        .await?
        .good()?;
    assert!(
        serde_json::from_str::<serde_json::Value>(&json)?["id"].is_i64(),
        "{json}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn enqueue_rejects_invalid_jobs() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::database().await?;
    let line = stage
        .run_on(&database, &["jobs", "enqueue", "x", "{to: 7}"])
        .await?
        .failure()?;
    assert!(
        line.starts_with("error: the arguments are not JSON: "),
        "{line}"
    );
    for wrong in [
        &["jobs", "enqueue", "x", "[]"][..],
        &["jobs", "enqueue", ""],
    ] {
        let line = stage.run_on(&database, wrong).await?.failure()?;
        assert!(
            line.starts_with("error: ") && line.lines().count() == 1,
            "{line}"
        );
    }
    assert_eq!(
        number(
            &database.client().await?,
            "SELECT count(*) FROM posthaste.job"
        )
        .await?,
        0
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn enqueue_reads_json_lines_from_files_and_stdin() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::database().await?;
    let path = stage.write("jobs.ndjson", &lines(2_500))?;
    let path = path.to_string_lossy();
    let output = stage
        .run_on(
            &database,
            &["jobs", "enqueue", "--file", &path, "--batch", "1000"],
        )
        .await?
        .good()?;
    assert_eq!(output, "enqueued 2,500 jobs");
    let output = stage
        .feed(
            &database,
            &["jobs", "enqueue", "--file", "-", "--json"],
            &lines(300),
        )
        .await?
        .good()?;
    assert_eq!(output, r#"{"jobs":300,"lines":300}"#);
    let client = database.client().await?;
    assert_eq!(
        number(
            &client,
            "SELECT count(*) FROM posthaste.job WHERE name = 'count' AND queue = 'numbers'"
        )
        .await?,
        2_800
    );
    assert_eq!(
        number(
            &client,
            "SELECT sum((kwargs->>'n')::bigint)::bigint FROM posthaste.job"
        )
        .await?,
        2_500 * 2_501 / 2 + 300 * 301 / 2
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn enqueue_stops_at_an_invalid_line_and_says_where_to_resume() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::database().await?;
    let mut text = lines(250);
    text.push_str("{\"name\": \"count\", \"queu\": \"numbers\"}\n");
    text.push_str("{\"name\": \"last\"}");
    let path = stage.write("jobs.ndjson", &text)?;
    let path = path.to_string_lossy();
    let line = stage
        .run_on(
            &database,
            &["jobs", "enqueue", "--file", &path, "--batch", "100"],
        )
        .await?
        .failure()?;
    assert!(
        line.starts_with("error: line 251, column 24: unknown field `queu`, expected"),
        "{line}"
    );
    assert!(
        line.ends_with(&format!(
            "The first 200 lines of {path} are enqueued: continue with --skip 200."
        )),
        "{line}"
    );
    let client = database.client().await?;
    assert_eq!(
        number(&client, "SELECT count(*) FROM posthaste.job").await?,
        200
    );
    stage.write("jobs.ndjson", &text.replace("queu\"", "queue\""))?;
    let output = stage
        .run_on(
            &database,
            &["jobs", "enqueue", "--file", &path, "--skip", "200"],
        )
        .await?
        .good()?;
    assert_eq!(output, "enqueued 52 jobs");
    assert_eq!(
        number(&client, "SELECT count(*) FROM posthaste.job").await?,
        252
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn enqueue_stops_between_transactions_on_a_signal() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::database().await?;
    let pipe = stage.folder.join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU)?;
    let mut child = stage.spawn_on(
        &database,
        &[
            "jobs",
            "enqueue",
            "--batch",
            "10",
            "--file",
            &pipe.to_string_lossy(),
        ],
    )?;
    // The writer stays open, so the command waits for a line that never arrives.
    let mut writer = tokio::net::unix::pipe::OpenOptions::new()
        .read_write(true)
        .open_sender(&pipe)?;
    tokio::io::AsyncWriteExt::write_all(&mut writer, lines(25).as_bytes()).await?;
    let client = database.client().await?;
    posthaste_testkit::eventually(stage::BOUND, "two batches are committed", async || {
        Ok(number(&client, "SELECT count(*) FROM posthaste.job").await? == 20)
    })
    .await?;
    child.interrupt()?;
    assert_eq!(child.exit(stage::BOUND).await?.code(), Some(1));
    let stderr = child.stderr().join("\n");
    let ending = format!(
        "error: stopped by a signal. The first 20 lines of {} are enqueued: continue with \
         --skip 20.",
        pipe.display()
    );
    assert!(stderr.ends_with(&ending), "{stderr}");
    Ok(())
}

fn lines(count: usize) -> String {
    let mut text = String::new();
    let of_all = r#""name": "count", "queue": "numbers", "max_attempts": null"#;
    for n in 1..=count {
        let _ = writeln!(text, r#"{{{of_all}, "kwargs": {{"n": {n}}}}}"#);
    }
    text
}
