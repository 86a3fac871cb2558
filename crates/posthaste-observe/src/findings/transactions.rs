//! Findings about sessions and slots that hold back vacuum.

use posthaste::{Holder, HolderKind};

use crate::checks::Checks;
use crate::finding::{Finding, Kind};
use crate::format::{age, one_line, pluralize, time};
use crate::holders::{holder_detail, holder_name};
use crate::snapshot::Snapshot;
use crate::thresholds::Thresholds;

/// Transactions that readers on a replica may hold back without being reported.
const MAX_REPLICA_TRANSACTIONS: i64 = 10_000;

pub(super) fn findings(holders: &[Holder], thresholds: &Thresholds) -> Vec<Finding> {
    holders
        .iter()
        .filter_map(|holder| finding(holder, thresholds))
        .collect()
}

/// Describes for how long; `None`: it began before the clock stepped back.
fn duration_phrase(seconds: Option<f64>) -> String {
    match seconds {
        Some(seconds) => format!("for {}", age(seconds)),
        None => "since before the clock stepped back".to_owned(),
    }
}

fn finding(holder: &Holder, thresholds: &Thresholds) -> Option<Finding> {
    let name = one_line(&holder_name(holder), 120);
    let detail = one_line(&holder_detail(holder), 160);
    let limit = thresholds.long_transaction.as_secs_f64();
    let is_long = holder.seconds.is_none_or(|seconds| seconds >= limit);
    let ago = match holder.seconds {
        Some(seconds) => format!("{} ago", age(seconds)),
        None => "before the clock stepped back".to_owned(),
    };
    let finding = match holder.kind {
        HolderKind::Slot if !holder.is_read || holder.is_logical => Finding::new(
            Kind::TransactionSlot,
            format!("The {name} ({detail}) holds back vacuum or the write-ahead log."),
            "Start its reader. If it is not needed, run SELECT pg_drop_replication_slot with its \
             name.",
        ),
        HolderKind::Replica if holder.transactions > Some(MAX_REPLICA_TRANSACTIONS) => {
            Finding::new(
                Kind::TransactionReplica,
                format!(
                    "Vacuum is held back for more than 10,000 transactions by {name} \
                 (hot_standby_feedback). posthaste is not affected, unless it reads a queue there."
                ),
                "On the replica run SELECT pid, usename, xact_start FROM pg_stat_activity WHERE \
             backend_xmin IS NOT NULL ORDER BY xact_start, end the oldest by \
             pg_terminate_backend(pid), and keep long readers off the queue's tables.",
            )
        }
        HolderKind::Prepared if is_long => Finding::new(
            Kind::TransactionPrepared,
            format!("The {name} ({detail}) was prepared {ago} and has not ended."),
            "Run COMMIT PREPARED or ROLLBACK PREPARED in its database.",
        ),
        HolderKind::Session if is_long => Finding::new(
            Kind::TransactionLong,
            format!(
                "A transaction has been open {}: {name} ({detail}). posthaste is not affected; \
                 VACUUM cannot remove rows of your tables that died since.",
                duration_phrase(holder.seconds)
            ),
            format!(
                "End it if it is not needed: SELECT pg_terminate_backend({}). \
                 idle_in_transaction_session_timeout limits such sessions.",
                holder.pid.unwrap_or_default()
            ),
        ),
        _ => return None,
    };
    Some(finding.about(&name, 0))
}

/// Returns one finding for all sessions that txwatch ended in the last hour.
pub(super) fn ended_transactions_finding(snapshot: &Snapshot) -> Option<Finding> {
    let last = snapshot.recently_ended_transactions().next()?;
    let count = |action, is_done: bool| {
        let ended = snapshot.recently_ended_transactions();
        let ended = ended.filter(|one| one.action == action && (one.result == "done") == is_done);
        ended.count() as i64
    };
    let failed = count("terminate", false) + count("cancel", false);
    let parts = [
        (
            count("terminate", true),
            "session terminated",
            "sessions terminated",
        ),
        (
            count("cancel", true),
            "statement cancelled",
            "statements cancelled",
        ),
        (failed, "attempt without effect", "attempts without effect"),
    ];
    let parts = parts.into_iter().filter(|(number, ..)| *number > 0);
    let parts: Vec<String> = parts
        .map(|(number, one, many)| pluralize(number, one, many))
        .collect();
    let summary = format!(
        "txwatch in the last hour: {}; the last at {} on {}: session {} of {} ({}), by rule {}, \
         {}.",
        parts.join(", "),
        time(last.at, snapshot.server.at),
        one_line(&last.server, 80),
        last.pid.unwrap_or_default(),
        one_line(last.role.as_deref().unwrap_or("no role"), 80),
        one_line(last.application.as_deref().unwrap_or("no name"), 80),
        last.rule,
        one_line(&last.result, 120)
    );
    let remedy = "Shorten these transactions, or exempt them by a rule without ages in [txwatch].";
    Some(Finding::new(Kind::TransactionEnded, summary, remedy).since(last.at))
}

pub(super) fn check_findings(checks: &Checks) -> Vec<Finding> {
    let locks = checks.locks.iter().map(|lock| {
        let name = one_line(&lock.session, 120);
        let lasts = duration_phrase(lock.seconds.map(|seconds| seconds as f64));
        let summary = format!(
            "A lock on the queue's tables has been held {lasts}: {name}. Their space cannot be \
             freed."
        );
        let remedy = "End the session, or wait for it. A dump can exclude the tables with \
                      --exclude-schema=posthaste.";
        Finding::new(Kind::TransactionLock, summary, remedy).about(&name, 0)
    });
    locks.collect()
}
