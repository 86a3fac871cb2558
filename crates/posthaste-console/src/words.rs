//! Numbers, times and names are written here as in every other program of posthaste.

pub(crate) use posthaste_observe::format::*;
