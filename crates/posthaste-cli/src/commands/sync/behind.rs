//! How far indexes lag their tables, for reports.

pub(crate) use posthaste_sync::{Behind, Problem, behind};

/// This many reasons of a sync are shown; one that names documents may have thousands.
pub(crate) const SHOWN: usize = 3;
