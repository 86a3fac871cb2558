//! Who is measured: posthaste through its library, two rivals through their statements, one through
//! its own library, and bare statements.

pub(crate) mod bare;
pub(crate) mod graphile;
pub(crate) mod posthaste;
pub(crate) mod receiver;
pub(crate) mod rival;

/// The name under which all contestants enqueue their no-op jobs.
pub(crate) const JOB_NAME: &str = "bench.noop";

/// The queue that all contestants work.
pub(crate) const QUEUE: &str = "default";

/// Connections that each contestant may use to claim and acknowledge: half of them for each.
pub(crate) const CONNECTIONS: usize = 4;
