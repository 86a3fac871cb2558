//! The integration tests of the capture: one binary, against real servers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]
#![allow(
    clippy::print_stdout,
    missing_docs,
    unreachable_pub,
    reason = "tests talk to people and have no callers"
)]

#[path = "../../posthaste/tests/support.rs"]
#[allow(
    dead_code,
    reason = "what the tests of all crates share; these need a part of it"
)]
mod support;

mod capture;
mod mutants;
