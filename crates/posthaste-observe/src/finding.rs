//! Findings: problems in one sentence, with a remedy.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::format::{count, one_line};

/// How urgent a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Jobs do not run, or may be lost.
    Error,
    /// Jobs run, but something needs attention.
    Warning,
    /// Everything works, but something is costly or may surprise.
    Hint,
}

impl Level {
    /// Returns its name as tools print it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Hint => "hint",
        }
    }
}

/// Declares each kind with its id, its level, the words after a number of several, and its meaning.
macro_rules! kinds {
    ($($kind:ident $id:literal $level:ident $several:literal $meaning:literal;)*) => {
        /// The kind of a finding. Its id is stable: a label of metrics, a key of JSON, and the name
        /// of its runbook.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $(#[doc = $meaning] $kind,)*
        }

        impl Kind {
            /// All kinds, in the order of the documentation.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// Returns its stable id.
            pub fn id(self) -> &'static str {
                match self { $(Self::$kind => $id,)* }
            }

            /// Returns the kind with this id.
            pub fn by_id(id: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|kind| kind.id() == id)
            }

            /// Returns how urgent it is.
            pub fn level(self) -> Level {
                match self { $(Self::$kind => Level::$level,)* }
            }

            /// Returns its meaning as a sentence.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$kind => $meaning,)* }
            }

            /// Returns the words after a number of several.
            fn plural_summary(self) -> &'static str {
                match self { $(Self::$kind => $several,)* }
            }
        }
    };
}

