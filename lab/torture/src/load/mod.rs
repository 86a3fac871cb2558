//! The load: producers that record what they enqueue.

mod intend;
mod producer;

pub(crate) use producer::{Producers, Settings};

/// The name of all jobs.
pub(crate) const JOB: &str = "torture";
/// The name of the jobs of ticks, if the server has a separate clock.
pub(crate) const TICK: &str = "tick";
/// The queues of the jobs.
pub(crate) const QUEUES: [&str; 3] = ["a", "b", "c"];
/// The priorities of the jobs.
const PRIORITIES: [i32; 3] = [-1, 0, 5];
/// The number of producers.
pub(crate) const PRODUCERS: usize = 3;
