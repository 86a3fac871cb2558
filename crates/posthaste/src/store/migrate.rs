//! Brings the schema up to date: its steps forward only, its functions as they are now, all in one
//! transaction and under one lock, each in the ledger by name and checksum.

mod within;

use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::schema::{FUNCTIONS, FUNCTIONS_CHECKSUM, STEPS, Step, Text};
use crate::error::driver::DriverError;
use crate::error::{Error, ErrorKind, MIGRATE, NOT_INSTALLED, OR_CALL};
use crate::executor::Executor;
use within::unreadable;

pub(crate) use within::within;

/// What the texts say means what it means in `pg_catalog`, in whatever session they are run: views,
/// defaults and checks keep what their calls and operators were taken for. Their strings are read
/// as the standard has them. A function may be made before one that it calls.
const PIN: &str = "SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL standard_conforming_strings = on;
SET LOCAL check_function_bodies = off";

/// The same for a script, which does not know where it runs: it leaves the settings as it found
/// them. In a transaction they are local to it, and an error takes them back. Without one each
/// statement is a transaction, and they are the session's. Each name is qualified, because nobody
/// knows yet where names lead.
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

/// One migration at a time in a database; held by the transaction, so it works through a pooler.
const LOCK: &str = "SELECT pg_advisory_xact_lock(1885893472, 0)";
const LEDGER: &str = "DO $do$ BEGIN
  IF pg_catalog.to_regnamespace('posthaste') IS NULL THEN
    CREATE SCHEMA posthaste;
  END IF;
END $do$;
CREATE TABLE IF NOT EXISTS posthaste.migration (
  name text PRIMARY KEY, checksum text NOT NULL, version text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp())";

/// The version whose texts these are.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The functions' name in the ledger.
const FUNCTIONS_NAME: &str = "functions";

/// What a call to [`migrate`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationReport {
    /// Steps that this call applied, in order, and `functions` where it installed these again;
    /// empty when the schema was up to date.
    pub applied: Vec<String>,
}

/// Where the statements run, and the settings that they change.
const PLACE: &str = include_str!("migrate_place.sql");
const RESTORED: &str = include_str!("migrate_restored.sql");
/// What was applied, and whether the store itself is there.
const KNOWN: &str = "SELECT pg_catalog.json_build_array(name, checksum, version)::text AS answer
  FROM posthaste.migration";
const HAS_STORE: &str =
    "SELECT (pg_catalog.to_regclass('posthaste.store') IS NOT NULL)::text AS answer";
const SERVER: &str = "SELECT pg_catalog.current_setting('server_version_num') AS answer";
const NOTE: &str = "INSERT INTO posthaste.migration (name, checksum, version)
  VALUES ($1, $2, $3)
  ON CONFLICT (name) DO UPDATE SET (checksum, version, applied_at) =
    (excluded.checksum, excluded.version, excluded.applied_at)";

pub(crate) const CANNOT: &str = "cannot migrate";

/// Where a step was refused a lock, it is tried again after a while in which others go on.
const PAUSE: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(60);

/// Brings the schema up to date. Idempotent, and safe to be called by many processes at once.
///
/// Nobody waits longer than a moment for it: where an open transaction blocks it, it is tried
/// again, for a minute, and then refused with SQLSTATE 55P03. It waits itself for another migration
/// that has begun.
///
/// Refuses with a clear error a server older than PostgreSQL 15, and a schema that a newer
/// posthaste wrote.
pub async fn migrate(client: &mut Client) -> Result<MigrationReport, Error> {
    let started = Instant::now();
    loop {
        let last = started.elapsed() >= PATIENCE;
        match attempt(client, last).await {
            Err(error) if is_locked_out(&error) && !last => tokio::time::sleep(PAUSE).await,
            outcome => return outcome,
        }
    }
}

fn is_locked_out(error: &Error) -> bool {
    error
        .sqlstate()
        .is_some_and(|state| *state == SqlState::LOCK_NOT_AVAILABLE)
}

async fn attempt(client: &mut Client, last: bool) -> Result<MigrationReport, Error> {
    let failed = match last {
        false => CANNOT,
        true => "cannot migrate, for a minute now: open transactions use the queue's tables",
    };
    let tx = client
        .build_transaction()
        .isolation_level(tokio_postgres::IsolationLevel::ReadCommitted)
        .start()
        .await
        .map_err(Error::postgres(failed))?;
    let report = within(&mut &tx, failed).await?;
    tx.commit().await.map_err(Error::postgres(failed))?;
    Ok(report)
}

/// The whole schema as one script for psql, for those who bring their own migration tool. It
/// records what it did as [`migrate`] would, and leaves the settings of its session as they were.
/// It holds percent signs: a driver that searches for placeholders must not be given parameters.
pub fn migrations_sql() -> String {
    migrations_sql_after(0)
}

