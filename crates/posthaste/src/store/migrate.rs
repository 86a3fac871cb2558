//! Updates the schema: its steps, which only go forward, and its current functions, in one
//! transaction and under one lock. The ledger records each by name and checksum.

mod within;

use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::schema::{FUNCTIONS, FUNCTIONS_CHECKSUM, STEPS, Step, Text};
use crate::error::driver::DriverError;
use crate::error::{Error, ErrorKind, MIGRATE, NOT_INSTALLED, OR_CALL};
use crate::executor::Executor;
use within::unreadable_answer;

pub(crate) use within::migrate_within;

/// Resolves names in `pg_catalog` in whatever session the texts are executed: views, defaults and
/// checks keep the functions and operators that their names resolved to. Strings are read as in
/// standard SQL. A function may be created before one that it calls.
const PIN_SETTINGS: &str = "SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL standard_conforming_strings = on;
SET LOCAL check_function_bodies = off";

/// The same for a script, which may be executed in or outside a transaction, and restores the
/// settings at its end. In a transaction the settings are local to it, and an error reverts them.
/// Otherwise each statement is a transaction, and the settings are those of the session. Each name
/// is qualified, because the `search_path` is unknown at this point.
const SCRIPT_BEGINS: &str = "SET LOCAL posthaste.migrates = 'on';
DO $do$ DECLARE
  v_local pg_catalog.bool := pg_catalog.texteq(
    coalesce(pg_catalog.current_setting('posthaste.migrates', true), ''), 'on');
BEGIN
  PERFORM pg_catalog.set_config('posthaste.found', pg_catalog.json_build_array(
      pg_catalog.current_setting('search_path'),
      pg_catalog.current_setting('standard_conforming_strings'),
      pg_catalog.current_setting('check_function_bodies'))::pg_catalog.text, v_local);
  PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', v_local);
  PERFORM pg_catalog.set_config('standard_conforming_strings', 'on', v_local);
  PERFORM pg_catalog.set_config('check_function_bodies', 'off', v_local);
END $do$";
const SCRIPT_ENDS: &str = "DO $do$ DECLARE
  v_found json := current_setting('posthaste.found')::json;
  v_local boolean := coalesce(current_setting('posthaste.migrates', true), '') = 'on';
BEGIN
  PERFORM set_config('posthaste.found', '', v_local);
  PERFORM set_config('posthaste.migrates', '', v_local);
  PERFORM set_config('check_function_bodies', v_found->>2, v_local);
  PERFORM set_config('standard_conforming_strings', v_found->>1, v_local);
  PERFORM set_config('search_path', v_found->>0, v_local);
END $do$";

/// Allows one migration at a time in a database. The transaction holds the lock, so it works
/// through a pooler.
const MIGRATION_LOCK: &str = "SELECT pg_advisory_xact_lock(1885893472, 0)";
const LEDGER_DDL: &str = "DO $do$ BEGIN
  IF pg_catalog.to_regnamespace('posthaste') IS NULL THEN
    CREATE SCHEMA posthaste;
  END IF;
END $do$;
CREATE TABLE IF NOT EXISTS posthaste.migration (
  name text PRIMARY KEY, checksum text NOT NULL, version text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp())";

/// The version of these texts.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The name of the functions in the ledger.
const FUNCTIONS_NAME: &str = "functions";

/// The result of a call to [`migrate`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationReport {
    /// The steps that this call applied, in order, and `functions` if it installed the functions
    /// again; empty if the schema was up to date.
    pub applied: Vec<String>,
}

/// Reads the state of the transaction, and the settings that the statements change.
const READ_TRANSACTION_STATE: &str = include_str!("migrate_place.sql");
const RESTORED: &str = include_str!("migrate_restored.sql");
/// Reads the applied steps, and whether the store itself exists.
const READ_LEDGER: &str =
    "SELECT pg_catalog.json_build_array(name, checksum, version)::text AS answer
  FROM posthaste.migration";
const HAS_STORE: &str =
    "SELECT (pg_catalog.to_regclass('posthaste.store') IS NOT NULL)::text AS answer";
const READ_SERVER_VERSION: &str =
    "SELECT pg_catalog.current_setting('server_version_num') AS answer";
const RECORD_STEP: &str = "INSERT INTO posthaste.migration (name, checksum, version)
  VALUES ($1, $2, $3)
  ON CONFLICT (name) DO UPDATE SET (checksum, version, applied_at) =
    (excluded.checksum, excluded.version, excluded.applied_at)";

pub(crate) const CANNOT_MIGRATE: &str = "cannot migrate";

/// Time between two attempts of a step that was refused a lock, in which other transactions
/// continue; and the time after which it fails.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
const LOCK_WAIT_LIMIT: Duration = Duration::from_secs(60);

