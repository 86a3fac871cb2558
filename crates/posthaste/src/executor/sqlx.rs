//! Executor for sqlx: `&mut *transaction`.

use sqlx::postgres::{PgArgumentBuffer, PgArguments, PgConnection, PgTypeInfo};
use sqlx::{Arguments as _, Decode, Encode, Postgres, Type};

use super::{Executor, Unnamed, Value};
use crate::error::chain;
use crate::error::driver::DriverError;

impl Executor for &mut PgConnection {
    const PREPARES: bool = true;

    async fn run(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Vec<i64>, DriverError> {
        scalars(self, true, sql, values).await
    }

    async fn texts(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Vec<String>, DriverError> {
        scalars(self, true, sql, values).await
    }
}

impl Executor for Unnamed<&mut PgConnection> {
    const PREPARES: bool = false;

    async fn run(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Vec<i64>, DriverError> {
        scalars(self.0, false, sql, values).await
    }

    async fn texts(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Vec<String>, DriverError> {
        scalars(self.0, false, sql, values).await
    }
}

/// Returns the first column.
async fn scalars<T>(
    connection: &mut PgConnection,
    persistent: bool,
    sql: &'static str,
    values: &[Value<'_>],
) -> Result<Vec<T>, DriverError>
where
    T: for<'r> Decode<'r, Postgres> + Type<Postgres> + Send + Unpin,
{
    let mut bound = PgArguments::default();
    for value in values {
        let added = match value {
            Value::Json(json) => bound.add(Json((*json).to_owned())),
            value => bound.add(value.text()),
        };
        added.map_err(|error| DriverError::refused(error.to_string(), None))?;
    }
    sqlx::query_scalar_with(sql, bound)
        .persistent(persistent)
        .fetch_all(connection)
        .await
        .map_err(|error| convert(&error).because(error))
}

/// JSON text in the binary format of jsonb; sqlx has a type for it only with a feature that would
/// apply to the whole program.
struct Json(String);

impl Type<Postgres> for Json {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("JSONB")
    }
}

impl Encode<'_, Postgres> for Json {
    fn encode_by_ref(
        &self,
        buffer: &mut PgArgumentBuffer,
    ) -> Result<sqlx::encode::IsNull, sqlx::error::BoxDynError> {
        buffer.push(1);
        buffer.extend(self.0.as_bytes());
        Ok(sqlx::encode::IsNull::No)
    }
}

/// Converts an error of sqlx, also for sea-orm, which uses it.
pub(super) fn convert(error: &sqlx::Error) -> DriverError {
    match error.as_database_error() {
        Some(server) => {
            let code = server.code();
            let code = code.as_deref();
            let message = format!("{} ({})", server.message(), code.unwrap_or("no code"));
            match code {
                Some(code) if code.starts_with("57P") || code.starts_with("08") => {
                    DriverError::connection(message)
                }
                _ => DriverError::refused(message, code),
            }
        }
        None => match error {
            sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => {
                DriverError::connection(chain(error))
            }
            _ => DriverError::refused(chain(error), None),
        },
    }
}
