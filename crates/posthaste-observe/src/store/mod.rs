//! The statements. They are not named, so any pooler works.

mod windows;

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use posthaste::{Counters, State};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error as PgError, Row, SimpleQueryMessage};

use crate::checks::{CaptureProblem, Checks, MIN_SERVER_VERSION, Rights, TableLock, UnsyncedTable};
use crate::error::Error;
use crate::facts::{
    EndedTransaction, FailedPeriodicJob, FailingJobs, GivenUpJobs, QueueSettings, Segments, Server,
    StoreState, SyncedTable, Worker,
};
use crate::snapshot::Snapshot;
use crate::sums::Sums;
use crate::thresholds::Thresholds;

/// The shortest time over which a rate is measured, in seconds.
const MIN_RATE_SECONDS: f64 = 540.0;

impl Snapshot {
    /// Reads everything except the lag of indexes, in a number of statements that does not depend
    /// on the number of jobs. The statements are not named, so any pooler works.
    pub async fn read(client: &Client) -> Result<Self, Error> {
        read_snapshot(client).await
    }

    /// Reads the lag of indexes. This reads the rows of jobs: limit it by a statement timeout if
    /// many may wait.
    pub async fn read_syncs(&mut self, client: &Client) -> Result<(), Error> {
        let left = |sums: &Sums| sums.pending() + sums.dead + sums.discarded + sums.expired;
        let sums = self.sums_by_queue();
        let is_left = |(queue, sums): (&&str, &Sums)| queue.starts_with("sync.") && left(sums) > 0;
        let mut behind = match sums.iter().any(is_left) {
            true => posthaste_sync::lagging_syncs(client).await?,
            false => BTreeMap::new(),
        };
        for sync in &mut self.syncs {
            sync.behind = Some(behind.remove(&sync.name).unwrap_or_default());
        }
        self.hide_secrets();
        Ok(())
    }
}

impl Checks {
    /// Reads the checks over one connection; a second one shows whether a pooler is in between.
    pub async fn read(
        client: &Client,
        second: &Client,
        thresholds: &Thresholds,
    ) -> Result<Self, Error> {
        let asked = unix_milliseconds(SystemTime::now());
        let server = read_server(client).await?;
        let answered = unix_milliseconds(SystemTime::now());
        let mut checks = Self {
            clock_ahead: clock_offset(server.at.as_millisecond(), asked, answered),
            is_pooled: is_pooled(client, second).await?,
            server,
            ..Self::default()
        };
        if checks.server.version_number < MIN_SERVER_VERSION {
            return Ok(checks);
        }
        read_checks(client, thresholds, &mut checks).await?;
        Ok(checks)
    }
}

/// Limit of uncounted jobs that a read counts itself, which takes approximately 20 ms.
const MAX_UNCOUNTED_JOBS: u32 = 20_000;

async fn read_snapshot(client: &Client) -> Result<Snapshot, Error> {
    let started = Instant::now();
    let mut jobs = posthaste::Client::new(client);
    let counters = jobs.counters_within(MAX_UNCOUNTED_JOBS).await?;
    let mut snapshot = Snapshot {
        server: read_server(client).await?,
        store: query_one(client, include_str!("state.sql"), store_state_from_row).await?,
        segments: query_one(client, include_str!("segments.sql"), segments_from_row).await?,
        queues: query_all(client, include_str!("queues.sql"), queue_settings_from_row).await?,
        workers: query_all(client, include_str!("workers.sql"), worker_from_row).await?,
        relays: posthaste_relay::relays(client).await?,
        captures: posthaste_capture::list_captures(client).await?,
        syncs: query_all(client, include_str!("syncs.sql"), synced_table_from_row).await?,
        holders: posthaste::__private::holders(client).await?,
        ended: query_all(
            client,
            include_str!("actions.sql"),
            ended_transaction_from_row,
        )
        .await?,
        given_up: query_all(client, include_str!("given_up.sql"), given_up_jobs_from_row).await?,
        periodic: query_all(
            client,
            include_str!("periodic.sql"),
            failed_periodic_from_row,
        )
        .await?,
        counters,
        ..Snapshot::default()
    };
    snapshot.windows = windows::read(client, &snapshot).await?;
    let sampled = snapshot
        .windows
        .iter()
        .filter(|one| one.seconds >= MIN_RATE_SECONDS);
    let rates = sampled.map(|one| (one.queue.clone(), one.completed as f64 * 60.0 / one.seconds));
    snapshot.rates = rates.collect();
    if snapshot.counters.jobs.iter().any(|one| one.retrying > 0) {
        snapshot.failing_jobs = query_all(
            client,
            include_str!("failing_jobs.sql"),
            failing_jobs_from_row,
        )
        .await?;
    }
    count_syncs(&mut snapshot);
    snapshot.hide_secrets();
    snapshot.took = started.elapsed();
    Ok(snapshot)
}

