//! The client on a real server, and the fake beside it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]

mod agreement;
mod conformance;
mod faults;
mod support;
mod unanswered;