/// Updates the schema. Idempotent, and safe to be called by many processes at once.
///
/// Other transactions wait for it only for a moment: if an open transaction blocks it, it is tried
/// again, for a minute, and then fails with SQLSTATE 55P03. It waits for another migration that has
/// begun.
///
/// Fails with a clear error on a server older than PostgreSQL 15, and on a schema that a newer
/// posthaste wrote.
pub async fn migrate(client: &mut Client) -> Result<MigrationReport, Error> {
    let started = Instant::now();
    loop {
        let last = started.elapsed() >= LOCK_WAIT_LIMIT;
        match try_migrate(client, last).await {
            Err(error) if is_locked_out(&error) && !last => {
                tokio::time::sleep(RETRY_INTERVAL).await
            }
            outcome => return outcome,
        }
    }
}

fn is_locked_out(error: &Error) -> bool {
    error
        .sqlstate()
        .is_some_and(|state| *state == SqlState::LOCK_NOT_AVAILABLE)
}

async fn try_migrate(client: &mut Client, last: bool) -> Result<MigrationReport, Error> {
    let failed = match last {
        false => CANNOT_MIGRATE,
        true => "cannot migrate, for a minute now: open transactions use the queue's tables",
    };
    let tx = client
        .build_transaction()
        .isolation_level(tokio_postgres::IsolationLevel::ReadCommitted)
        .start()
        .await
        .map_err(Error::postgres(failed))?;
    let report = migrate_within(&mut &tx, failed).await?;
    tx.commit().await.map_err(Error::postgres(failed))?;
    Ok(report)
}

/// Returns the whole schema as one script for psql, for use with another migration tool. It records
/// its steps as [`migrate`] does, and restores the settings of its session. It contains percent
/// signs: a driver that searches for placeholders must not be given parameters.
pub fn migrations_sql() -> String {
    migrations_sql_after(0)
}

/// As [`migrations_sql`], without the steps up to and including this one, for a schema that has
/// these.
pub fn migrations_sql_after(step: u32) -> String {
    script(step, |text| text.to_string())
}

/// As [`migrations_sql`], with the mutations that tests apply.
pub fn migrations_sql_with_mutations() -> String {
    script(0, Text::with_mutations)
}

fn script(step: u32, written: fn(&Text) -> String) -> String {
    let due = MissingParts {
        steps: STEPS.iter().filter(|one| one.number() > step).collect(),
        functions: true,
    };
    // The first line contains the command that runs it in one transaction.
    let mut script = format!(
        "-- posthaste: one script because it is one transaction: \
         psql -v ON_ERROR_STOP=1 --single-transaction\n\
         {SCRIPT_BEGINS};\n{MIGRATION_LOCK};\n{LEDGER_DDL};\n"
    );
    for text in due.texts() {
        script.push('\n');
        script.push_str(&written(text));
    }
    for (name, checksum) in due.notes() {
        let values = [name, &checksum, VERSION];
        let mut note = RECORD_STEP.to_owned();
        for (at, value) in values.iter().enumerate() {
            note = note.replace(&format!("${}", at + 1), &format!("'{value}'"));
        }
        script.push_str(&format!("\n{note};\n"));
    }
    script.push_str(&format!("\n{SCRIPT_ENDS};\n"));
    script
}

/// A row of the ledger.
struct AppliedStep {
    name: String,
    checksum: String,
    version: String,
}

impl AppliedStep {
    fn parse(answer: &str) -> Result<Self, serde_json::Error> {
        let (name, checksum, version) = serde_json::from_str(answer)?;
        Ok(Self {
            name,
            checksum,
            version,
        })
    }
}

/// The parts of this version's schema that a ledger lacks.
struct MissingParts {
    steps: Vec<&'static Step>,
    functions: bool,
}

impl MissingParts {
    /// Fails if the schema is newer than that of the next minor version, or was not written by
    /// posthaste.
    fn new(known: &[AppliedStep]) -> Result<Self, Error> {
        let ours = parse_version(VERSION);
        for row in known {
            if !is_served(parse_version(&row.version), ours) {
                let AppliedStep { name, version, .. } = row;
                return Err(ErrorKind::Schema(format!(
                    "{name} of the schema is of posthaste {version}, more than one minor version \
                     newer than this {VERSION}; use a newer version"
                ))
                .into());
            }
            let step = STEPS.iter().find(|step| step.name == row.name);
            if step.is_some_and(|step| step.checksum() != row.checksum) {
                return Err(ErrorKind::Schema(format!(
                    "step {} was applied with a different text from that of this version",
                    row.name
                ))
                .into());
            }
        }
        let steps: Vec<&Step> = STEPS
            .iter()
            .filter(|step| !known.iter().any(|row| row.name == step.name))
            .collect();
        let there = known.iter().find(|row| row.name == FUNCTIONS_NAME);
        // The functions of a newer version stay: they also serve older programs, within a minor
        // version.
        let functions = there.is_none_or(|row| {
            row.checksum != *FUNCTIONS_CHECKSUM && parse_version(&row.version) <= ours
        });
        Ok(Self {
            functions: functions || !steps.is_empty(),
            steps,
        })
    }

