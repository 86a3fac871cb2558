//! Settings of a worker, as plain data. None of them is read from the environment or a file.

use std::time::Duration;

use crate::retry::Backoff;

/// Settings of a worker process.
#[derive(Clone, Debug)]
pub struct Config {
    /// The name in `posthaste.worker`; a host name and process id help people.
    pub name: String,
    /// The site of this worker, such as `production`. Only one site works a store; workers of a
    /// copy wait for `posthaste adopt`. Without a name the site is identified by the address to
    /// which the worker connects.
    pub site: Option<String>,
    /// The longest pause between two polls of an empty queue. After jobs were found the pause
    /// starts at a millisecond and grows while the queue is idle. With a notifier
    /// ([`WorkerBuilder::notifier`](crate::WorkerBuilder::notifier)) a queue that is notified is
    /// polled once a second or less often.
    pub poll_interval: Duration,
    /// Time between two heartbeats of the worker.
    pub heartbeat_interval: Duration,
    /// Time without a heartbeat, as measured by the leader, after which a worker is declared dead
    /// and its jobs are rescued.
    pub rescue_after: Duration,
    /// Time for which running jobs may continue after a stop is requested; then they are given
    /// back.
    pub shutdown_grace: Duration,
    /// Whether this worker may be elected to do maintenance. At least one worker must.
    pub maintenance: bool,
    /// Time between two polls of the leader for scheduled jobs that are due, and how late they
    /// start at most. With a notifier the leader sleeps while none is due.
    pub promote_interval: Duration,
    /// Time between two rounds of the leader that maintain segments and rescue dead workers' jobs;
    /// up to 16 times as long while there is nothing to do.
    pub maintenance_interval: Duration,
    /// The least time between two polls of the leader for expired jobs; longer if polls are slow.
    pub expire_interval: Duration,
    /// The size in bytes beyond which a segment is followed by a new one.
    pub segment_bytes: i64,
    /// The approximate limit of the arguments in one claim, in bytes.
    pub claim_bytes: i64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: format!("pid {}", std::process::id()),
            site: None,
            poll_interval: Duration::from_millis(100),
            heartbeat_interval: Duration::from_secs(5),
            rescue_after: Duration::from_secs(30),
            shutdown_grace: Duration::from_secs(30),
            maintenance: true,
            promote_interval: Duration::from_millis(25),
            maintenance_interval: Duration::from_millis(250),
            expire_interval: Duration::from_secs(30),
            segment_bytes: 48 << 20,
            claim_bytes: 16 << 20,
        }
    }
}

impl Config {
    /// Returns an invalid setting as a sentence that names it.
    pub(crate) fn check(&self) -> Result<(), String> {
        check_text("the worker's name", &self.name, 0)?;
        if let Some(site) = &self.site {
            check_text("the site's name", site, 1)?;
        }
        for (setting, interval) in [
            ("poll_interval", self.poll_interval),
            ("heartbeat_interval", self.heartbeat_interval),
            ("promote_interval", self.promote_interval),
            ("maintenance_interval", self.maintenance_interval),
            ("expire_interval", self.expire_interval),
        ] {
            check_positive(setting, interval)?;
        }
        for (setting, bytes) in [
            ("segment_bytes", self.segment_bytes),
            ("claim_bytes", self.claim_bytes),
        ] {
            if bytes <= 0 {
                return Err(format!("{setting} must be more than 0"));
            }
        }
        if self.rescue_after < self.heartbeat_interval.saturating_mul(3) {
            return Err("rescue_after must be at least three times heartbeat_interval".into());
        }
        Ok(())
    }
}

/// Settings of one queue in a worker.
#[derive(Clone, Debug)]
pub struct QueueConfig {
    /// The queue's name.
    pub name: String,
    /// The most jobs of it that run at once in this worker.
    pub concurrency: usize,
    /// The time limit of a run. A run that exceeds it counts as a failed attempt.
    pub timeout: Duration,
    /// The delays between attempts.
    pub backoff: Backoff,
}

impl QueueConfig {
    /// Creates the settings of a queue with this many jobs at once, a timeout of five minutes and
    /// the default back-off.
    pub fn new(name: impl Into<String>, concurrency: usize) -> Self {
        Self {
            name: name.into(),
            concurrency,
            timeout: Duration::from_secs(300),
            backoff: Backoff::default(),
        }
    }

    /// Returns an invalid setting as a sentence that names it.
    pub(crate) fn check(&self) -> Result<(), String> {
        let of_this = |problem| format!("queue {:?}: {problem}", self.name);
        if self.concurrency == 0 {
            return Err(of_this("concurrency must be at least 1".into()));
        }
        for (setting, time) in [
            ("timeout", self.timeout),
            // A job that failed must not be retried at the same moment.
            ("backoff.base", self.backoff.base),
            ("backoff.cap", self.backoff.cap),
        ] {
            check_positive(setting, time).map_err(of_this)?;
        }
        Ok(())
    }
}

/// Checks that a name fits into the database: `shortest` to 255 bytes without NUL.
pub(crate) fn check_text(what: &str, text: &str, shortest: usize) -> Result<(), String> {
    if text.len() < shortest || text.len() > 255 {
        return Err(format!("{what} must have {shortest} to 255 bytes"));
    }
    if text.contains('\0') {
        return Err(format!("{what} must not contain NUL"));
    }
    Ok(())
}

pub(crate) fn check_positive(setting: &str, time: Duration) -> Result<(), String> {
    if time.is_zero() {
        return Err(format!("{setting} must be longer than 0"));
    }
    Ok(())
}