kinds! {
    ServerVersion "server.version" Error "servers are too old"
        "The server is older than PostgreSQL 15.";
    ServerReplica "server.replica" Error "servers are replicas"
        "The server is a replica: jobs can be read there, but not run.";
    ServerFsync "server.fsync" Error "servers run without fsync"
        "fsync is off: a crash can destroy the database.";
    ServerNotifications "server.notifications" Error "notification queues fill up"
        "The notification queue of the server fills up.";
    ServerSynchronousCommit "server.synchronous_commit" Hint "sessions commit asynchronously"
        "A crash or a failover can lose the last commits.";
    ServerPreparedTransactions "server.prepared_transactions" Hint "servers allow prepared \
                                                                    transactions"
        "The server allows prepared transactions.";
    ServerClock "server.clock" Hint "clocks differ"
        "The clocks of the server and of this machine differ.";
    ServerEncoding "server.encoding" Hint "databases are in SQL_ASCII"
        "The database accepts text in any encoding.";
    ServerOpenSchema "server.open_schema" Hint "schemas are open"
        "Every role can create functions in a schema of the search_path.";
    ServerPlatform "server.platform" Hint "servers are managed"
        "The server runs on a managed platform.";
    ServerPooler "server.pooler" Hint "connections are pooled"
        "The connection goes through a transaction pooler.";
    SchemaMismatch "schema.mismatch" Error "schemas do not match"
        "The schema is missing, or belongs to another version.";
    RightsNone "rights.none" Error "roles have no rights"
        "The role may neither enqueue nor run nor read jobs.";
    RightsFunctions "rights.functions" Error "roles lack functions"
        "The role may not call a function that workers need.";
    RightsOutdated "rights.outdated" Error "roles lack rights"
        "A posthaste role lacks rights to a part of the schema.";
    RightsPartial "rights.partial" Hint "roles cannot run jobs"
        "The role may enqueue or read jobs, but not run them.";
    RightsSessions "rights.sessions" Hint "roles cannot see other sessions"
        "The role cannot see what other sessions do.";
    RightsRoles "rights.roles" Hint "roles do not exist"
        "The roles of posthaste do not exist.";
    StoreRestored "store.restored" Error "stores need a rebase"
        "The database was restored or copied, and its jobs were not taken over.";
    StoreSite "store.site" Error "other sites are waiting"
        "A process is waiting, because another site owns this database or its original.";
    StoreSequence "store.sequence" Error "sequences are too low"
        "The sequence of job ids is below ids that are in use.";
    StoreClockBack "store.clock_back" Error "clocks stepped back"
        "The clock of the server stepped back.";
    StoreClockAhead "store.clock_ahead" Hint "clocks stepped ahead"
        "The clock of the server stepped ahead.";
    StoreSegments "store.segments" Warning "stores cannot truncate segments"
        "Segments of the queue cannot be truncated, and disk usage grows.";
    WorkerNone "worker.none" Error "stores have no worker"
        "Jobs are waiting and no worker is running.";
    WorkerIdle "worker.idle" Hint "stores have no worker"
        "No worker is running; no jobs are waiting.";
    WorkerNoLeader "worker.no_leader" Error "stores have no leader"
        "No worker does maintenance.";
    WorkerSilent "worker.silent" Warning "workers are silent"
        "A worker has stopped sending heartbeats.";
    WorkerFailing "worker.failing" Error "workers have endpoints that accept nothing"
        "An HTTP endpoint of a worker accepts no jobs.";
    QueueNoWorker "queue.no_worker" Error "queues have no worker"
        "Jobs are waiting in a queue that no worker serves.";
    QueueLate "queue.late" Error "queues are late"
        "The oldest job of a queue has waited for too long.";
    QueueLong "queue.long" Error "queues are too long"
        "More jobs are due in a queue than length_above allows.";
    QueueSlow "queue.slow" Error "queues complete too few jobs"
        "Fewer jobs of a queue are completed than completed_below demands.";
    QueueFailing "queue.failing" Error "queues are failing"
        "Too many attempts of a queue failed in the last ten minutes.";
    QueuePaused "queue.paused" Warning "paused queues have jobs waiting"
        "Jobs are waiting in a paused queue.";
    PeriodicFailing "periodic.failing" Error "periodic jobs are not enqueued"
        "A periodic job cannot be enqueued.";
    JobsFailing "jobs.failing" Warning "queues have jobs that fail each time"
        "Jobs failed many times in a row and are retried.";
    JobsDead "jobs.dead" Warning "queues have jobs that failed permanently"
        "Jobs used up their attempts in the last hour.";
    JobsExpired "jobs.expired" Warning "queues have jobs that expired"
        "Jobs expired in the last hour before a worker claimed them.";
    JobsUncounted "jobs.uncounted" Hint "stores have jobs that are not counted"
        "Many jobs were enqueued at once and are not counted yet.";
    RelayStopped "relay.stopped" Error "queues have no running relay"
        "Jobs are waiting in a queue whose relay has stopped.";
    RelaySilent "relay.silent" Error "relays are silent"
        "A relay has stopped reporting.";
    RelayDown "relay.down" Error "destinations are down"
        "The destination of a relay does not answer.";
    RelayFailing "relay.failing" Error "destinations accept nothing"
        "The destination of a relay accepts no message.";
    SyncTriggers "sync.triggers" Error "syncs lack triggers"
        "Triggers of a synced table are missing or disabled.";
    SyncNoWorker "sync.no_worker" Error "syncs are not running"
        "Changes of a synced table are waiting and no sync is running.";
    SyncFailing "sync.failing" Error "syncs are failing"
        "Writes to a search index are failing.";
    SyncLate "sync.late" Error "syncs are late"
        "Changes of a synced table are late in its index.";
    SyncGivenUp "sync.given_up" Hint "syncs have given up changes"
        "Changes of a synced table were given up.";
    SyncDropped "sync.dropped" Hint "synced tables were dropped"
        "A synced table was dropped.";
    CaptureStopped "capture.stopped" Error "captures have stopped"
        "A capture has stopped until an operator acts.";
    CaptureNotRunning "capture.not_running" Error "captures are not running"
        "No process runs a capture, and the server retains its log.";
    CapturePaused "capture.paused" Warning "captures are paused"
        "A capture is paused, and the server retains its log.";
    CaptureCopy "capture.copy" Warning "copies failed"
        "A copy of a captured table failed.";
    CaptureFull "capture.full" Error "captures have reached spill_most"
        "A capture may write no more jobs, and the server retains its log.";
    CaptureWaiting "capture.waiting" Warning "captures wait for their destination"
        "The destination of a capture takes nothing: its events wait in the server's log.";
    CaptureSpilling "capture.spilling" Warning "captures have been spilling for long"
        "A capture has written jobs instead of sending for more than 15 minutes.";
    CaptureBehind "capture.behind" Warning "captures lag"
        "The last mark of a capture is far from the end of the server's log.";
    CaptureGap "capture.gap" Warning "captures have gaps"
        "Changes were not captured, and the gap is not accepted.";
    CapturePublication "capture.publication" Error "captures lack their publication"
        "The publication of a capture was dropped or recreated.";
    CaptureIdentity "capture.identity" Error "captured tables lack an identity"
        "A captured table has no replica identity: its UPDATE and DELETE fail.";
    CaptureLimit "capture.limit" Hint "slots retain log without limit"
        "The slots of captures can retain any amount of log.";
    CaptureFailover "capture.failover" Hint "captures do not survive a failover"
        "A failover would cause a gap in a capture.";
    CaptureStandby "capture.standby" Error "captures wait for a standby"
        "Captures are waiting for a slot that no standby uses.";
    TransactionPrepared "transaction.prepared" Error "prepared transactions never ended"
        "A transaction was prepared and never ended.";
    TransactionLong "transaction.long" Warning "transactions are open for long"
        "A transaction has been open for too long.";
    TransactionEnded "transaction.ended" Warning "servers had sessions ended by txwatch"
        "posthaste txwatch cancelled or terminated sessions in the last hour.";
    TransactionLock "transaction.lock" Hint "sessions hold locks on the queue's tables"
        "A session has held a lock on the queue's tables for too long.";
    TransactionSlot "transaction.slot" Hint "replication slots hold back vacuum or WAL"
        "A replication slot holds back vacuum or the write-ahead log.";
    TransactionReplica "transaction.replica" Hint "replicas hold back vacuum"
        "A reader on a replica holds back vacuum on the primary.";
}

impl Kind {
    /// Returns whether its subject has a lasting name, such as a queue, unlike a session.
    pub fn has_lasting_subject(self) -> bool {
        let id = self.id();
        let subjects = [
            "queue.",
            "jobs.",
            "periodic.",
            "relay.",
            "sync.",
            "capture.",
            "store.site",
        ];
        subjects.iter().any(|subject| id.starts_with(subject))
    }

