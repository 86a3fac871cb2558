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

mod awaiting;
mod bell;
mod claim;
mod consumers;
mod copy;
mod counters;
mod crash;
#[cfg(all(feature = "sqlx", feature = "diesel-async", feature = "sea-orm"))]
mod drivers;
mod enqueue;
#[cfg(feature = "exec")]
mod exec;
mod expiry;
mod find;
mod history;
#[cfg(feature = "http")]
mod http;
mod late;
mod lifecycle;
mod links;
mod locks;
#[cfg(all(feature = "redis", feature = "smtp"))]
mod mail;
mod model;
mod mutants;
mod nowait;
mod operate;
mod order;
#[cfg(all(feature = "rabbitmq", feature = "elastic"))]
mod outage;
mod periodic;
mod poison;
mod pooler;
mod rate;
mod refused;
mod relay;
mod rescue;
mod restore;
mod ring;
mod roles;
mod scheduled;
mod settings;
mod shutdown;
mod stress;
mod suspects;
mod sync;
mod tidy;
mod upkeep;
mod view;
