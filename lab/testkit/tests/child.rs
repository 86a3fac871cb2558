//! Children are watched and signalled, and never outlive their owner.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use posthaste_testkit::{Child, eventually, is_alive};

use crate::{BOUND, shell};

const COUNTING: &str = "i=0; while :; do i=$((i + 1)); echo \"line $i\"; sleep 0.01; done";

#[tokio::test]
async fn lines_are_found_in_order() -> anyhow::Result<()> {
    let mut child = Child::spawn(&mut shell(
        "echo one; echo two; echo one more; echo oops >&2; exit 3",
    ))?;
    assert_eq!(child.line("one", BOUND).await?, "one");
    assert_eq!(child.line("one", BOUND).await?, "one more");
    assert_eq!(child.error_line("oops", BOUND).await?, "oops");
    let missing = child.line("three", BOUND).await.unwrap_err();
    assert!(
        format!("{missing:#}").contains("ended its output"),
        "{missing:#}"
    );
    assert_eq!(child.exit(BOUND).await?.code(), Some(3));
    assert_eq!(child.stdout(), ["one", "two", "one more"]);
    Ok(())
}

#[tokio::test]
async fn waiting_for_a_missing_line_ends_at_the_limit() -> anyhow::Result<()> {
    let mut child = Child::spawn(&mut shell("echo here; exec sleep 600"))?;
    let error = child
        .line("there", Duration::from_millis(50))
        .await
        .unwrap_err();
    assert!(format!("{error:#}").contains("here"), "{error:#}");
    Ok(())
}

#[tokio::test]
async fn input_is_written_completely() -> anyhow::Result<()> {
    let mut child = Child::spawn_fed(&mut shell("wc -c"), vec![b'x'; 1 << 20])?;
    child.line("1048576", BOUND).await?;
    assert!(child.exit(BOUND).await?.success());
    Ok(())
}

#[tokio::test]
async fn children_receive_termination_signals() -> anyhow::Result<()> {
    let script = "trap 'echo asked; exit 0' TERM; trap 'echo interrupted' INT; echo ready;
        while :; do sleep 0.01; done";
    let mut child = Child::spawn(&mut shell(script))?;
    child.line("ready", BOUND).await?;
    child.interrupt()?;
    child.line("interrupted", BOUND).await?;
    child.terminate()?;
    child.line("asked", BOUND).await?;
    assert!(child.exit(BOUND).await?.success());
    assert!(child.terminate().is_err(), "it has ended");
    Ok(())
}

#[tokio::test]
async fn children_receive_signals_that_their_parent_ignores() -> anyhow::Result<()> {
    let test = "child::children_receive_termination_signals";
    let ignoring = "trap '' HUP INT QUIT TERM; exec \"$0\" --exact \"$1\"";
    let mut tests = Command::new("/bin/sh");
    tests
        .args(["-c", ignoring])
        .arg(std::env::current_exe()?)
        .arg(test);
    let mut tests = Child::spawn(&mut tests)?;
    tests.line("1 passed", BOUND).await?;
    assert!(tests.exit(BOUND).await?.success());
    Ok(())
}

#[tokio::test]
async fn paused_children_make_no_progress_until_resumed() -> anyhow::Result<()> {
    let mut child = Child::spawn(&mut shell(COUNTING))?;
    child.line("line 3", BOUND).await?;
    child.pause()?;
    let stat = format!("/proc/{}/stat", child.pid());
    eventually(BOUND, "it stands still", async || {
        Ok(std::fs::read_to_string(&stat)?.contains(") T "))
    })
    .await?;
    assert!(is_alive(child.pid()));
    child.resume()?;
    let last = child.stdout().last().cloned().unwrap_or_default();
    eventually(BOUND, "it counts on", async || {
        Ok(child.stdout().last() != Some(&last))
    })
    .await
}

#[tokio::test]
async fn a_killed_child_is_reaped() -> anyhow::Result<()> {
    let mut child = Child::spawn(Command::new("sleep").arg("600"))?;
    let status = child.kill()?;
    assert_eq!(status.signal(), Some(9));
    assert!(!is_alive(child.pid()));
    assert_eq!(child.kill()?, status, "killing the dead changes nothing");
    Ok(())
}

#[tokio::test]
async fn dropping_a_child_ends_its_children() -> anyhow::Result<()> {
    let mut child = Child::spawn(&mut shell("sleep 600 & echo $!; wait"))?;
    let grandchild: u32 = child.line("", BOUND).await?.parse()?;
    assert!(is_alive(grandchild));
    let pid = child.pid();
    drop(child);
    assert!(!is_alive(pid));
    eventually(BOUND, "the grandchild ended", async || {
        Ok(!is_alive(grandchild))
    })
    .await
}