    /// Returns the page and section of its runbook.
    pub fn runbook(self) -> String {
        format!("docs/operate/doctor.md#{}", self.id().replace('.', ""))
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

/// A problem, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its kind.
    #[serde(rename = "id")]
    pub kind: Kind,
    /// How urgent it is.
    pub level: Level,
    /// The queue, relay, worker or session concerned; empty for the whole store.
    pub subject: String,
    /// The number of jobs concerned.
    pub jobs: i64,
    /// A sentence: what happened, to what, since when.
    pub summary: String,
    /// The remedy.
    pub remedy: String,
    /// When the problem began; `None` if that is unknown.
    pub since: Option<Timestamp>,
    /// The page and section of the runbook.
    pub runbook: String,
}

impl Finding {
    /// Creates a finding about the whole store.
    pub(crate) fn new(kind: Kind, summary: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            kind,
            level: kind.level(),
            subject: String::new(),
            jobs: 0,
            summary: summary.into(),
            remedy: remedy.into(),
            since: None,
            runbook: kind.runbook(),
        }
    }

    /// Sets the subject and the number of jobs.
    pub(crate) fn about(mut self, subject: &str, jobs: i64) -> Self {
        self.subject = subject.to_owned();
        self.jobs = jobs;
        self
    }

    /// Sets when the problem began.
    pub(crate) fn since(mut self, since: Timestamp) -> Self {
        self.since = Some(since);
        self
    }
}

/// Sorts findings: the most urgent first, then those that concern the most jobs.
pub(crate) fn sort(findings: &mut [Finding]) {
    findings.sort_by(|one, other| {
        let by_level = one.level.cmp(&other.level);
        let by_jobs = || other.jobs.cmp(&one.jobs);
        let by_name = || (one.kind, &one.subject).cmp(&(other.kind, &other.subject));
        by_level.then_with(by_jobs).then_with(by_name)
    });
}

/// Subjects that a group names.
const MAX_NAMED_SUBJECTS: usize = 5;

/// Merges findings of one kind into one, which names the subjects with the most jobs.
pub fn group_by_kind(findings: &[Finding]) -> Vec<Finding> {
    let mut kinds: BTreeMap<Kind, Vec<&Finding>> = BTreeMap::new();
    for finding in findings {
        kinds.entry(finding.kind).or_default().push(finding);
    }
    let mut groups: Vec<Finding> = kinds
        .into_values()
        .filter_map(|all| merge_findings(&all))
        .collect();
    sort(&mut groups);
    groups
}

fn merge_findings(all: &[&Finding]) -> Option<Finding> {
    let (first, rest) = all.split_first()?;
    if rest.is_empty() {
        return Some((*first).clone());
    }
    let jobs: i64 = all.iter().map(|one| one.jobs).sum();
    let concerned = match jobs {
        0 => String::new(),
        1 => " (1 job)".to_owned(),
        jobs => format!(" ({} jobs)", count(jobs)),
    };
    let named = all
        .iter()
        .take(MAX_NAMED_SUBJECTS)
        .map(|one| match one.jobs {
            0 => one_line(&one.subject, 60),
            jobs => format!("{} {}", one_line(&one.subject, 60), count(jobs)),
        });
    let named = named.collect::<Vec<_>>().join(", ");
    let more = match all.len().saturating_sub(MAX_NAMED_SUBJECTS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let (number, several) = (count(all.len() as i64), first.kind.plural_summary());
    let mut group = Finding::new(
        first.kind,
        format!("{number} {several}{concerned}: {named}{more}."),
        first.remedy.clone(),
    );
    group.jobs = jobs;
    group.since = all.iter().filter_map(|one| one.since).min();
    Some(group)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn finding_ids_have_two_parts_and_a_runbook_each() {
        let ids: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.id()).collect();
        assert_eq!(ids.len(), Kind::ALL.len());
        assert!(ids.iter().all(|id| id.split('.').count() == 2), "{ids:?}");
        let runbooks: BTreeSet<String> = Kind::ALL.iter().map(|kind| kind.runbook()).collect();
        assert_eq!(runbooks.len(), ids.len());
    }

    #[test]
    fn findings_of_a_kind_are_grouped_and_name_five() {
        let of = |queue: &str, jobs| {
            Finding::new(Kind::QueueNoWorker, "It has no worker.", "Start one.").about(queue, jobs)
        };
        let mut all: Vec<Finding> = (1..=7).map(|n| of(&format!("q{n}"), n * 1_000)).collect();
        all.push(Finding::new(Kind::WorkerNoLeader, "None.", "Start one."));
        sort(&mut all);
        let groups = group_by_kind(&all);
        assert_eq!(groups.len(), 2);
        assert_eq!(
            groups[0].summary,
            "7 queues have no worker (28,000 jobs): q7 7,000, q6 6,000, q5 5,000, q4 4,000, \
             q3 3,000 and 2 more."
        );
        assert_eq!(groups[1].summary, "None.");
    }
}