    /// Returns the texts in the order of execution: what functions refer to, functions, what calls
    /// them.
    fn texts(&self) -> impl Iterator<Item = &'static Text> {
        let before = self.steps.iter().map(|step| &step.before);
        let functions = self.functions.then_some(&*FUNCTIONS);
        let after = self.steps.iter().map(|step| &step.after);
        before.chain(functions).chain(after)
    }

    /// Returns the names and checksums for the ledger.
    fn notes(&self) -> impl Iterator<Item = (&'static str, String)> {
        let steps = self.steps.iter().map(|step| (step.name, step.checksum()));
        let functions = (FUNCTIONS_NAME, FUNCTIONS_CHECKSUM.clone());
        steps.chain(self.functions.then_some(functions))
    }
}

/// Whether a program of this version works on a schema of that one: an older one, which it can
/// migrate, its own, and that of the next minor version.
fn is_served(schema: Option<[u32; 3]>, ours: Option<[u32; 3]>) -> bool {
    match (schema, ours) {
        (Some([major, minor, _]), Some([our_major, our_minor, _])) => {
            (major, minor) <= (our_major, our_minor + 1)
        }
        _ => false,
    }
}

/// Parses major, minor and patch.
fn parse_version(version: &str) -> Option<[u32; 3]> {
    let (released, _) = version.split_once(['-', '+']).unwrap_or((version, ""));
    let mut parts = released.split('.').map(|part| part.parse().ok());
    Some([parts.next()??, parts.next()??, parts.next()??])
}

/// Reads the ledger; the inner error is that of the driver.
async fn read_ledger<E: Executor>(
    executor: &mut E,
) -> Result<Result<Vec<AppliedStep>, DriverError>, Error> {
    match executor.texts(READ_LEDGER, &[]).await {
        Ok(rows) => {
            let known: Result<Vec<AppliedStep>, _> =
                rows.iter().map(|row| AppliedStep::parse(row)).collect();
            known.map(Ok).map_err(unreadable_answer)
        }
        Err(error) if error.sqlstate() == Some(&SqlState::UNDEFINED_COLUMN) => {
            Err(ErrorKind::Schema(
                "the schema posthaste of this database is of a version that was never released; \
                 DROP SCHEMA posthaste CASCADE and run 'posthaste migrate'"
                    .into(),
            )
            .into())
        }
        Err(error) => Ok(Err(error)),
    }
}

/// Fails unless this program can work on the schema: it must have every step, and the functions of
/// this version or of a newer one up to the next minor version. The error contains the remedy.
pub async fn check_schema(client: &Client) -> Result<(), Error> {
    let mut executor = client;
    let server = executor.texts(READ_SERVER_VERSION, &[]).await;
    let server = server.map_err(Error::driver("cannot read the server's version"))?;
    if let Some(number) = server.first().and_then(|number| number.parse().ok()) {
        require_supported_server(number)?;
    }
    let missing = [SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME];
    let known = match read_ledger(&mut executor).await? {
        Ok(known) => known,
        Err(error)
            if error
                .sqlstate()
                .is_some_and(|state| missing.contains(state)) =>
        {
            return Err(ErrorKind::Schema(format!("{NOT_INSTALLED}; {MIGRATE}{OR_CALL}")).into());
        }
        Err(error) => return Err(Error::driver("cannot read the schema's version")(error)),
    };
    if known.is_empty() {
        refuse_without_rows(&mut executor).await?;
    }
    let due = MissingParts::new(&known)?;
    let there = known.iter().find(|row| row.name == FUNCTIONS_NAME);
    // The functions of two programs of one version differ only by how they are built.
    let has_functions =
        there.is_some_and(|row| parse_version(&row.version) >= parse_version(VERSION));
    let lacks = match due.steps.first() {
        Some(step) => format!("step {}", step.name),
        None if due.functions && !has_functions => format!("functions of {VERSION}"),
        None => return Ok(()),
    };
    Err(ErrorKind::Schema(format!(
        "the schema posthaste of this database is older than this program: it has no {lacks}; \
         {MIGRATE}{OR_CALL}"
    ))
    .into())
}

/// Fails if the server, by its `server_version_num`, is too old.
fn require_supported_server(server: u32) -> Result<(), Error> {
    match server < 150_000 {
        false => Ok(()),
        true => Err(ErrorKind::Schema(format!(
            "PostgreSQL {}.x is too old: posthaste needs 15 or newer",
            server / 10_000
        ))
        .into()),
    }
}

/// Fails if the tables lack their rows, as after a dump of the schema without data.
async fn refuse_without_rows<E: Executor>(executor: &mut E) -> Result<(), Error> {
    let has_store = executor.texts(HAS_STORE, &[]).await;
    let has_store = has_store.map_err(Error::driver("cannot read the schema's version"))?;
    match has_store.iter().any(|has_store| has_store == "true") {
        false => Ok(()),
        true => Err(ErrorKind::Schema(
            "the schema posthaste of this database has no rows, as after pg_dump --schema-only; \
             load them too and run 'posthaste rebase', or DROP SCHEMA posthaste \
             CASCADE and run 'posthaste migrate'"
                .into(),
        )
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_servers_older_than_15() {
        let refusal = require_supported_server(149_999).unwrap_err().to_string();
        assert!(refusal.contains("PostgreSQL 14.x is too old"), "{refusal}");
        require_supported_server(150_000).unwrap();
    }
}
