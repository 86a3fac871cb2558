//! The client on a real server and on the fake, and the two-phase commit on both and in its model.
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

mod agreement;
mod conformance;
mod faults;
mod model;
mod support;
mod two_phase;
mod unanswered;
