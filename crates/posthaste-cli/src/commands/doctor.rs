//! `posthaste doctor`: looks at everything that can be wrong around the queue, and says what to do
//! about it.

mod facts;
mod findings;
mod holders;
mod rights;
mod synced;

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Row, SimpleQueryMessage};

use crate::commands::status::periodic;
use crate::commands::sync::behind::behind;
use crate::database::Database;
use crate::failure::Ended;
use crate::options::duration;
use crate::terminal::Terminal;
use facts::{Facts, Holder, Rights, Server, Store, Unsynced};
use findings::{Finding, Level, OLDEST, findings};

/// Find what is wrong with the database, the queue and what surrounds them, and how to mend it
///
/// Ends with 0 when nothing is wrong (hints do not count), with 3 when something is, with 1 when it
/// could not look.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Name transactions that are older than this, and syncs that have failed for longer
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    older_than: Duration,
}

/// The exit code when something is wrong.
const WRONG: u8 = 3;

#[derive(Serialize)]
struct Report {
    findings: Vec<Finding>,
}

pub(crate) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let facts = look(arguments, database).await?;
    let report = Report {
        findings: findings(&facts),
    };
    terminal.result(&report, &report)?;
    let wrong = report
        .findings
        .iter()
        .filter(|one| one.level == Level::Wrong)
        .count();
    if wrong > 0 {
        let line = format!(
            "{wrong} of {} findings need somebody.",
            report.findings.len()
        );
        return Err(Ended { code: WRONG, line }.into());
    }
    Ok(())
}

async fn look(arguments: &Arguments, database: &Database) -> anyhow::Result<Facts> {
    let client = database.address().connect().await?;
    let another = database.address().connect().await?;
    let mut facts = Facts {
        server: server(&client).await?,
        pooled: is_pooled(&client, &another).await?,
        ..Facts::default()
    };
    if facts.server.version < OLDEST {
        return Ok(facts);
    }
    // Who may not read of which version it is lacks rights.
    let schema = posthaste::check_schema(&client).await.err();
    facts.schema = schema
        .filter(|error| error.sqlstate() != Some(&SqlState::INSUFFICIENT_PRIVILEGE))
        .map(|error| error.to_string());
    let older_than = arguments.older_than.as_secs_f64();
    // Unnamed statements throughout: behind a pooler, a named one may be asked of another server
    // process.
    let locks = client
        .query_typed(
            include_str!("doctor/locks.sql"),
            &[(&older_than, tokio_postgres::types::Type::FLOAT8)],
        )
        .await?;
    facts.holders = locks.iter().map(lock).collect::<Result<_, _>>()?;
    let all = posthaste::holders(&client).await?;
    facts.holders.extend(holders::in_the_way(&all, older_than));
    if facts.schema.is_some() {
        return Ok(facts);
    }
    let rights = one(&client, include_str!("doctor/rights.sql")).await?;
    facts.rights = Some(Rights {
        may_look: rights.try_get("may_look")?,
        may_enqueue: rights.try_get("may_enqueue")?,
        may_work: rights.try_get("may_work")?,
        may_observe: rights.try_get("may_observe")?,
        functions_lacking: rights.try_get("functions_lacking")?,
        roles_lacking: rights.try_get("roles_lacking")?,
    });
    if rights.try_get("may_look_at_synced")? {
        let synced = client
            .query_typed(include_str!("doctor/synced.sql"), &[])
            .await?;
        let unsynced = synced.iter().map(|row| {
            Ok(Unsynced {
                name: row.try_get(0)?,
                is_gone: row.try_get(1)?,
                parts: row.try_get(2)?,
            })
        });
        facts.unsynced = unsynced.collect::<Result<_, tokio_postgres::Error>>()?;
    }
    let rights = facts.rights.as_ref().filter(|rights| rights.may_observe);
    let Some(rights) = rights.filter(|_| !facts.server.is_replica) else {
        return Ok(facts);
    };
    if rights.functions_lacking.is_empty() {
        facts.behind = behind(&client).await?.into_iter().collect();
        facts.older_than = older_than;
    }
    facts.store = store(&client).await?;
    Ok(facts)
}

