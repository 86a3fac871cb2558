//! What it means that somebody keeps space from coming back: no IO.

use super::facts::Holder;
use super::findings::{Finding, hint, wrong};

pub(super) fn of_a_holder(holder: &Holder) -> Option<Finding> {
    let Holder { name, .. } = holder;
    let age = holder
        .seconds
        .map(|seconds| format!("{seconds} s"))
        .unwrap_or_default();
    Some(match holder.kind.as_str() {
        "lock" => hint(
            "lock",
            &format!(
                "{name} has had a lock on the queue's tables for {age}: their space cannot come back"
            ),
            "end it, or let it end; a dump goes without them with --exclude-schema=posthaste",
        ),
        "transaction" => hint(
            "transaction",
            &format!(
                "{name} has had a transaction open for {age}: claims do not care, other tables cannot be vacuumed"
            ),
            "end it: SELECT pg_terminate_backend(pid); idle_in_transaction_session_timeout bounds such sessions",
        ),
        "prepared" => wrong(
            "prepared",
            &format!("the transaction {name} was prepared {age} ago and never ended"),
            "COMMIT PREPARED or ROLLBACK PREPARED, there",
        ),
        "slot" => hint(
            "slot",
            &format!("replication slot {name}, holds back vacuum or the write-ahead log"),
            "if nobody needs it: SELECT pg_drop_replication_slot('its name')",
        ),
        "replica" => hint(
            "replica_reader",
            &format!(
                "a reader on replica {name} has held back vacuum here for more than 10,000 transactions (hot_standby_feedback): claims do not care; where it reads a queue it also holds up replay"
            ),
            "there: SELECT pid, usename, xact_start FROM pg_stat_activity WHERE backend_xmin IS NOT NULL ORDER BY xact_start; end the oldest by pg_terminate_backend(pid), and keep long readers off the queue's tables",
        ),
        _ => return None,
    })
}
