//! Executor for diesel-async: the connection that `transaction` passes to its closure.

use diesel::pg::Pg;
use diesel::result::{DatabaseErrorKind, Error};
use diesel::row::NamedRow;
use diesel::sql_types::{BigInt, Nullable, Text};
use diesel::{QueryableByName, deserialize, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use super::{Executor, Value};
use crate::error::chain;
use crate::error::driver::DriverError;

impl Executor for &mut AsyncPgConnection {
    // Statements written as SQL are not cached.
    const PREPARES: bool = false;

    async fn run(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Vec<i64>, DriverError> {
        let rows: Vec<Number> = load(self, sql, values).await?;
        Ok(rows.into_iter().map(|row| row.0).collect())
    }

    async fn texts(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Vec<String>, DriverError> {
        let rows: Vec<Answer> = load(self, sql, values).await?;
        Ok(rows.into_iter().map(|row| row.0).collect())
    }
}

async fn load<T: QueryableByName<Pg> + Send + 'static>(
    connection: &mut AsyncPgConnection,
    sql: &'static str,
    values: &[Value<'_>],
) -> Result<Vec<T>, DriverError> {
    let query = values
        .iter()
        .fold(sql_query(sql).into_boxed(), |query, value| {
            query.bind::<Nullable<Text>, _>(value.text())
        });
    query.load(connection).await.map_err(convert)
}

struct Number(i64);

impl QueryableByName<Pg> for Number {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> deserialize::Result<Self> {
        NamedRow::get::<BigInt, i64>(row, "id").map(Self)
    }
}

struct Answer(String);

impl QueryableByName<Pg> for Answer {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> deserialize::Result<Self> {
        NamedRow::get::<Text, String>(row, "answer").map(Self)
    }
}

/// Converts an error; diesel exposes no SQLSTATE, only kinds of errors.
fn convert(error: Error) -> DriverError {
    let driver_error = match &error {
        Error::DatabaseError(kind, server) => {
            let message = server.message().to_owned();
            match kind {
                DatabaseErrorKind::ClosedConnection => DriverError::connection(message),
                DatabaseErrorKind::SerializationFailure => {
                    DriverError::refused(message, Some("40001"))
                }
                DatabaseErrorKind::UnableToSendCommand => DriverError::connection(message),
                _ => DriverError::refused(message, None),
            }
        }
        _ => DriverError::refused(chain(&error), None),
    };
    driver_error.because(error)
}
