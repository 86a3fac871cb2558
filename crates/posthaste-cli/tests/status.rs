//! `posthaste status`: once, and again and again.

use std::io::Write as _;

use crate::stage::{self, BOUND, Stage};

#[tokio::test(flavor = "multi_thread")]
async fn status_counts_jobs_by_queue_and_state() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::database().await?;
    let nothing = stage.run_on(&database, &["status"]).await?.good()?;
    assert_eq!(nothing, "no jobs: everything that was enqueued is done");
    for arguments in [
        &["enqueue", "a", "--queue", "mail"][..],
        &[
            "enqueue",
            "b",
            "--queue",
            "mail",
            "--scheduled-at",
            "2999-01-01T00:00:00Z",
            "--expires-at",
            "2999-02-01T00:00:00Z",
        ],
        &["enqueue", "c"],
    ] {
        stage.run_on(&database, arguments).await?.good()?;
    }
    let table = stage.run_on(&database, &["status"]).await?.good()?;
    // What has waited for seconds may have done so for a minute on a slow machine.
    let table: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().take(3).collect())
        .collect();
    assert_eq!(
        table,
        [
            ["queue", "claimable", "scheduled"],
            ["default", "1", "0"],
            ["mail", "1", "1"]
        ]
    );
    let names = stage.run_on(&database, &["status", "--by", "name,tag"]);
    assert_eq!(
        names.await?.good()?,
        "name   tag     claimable   scheduled\na                      1           0\nb                      0           1\nc                      1           0"
    );
    let json = stage
        .run_on(&database, &["status", "--json"])
        .await?
        .good()?;
    let json: serde_json::Value = serde_json::from_str(&json)?;
    assert_eq!(json["queues"]["mail"]["scheduled"], 1);
    assert_eq!(json["queues"]["mail"]["dead"], 0);
    assert!(json["queues"]["mail"]["oldest_seconds"].as_f64() >= Some(0.0));
    assert_eq!(json["jobs"][2]["name"], "b");
    assert_eq!(json["jobs"][2]["scheduled"], 1);
    assert_eq!(json["jobs"][2]["done_total"], 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_is_watched_is_shown_again_until_ctrl_c() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::database().await?;
    let mut watched = stage.spawn_on(&database, &["status", "--watch", "1"])?;
    watched.line("no jobs", BOUND).await?;
    let enqueue = stage.run_on(&database, &["enqueue", "a"]);
    enqueue.await?.good()?;
    watched.line("default", BOUND).await?;
    watched.interrupt()?;
    assert!(watched.exit(BOUND).await?.success());
    let shown = watched.stdout();
    assert!(!shown.concat().contains('\u{1b}'), "no terminal: {shown:?}");

    let mut json = stage.spawn_on(&database, &["status", "--json", "--watch", "1"])?;
    for _ in 0..2 {
        let line = json.line("{", BOUND).await?;
        let line: serde_json::Value = serde_json::from_str(&line)?;
        assert_eq!(line["queues"]["default"]["claimable"], 1);
    }
    json.terminate()?;
    assert!(json.exit(BOUND).await?.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_terminal_it_is_drawn_in_its_place_until_ctrl_c() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let database = stage::database().await?;
    let keys = stage.folder.join("keys");
    let status = stage.command(&["status", "--watch", "1"]);
    let program = status.get_program().to_string_lossy().into_owned();
    // The terminal is that of `script`, which types what comes through the pipe. It starts a shell, of which Ctrl-C must leave nothing but the command.
    let mut command = std::process::Command::new("sh");
    command
        .args([
            "-c",
            "mkfifo keys; echo ready; exec script -qefc \"exec $0 status --watch 1\" /dev/null <>keys",
        ])
        .arg(program)
        .current_dir(&stage.folder)
        .env("DATABASE_URL", database.url());
    let mut watched = posthaste_testkit::Child::spawn(&mut command)?;
    watched.line("no jobs", BOUND).await?;
    stage.run_on(&database, &["enqueue", "a"]).await?.good()?;
    watched.line("default", BOUND).await?;
    let mut keyboard = std::fs::OpenOptions::new().append(true).open(&keys)?;
    keyboard.write_all(b"\x03")?;
    assert!(
        watched.exit(BOUND).await?.success(),
        "{:?}",
        watched.stdout()
    );
    let shown = watched.stdout().join("\n");
    let drawn: Vec<&str> = shown.split("\u{1b}[H\u{1b}[2J").skip(1).collect();
    assert!(drawn.len() >= 2, "{shown:?}");
    assert!(drawn[0].starts_with("no jobs"), "{shown:?}");
    assert!(
        drawn.last().is_some_and(|last| last.starts_with("queue")),
        "{shown:?}"
    );
    Ok(())
}
