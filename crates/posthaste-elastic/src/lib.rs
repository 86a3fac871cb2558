//! Elasticsearch and OpenSearch: a small client, and several documents that change together or not
//! at all.
//!
//! The [`Client`] makes about a dozen calls, each once. An error says [what became of the
//! call](ErrorKind) and whether it [may have been done](Error::may_have_been_done) all the same;
//! the caller decides whether to call again. The crate needs no Postgres, reads no environment, and
//! leaves TLS to the builder that it is given.

// A module imports only what stands in a group above its own.
mod error;

mod client;

pub mod two_phase;

pub use client::{
    AliasChange, Client, Condition, Document, Effect, Flavour, Hit, Info, Operation, Page,
    PointInTime, Reading, Refusal, Request, Script, Seen, Source, Written, is_index_name,
};
pub use error::{Error, ErrorKind};