/// Sets the numbers of jobs of synced tables from the counters of their queues.
fn count_syncs(snapshot: &mut Snapshot) {
    let counters: &Counters = &snapshot.counters;
    for sync in &mut snapshot.syncs {
        let (changes, reindex) = (
            posthaste_sync::queue(&sync.name),
            posthaste_sync::reindex_queue(&sync.name),
        );
        for one in &counters.jobs {
            let due = one.available + one.blocked + one.running + one.quarantined;
            let later = one.scheduled + one.retrying;
            if one.queue == changes {
                sync.due += due;
                sync.scheduled += later;
            } else if one.queue == reindex {
                sync.reindex += due + later;
            }
        }
    }
}

async fn query_all<T>(
    client: &Client,
    sql: &'static str,
    read: impl Fn(&Row) -> Result<T, PgError>,
) -> Result<Vec<T>, Error> {
    let rows = client.query_typed(sql, &[]).await?;
    let read: Result<Vec<T>, _> = rows.iter().map(read).collect();
    Ok(read?)
}

async fn query_one<T>(
    client: &Client,
    sql: &'static str,
    read: impl Fn(&Row) -> Result<T, PgError>,
) -> Result<T, Error> {
    query_all(client, sql, read)
        .await?
        .into_iter()
        .next()
        .ok_or(Error::NoRow)
}

async fn read_server(client: &Client) -> Result<Server, Error> {
    query_one(client, include_str!("server.sql"), |row| {
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
    })
    .await
}

fn store_state_from_row(row: &Row) -> Result<StoreState, PgError> {
    Ok(StoreState {
        needs_rebase: row.try_get("needs_rebase")?,
        site: row.try_get("site")?,
        refused: row.try_get("refused")?,
        has_leader: row.try_get("has_leader")?,
        seconds_ahead: row.try_get("seconds_ahead")?,
        seconds_jumped: row.try_get("seconds_jumped")?,
    })
}

fn segments_from_row(row: &Row) -> Result<Segments, PgError> {
    Ok(Segments {
        live: row.try_get(0)?,
        sealed: row.try_get(1)?,
        by_transaction: row.try_get(2)?,
        by_lock: row.try_get(3)?,
    })
}

fn queue_settings_from_row(row: &Row) -> Result<QueueSettings, PgError> {
    Ok(QueueSettings {
        name: row.try_get("name")?,
        paused_at: row.try_get("paused_at")?,
        rate: row.try_get("rate")?,
        per: row.try_get("per")?,
        burst: row.try_get("burst")?,
        keep: row.try_get("keep")?,
    })
}

