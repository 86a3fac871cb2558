//! What is wrong, since when, what it costs and what to do, in sentences: from a snapshot, without
//! IO and without a clock.

use jiff::Timestamp;
use posthaste_relay::{RelayReport, RelayState};

use crate::address;
use crate::bulk::{Action, Progress};
use crate::figures::{QueueLine, relay_name};
use crate::snapshot::Snapshot;
use crate::words::{age, count, counted, plain, rate, seconds, spelled, time};

/// A worker that sends no heartbeat for this many seconds is silent.
pub(crate) const SILENT: f64 = 15.0;

/// From when on something is worth a sentence, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) late_after: f64,
    pub(crate) long_transaction: f64,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Bad,
    Warn,
    Good,
}

impl Level {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bad => "bad",
            Self::Warn => "warn",
            Self::Good => "good",
        }
    }
}

/// One thing that is so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) level: Level,
    /// What is wrong, and since when.
    pub(crate) what: String,
    /// What it costs, and what to do.
    pub(crate) then: String,
    /// Where more of it is seen; empty for nowhere.
    pub(crate) link: String,
}

fn bad(what: String, then: String) -> Verdict {
    Verdict {
        level: Level::Bad,
        what,
        then,
        link: String::new(),
    }
}

fn warn(what: String, then: String) -> Verdict {
    Verdict {
        level: Level::Warn,
        ..bad(what, then)
    }
}

impl Verdict {
    fn at(mut self, link: impl Into<String>) -> Self {
        self.link = link.into();
        self
    }
}

/// All that is wrong, the worst first; or that nothing is.
pub(crate) fn verdicts(snapshot: &Snapshot, queues: &[QueueLine], limits: &Limits) -> Vec<Verdict> {
    let mut found: Vec<Verdict> = Vec::new();
    found.extend(of_workers(snapshot));
    found.extend(
        queues
            .iter()
            .filter_map(|queue| of_queue(snapshot, queue, limits)),
    );
    found.extend(
        snapshot
            .relays
            .iter()
            .filter_map(|relay| of_relay(snapshot, relay)),
    );
    found.extend(of_jobs_given_up(snapshot));
    found.extend(snapshot.bulk.iter().filter_map(of_action));
    found.extend(of_transactions(snapshot, limits));
    found.extend(of_segments(snapshot));
    found.sort_by_key(|one| one.level);
    if found.is_empty() {
        found.push(all_is_well(snapshot));
    }
    found.extend(snapshot.bulk.iter().filter_map(at_work));
    found
}

/// An action that somebody asked for goes on.
fn at_work(action: &Action) -> Option<Verdict> {
    if action.progress != Progress::Running {
        return None;
    }
    let jobs = counted(action.jobs, "job", "jobs");
    let what = format!("{} goes on: {jobs} so far.", action.kind.title());
    let good = Verdict {
        level: Level::Good,
        ..bad(what, String::new())
    };
    Some(good.at(address::bulk(action.id)))
}

fn of_action(action: &Action) -> Option<Verdict> {
    let error = action.last_error.as_ref()?;
    if action.progress != Progress::Failed {
        return None;
    }
    let jobs = counted(action.jobs, "job", "jobs");
    let what = format!("{} failed behind {jobs}.", action.kind.title());
    let then = format!("{}. Let it go on, or give it up.", plain(error, 200));
    Some(warn(what, then).at(address::bulk(action.id)))
}

fn all_is_well(snapshot: &Snapshot) -> Verdict {
    let sums = snapshot.sums();
    let what = match sums.pending() {
        0 => "Nothing is wrong: all that was enqueued is done.".to_owned(),
        _ => format!(
            "Nothing is wrong: {} available, {} running, {} later.",
            count(sums.available),
            count(sums.running),
            count(sums.pending() - sums.available - sums.running)
        ),
    };
    Verdict {
        level: Level::Good,
        ..bad(what, String::new())
    }
}

fn of_workers(snapshot: &Snapshot) -> Vec<Verdict> {
    let mut found = Vec::new();
    let alive = snapshot.workers.iter().filter(|one| one.silent <= SILENT);
    let pending = snapshot.sums().pending();
    if alive.count() == 0 && pending > 0 {
        let what = format!(
            "No worker runs: {} to be done.",
            counted(pending, "job is", "jobs are")
        );
        found.push(bad(what, "Start one: posthaste work.".to_owned()));
    } else if !snapshot.server.has_leader && !snapshot.workers.is_empty() {
        found.push(bad(
            "No worker does maintenance.".to_owned(),
            "Scheduled jobs do not come due, and jobs of dead workers are not rescued. Start a \
             worker with maintenance."
                .to_owned(),
        ));
    }
    for worker in snapshot.workers.iter().filter(|one| one.silent > SILENT) {
        let (name, silent) = (plain(&worker.name, 80), age(worker.silent));
        let what = format!("Worker {name} has sent no heartbeat for {silent}.");
        let then = "If it is dead, its jobs are rescued by another worker and run again alone.";
        found.push(warn(what, then.to_owned()).at("/workers"));
    }
    found
}

