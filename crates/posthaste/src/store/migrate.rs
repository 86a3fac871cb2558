//! Brings the schema up to date: forward only, each step in a transaction, all of them behind one lock, each told by name and checksum.

use tokio_postgres::Client;

use super::parameter::typed;
use crate::error::{Error, ErrorKind};

/// Steps in their order. A step that was released never changes.
const STEPS: &[(&str, &str)] = &[
    (
        "0001_store",
        include_str!("../../migrations/0001_store.sql"),
    ),
    (
        "0002_enqueue",
        include_str!("../../migrations/0002_enqueue.sql"),
    ),
    (
        "0003_claim",
        include_str!("../../migrations/0003_claim.sql"),
    ),
    (
        "0004_acknowledge",
        include_str!("../../migrations/0004_acknowledge.sql"),
    ),
    ("0005_ring", include_str!("../../migrations/0005_ring.sql")),
    (
        "0006_aside",
        include_str!("../../migrations/0006_aside.sql"),
    ),
    (
        "0007_scheduled",
        include_str!("../../migrations/0007_scheduled.sql"),
    ),
    (
        "0008_rescue",
        include_str!("../../migrations/0008_rescue.sql"),
    ),
    (
        "0009_expiry",
        include_str!("../../migrations/0009_expiry.sql"),
    ),
    (
        "0010_operate",
        include_str!("../../migrations/0010_operate.sql"),
    ),
    (
        "0011_periodic",
        include_str!("../../migrations/0011_periodic.sql"),
    ),
    (
        "0012_order",
        include_str!("../../migrations/0012_order.sql"),
    ),
    (
        "0013_nowait",
        include_str!("../../migrations/0013_nowait.sql"),
    ),
    (
        "0014_history",
        include_str!("../../migrations/0014_history.sql"),
    ),
    ("0015_find", include_str!("../../migrations/0015_find.sql")),
    (
        "0016_restore",
        include_str!("../../migrations/0016_restore.sql"),
    ),
    ("0017_bell", include_str!("../../migrations/0017_bell.sql")),
    (
        "0018_counters",
        include_str!("../../migrations/0018_counters.sql"),
    ),
    (
        "0019_tally",
        include_str!("../../migrations/0019_tally.sql"),
    ),
    (
        "0020_gauges",
        include_str!("../../migrations/0020_gauges.sql"),
    ),
    (
        "0021_relay",
        include_str!("../../migrations/0021_relay.sql"),
    ),
    ("0022_sync", include_str!("../../migrations/0022_sync.sql")),
];

/// One migration at a time in a database; held by the transaction, so it works through a pooler.
const LOCK: &str = "SELECT pg_advisory_xact_lock(1885893472, 0)";
const LEDGER: &str = "CREATE SCHEMA IF NOT EXISTS posthaste;\nCREATE TABLE IF NOT EXISTS posthaste.migration (\n  name text PRIMARY KEY, checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())";

/// What a call to [`migrate`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationReport {
    /// Steps that this call applied, in order; empty when the schema was up to date.
    pub applied: Vec<String>,
}

