//! A small client of Elasticsearch and OpenSearch, and atomic changes of several documents.
//!
//! The [`Client`] has approximately a dozen calls and sends each only once. An [`Error`] contains
//! the outcome of its call ([`ErrorKind`]) and whether the server may have executed it
//! ([`Error::may_have_been_done`]); the caller decides whether to retry. The crate needs no
//! Postgres, reads no environment variables, and takes TLS settings from the builder that the
//! caller passes.

// A module imports only what stands in a group above its own.
mod error;

mod client;

pub mod two_phase;

pub use client::{
    AliasChange, Client, Condition, Document, Effect, Flavour, Hit, Info, Operation, Page,
    PointInTime, Reading, Refusal, Request, Script, Seen, Source, Written, is_index_name,
};
pub use error::{Error, ErrorKind};
