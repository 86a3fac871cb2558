//! Migrates within a transaction of the caller, with any driver. Each request is one statement,
//! because drivers prepare it, and several statements cannot be prepared together.

use std::sync::LazyLock;

use serde::Deserialize;

use super::{
    CANNOT_MIGRATE, LEDGER_DDL, MIGRATION_LOCK, MigrationReport, MissingParts, PIN_SETTINGS,
    READ_TRANSACTION_STATE, RECORD_STEP, RESTORED, VERSION,
};
use super::{read_ledger, refuse_without_rows, require_supported_server};
use crate::error::Error;
use crate::error::driver::DriverError;
use crate::executor::{Executor, Value};
use crate::store::schema::Text;

/// Sets a value that lasts as long as the transaction: if the next statement does not see it, no
/// transaction is open.
const SET_TRANSACTION_MARK: &str =
    "SELECT pg_catalog.set_config('posthaste.migrates', 'on', true) AS answer";

/// A step that changes a table waits for its users, and new users of the table wait for the step,
/// so the lock timeout is short. A text is one statement here, so it has no statement timeout. The
/// ledger is created only under the lock: two concurrent CREATE TABLE IF NOT EXISTS can still
/// collide.
static TABLE_STEPS: LazyLock<Text> = LazyLock::new(|| {
    Text::new(format!(
        "{PIN_SETTINGS};\n{MIGRATION_LOCK};\nSET LOCAL client_min_messages = warning;\n\
         SET LOCAL lock_timeout = '200ms';\nSET LOCAL statement_timeout = 0;\n{LEDGER_DDL}"
    ))
});

#[derive(Deserialize)]
struct TransactionState {
    has_begun: bool,
    isolation: String,
    server: u32,
    settings: Vec<String>,
}

/// Updates the schema in this transaction and restores the transaction's settings.
pub(crate) async fn migrate_within<E: Executor>(
    executor: &mut E,
    failed: &'static str,
) -> Result<MigrationReport, Error> {
    let place = read_transaction_state(executor, failed).await?;
    let outcome = open_table_steps(executor, failed).await;
    let settings = place.settings.iter();
    let settings: Vec<Value<'_>> = settings.map(|setting| Value::Text(Some(setting))).collect();
    let restored = executor.texts(RESTORED, &settings).await;
    // An error of the server has aborted the transaction, and reverted the settings with it.
    let report = outcome?;
    restored.map_err(Error::driver(failed))?;
    Ok(report)
}

/// Reads the state of the transaction; fails before anything is done if it is unsuitable.
async fn read_transaction_state<E: Executor>(
    executor: &mut E,
    failed: &'static str,
) -> Result<TransactionState, Error> {
    let begun = executor.texts(SET_TRANSACTION_MARK, &[]).await;
    begun.map_err(Error::driver(failed))?;
    let answers = executor.texts(READ_TRANSACTION_STATE, &[]).await;
    let answers = answers.map_err(Error::driver(failed))?;
    let answer = answers.first().map_or("", |answer| answer);
    let place: TransactionState = serde_json::from_str(answer).map_err(unreadable_answer)?;
    require_supported_server(place.server)?;
    if !place.has_begun {
        let reason = "is not open: this connection would commit each step of a migration alone; \
                      begin a transaction, or use posthaste::migrate()";
        return Err(Error::invalid("transaction", reason));
    }
    if place.isolation != "read committed" {
        let reason = format!(
            "is {}: a migration must see the changes of others; begin it as READ COMMITTED",
            place.isolation
        );
        return Err(Error::invalid("transaction", reason));
    }
    Ok(place)
}

async fn open_table_steps<E: Executor>(
    executor: &mut E,
    failed: &'static str,
) -> Result<MigrationReport, Error> {
    run_text(executor, &TABLE_STEPS, failed).await?;
    let known = read_ledger(executor).await?;
    let known = known.map_err(Error::driver(failed))?;
    if known.is_empty() {
        refuse_without_rows(executor).await?;
    }
    let due = MissingParts::new(&known)?;
    for text in due.texts() {
        run_text(executor, text, failed).await?;
    }
    let mut applied = Vec::new();
    for (name, checksum) in due.notes() {
        let values = [name, &checksum, VERSION].map(|value| Value::Text(Some(value)));
        let noted = executor.run(RECORD_STEP, &values).await;
        noted.map_err(Error::driver(failed))?;
        applied.push(name.to_owned());
    }
    Ok(MigrationReport { applied })
}

async fn run_text<E: Executor>(
    executor: &mut E,
    text: &'static Text,
    failed: &'static str,
) -> Result<(), Error> {
    let ran = executor.run(text.statement(), &[]).await;
    ran.map(drop).map_err(Error::driver(failed))
}

pub(super) fn unreadable_answer(error: serde_json::Error) -> Error {
    let text = format!("the answer cannot be read: {error}");
    Error::driver(CANNOT_MIGRATE)(DriverError::refused(text, None).because(error))
}