/// Brings the schema up to date. Idempotent, and safe to be called by many processes at once.
///
/// Refuses with a clear error a server older than PostgreSQL 15, and a schema that a newer posthaste wrote.
pub async fn migrate(client: &mut Client) -> Result<MigrationReport, Error> {
    let version: String = scalar(client, "SELECT current_setting('server_version_num')").await?;
    if version.parse::<i32>().is_ok_and(|number| number < 150_000) {
        return Err(ErrorKind::Schema(format!(
            "PostgreSQL {}.x is too old: posthaste needs 15 or newer",
            version.len().saturating_sub(4).min(2)
        ))
        .into());
    }
    let failed = "cannot migrate";
    let tx = client
        .build_transaction()
        .isolation_level(tokio_postgres::IsolationLevel::ReadCommitted)
        .start()
        .await
        .map_err(Error::postgres(failed))?;
    // The ledger is looked for only under the lock: two CREATE TABLE IF NOT EXISTS at once can still collide.
    tx.batch_execute(LOCK)
        .await
        .map_err(Error::postgres(failed))?;
    tx.batch_execute(&format!(
        "SET LOCAL client_min_messages = warning; {LEDGER}"
    ))
    .await
    .map_err(Error::postgres(failed))?;
    let rows = tx
        .query_typed("SELECT name, checksum FROM posthaste.migration", &[])
        .await
        .map_err(Error::postgres(failed))?;
    let known: Vec<(String, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    refuse_foreign(&known)?;
    let mut applied = Vec::new();
    for (name, sql) in STEPS {
        if known.iter().any(|(done, _)| done == name) {
            continue;
        }
        tx.batch_execute(sql)
            .await
            .map_err(Error::postgres(failed))?;
        tx.execute_typed(
            "INSERT INTO posthaste.migration (name, checksum) VALUES ($1, $2)",
            &typed(&[name, &checksum(sql)]),
        )
        .await
        .map_err(Error::postgres(failed))?;
        applied.push((*name).to_owned());
    }
    tx.commit().await.map_err(Error::postgres(failed))?;
    Ok(MigrationReport { applied })
}

/// All steps as one script for psql, for those who bring their own migration tool. Each step records itself as [`migrate`] would.
pub fn migrations_sql() -> String {
    let mut script = format!(
        "-- posthaste: apply with psql -v ON_ERROR_STOP=1 --single-transaction\n{LOCK};\n{LEDGER};\n"
    );
    for (name, sql) in STEPS {
        script.push_str(&format!(
            "\n-- {name}\n{sql}\nINSERT INTO posthaste.migration (name, checksum) VALUES ('{name}', '{}');\n",
            checksum(sql)
        ));
    }
    script
}

/// Steps we do not know, or that were something else when they were applied, mean that another version owns this schema.
fn refuse_foreign(known: &[(String, String)]) -> Result<(), Error> {
    for (name, was) in known {
        match STEPS.iter().find(|(step, _)| step == name) {
            None => {
                return Err(ErrorKind::Schema(format!(
                    "the schema has step {name} of a newer posthaste; use that version or newer"
                ))
                .into());
            }
            Some((_, sql)) if checksum(sql) != *was => {
                return Err(ErrorKind::Schema(format!(
                    "step {name} was applied from another text than this version has"
                ))
                .into());
            }
            Some(_) => {}
        }
    }
    Ok(())
}

async fn scalar(client: &Client, sql: &str) -> Result<String, Error> {
    Ok(client
        .query_typed_one(sql, &[])
        .await
        .map_err(Error::postgres("cannot migrate"))?
        .get(0))
}

/// FNV-1a: tells texts apart; nothing here is secret or hostile.
fn checksum(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// Fails unless the schema is exactly that of this version: as it was migrated by it, neither older nor newer. The error says what to do.
pub async fn check_schema(client: &Client) -> Result<(), Error> {
    require_current(client).await
}

/// Fails unless every step of this version was applied: a worker on a foreign schema would guess.
pub(crate) async fn require_current(client: &Client) -> Result<(), Error> {
    let missing = || {
        Error::from(ErrorKind::Schema(
            "the database is not migrated; run `posthaste migrate` or call posthaste::migrate()"
                .into(),
        ))
    };
    let rows = match client
        .query_typed("SELECT name, checksum FROM posthaste.migration", &[])
        .await
    {
        Ok(rows) => rows,
        Err(error)
            if error
                .code()
                .is_some_and(|code| code.code() == "42P01" || code.code() == "3F000") =>
        {
            return Err(missing());
        }
        Err(error) => return Err(Error::postgres("cannot read the schema's version")(error)),
    };
    let known: Vec<(String, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    refuse_foreign(&known)?;
    if STEPS
        .iter()
        .all(|(name, _)| known.iter().any(|(done, _)| done == name))
    {
        Ok(())
    } else {
        Err(missing())
    }
}
