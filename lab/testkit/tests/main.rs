//! The guarantees of the test kit.

mod child;
mod database;
mod postgres;
mod proxy;
mod ran;
mod receivers;
mod sql;
mod watchdog;

use std::process::Command;
use std::time::Duration;

/// Longer than any test here takes on a busy machine with two cores.
const BOUND: Duration = Duration::from_secs(60);

fn shell(script: &str) -> Command {
    let mut command = posthaste_testkit::command("/bin/sh");
    command.args(["-c", script]);
    command
}