fn worker_from_row(row: &Row) -> Result<Worker, PgError> {
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

fn synced_table_from_row(row: &Row) -> Result<SyncedTable, PgError> {
    Ok(SyncedTable {
        name: row.try_get(0)?,
        table: row.try_get(1)?,
        reindex_paused: row.try_get(2)?,
        ..SyncedTable::default()
    })
}

fn failing_jobs_from_row(row: &Row) -> Result<FailingJobs, PgError> {
    Ok(FailingJobs {
        queue: row.try_get("queue")?,
        attempts: row.try_get("attempts")?,
        jobs: row.try_get("jobs")?,
        error: row.try_get("error")?,
    })
}

fn ended_transaction_from_row(row: &Row) -> Result<EndedTransaction, PgError> {
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

fn failed_periodic_from_row(row: &Row) -> Result<FailedPeriodicJob, PgError> {
    Ok(FailedPeriodicJob {
        name: row.try_get("name")?,
        error: row.try_get("error")?,
    })
}

fn given_up_jobs_from_row(row: &Row) -> Result<GivenUpJobs, PgError> {
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

/// Returns whether a pooler is in between: without one, two connections have different server
/// processes and one connection always has the same.
async fn is_pooled(first: &Client, second: &Client) -> Result<bool, Error> {
    let before = backend_pid(first).await?;
    second.batch_execute("BEGIN").await?;
    let other = backend_pid(second).await?;
    let pooled = other == before || backend_pid(first).await? != before;
    second.batch_execute("COMMIT").await?;
    Ok(pooled)
}

async fn backend_pid(client: &Client) -> Result<String, Error> {
    let answer = client.simple_query(include_str!("pid.sql")).await?;
    let pid = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    pid.ok_or(Error::NoRow)
}

async fn read_checks(
    client: &Client,
    thresholds: &Thresholds,
    checks: &mut Checks,
) -> Result<(), Error> {
    // A role that may not read the schema's version lacks rights; its schema may still match.
    let schema = posthaste::check_schema(client).await.err();
    let schema = schema.filter(|one| one.sqlstate() != Some(&SqlState::INSUFFICIENT_PRIVILEGE));
    checks.schema = schema.map(|one| one.to_string());
    let seconds = thresholds.long_transaction.as_secs_f64();
    let locks = client
        .query_typed(include_str!("locks.sql"), &[(&seconds, Type::FLOAT8)])
        .await?;
    let locks: Result<Vec<TableLock>, _> = locks.iter().map(table_lock_from_row).collect();
    checks.locks = locks?;
    checks.holders = posthaste::__private::holders(client).await?;
    if checks.schema.is_some() {
        return Ok(());
    }
    let rights = query_one(client, include_str!("rights.sql"), rights_from_row).await?;
    if rights.read_syncs {
        checks.unsynced = query_all(
            client,
            include_str!("triggers.sql"),
            unsynced_table_from_row,
        )
        .await?;
    }
    checks.rights = Some(rights);
    if checks.can_observe() {
        let read = |row: &Row| Ok((row.try_get("needs_rebase")?, row.try_get("ids_behind")?));
        let thorough = query_one(client, include_str!("thorough.sql"), read).await?;
        (checks.needs_rebase, checks.ids_behind) = thorough;
        let problems = query_all(
            client,
            include_str!("captures.sql"),
            capture_problem_from_row,
        )
        .await?;
        checks.captures = problems.into_iter().flatten().collect();
    }
    Ok(())
}

fn table_lock_from_row(row: &Row) -> Result<TableLock, PgError> {
    Ok(TableLock {
        session: row.try_get("name")?,
        seconds: row.try_get("seconds")?,
    })
}

fn rights_from_row(row: &Row) -> Result<Rights, PgError> {
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

fn capture_problem_from_row(row: &Row) -> Result<Option<CaptureProblem>, PgError> {
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

fn unsynced_table_from_row(row: &Row) -> Result<UnsyncedTable, PgError> {
    Ok(UnsyncedTable {
        name: row.try_get(0)?,
        is_dropped: row.try_get(1)?,
        parts: row.try_get(2)?,
    })
}

/// Returns by how much a clock that was read between these two times is ahead; negative if it is
/// slow.
fn clock_offset(clock: i64, asked: i64, answered: i64) -> i64 {
    (clock - answered).max(0) + (clock - asked).min(0)
}

fn unix_milliseconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_within_the_round_trip_have_no_offset() {
        assert_eq!(clock_offset(15, 10, 20), 0);
        assert_eq!(clock_offset(25, 10, 20), 5);
        assert_eq!(clock_offset(7, 10, 20), -3);
    }
}
