//! The contestants: posthaste through its library, two rivals through their statements, one through
//! its library, and bare statements.

pub(crate) mod bare;
pub(crate) mod graphile;
pub(crate) mod posthaste;
pub(crate) mod receiver;
pub(crate) mod rival;

/// The name of the no-op jobs of all contestants.
pub(crate) const JOB_NAME: &str = "bench.noop";

/// The queue that all contestants work.
pub(crate) const QUEUE: &str = "default";

/// The connections that each contestant may use to claim and acknowledge: half of them for each.
pub(crate) const CONNECTIONS: usize = 4;