async fn one(client: &Client, sql: &str) -> Result<Row, anyhow::Error> {
    let rows = client.query_typed(sql, &[]).await?;
    rows.into_iter()
        .next()
        .ok_or_else(|| anyhow::anyhow!("the server returned nothing"))
}

async fn server(client: &Client) -> anyhow::Result<Server> {
    let asked = SystemTime::now();
    let row = one(client, include_str!("doctor/server.sql")).await?;
    let clock: i64 = row.try_get("clock")?;
    Ok(Server {
        version: row.try_get("version")?,
        version_name: row.try_get("version_name")?,
        fsync: row.try_get("fsync")?,
        synchronous_commit: row.try_get("synchronous_commit")?,
        max_prepared: row.try_get("max_prepared")?,
        is_replica: row.try_get("is_replica")?,
        notifications: row.try_get("notifications")?,
        clock_ahead: ahead(clock, milliseconds(asked), milliseconds(SystemTime::now())),
        me: row.try_get("me")?,
        encoding: row.try_get("encoding")?,
        sees_sessions: row.try_get("sees_sessions")?,
        roles_missing: row.try_get("roles_missing")?,
        open_schemas: row.try_get("open_schemas")?,
    })
}

/// By how much a clock that was read between these two times is ahead of them, or behind.
fn ahead(clock: i64, asked: i64, answered: i64) -> i64 {
    (clock - answered).max(0) + (clock - asked).min(0)
}

fn milliseconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Two connections of ours never have the same server process, unless somebody lends it from one to
/// the other; nor does one have two.
async fn is_pooled(first: &Client, second: &Client) -> anyhow::Result<bool> {
    let before = process(first).await?;
    second.batch_execute("BEGIN").await?;
    let other = process(second).await?;
    let pooled = other == before || process(first).await? != before;
    second.batch_execute("COMMIT").await?;
    Ok(pooled)
}

async fn process(client: &Client) -> anyhow::Result<String> {
    let answer = client.simple_query(include_str!("doctor/pid.sql")).await?;
    let pid = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    pid.ok_or_else(|| anyhow::anyhow!("the server returned nothing"))
}

/// Nothing where this user may not look.
async fn store(client: &Client) -> anyhow::Result<Option<Store>> {
    let row = match one(client, include_str!("doctor/store.sql")).await {
        Ok(row) => row,
        Err(error) => {
            let refused = error
                .downcast_ref::<tokio_postgres::Error>()
                .and_then(tokio_postgres::Error::code);
            if refused == Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
                return Ok(None);
            }
            return Err(error);
        }
    };
    Ok(Some(Store {
        needs_rebase: row.try_get("needs_rebase")?,
        workers: row.try_get("workers")?,
        has_leader: row.try_get("has_leader")?,
        has_waiting: row.try_get("has_waiting")?,
        ids_behind: row.try_get("ids_behind")?,
        seconds_ahead: row.try_get("seconds_ahead")?,
        seconds_jumped: row.try_get("seconds_jumped")?,
        unworked: row.try_get("unworked")?,
        periodic: periodic::failed(client).await?,
    }))
}

fn lock(row: &Row) -> Result<Holder, tokio_postgres::Error> {
    Ok(Holder {
        kind: "lock".to_owned(),
        name: row.try_get("name")?,
        seconds: row.try_get("seconds")?,
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.findings.is_empty() {
            return write!(f, "nothing is wrong");
        }
        for (at, one) in self.findings.iter().enumerate() {
            let how = match one.level {
                Level::Wrong => "WRONG",
                Level::Hint => "hint ",
            };
            let gap = if at > 0 { "\n" } else { "" };
            write!(
                f,
                "{gap}{how}  {}: {}\n       {}",
                one.about, one.what, one.remedy
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_between_the_question_and_the_answer_is_right() {
        assert_eq!(ahead(15, 10, 20), 0);
        assert_eq!(ahead(25, 10, 20), 5);
        assert_eq!(ahead(7, 10, 20), -3);
    }
}
