//! The statements. They are not named, so any pooler works.

mod rows;
mod windows;

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use posthaste::Counters;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error as PgError, Row, SimpleQueryMessage};

use crate::checks::{Checks, MIN_SERVER_VERSION, TableLock};
use crate::error::Error;
use crate::facts::Server;
use crate::snapshot::Snapshot;
use crate::sums::Sums;
use crate::thresholds::Thresholds;
use rows::*;

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
        relays: posthaste_relay::list_relays(client).await?,
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
    query_one(client, include_str!("server.sql"), server_from_row).await
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