/// As [`migrations_sql`], without the steps up to and with this one: for a schema that has these.
pub fn migrations_sql_after(step: u32) -> String {
    let due = Due {
        steps: STEPS.iter().filter(|one| one.number() > step).collect(),
        functions: true,
    };
    // One transaction: the first line says how.
    let mut script = format!(
        "-- posthaste: one script because it is one transaction: \
         psql -v ON_ERROR_STOP=1 --single-transaction\n{SCRIPT_BEGINS};\n{LOCK};\n{LEDGER};\n"
    );
    for text in due.texts() {
        script.push('\n');
        script.push_str(text);
    }
    for (name, checksum) in due.notes() {
        let values = [name, &checksum, VERSION];
        let mut note = NOTE.to_owned();
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
    fn of(answer: &str) -> Result<Self, serde_json::Error> {
        let (name, checksum, version) = serde_json::from_str(answer)?;
        Ok(Self {
            name,
            checksum,
            version,
        })
    }
}

/// What a ledger lacks of this version's schema.
struct Due {
    steps: Vec<&'static Step>,
    functions: bool,
}

impl Due {
    /// Fails when the schema is newer than that of the next minor version, or none of ours.
    fn of(known: &[AppliedStep]) -> Result<Self, Error> {
        let ours = number(VERSION);
        for row in known {
            if !is_served(number(&row.version), ours) {
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
        // Those of a newer version stay: within a minor version they serve the older ones too.
        let functions = there
            .is_none_or(|row| row.checksum != *FUNCTIONS_CHECKSUM && number(&row.version) <= ours);
        Ok(Self {
            functions: functions || !steps.is_empty(),
            steps,
        })
    }

    /// In the order in which they are run: what functions speak of, functions, what calls them.
    fn texts(&self) -> impl Iterator<Item = &'static Text> {
        let before = self.steps.iter().map(|step| &step.before);
        let functions = self.functions.then_some(&*FUNCTIONS);
        let after = self.steps.iter().map(|step| &step.after);
        before.chain(functions).chain(after)
    }

    /// For the ledger: names and checksums.
    fn notes(&self) -> impl Iterator<Item = (&'static str, String)> {
        let steps = self.steps.iter().map(|step| (step.name, step.checksum()));
        let functions = (FUNCTIONS_NAME, FUNCTIONS_CHECKSUM.clone());
        steps.chain(self.functions.then_some(functions))
    }
}

/// Whether a program of this version works on a schema of that one: an older one, which it can
/// migrate, its own, and the next minor version's.
fn is_served(schema: Option<[u32; 3]>, ours: Option<[u32; 3]>) -> bool {
    match (schema, ours) {
        (Some([major, minor, _]), Some([our_major, our_minor, _])) => {
            (major, minor) <= (our_major, our_minor + 1)
        }
        _ => false,
    }
}

/// Major, minor and patch.
fn number(version: &str) -> Option<[u32; 3]> {
    let (released, _) = version.split_once(['-', '+']).unwrap_or((version, ""));
    let mut parts = released.split('.').map(|part| part.parse().ok());
    Some([parts.next()??, parts.next()??, parts.next()??])
}

/// The ledger; the inner error is that of the driver.
async fn read_ledger<E: Executor>(
    executor: &mut E,
) -> Result<Result<Vec<AppliedStep>, DriverError>, Error> {
    match executor.texts(KNOWN, &[]).await {
        Ok(rows) => {
            let known: Result<Vec<AppliedStep>, _> =
                rows.iter().map(|row| AppliedStep::of(row)).collect();
            known.map(Ok).map_err(unreadable)
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

/// Fails unless this program may work on the schema: it has every step and the functions of this
/// version, or of a newer one up to the next minor version. The error says what to do.
pub async fn check_schema(client: &Client) -> Result<(), Error> {
    require_current(client).await
}

/// Fails unless every step of this version was applied: a worker on a foreign schema would guess.
pub(crate) async fn require_current(client: &Client) -> Result<(), Error> {
    let mut executor = client;
    let server = executor.texts(SERVER, &[]).await;
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
    let due = Due::of(&known)?;
    let there = known.iter().find(|row| row.name == FUNCTIONS_NAME);
    // Two programs of one version have the same functions but for how they are built.
    let has_functions = there.is_some_and(|row| number(&row.version) >= number(VERSION));
    let lacks = match due.steps.first() {
        Some(step) => format!("step {}", step.name),
        None if due.functions && !has_functions => format!("functions of {VERSION}"),
        None => return Ok(()),
    };
    Err(ErrorKind::Schema(format!(
        "the schema posthaste of this database is older than this program, it has no {lacks}; \
         {MIGRATE}{OR_CALL}"
    ))
    .into())
}

/// Fails where the server is of this version, as in `server_version_num`, and that is too old.
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

/// A dump of the schema alone makes the tables, and leaves out what their rows say of them.
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
