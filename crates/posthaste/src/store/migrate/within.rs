//! A migration in a transaction of somebody else's, over any driver. Each request is one statement:
//! drivers prepare what they send, and many statements at once cannot be prepared.

use std::sync::LazyLock;

use serde::Deserialize;

use super::{CANNOT, Due, LEDGER, LOCK, MigrationReport, NOTE, PIN, PLACE, RESTORED, VERSION};
use super::{read_ledger, refuse_without_rows, require_supported_server};
use crate::error::Error;
use crate::error::driver::DriverError;
use crate::executor::{Executor, Value};
use crate::store::schema::Text;

/// Lasts as long as the transaction: the next statement sees it, or there is none.
const BEGUN: &str = "SELECT pg_catalog.set_config('posthaste.migrates', 'on', true) AS answer";

/// A step that changes a table waits for who is in it, and the one that comes then waits for the
/// step: so not for long. A text is one statement here, and may take its time. The ledger is looked
/// for only under the lock: two CREATE TABLE IF NOT EXISTS at once can still collide.
static OPENED: LazyLock<Text> = LazyLock::new(|| {
    Text::new(format!(
        "{PIN};\n{LOCK};\nSET LOCAL client_min_messages = warning;\n\
         SET LOCAL lock_timeout = '200ms';\nSET LOCAL statement_timeout = 0;\n{LEDGER}"
    ))
});

#[derive(Deserialize)]
struct TransactionState {
    has_begun: bool,
    isolation: String,
    server: u32,
    settings: Vec<String>,
}

/// Brings the schema up to date in this transaction, whose settings are then as they were.
pub(crate) async fn within<E: Executor>(
    executor: &mut E,
    failed: &'static str,
) -> Result<MigrationReport, Error> {
    let place = place(executor, failed).await?;
    let outcome = opened(executor, failed).await;
    let settings = place.settings.iter();
    let settings: Vec<Value<'_>> = settings.map(|setting| Value::Text(Some(setting))).collect();
    let restored = executor.texts(RESTORED, &settings).await;
    // What the server refused has ended the transaction, and the settings with it.
    let report = outcome?;
    restored.map_err(Error::driver(failed))?;
    Ok(report)
}

/// Refuses before anything is done.
async fn place<E: Executor>(
    executor: &mut E,
    failed: &'static str,
) -> Result<TransactionState, Error> {
    let begun = executor.texts(BEGUN, &[]).await;
    begun.map_err(Error::driver(failed))?;
    let answers = executor.texts(PLACE, &[]).await;
    let answers = answers.map_err(Error::driver(failed))?;
    let answer = answers.first().map_or("", |answer| answer);
    let place: TransactionState = serde_json::from_str(answer).map_err(unreadable)?;
    require_supported_server(place.server)?;
    if !place.has_begun {
        let reason = "is not open: a migration over this connection would be done in parts; begin \
                      a transaction, or use posthaste::migrate()";
        return Err(Error::invalid("transaction", reason));
    }
    if place.isolation != "read committed" {
        let reason = format!(
            "is {}: a migration has to see what another one has done; begin it as READ COMMITTED",
            place.isolation
        );
        return Err(Error::invalid("transaction", reason));
    }
    Ok(place)
}

async fn opened<E: Executor>(
    executor: &mut E,
    failed: &'static str,
) -> Result<MigrationReport, Error> {
    run(executor, &OPENED, failed).await?;
    let known = read_ledger(executor).await?;
    let known = known.map_err(Error::driver(failed))?;
    if known.is_empty() {
        refuse_without_rows(executor).await?;
    }
    let due = Due::of(&known)?;
    for text in due.texts() {
        run(executor, text, failed).await?;
    }
    let mut applied = Vec::new();
    for (name, checksum) in due.notes() {
        let values = [name, &checksum, VERSION].map(|value| Value::Text(Some(value)));
        let noted = executor.run(NOTE, &values).await;
        noted.map_err(Error::driver(failed))?;
        applied.push(name.to_owned());
    }
    Ok(MigrationReport { applied })
}

async fn run<E: Executor>(
    executor: &mut E,
    text: &'static Text,
    failed: &'static str,
) -> Result<(), Error> {
    let ran = executor.run(text.statement(), &[]).await;
    ran.map(drop).map_err(Error::driver(failed))
}

pub(super) fn unreadable(error: serde_json::Error) -> Error {
    let text = format!("the answer cannot be read: {error}");
    Error::driver(CANNOT)(DriverError::refused(text, None).because(error))
}
