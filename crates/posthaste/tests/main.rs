//! The integration tests of the store and the worker: one binary, against real servers.
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

mod support;

mod attend;
mod awaiting;
mod claim;
mod claims;
mod client;
mod clocks;
mod copies;
mod copy;
mod counters;
mod crash;
#[cfg(all(feature = "rustls", feature = "sqlx"))]
mod database;
#[cfg(all(feature = "sqlx", feature = "diesel-async", feature = "sea-orm"))]
mod drivers;
mod encodings;
mod enqueue;
mod exact;
mod examples;
#[cfg(feature = "exec")]
mod exec;
mod expiry;
mod find;
mod frozen;
mod handed_back;
mod history;
#[cfg(feature = "http")]
mod http;
mod kinds;
mod late;
mod lifecycle;
mod links;
mod locks;
mod maintenance;
mod migrate;
mod model;
mod mutants;
mod notify;
mod nowait;
mod operate;
mod order;
mod outcomes;
mod periodic;
mod poison;
mod pooler;
mod quarantine;
mod rate;
mod ready_log;
mod refused;
mod rescue;
mod restore;
mod roles;
mod samples;
mod scheduled;
mod settings;
mod shutdown;
mod stress;
mod tenure;
mod testing;
mod tidy;
mod trace;
mod view;
