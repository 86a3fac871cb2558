//! Elasticsearch and OpenSearch: a small client, and several documents that change together or not at all.

pub mod two_phase;
