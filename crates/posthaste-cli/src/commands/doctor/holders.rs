//! What it means that somebody keeps space from coming back: no IO.

use posthaste::HolderKind;

use super::facts::Holder;
use super::findings::{Finding, hint, wrong};

/// Readers of a replica that look back no further are no news.
const FAR: i64 = 10_000;

/// Those who have been in the way for longer than this many seconds, by kind, or since before the
/// clock went back; of slots and replicas nobody says since when, and that it is so is enough.
pub(super) fn in_the_way(all: &[posthaste::Holder], older_than: f64) -> Vec<Holder> {
    let mut found: Vec<Holder> = all
        .iter()
        .filter(|one| match one.kind {
            HolderKind::Slot => !one.is_read || one.is_logical,
            HolderKind::Replica => one.transactions > Some(FAR),
            _ => one.seconds.is_none_or(|seconds| seconds >= older_than),
        })
        .map(named)
        .collect();
    let order = |one: &Holder| {
        (
            one.kind.clone(),
            std::cmp::Reverse(one.seconds),
            one.name.clone(),
        )
    };
    found.sort_by_key(order);
    found
}

fn named(one: &posthaste::Holder) -> Holder {
    let name = one.name.as_deref().unwrap_or_default();
    let application = one.application.as_deref().filter(|name| !name.is_empty());
    let application = application.unwrap_or("no name");
    let (kind, name) = match one.kind {
        HolderKind::Prepared => {
            let database = one.database.as_deref().unwrap_or_default();
            ("prepared", format!("{name} in database {database}"))
        }
        // A replica with hot_standby_feedback tells how far back its readers look. One that nobody
        // reads tells the present every ten seconds (wal_receiver_status_interval), so it is behind
        // too, by as many transactions as came since.
        HolderKind::Replica => {
            let address = one.address.as_deref().unwrap_or("this machine");
            ("replica", format!("{application} ({address})"))
        }
        HolderKind::Slot => {
            let unread = if one.is_read {
                ""
            } else {
                ", which nobody reads"
            };
            ("slot", format!("{name}{unread}"))
        }
        _ => {
            let (pid, role) = (one.pid.unwrap_or_default(), one.role.as_deref());
            let role = role.unwrap_or_default();
            let name = format!("session {pid} ({role}, {application})");
            ("transaction", name)
        }
    };
    Holder {
        kind: kind.to_owned(),
        name,
        seconds: one.seconds.map(|seconds| seconds.floor() as i64),
    }
}

pub(super) fn of_a_holder(holder: &Holder) -> Option<Finding> {
    let Holder { name, .. } = holder;
    let before = || "before the clock went back".to_owned();
    let since = holder.seconds.map(|seconds| format!("for {seconds} s"));
    let since = since.unwrap_or_else(|| format!("since {}", before()));
    Some(match holder.kind.as_str() {
        "lock" => hint(
            "lock",
            &format!(
                "{name} has had a lock on the queue's tables {since}: their space cannot come \
                 back"
            ),
            "end it, or let it end; a dump goes without them with --exclude-schema=posthaste",
        ),
        "transaction" => hint(
            "transaction",
            &format!(
                "{name} has had a transaction open {since}: claims do not care, other tables \
                 cannot be vacuumed"
            ),
            "end it: SELECT pg_terminate_backend(pid); idle_in_transaction_session_timeout bounds \
             such sessions",
        ),
        "prepared" => {
            let ago = holder.seconds.map(|seconds| format!("{seconds} s ago"));
            let ago = ago.unwrap_or_else(before);
            wrong(
                "prepared",
                &format!("the transaction {name} was prepared {ago} and never ended"),
                "COMMIT PREPARED or ROLLBACK PREPARED, there",
            )
        }
        "slot" => hint(
            "slot",
            &format!("replication slot {name}, holds back vacuum or the write-ahead log"),
            "if nobody needs it: SELECT pg_drop_replication_slot('its name')",
        ),
        "replica" => hint(
            "replica_reader",
            &format!(
                "a reader on replica {name} has held back vacuum here for more than 10,000 \
                 transactions (hot_standby_feedback): claims do not care; where it reads a queue \
                 it also holds up replay"
            ),
            "there: SELECT pid, usename, xact_start FROM pg_stat_activity WHERE backend_xmin IS \
             NOT NULL ORDER BY xact_start; end the oldest by pg_terminate_backend(pid), \
             and keep long readers off the queue's tables",
        ),
        _ => return None,
    })
}
