//! `posthaste top`, printed and on a terminal.

use std::io::Write as _;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use posthaste_testkit::{Child, Sql as _, TestDb, eventually, number};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::stage::{self, BOUND, Stage};

/// Two queues, one of them late.
const JOBS: &str = "SELECT posthaste.enqueue('a', queue => 'mail') FROM generate_series(1, 3);
                    SELECT posthaste.enqueue('b', queue => 'later',
                                             scheduled_at => now() + interval '1 day')";

#[tokio::test(flavor = "multi_thread")]
async fn top_shows_late_queues_findings_and_holders_of_rows() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let (client, reader) = (database.client().await?, database.client().await?);
    client.run(JOBS).await?;
    let keeps = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class";
    reader.run(keeps).await?;
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

/// Reports its process id, and afterwards the settings of the terminal.
const RUN: &str = r#"
trap : INT
sh -c 'echo $$ >pid; exec "$0" "$@"' "$@"
code=$?
stty -a
exit "$code"
"#;
/// The same for a shell with job control: on a key it continues a stopped program.
const CONTINUE: &str = r#"
set -m
"$@"
stty -a
echo stopped
read -r _
fg
"#;
/// The sequences that begin and end the screen of frames.
const BEGIN: &str = "\x1b[?1049h";
const END: &str = "\x1b[?1049l";

/// A separate terminal on which a shell runs top.
struct Screen {
    top: Child,
    keys: std::fs::File,
    folder: PathBuf,
}

impl Screen {
    fn start(
        stage: &Stage,
        database: &TestDb,
        shell: &str,
        options: &[&str],
    ) -> anyhow::Result<Self> {
        let folder = stage.folder.clone();
        let fifo = folder.join("keys");
        if !fifo.exists() {
            let made = Command::new("mkfifo").arg(&fifo).status()?;
            anyhow::ensure!(made.success(), "no fifo");
        }
        // Without the output of the previous run.
        let _ = std::fs::remove_file(folder.join("record"));
        let size = "stty cols 120 rows 40; tty >tty";
        std::fs::write(folder.join("run"), format!("{size}\n{shell}"))?;
        // Ctrl-C must not reach a second shell, which would not handle it.
        let terminal = r#"exec script -qefc "exec sh run $*" record <keys"#;
        let arguments = [&["top"][..], options].concat();
        let mut command = stage.through("sh", terminal, &arguments);
        command.env("DATABASE_URL", database.url());
        let top = Child::spawn(&mut command)?;
        // Opened once the other end is open.
        let keys = std::fs::OpenOptions::new().write(true).open(fifo)?;
        Ok(Self { top, keys, folder })
    }

    /// Returns an emulated terminal of this size to which these bytes were written.
    fn emulated(bytes: &[u8], rows: u16, columns: u16) -> anyhow::Result<vt100::Parser> {
        let size = |cells| NonZeroU16::new(cells).context("no cells");
        let mut parser = vt100::Parser::new(size(rows)?, size(columns)?, 0);
        parser.process(bytes);
        Ok(parser)
    }

    fn written(&self) -> anyhow::Result<Vec<u8>> {
        Ok(std::fs::read(self.folder.join("record")).unwrap_or_default())
    }

    fn screen(&self) -> anyhow::Result<vt100::Parser> {
        Self::emulated(&self.written()?, 40, 120)
    }

    fn times_written(&self, part: &str) -> anyhow::Result<usize> {
        let written = String::from_utf8_lossy(&self.written()?).into_owned();
        Ok(written.matches(part).count())
    }

    /// Waits until the screen contains this.
    async fn shows(&self, text: &str) -> anyhow::Result<()> {
        eventually(BOUND, text, async || {
            let shown = self.screen()?.screen().contents();
            anyhow::ensure!(shown.contains(text), "{shown}");
            Ok(true)
        })
        .await
    }

