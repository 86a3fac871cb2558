//! The load: producers that remember what they meant.

mod intend;
mod producer;

pub(crate) use producer::{Producers, Settings};

/// The name of all jobs.
pub(crate) const JOB: &str = "torture";
/// The name of the jobs of ticks, where the server has a clock of its own.
pub(crate) const TICK: &str = "tick";
/// Their queues.
pub(crate) const QUEUES: [&str; 3] = ["a", "b", "c"];
/// Their priorities.
const PRIORITIES: [i32; 3] = [-1, 0, 5];
/// Producers.
pub(crate) const PRODUCERS: usize = 3;
