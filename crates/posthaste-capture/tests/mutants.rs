//! Broken variants of the capture, made by exact replacement in a copy of its source. An
//! environment variable chooses the broken variant at run time, so that the copy is built once.
//! Each must fail the test that is named for it, which passes without it. A replacement that no
//! longer matches fails the run.

mod list;
mod tree;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use list::{MUTANTS, Mutant};
use tree::{BUG, Programs};

/// Timeout of a test; none takes half as long. A test that does not end proves nothing about a
/// mutant.
const LONGEST: Duration = Duration::from_secs(240);

#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Passed,
    Failed,
    Hung,
}

#[test]
fn every_mutant_still_differs_from_the_source() {
    for mutant in MUTANTS {
        tree::edited(mutant).unwrap_or_else(|error| panic!("{}: {error:#}", mutant.name));
    }
}

/// For `make mutants`. `POSTHASTE_MUTANTS` selects the mutants whose name contains it.
#[test]
#[ignore = "takes minutes: make mutants"]
fn every_mutant_is_killed() -> anyhow::Result<()> {
    let wanted = std::env::var("POSTHASTE_MUTANTS").unwrap_or_default();
    let chosen = MUTANTS.iter().filter(|one| one.name.contains(&wanted));
    let chosen: Vec<&Mutant> = chosen.collect();
    let programs = tree::build(MUTANTS)?;
    let mut tests: Vec<&str> = chosen.iter().map(|one| one.test).collect();
    tests.sort_unstable();
    tests.dedup();
    for test in tests {
        let ended = run(&programs, test, None)?;
        ensure!(ended == Ended::Passed, "{test}: {ended:?} without a mutant");
    }
    let mut survivors = Vec::new();
    for mutant in &chosen {
        let began = Instant::now();
        let ended = run(&programs, mutant.test, Some(mutant.name))?;
        let seconds = began.elapsed().as_secs_f32();
        let is_killed = ended == Ended::Failed;
        let head = if is_killed { "killed" } else { "SURVIVED" };
        println!(
            "{head:<9} {}  | {}, {seconds:.1} s",
            mutant.name, mutant.test
        );
        if !is_killed {
            survivors.push(mutant.name);
        }
    }
    posthaste_testkit::ran::count("mutants of captures", chosen.len() as u64);
    ensure!(survivors.is_empty(), "survived: {survivors:?}");
    Ok(())
}

/// Runs one test, alone.
fn run(programs: &Programs, test: &str, bug: Option<&str>) -> anyhow::Result<Ended> {
    let mut command = Command::new(programs.of(test));
    command
        .args(["--exact", test])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .env_remove(BUG);
    if let Some(bug) = bug {
        command.env(BUG, bug);
    }
    let mut process = command.spawn().context(test.to_owned())?;
    let end = Instant::now() + LONGEST;
    while process.try_wait()?.is_none() {
        if Instant::now() > end {
            process.kill()?;
            process.wait()?;
            return Ok(Ended::Hung);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = process.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if text.contains("test result: ok. 1 passed") {
        return Ok(Ended::Passed);
    }
    if text.contains("0 passed; 1 failed") {
        return Ok(Ended::Failed);
    }
    bail!("{test} did not run: {text}")
}