fn of_queue(snapshot: &Snapshot, queue: &QueueLine, limits: &Limits) -> Option<Verdict> {
    let now = snapshot.server.at;
    let oldest = snapshot.oldest(&queue.name)?;
    let (name, waits) = (
        plain(&queue.name, 80),
        counted(queue.sums.available, "job waits", "jobs wait"),
    );
    let since = time(oldest.since, now);
    let link = address::queue(&queue.name);
    if let Some(paused_at) = snapshot.paused_at(&queue.name) {
        let what = format!(
            "Queue {name} is paused since {}: {waits}.",
            time(paused_at, now)
        );
        let then = "Running jobs go on, waiting ones may expire. Resume it when its time has come.";
        return Some(warn(what, then.to_owned()).at("/queues"));
    }
    if !oldest.is_worked {
        let what = format!("No worker works on queue {name}: {waits}, the next since {since}.");
        let then = "They stay until a worker has the queue; start one.";
        return Some(bad(what, then.to_owned()).at(link));
    }
    if oldest.seconds <= limits.late_after {
        return None;
    }
    let what = format!(
        "Queue {name} is behind: its next job has waited {} (limit {}), since {since}.",
        spelled(oldest.seconds),
        spelled(limits.late_after)
    );
    let then = match (queue.done_rate, queue.come_rate, &queue.limit) {
        (_, _, Some(limit)) => format!("{waits}. It is limited to {limit}."),
        (Some(done), Some(come), None) => format!(
            "{waits}. {} a second are done while {} come in. More workers, or quicker jobs.",
            rate(done),
            rate(come)
        ),
        _ => format!("{waits}. More workers, or quicker jobs."),
    };
    Some(bad(what, then).at(link))
}

/// Since when a relay gets nothing through, if it does not.
pub(crate) fn fails_since(relay: &RelayReport) -> Option<Timestamp> {
    let since = relay
        .status
        .failing_since
        .into_iter()
        .chain(relay.status.down_since)
        .min();
    match relay.state {
        RelayState::Stopped | RelayState::Standby => None,
        RelayState::Silent => since.or(Some(relay.updated_at)),
        RelayState::Down => since.or(Some(relay.updated_at)),
        _ => since,
    }
}

fn of_relay(snapshot: &Snapshot, relay: &RelayReport) -> Option<Verdict> {
    let name = plain(&relay_name(relay), 80);
    let sums = snapshot
        .by_queue()
        .get(relay.queue.as_str())
        .copied()
        .unwrap_or_default();
    let waits = counted(sums.available + sums.retrying, "job waits", "jobs wait");
    if relay.state == RelayState::Stopped {
        snapshot.oldest(&relay.queue)?;
        let what = format!("Nobody relays queue {name} any more: {waits}.");
        return Some(bad(what, "Start its relay.".to_owned()).at("/destinations"));
    }
    let since = fails_since(relay)?;
    let lasts = age(seconds(since, snapshot.server.at).max(0.0));
    let error = relay.status.last_error.as_deref();
    let error = error
        .map(|error| format!(": {}", plain(error, 120)))
        .unwrap_or_default();
    let (what, then) = match relay.state {
        RelayState::Silent => (
            format!("Relay {name} has told nothing for {lasts}."),
            format!("{waits}. It was killed or stopped, or cannot reach the database."),
        ),
        RelayState::Down => (
            format!("Relay {name}: its destination does not answer for {lasts}{error}"),
            format!("{waits}, no attempt is counted. They go out when it answers."),
        ),
        _ => (
            format!("Relay {name}: nothing was taken for {lasts}{error}"),
            format!("{waits}."),
        ),
    };
    Some(bad(what, then).at("/destinations"))
}

fn of_jobs_given_up(snapshot: &Snapshot) -> Vec<Verdict> {
    let server = &snapshot.server;
    let sums = snapshot.sums();
    let many = |number: i64| {
        if number >= 1_000 {
            "1,000 or more".into()
        } else {
            count(number)
        }
    };
    let mut found = Vec::new();
    if server.dead_lately > 0 {
        let what = format!(
            "Jobs died within the last hour: {} ({} are kept).",
            many(server.dead_lately),
            count(sums.dead)
        );
        let then = "No attempt was left. See why, repair that, and redrive them.";
        found.push(warn(what, then.to_owned()).at("/dead"));
    }
    if server.expired_lately > 0 {
        let what = format!(
            "Jobs expired within the last hour: {} ({} are kept).",
            many(server.expired_lately),
            count(sums.expired)
        );
        let then = "Their time passed before a worker had them. See which queue was late.";
        let link = address::filtered("/dead", &"state:expired");
        found.push(warn(what, then.to_owned()).at(link));
    }
    found
}

fn of_transactions(snapshot: &Snapshot, limits: &Limits) -> Option<Verdict> {
    let long = |one: &&crate::snapshot::Holder| {
        one.seconds
            .is_some_and(|open| open > limits.long_transaction)
    };
    let holder = snapshot.holders.iter().find(long)?;
    let open = age(holder.seconds.unwrap_or_default());
    let (name, detail) = (plain(&holder.name, 80), plain(&holder.detail, 120));
    let what = format!("A transaction has been open for {open}: {name} ({detail}).");
    let then = "Claims do not care. Rows of your own tables that died since cannot be removed. End \
                it if nobody needs it.";
    Some(warn(what, then.to_owned()).at("/transactions"))
}

fn of_segments(snapshot: &Snapshot) -> Option<Verdict> {
    (snapshot.server.segments_behind >= 3).then(|| {
        let what = "The oldest segment of the queue cannot be truncated.";
        let then = "Disk grows. A session holds a lock on it, or a job of it still runs: \
                    posthaste doctor names it.";
        warn(what.to_owned(), then.to_owned()).at("/transactions")
    })
}
