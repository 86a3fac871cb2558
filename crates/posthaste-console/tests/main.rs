//! The console, tested over HTTP with real databases.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]
#![allow(
    missing_docs,
    unreachable_pub,
    reason = "tests talk to people and have no callers"
)]

mod actions;
mod authentication;
mod browser;
mod bulk;
mod captures;
mod causes;
mod charts;
mod destinations;
mod filters;
mod hostile;
mod lists;
mod live;
mod notices;
mod operate;
mod pages;
mod prefixed;
mod proxied;
mod replica;
mod schedules;
mod support;
mod sync;
mod two_phase;
