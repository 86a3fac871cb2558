//! Maps the rows of the statements.

use posthaste::State;
use tokio_postgres::{Error as PgError, Row};

use crate::checks::{CaptureProblem, Rights, TableLock, UnsyncedTable};
use crate::facts::{
    EndedTransaction, FailedPeriodicJob, FailingJobs, GivenUpJobs, QueueSettings, Segments, Server,
    StoreState, SyncedTable, Worker,
};

pub(super) fn server_from_row(row: &Row) -> Result<Server, PgError> {
    Ok(Server {
        database: row.try_get("database")?,
        version_number: row.try_get("version_number")?,
        version: row.try_get("version")?,
        is_replica: row.try_get("is_replica")?,
        at: row.try_get("at")?,
        role: row.try_get("role")?,
        sees_sessions: row.try_get("sees_sessions")?,
        fsync: row.try_get("fsync")?,
        synchronous_commit: row.try_get("synchronous_commit")?,
        max_prepared_transactions: row.try_get("max_prepared_transactions")?,
        notifications: row.try_get("notifications")?,
        encoding: row.try_get("encoding")?,
        platform: row.try_get("platform")?,
        missing_roles: row.try_get("missing_roles")?,
        open_schemas: row.try_get("open_schemas")?,
    })
}

pub(super) fn store_state_from_row(row: &Row) -> Result<StoreState, PgError> {
    Ok(StoreState {
        needs_rebase: row.try_get("needs_rebase")?,
        site: row.try_get("site")?,
        refused: row.try_get("refused")?,
        has_leader: row.try_get("has_leader")?,
        seconds_ahead: row.try_get("seconds_ahead")?,
        seconds_jumped: row.try_get("seconds_jumped")?,
    })
}

pub(super) fn segments_from_row(row: &Row) -> Result<Segments, PgError> {
    Ok(Segments {
        live: row.try_get(0)?,
        sealed: row.try_get(1)?,
        by_transaction: row.try_get(2)?,
        by_lock: row.try_get(3)?,
    })
}

pub(super) fn queue_settings_from_row(row: &Row) -> Result<QueueSettings, PgError> {
    Ok(QueueSettings {
        name: row.try_get("name")?,
        paused_at: row.try_get("paused_at")?,
        rate: row.try_get("rate")?,
        per: row.try_get("per")?,
        burst: row.try_get("burst")?,
        keep: row.try_get("keep")?,
    })
}

pub(super) fn worker_from_row(row: &Row) -> Result<Worker, PgError> {
    Ok(Worker {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        started_at: row.try_get("started_at")?,
        silent: row.try_get("silent")?,
        queues: row.try_get("queues")?,
        leads: row.try_get("leads")?,
        failing_since: row.try_get("failing_since")?,
        last_error: row.try_get("last_error")?,
    })
}

pub(super) fn synced_table_from_row(row: &Row) -> Result<SyncedTable, PgError> {
    Ok(SyncedTable {
        name: row.try_get(0)?,
        table: row.try_get(1)?,
        reindex_paused: row.try_get(2)?,
        ..SyncedTable::default()
    })
}

pub(super) fn failing_jobs_from_row(row: &Row) -> Result<FailingJobs, PgError> {
    Ok(FailingJobs {
        queue: row.try_get("queue")?,
        attempts: row.try_get("attempts")?,
        jobs: row.try_get("jobs")?,
        error: row.try_get("error")?,
    })
}

pub(super) fn ended_transaction_from_row(row: &Row) -> Result<EndedTransaction, PgError> {
    Ok(EndedTransaction {
        at: row.try_get("at")?,
        server: row.try_get("server")?,
        pid: row.try_get("pid")?,
        role: row.try_get("role")?,
        application: row.try_get("application")?,
        seconds: row.try_get("seconds")?,
        action: row.try_get("action")?,
        rule: row.try_get("rule")?,
        result: row.try_get("result")?,
    })
}

pub(super) fn failed_periodic_from_row(row: &Row) -> Result<FailedPeriodicJob, PgError> {
    Ok(FailedPeriodicJob {
        name: row.try_get("name")?,
        error: row.try_get("error")?,
    })
}

pub(super) fn given_up_jobs_from_row(row: &Row) -> Result<GivenUpJobs, PgError> {
    let state: &str = row.try_get("state")?;
    Ok(GivenUpJobs {
        state: match state {
            "expired" => State::Expired,
            _ => State::Dead,
        },
        queue: row.try_get("queue")?,
        jobs: row.try_get("jobs")?,
        since: row.try_get("since")?,
        error: row.try_get("error")?,
    })
}

pub(super) fn table_lock_from_row(row: &Row) -> Result<TableLock, PgError> {
    Ok(TableLock {
        session: row.try_get("name")?,
        seconds: row.try_get("seconds")?,
    })
}

pub(super) fn rights_from_row(row: &Row) -> Result<Rights, PgError> {
    Ok(Rights {
        use_schema: row.try_get("may_look")?,
        enqueue: row.try_get("may_enqueue")?,
        work: row.try_get("may_work")?,
        observe: row.try_get("may_observe")?,
        read_syncs: row.try_get("may_look_at_synced")?,
        missing_functions: row.try_get("functions_lacking")?,
        outdated_roles: row.try_get("roles_lacking")?,
    })
}

pub(super) fn capture_problem_from_row(row: &Row) -> Result<Option<CaptureProblem>, PgError> {
    let (problem, capture) = (row.try_get::<_, &str>(0)?, row.try_get(1)?);
    Ok(match problem {
        "publication" => Some(CaptureProblem::Publication(capture)),
        "identity" => Some(CaptureProblem::Identity {
            capture,
            table: row.try_get(2)?,
        }),
        "limit" => Some(CaptureProblem::Limit),
        "unsynchronized" => Some(CaptureProblem::Unsynchronized(capture)),
        "no synchronization" => Some(CaptureProblem::NoSynchronization),
        "standbys lag" => Some(CaptureProblem::StandbysBehind),
        "standby missing" => Some(CaptureProblem::StandbyMissing(row.try_get(2)?)),
        _ => None,
    })
}

pub(super) fn unsynced_table_from_row(row: &Row) -> Result<UnsyncedTable, PgError> {
    Ok(UnsyncedTable {
        name: row.try_get(0)?,
        is_dropped: row.try_get(1)?,
        parts: row.try_get(2)?,
    })
}
