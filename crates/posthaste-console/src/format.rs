//! Numbers, times and names are formatted as in all other programs of posthaste.

pub(crate) use posthaste_observe::format::*;
