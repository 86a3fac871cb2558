//! Connections of the stress, whose errors are converted to text, because each is a finding.

use futures_util::future::join3;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, Statement};

/// Opens a connection.
pub async fn connect(url: &str) -> Result<Client, String> {
    posthaste_testkit::connect(url)
        .await
        .map_err(|error| format!("connecting: {error:#}"))
}

/// Describes a failure with the server's message.
pub fn describe(what: &str, error: &Error) -> String {
    match error.as_db_error() {
        Some(error) => format!("{what}: {} {error}", error.code().code()),
        None => format!("{what}: {error}"),
    }
}

/// Whether the server requires the transaction to be retried.
pub fn is_serialization(error: &Error) -> bool {
    error.code().is_some_and(|code| code.code() == "40001")
}

/// Runs one statement in a separate transaction, in one round trip, as the library sends it.
pub async fn alone(
    client: &Client,
    isolation: &str,
    statement: &Statement,
    parameters: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, Error> {
    let begin = format!("BEGIN ISOLATION LEVEL {isolation}");
    let (begun, rows, committed) = join3(
        client.batch_execute(&begin),
        client.query(statement, parameters),
        client.batch_execute("COMMIT"),
    )
    .await;
    begun?;
    let rows = rows?;
    committed?;
    Ok(rows)
}
