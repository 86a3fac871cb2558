//! The client on a real server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]

mod client;
mod support;
mod unanswered;
