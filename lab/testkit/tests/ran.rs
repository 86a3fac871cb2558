//! The line at the end of a run reports what really ran.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use posthaste_testkit::ran;

struct Ledger(PathBuf);

impl Ledger {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("posthaste-ledger-{}-{name}", std::process::id())))
    }

    /// Makes another test process write its part.
    fn written_by_a_test_process(&self) -> anyhow::Result<()> {
        let output = Command::new(std::env::current_exe()?)
            .args(["--exact", "ran::role_that_notes", "--ignored"])
            .env("POSTHASTE_RAN", &self.0)
            .output()?;
        anyhow::ensure!(output.status.success(), "{output:?}");
        Ok(())
    }

    fn sum(&self, demand: &[&str]) -> anyhow::Result<Output> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/ran.sh");
        Ok(Command::new(script).arg(&self.0).args(demand).output()?)
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn the_notes_and_counts_of_all_test_processes_are_summed() -> anyhow::Result<()> {
    let ledger = Ledger::new("summed");
    ledger.written_by_a_test_process()?;
    ledger.written_by_a_test_process()?;
    let output = ledger.sum(&["pg15", "kills=14", "cuts"])?;
    let said = String::from_utf8(output.stdout)?;
    assert_eq!(said.lines().last(), Some("ran: pg15 pg18 cuts=4 kills=14"));
    assert!(output.status.success());
    Ok(())
}

#[test]
fn required_parts_that_ran_too_rarely_fail_the_run() -> anyhow::Result<()> {
    let ledger = Ledger::new("demanded");
    ledger.written_by_a_test_process()?;
    let output = ledger.sum(&["pg15", "pg17", "kills=8", "cuts=2"])?;
    let said = String::from_utf8(output.stdout)?;
    assert_eq!(
        said.lines().last(),
        Some("absent, though demanded: pg17 kills=8")
    );
    assert_eq!(output.status.code(), Some(1));
    Ok(())
}

#[test]
fn tests_that_could_not_run_are_listed_once_before_the_total() -> anyhow::Result<()> {
    let ledger = Ledger::new("not-run");
    ledger.written_by_a_test_process()?;
    ledger.written_by_a_test_process()?;
    let output = ledger.sum(&[])?;
    assert_eq!(
        String::from_utf8(output.stdout)?
            .lines()
            .collect::<Vec<_>>(),
        [
            "not run: a job reaches Kafka: no a=b here",
            "ran: pg15 pg18 cuts=4 kills=14"
        ]
    );
    Ok(())
}

#[test]
fn empty_runs_are_reported() -> anyhow::Result<()> {
    let ledger = Ledger::new("nothing");
    fs::write(&ledger.0, "")?;
    assert_eq!(
        String::from_utf8(ledger.sum(&[])?.stdout)?,
        "ran: nothing\n"
    );
    assert!(!ledger.sum(&["pg15"])?.status.success());
    Ok(())
}

#[test]
#[ignore = "a role that the tests above run in a process of its own"]
fn role_that_notes() {
    // Without a separate ledger this would write into the real one.
    if std::env::var_os("POSTHASTE_RAN")
        .is_none_or(|ledger| !ledger.to_string_lossy().contains("posthaste-ledger-"))
    {
        return;
    }
    ran::note("pg18");
    ran::note("pg15");
    ran::note("pg15");
    ran::count("kills", 3);
    ran::count("kills", 4);
    ran::count("cuts", 2);
    ran::not_run("a job reaches Kafka", "no\na=b here");
}
