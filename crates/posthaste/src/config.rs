//! Settings of a worker, as plain data. The library reads no environment and no files.

use std::time::Duration;

use crate::retry::Backoff;

/// Settings of a worker process.
#[derive(Clone, Debug)]
pub struct Config {
    /// Shown in `posthaste.worker`; a host name and process id help people.
    pub name: String,
    /// Longest pause between two looks at an empty queue. After work was found the pause starts at a millisecond and grows with idleness.
    pub poll_interval: Duration,
    /// How often the worker says that it lives.
    pub heartbeat_interval: Duration,
    /// A worker whose heart did not beat for this long, as watched by the leader itself, is dead, and its jobs are rescued.
    pub rescue_after: Duration,
    /// How long running jobs may go on after a stop was asked for; then they are given back.
    pub shutdown_grace: Duration,
    /// Whether this worker may be elected to do maintenance. Somebody must.
    pub maintenance: bool,
    /// How often the leader looks for scheduled jobs that are due.
    pub promote_interval: Duration,
    /// How often the leader looks after generations and dead workers.
    pub maintenance_interval: Duration,
    /// How often, at most, the leader looks for expired jobs; a slow look stretches it.
    pub expire_interval: Duration,
    /// A generation that has grown beyond this many bytes is followed by a new one.
    pub generation_bytes: i64,
    /// A claim hands out about this many bytes of arguments at most.
    pub claim_bytes: i64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: format!("pid {}", std::process::id()),
            poll_interval: Duration::from_millis(100),
            heartbeat_interval: Duration::from_secs(5),
            rescue_after: Duration::from_secs(30),
            shutdown_grace: Duration::from_secs(30),
            maintenance: true,
            promote_interval: Duration::from_millis(25),
            maintenance_interval: Duration::from_millis(250),
            expire_interval: Duration::from_secs(30),
            generation_bytes: 48 << 20,
            claim_bytes: 16 << 20,
        }
    }
}

/// Settings of one queue in a worker.
#[derive(Clone, Debug)]
pub struct QueueConfig {
    /// The queue's name.
    pub name: String,
    /// How many jobs of it run at once in this worker.
    pub concurrency: usize,
    /// A run that takes longer burns an attempt.
    pub timeout: Duration,
    /// The wait before the next attempt.
    pub backoff: Backoff,
}

impl QueueConfig {
    /// A queue with this many jobs at once, a timeout of five minutes and the default back-off.
    pub fn new(name: impl Into<String>, concurrency: usize) -> Self {
        Self {
            name: name.into(),
            concurrency: concurrency.max(1),
            timeout: Duration::from_secs(300),
            backoff: Backoff::default(),
        }
    }
}
