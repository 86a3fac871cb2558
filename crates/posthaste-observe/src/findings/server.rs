//! Findings about the server and its settings.

use crate::checks::{Checks, MIN_SERVER_VERSION};
use crate::facts::Server;
use crate::finding::{Finding, Kind};

/// Difference of clocks from which it is reported, in milliseconds.
const MIN_CLOCK_DIFFERENCE_MS: i64 = 2_000;
/// Usage of the notification queue from which it is reported, in percent.
const MIN_NOTIFICATION_QUEUE_PERCENT: i32 = 10;

pub(super) fn findings(server: &Server) -> Vec<Finding> {
    let mut found = Vec::new();
    if server.version_number < MIN_SERVER_VERSION {
        found.push(Finding::new(
            Kind::ServerVersion,
            format!("The server runs PostgreSQL {}.", server.version),
            "Upgrade to PostgreSQL 15 or newer.",
        ));
    }
    if !server.fsync {
        found.push(Finding::new(
            Kind::ServerFsync,
            "fsync is off: a crash of the machine can destroy the database with all its jobs.",
            "Run ALTER SYSTEM SET fsync = on, then SELECT pg_reload_conf().",
        ));
    }
    if ["off", "local"].contains(&server.synchronous_commit.as_str()) {
        found.push(Finding::new(
            Kind::ServerSynchronousCommit,
            format!(
                "synchronous_commit is {}: a crash or a failover can lose the last commits, jobs \
                 together with their data.",
                server.synchronous_commit
            ),
            "Run ALTER ROLE … SET synchronous_commit = on for roles that enqueue jobs that must \
             not be lost.",
        ));
    }
    if server.notifications >= MIN_NOTIFICATION_QUEUE_PERCENT {
        found.push(Finding::new(
            Kind::ServerNotifications,
            format!(
                "The notification queue of the server is {} % full: a session that listens stays \
                 in a transaction. From 50 % on workers are not notified; when the queue is full, \
                 NOTIFY fails at COMMIT.",
                server.notifications
            ),
            "End that session: in pg_stat_activity the oldest one that is 'idle in transaction' \
             and has run LISTEN.",
        ));
    }
    if server.max_prepared_transactions > 0 {
        found.push(Finding::new(
            Kind::ServerPreparedTransactions,
            "The server allows prepared transactions: a transaction that has sent a notification \
             cannot be prepared, and a forgotten one retains space.",
            "If transactions with jobs in them are prepared, switch off notifications in these \
             sessions, and check that each transaction ends.",
        ));
    }
    if server.encoding == "SQL_ASCII" {
        found.push(Finding::new(
            Kind::ServerEncoding,
            "The database is in SQL_ASCII, which accepts text in any encoding: a job that is not \
             UTF-8 cannot be run and becomes dead.",
            "Let producers write UTF-8 only, or move to a database in UTF8.",
        ));
    }
    if !server.sees_sessions {
        let role = &server.role;
        found.push(Finding::new(
            Kind::RightsSessions,
            format!(
                "Role {role} cannot see what other sessions do: long transactions, locks and \
                 readers on replicas are not checked."
            ),
            format!(
                "Run GRANT pg_read_all_stats TO {role} as a superuser. posthaste_worker and \
                 posthaste_observer have it if the role that ran 'posthaste migrate --roles' \
                 could grant it."
            ),
        ));
    }
    if !server.missing_roles.is_empty() {
        found.push(Finding::new(
            Kind::RightsRoles,
            format!("Missing roles: {}.", server.missing_roles.join(", ")),
            "Run 'posthaste migrate --roles' to create roles with no more rights than programs \
             need.",
        ));
    }
    if !server.open_schemas.is_empty() {
        let names = server.open_schemas.join(", ");
        found.push(Finding::new(
            Kind::ServerOpenSchema,
            format!(
                "Every role can create in {names}: functions and operators created there may run \
                 in the sessions of other roles. posthaste itself calls none of them."
            ),
            format!("Run REVOKE CREATE ON SCHEMA {names} FROM PUBLIC as its owner."),
        ));
    }
    found
}

pub(super) fn check_findings(checks: &Checks) -> Vec<Finding> {
    let mut found = Vec::new();
    // Reported only by checks: a console may read a replica on purpose.
    if checks.server.is_replica {
        found.push(Finding::new(
            Kind::ServerReplica,
            "This server is a replica: jobs can be read here, but not enqueued or run.",
            "Connect to the primary, or promote this server.",
        ));
    }
    if let Some(platform) = &checks.server.platform {
        found.push(Finding::new(
            Kind::ServerPlatform,
            format!("The server runs on {platform}."),
            "No action is needed: posthaste needs only the rights of a database's owner.",
        ));
    }
    if checks.is_pooled {
        found.push(Finding::new(
            Kind::ServerPooler,
            "The connection goes through a pooler in transaction mode. Everything works, but \
             workers cannot listen.",
            "Connect workers to the server directly.",
        ));
    }
    if checks.clock_ahead.abs() >= MIN_CLOCK_DIFFERENCE_MS {
        let seconds = checks.clock_ahead.abs() as f64 / 1_000.0;
        let order = match checks.clock_ahead > 0 {
            true => "ahead of",
            false => "behind",
        };
        found.push(Finding::new(
            Kind::ServerClock,
            format!("The server's clock is {seconds:.1} s {order} the clock of this machine."),
            "Synchronize both (NTP). The server's clock decides what is due; programs compute \
             times by their own clock.",
        ));
    }
    found
}
