//! A ledger of what really ran, which the last line of a test run reports.
//!
//! `make test` names a file in `POSTHASTE_RAN`; every test process appends to it, and
//! `scripts/ran.sh` sums it up as `ran: pg15 pg18 kills=20`. Without the variable nothing is
//! written.

use std::fs::OpenOptions;
use std::io::Write;

/// Records that a part ran, such as `pg15`; repeated records change nothing.
///
/// # Panics
///
/// If the ledger cannot be written: the part would be reported as absent although it ran.
pub fn note(fact: &str) {
    append(fact);
}

/// Adds to a count, such as 20 to `kills`; the counts of all test processes are summed.
///
/// # Panics
///
/// As [`note`].
pub fn count(fact: &str, times: u64) {
    append(&format!("{fact}={times}"));
}

/// Records that a test did not run, and why: `make test` ends by naming such tests.
///
/// # Panics
///
/// As [`note`].
pub fn not_run(test: &str, why: &str) {
    append(&format!("not run: {test}: {}", why.replace('\n', " ")));
}

fn append(line: &str) {
    let Some(path) = std::env::var_os("POSTHASTE_RAN") else {
        return;
    };
    // One write per line in append mode, so that lines of several processes do not mix.
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(&path)
        .and_then(|mut ledger| ledger.write_all(format!("{line}\n").as_bytes()))
        .unwrap_or_else(|error| panic!("the ledger {} cannot be written: {error}", path.display()));
}
