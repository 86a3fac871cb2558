//! The integration tests of the relay and its destinations: one binary, against real servers.
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

#[path = "../../posthaste/tests/examples.rs"]
mod examples;
#[path = "../../posthaste/tests/support.rs"]
#[allow(dead_code, reason = "some of it only the tests of the library need")]
mod support;

#[cfg(all(feature = "redis", feature = "smtp"))]
mod mail;
#[cfg(feature = "rabbitmq")]
mod outage;
mod relay;
mod trace;
