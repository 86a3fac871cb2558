//! Settings of a worker, as plain data: none of them comes from the environment or a file.

use std::time::Duration;

use crate::retry::Backoff;

/// Settings of a worker process.
#[derive(Clone, Debug)]
pub struct Config {
    /// Shown in `posthaste.worker`; a host name and process id help people.
    pub name: String,
    /// The site that this worker belongs to, such as `production`: a store is worked by one site
    /// alone, and a copy of it waits for `posthaste adopt`. Without a name the site is identified
    /// by the address that the worker connects to.
    pub site: Option<String>,
    /// Longest pause between two polls of an empty queue. After work was found the pause starts at
    /// a millisecond and grows with idleness. Behind a notifier
    /// ([`WorkerBuilder::notifier`](crate::WorkerBuilder::notifier)) a queue that is notified is
    /// polled once a second or less often.
    pub poll_interval: Duration,
    /// How often the worker says that it lives.
    pub heartbeat_interval: Duration,
    /// A worker without a heartbeat for this long, as watched by the leader itself, is dead, and
    /// its jobs are rescued.
    pub rescue_after: Duration,
    /// How long running jobs may go on after a stop was asked for; then they are given back.
    pub shutdown_grace: Duration,
    /// Whether this worker may be elected to do maintenance. Somebody must.
    pub maintenance: bool,
    /// How often the leader polls for scheduled jobs that are due, and how late they start at most.
    /// With a notifier it sleeps while none is.
    pub promote_interval: Duration,
    /// How often the leader maintains segments and rescues dead workers' jobs; up to 16 times as
    /// long while nothing is to be done.
    pub maintenance_interval: Duration,
    /// How often, at most, the leader polls for expired jobs; a slow poll stretches it.
    pub expire_interval: Duration,
    /// A segment that has grown beyond this many bytes is followed by a new one.
    pub segment_bytes: i64,
    /// A claim hands out about this many bytes of arguments at most.
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
    /// What makes no sense, as a sentence that names the setting.
    pub(crate) fn check(&self) -> Result<(), String> {
        text("the worker's name", &self.name, 0)?;
        if let Some(site) = &self.site {
            text("the site's name", site, 1)?;
        }
        for (setting, interval) in [
            ("poll_interval", self.poll_interval),
            ("heartbeat_interval", self.heartbeat_interval),
            ("promote_interval", self.promote_interval),
            ("maintenance_interval", self.maintenance_interval),
            ("expire_interval", self.expire_interval),
        ] {
            longer_than_0(setting, interval)?;
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
    /// How many jobs of it run at once in this worker.
    pub concurrency: usize,
    /// A run that takes longer counts as an attempt.
    pub timeout: Duration,
    /// The wait before the next attempt.
    pub backoff: Backoff,
}

impl QueueConfig {
    /// A queue with this many jobs at once, a timeout of five minutes and the default back-off.
    pub fn new(name: impl Into<String>, concurrency: usize) -> Self {
        Self {
            name: name.into(),
            concurrency,
            timeout: Duration::from_secs(300),
            backoff: Backoff::default(),
        }
    }

    /// What makes no sense, as a sentence that names the setting.
    pub(crate) fn check(&self) -> Result<(), String> {
        let of_this = |problem| format!("queue {:?}: {problem}", self.name);
        if self.concurrency == 0 {
            return Err(of_this("concurrency must be at least 1".into()));
        }
        for (setting, time) in [
            ("timeout", self.timeout),
            // A job that failed must not be tried again in the same moment.
            ("backoff.base", self.backoff.base),
            ("backoff.cap", self.backoff.cap),
        ] {
            longer_than_0(setting, time).map_err(of_this)?;
        }
        Ok(())
    }
}

/// Names are as long as the database's, and as readable.
pub(crate) fn text(what: &str, text: &str, shortest: usize) -> Result<(), String> {
    if text.len() < shortest || text.len() > 255 {
        return Err(format!("{what} must have {shortest} to 255 bytes"));
    }
    if text.contains('\0') {
        return Err(format!("{what} must not contain NUL"));
    }
    Ok(())
}

pub(crate) fn longer_than_0(setting: &str, time: Duration) -> Result<(), String> {
    if time.is_zero() {
        return Err(format!("{setting} must be longer than 0"));
    }
    Ok(())
}