    /// Presses these keys and waits until the screen contains this.
    async fn press(&mut self, keys: &[u8], shown: &str) -> anyhow::Result<()> {
        self.keys.write_all(keys)?;
        self.shows(shown).await
    }

    /// Presses q and waits for the end.
    async fn quit(mut self) -> anyhow::Result<()> {
        self.keys.write_all(b"q")?;
        let status = self.top.exit(BOUND).await?;
        anyhow::ensure!(status.success(), "{:?}", self.top.stdout());
        self.is_restored()
    }

    /// Fails unless the terminal has its previous settings, screen and cursor.
    fn is_restored(&self) -> anyhow::Result<()> {
        let screen = self.screen()?;
        let screen = screen.screen();
        let after = screen.contents();
        anyhow::ensure!(!screen.alternate_screen(), "the screen: {after}");
        anyhow::ensure!(!screen.hide_cursor(), "the cursor: {after}");
        let is_set = |mode: &str| after.split_whitespace().any(|word| word == mode);
        for mode in ["icanon", "echo", "isig", "opost"] {
            anyhow::ensure!(is_set(mode), "{mode}: {after}");
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn top_restores_the_terminal_on_q() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    database.client().await?.run(JOBS).await?;
    // A terminal that does not report its size; at the end its settings are printed.
    let terminal = r#"exec script -qec "$*; s=\$?; stty -a; exit \$s" /dev/null"#;
    let mut command = stage.through("sh", terminal, &["top", "--every", "1h"]);
    command.env("DATABASE_URL", database.url());
    let mut top = Child::spawn_fed(&mut command, b"q".to_vec())?;
    let status = top.exit(BOUND).await?;
    let written = top.stdout().join("\n");
    assert!(status.success(), "{written}");
    let (frames, after) = written.split_once(END).context("it is not restored")?;
    let (_, frames) = frames.split_once(BEGIN).context("no screen")?;
    let drawn = Screen::emulated(frames.as_bytes(), 24, 80)?;
    let shown = drawn.screen().contents();
    for part in ["q quits", "mail"] {
        assert!(shown.contains(part), "{part:?}: {shown:?}");
    }
    let is_set = |mode: &str| after.split_whitespace().any(|word| word == mode);
    assert!(is_set("icanon") && is_set("echo"), "{after}");
    assert!(after.contains("\u{1b}[?25h"), "{after:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_and_ctrl_c_restore_the_terminal() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    database.client().await?.run(JOBS).await?;
    for signal in [None, Some(Signal::TERM), Some(Signal::INT)] {
        let mut screen = Screen::start(&stage, &database, RUN, &["--every", "1h"])?;
        screen.shows("q quits").await?;
        match signal {
            None => screen.keys.write_all(b"\x03")?,
            Some(signal) => {
                let pid = std::fs::read_to_string(stage.folder.join("pid"))?;
                let pid = Pid::from_raw(pid.trim().parse()?).context("no pid")?;
                kill_process(pid, signal)?;
            }
        }
        let status = screen.top.exit(BOUND).await?;
        assert!(status.success(), "{signal:?}: {:?}", screen.top.stdout());
        screen.is_restored()?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_z_restores_the_terminal_until_top_is_continued() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    database.client().await?.run(JOBS).await?;
    let mut screen = Screen::start(&stage, &database, CONTINUE, &["--every", "1h"])?;
    screen.shows("q quits").await?;
    screen.press(b"\x1a", "\nstopped").await?;
    screen.is_restored()?;
    screen.press(b"\n", "q quits").await?;
    screen.press(b"j", "> mail").await?;
    screen.quit().await?;

    // In a session without a shell no process could continue the program.
    let mut screen = Screen::start(&stage, &database, RUN, &["--every", "1h"])?;
    screen.shows("q quits").await?;
    screen.keys.write_all(b"\x1a")?;
    eventually(BOUND, "the second screen", async || {
        Ok(screen.times_written(BEGIN)? == 2)
    })
    .await?;
    screen.press(b"j", "> mail").await?;
    screen.quit().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resized_terminal_is_drawn_at_once() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let queues = "SELECT posthaste.enqueue('a', queue => 'q' || at) FROM generate_series(1, 20) at";
    database.client().await?.run(queues).await?;
    let screen = Screen::start(&stage, &database, RUN, &["--every", "1h"])?;
    screen.shows("no worker\nq9 ").await?;
    assert_eq!(screen.times_written("queues more")?, 0);
    let tty = std::fs::read_to_string(stage.folder.join("tty"))?;
    let stty = ["-F", tty.trim(), "cols", "40", "rows", "12"];
    assert!(Command::new("stty").args(stty).status()?.success());
    eventually(BOUND, "fewer queues", async || {
        let drawn = Screen::emulated(&screen.written()?, 12, 40)?;
        let shown = drawn.screen().contents();
        anyhow::ensure!(shown.contains(" queues more"), "{shown}");
        Ok(true)
    })
    .await?;
    screen.quit().await
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_red_unless_no_color_is_set() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    database.client().await?.run(JOBS).await?;
    let colored = RUN.to_owned();
    let plain = format!("export NO_COLOR=1\n{RUN}");
    for (shell, expected) in [
        (colored, vt100::Color::Idx(1)),
        (plain, vt100::Color::Default),
    ] {
        let screen = Screen::start(&stage, &database, &shell, &["--every", "1h"])?;
        screen.shows("ERROR worker.none").await?;
        let drawn = screen.screen()?;
        let cell = drawn.screen().cell(2, 0).context("no cell")?;
        assert_eq!(cell.contents(), "E");
        assert_eq!(cell.fgcolor(), expected, "{shell}");
        screen.quit().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_work_while_the_database_does_not_answer() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let (client, locks) = (database.client().await?, database.client().await?);
    client.run(JOBS).await?;
    let mut screen = Screen::start(&stage, &database, RUN, &["--every", "1s"])?;
    screen.shows("q quits").await?;
    let lock = "BEGIN; LOCK TABLE posthaste.queue IN ACCESS EXCLUSIVE MODE";
    locks.run(lock).await?;
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND database =
                 (SELECT oid FROM pg_database WHERE datname = current_database())";
    eventually(BOUND, "a read that waits", async || {
        Ok(number(&client, waits).await? > 0)
    })
    .await?;
    screen.press(b"j", "> mail").await?;
    screen.shows("outdated: ").await?;
    locks.run("ROLLBACK").await?;
    screen.shows("q quits").await?;
    screen.quit().await
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_select_and_sort_but_change_queues_only_with_operate() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    client.run(JOBS).await?;
    let paused = "SELECT count(*) FROM posthaste.queue WHERE paused_at IS NOT NULL";
    let mut reader = Screen::start(&stage, &database, RUN, &["--every", "1h"])?;
    reader.press(b"j", "> mail").await?;
    reader.press(b"\x1b[B", "> later").await?;
    reader.press(b"k", "> mail").await?;
    reader.press(b"p", "start with --operate").await?;
    reader.press(b"ssss", "by name").await?;
    reader.press(b" ", "updates paused").await?;
    reader.press(b"?", "pause and resume updates").await?;
    assert_eq!(number(&client, paused).await?, 0, "read-only");
    reader.quit().await?;

    let options = ["--every", "1h", "--operate"];
    let mut operates = Screen::start(&stage, &database, RUN, &options)?;
    operates.press(b"p", "select a queue first").await?;
    operates.press(b"j", "> mail").await?;
    operates.press(b"p", "queue mail is paused").await?;
    assert_eq!(number(&client, paused).await?, 1);
    operates.press(b"p", "queue mail is already paused").await?;
    operates.press(b"r", "queue mail is resumed").await?;
    assert_eq!(number(&client, paused).await?, 0);
    operates.quit().await
}
