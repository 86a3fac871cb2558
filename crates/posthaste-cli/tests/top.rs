//! `posthaste top`, printed and on a terminal.

use std::io::Write as _;

use posthaste_testkit::{Child, TestDb, eventually, number};
use serde_json::Value;

use crate::stage::{self, BOUND, Stage};

/// Two queues, of which one is late, and somebody who keeps rows.
const JOBS: &str = "SELECT posthaste.enqueue('a', queue => 'mail') FROM generate_series(1, 3);
                    SELECT posthaste.enqueue('b', queue => 'later',
                                             scheduled_at => now() + interval '1 day')";

#[tokio::test(flavor = "multi_thread")]
async fn top_shows_late_queues_findings_and_holders_of_rows() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let (client, reader) = (database.client().await?, database.client().await?);
    client.batch_execute(JOBS).await?;
    let keeps = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class";
    reader.batch_execute(keeps).await?;
    let output = stage.run_on(&database, &["--json", "top"]).await?.good()?;
    let frame: Value = serde_json::from_str(&output)?;
    let first = &frame["queues"][0];
    assert_eq!(first["queue"], "mail", "{frame}");
    assert_eq!(
        (&first["available"], &first["is_worked"]),
        (&3.into(), &false.into())
    );
    assert!(first["late_seconds"].as_f64() > Some(0.0), "{frame}");
    assert_eq!(first["completed_a_second"], 0.0, "{frame}");
    assert_eq!(frame["queues"][1]["scheduled"], 1, "{frame}");
    assert_eq!(frame["findings"][0]["id"], "worker.none", "{frame}");
    let holders = frame["horizon"].as_array().into_iter().flatten();
    let mut holders = holders.map(|one| &one["holder"]);
    assert!(holders.any(|one| one == "transaction"), "{frame}");

    let output = stage.run_on(&database, &["top", "--once"]).await?.good()?;
    assert!(output.contains("ERROR worker.none"), "{output}");
    assert!(output.contains("VACUUM waits for: transaction"), "{output}");
    let late = output.lines().find(|line| line.starts_with("mail"));
    assert!(
        late.is_some_and(|line| line.ends_with("no worker")),
        "{output}"
    );
    let piped = stage.run_on(&database, &["top"]).await?.failure()?;
    assert!(piped.contains("not a terminal"), "{piped}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn top_restores_the_terminal_on_q() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    database.client().await?.batch_execute(JOBS).await?;
    // A terminal of its own, which says at the end how it is set.
    let terminal = r#"exec script -qec "$*; s=\$?; stty -a; exit \$s" /dev/null"#;
    let mut command = stage.through("sh", terminal, &["top", "--every", "1h"]);
    command.env("DATABASE_URL", database.url());
    let mut top = Child::spawn_fed(&mut command, b"q".to_vec())?;
    let status = top.exit(BOUND).await?;
    let shown = top.stdout().join("\n");
    assert!(status.success(), "{shown}");
    for part in ["\u{1b}[?1049h", "q quits", "mail", "\u{1b}[?1049l"] {
        assert!(shown.contains(part), "{part:?}: {shown:?}");
    }
    let after = shown.rsplit("\u{1b}[?1049l").next().unwrap_or_default();
    let is_set = |mode: &str| after.split_whitespace().any(|word| word == mode);
    assert!(is_set("icanon") && is_set("echo"), "{after}");
    Ok(())
}

/// A terminal of its own, with a top whose keys are pressed once `until` stands on the screen.
struct Pressed {
    top: Child,
    keys: std::fs::File,
}

impl Pressed {
    fn start(stage: &Stage, database: &TestDb, options: &[&str]) -> anyhow::Result<Self> {
        let fifo = stage.folder.join("keys");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status()?;
        anyhow::ensure!(made.success(), "no fifo");
        let terminal = r#"exec script -qec "stty cols 120 rows 40; $*" /dev/null <keys"#;
        let arguments = [&["top", "--every", "1h"][..], options].concat();
        let mut command = stage.through("sh", terminal, &arguments);
        command.env("DATABASE_URL", database.url());
        let top = Child::spawn(&mut command)?;
        // Opened when the other end is.
        let keys = std::fs::OpenOptions::new().write(true).open(fifo)?;
        Ok(Self { top, keys })
    }

    /// Presses these keys and waits until this appears on the screen after it.
    async fn press(&mut self, keys: &[u8], shown: &str) -> anyhow::Result<()> {
        let before = self.top.stdout().join("\n").len();
        self.keys.write_all(keys)?;
        eventually(BOUND, shown, async || {
            let all = self.top.stdout().join("\n");
            Ok(all.get(before..).is_some_and(|new| new.contains(shown)))
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_select_and_sort_but_change_queues_only_with_operate() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    client.batch_execute(JOBS).await?;
    // The last line of a screen has no end that could be waited for: this queue is on it.
    let last =
        "SELECT posthaste.enqueue('c', queue => 'zz', scheduled_at => now() + interval '1 day')";
    client.batch_execute(last).await?;
    let paused = "SELECT count(*) FROM posthaste.queue WHERE paused_at IS NOT NULL";
    let mut reader = Pressed::start(&stage, &database, &[])?;
    reader.press(b"j", "> mail").await?;
    reader.press(b"\x1b[B", "> later").await?;
    reader.press(b"k", "> mail").await?;
    reader.press(b"p", "start it with --operate").await?;
    reader.press(b"ssss", "by name").await?;
    reader.press(b" ", "held").await?;
    reader.press(b"?", "pause and continue updates").await?;
    assert_eq!(number(&client, paused).await?, 0, "read-only");
    reader.keys.write_all(b"q")?;
    assert!(reader.top.exit(BOUND).await?.success());

    std::fs::remove_file(stage.folder.join("keys"))?;
    let mut operates = Pressed::start(&stage, &database, &["--operate"])?;
    operates.press(b"p", "choose a queue first").await?;
    operates.press(b"j", "> mail").await?;
    operates.press(b"p", "queue mail is paused").await?;
    assert_eq!(number(&client, paused).await?, 1);
    operates
        .press(b"p", "queue mail was paused already")
        .await?;
    operates.press(b"r", "queue mail is resumed").await?;
    assert_eq!(number(&client, paused).await?, 0);
    operates.keys.write_all(b"q")?;
    assert!(operates.top.exit(BOUND).await?.success());
    Ok(())
}
