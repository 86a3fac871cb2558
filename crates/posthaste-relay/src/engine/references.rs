//! References of `posthaste.outbox`: when a message is made, the row is read by the route's
//! statement for its table. The table that a job names is only searched for in the route's
//! statements; it never becomes part of a statement.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::time::Duration;

use deadpool_postgres::Pool;
use futures_util::future::join_all;
use tokio::time::timeout;
use tokio_postgres::types::{FromSql, Type};

use crate::destination::answer::Answer;
use crate::message::outbox::{OutboxJob, Reference};

/// Reads rows to which jobs refer.
pub(crate) struct References {
    pub(crate) pool: Pool,
    pub(crate) statements: BTreeMap<String, String>,
}

/// The reason why a reference could not be followed.
#[derive(Debug, PartialEq)]
pub(crate) enum ReferenceFailure {
    /// The job is settled by this answer.
    Settled(Answer),
    /// The database did not answer: the read is retried, and no attempt is counted.
    Unavailable(String),
}

impl References {
    /// Reads the row of each job's reference, all at once; returns jobs without one unchanged.
    pub(crate) async fn read_payloads(
        &self,
        jobs: Vec<OutboxJob>,
        time_limit: Duration,
    ) -> Vec<Result<OutboxJob, ReferenceFailure>> {
        if jobs.iter().all(|one| one.reference.is_none()) {
            return jobs.into_iter().map(Ok).collect();
        }
        let client = timeout(time_limit, self.pool.get()).await;
        let client = match &client {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(error)) => Err(format!("the database: {error}")),
            Err(_) => Err(timeout_reason()),
        };
        let all = jobs.into_iter().map(async |job| {
            let Some(reference) = &job.reference else {
                return Ok(job);
            };
            let client = client.clone().map_err(ReferenceFailure::Unavailable)?;
            let payload = timeout(time_limit, read_row(&self.statements, client, reference)).await;
            let payload =
                payload.unwrap_or_else(|_| Err(ReferenceFailure::Unavailable(timeout_reason())))?;
            Ok(job.with_payload(payload))
        });
        join_all(all).await
    }
}

/// Reads the row by the statement for its table.
pub(crate) async fn read_row(
    statements: &BTreeMap<String, String>,
    client: &tokio_postgres::Client,
    Reference { table, id }: &Reference,
) -> Result<Vec<u8>, ReferenceFailure> {
    let refused = |reason: String| ReferenceFailure::Settled(Answer::rejected(reason));
    let statement = statements.get(table);
    let statement = statement.ok_or_else(|| {
        refused(format!(
            "the route has no statement for the table {table:?}"
        ))
    })?;
    let rows = client.query_typed(statement, &[(id, Type::TEXT)]).await;
    let rows = rows.map_err(|error| classify_error(&error, table))?;
    let row = rows
        .first()
        .ok_or_else(|| refused(format!("{table} has no row {id:?}")))?;
    match row.try_get(0) {
        Ok(Some(ColumnBytes(bytes))) => Ok(bytes),
        Ok(None) => Err(refused(format!("the row {id:?} of {table} has no payload"))),
        Err(_) => Err(refused(format!(
            "the first column of the statement for {table} must be json, jsonb, text or bytea"
        ))),
    }
}

impl ReferenceFailure {
    /// Returns the reason for people.
    pub(crate) fn reason(self) -> String {
        match self {
            Self::Unavailable(reason) => reason,
            Self::Settled(Answer::Rejected { reason } | Answer::Retry { reason, .. }) => {
                reason.into()
            }
            Self::Settled(_) => String::new(),
        }
    }
}

fn timeout_reason() -> String {
    "the database did not answer in time".into()
}

/// Classifies an error of the server: it concerns the id of the job, the statement, or the server.
fn classify_error(error: &tokio_postgres::Error, table: &str) -> ReferenceFailure {
    let Some(error) = error.as_db_error() else {
        return ReferenceFailure::Unavailable(format!("the database: {error}"));
    };
    let reason = format!("the row of {table} cannot be read: {}", error.message());
    match error.code().code().get(..2) {
        // The id has the wrong type, such as text where the table has numbers.
        Some("22") => ReferenceFailure::Settled(Answer::rejected(reason)),
        // Connections, resources, an operator's intervention, and transactions that a deadlock or a
        // failover ended.
        Some("08" | "40" | "53" | "55" | "57" | "58") => ReferenceFailure::Unavailable(reason),
        _ => ReferenceFailure::Settled(Answer::retry(reason)),
    }
}

/// The text of a column as bytes. Numbers keep all their digits.
struct ColumnBytes(Vec<u8>);

impl<'a> FromSql<'a> for ColumnBytes {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        let text = match (kind == &Type::JSONB, raw) {
            (true, [1, text @ ..]) => text,
            (true, _) => return Err("an unknown version of jsonb".into()),
            (false, text) => text,
        };
        Ok(Self(text.to_vec()))
    }

    fn accepts(kind: &Type) -> bool {
        [
            Type::JSON,
            Type::JSONB,
            Type::TEXT,
            Type::VARCHAR,
            Type::BYTEA,
        ]
        .contains(kind)
    }
}
