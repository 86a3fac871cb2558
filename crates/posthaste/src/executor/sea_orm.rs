//! Executor for sea-orm: a transaction or a connection.

use sea_orm::{
    ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbBackend, DbErr, RuntimeErr,
    Statement, TryGetable, Value as Bound,
};

use super::{Executor, Value};
use crate::error::chain;
use crate::error::driver::DriverError;

macro_rules! executor {
    ($connection:ty) => {
        impl Executor for &$connection {
            // Arguments are bound as text, which the fast path does not accept.
            const PREPARES: bool = false;

            async fn run(
                &mut self,
                sql: &'static str,
                values: &[Value<'_>],
            ) -> Result<Vec<i64>, DriverError> {
                first(*self, sql, values).await
            }

            async fn texts(
                &mut self,
                sql: &'static str,
                values: &[Value<'_>],
            ) -> Result<Vec<String>, DriverError> {
                first(*self, sql, values).await
            }
        }
    };
}
executor!(DatabaseTransaction);
executor!(DatabaseConnection);

/// Returns the first column.
async fn first<T: TryGetable>(
    connection: &impl ConnectionTrait,
    sql: &'static str,
    values: &[Value<'_>],
) -> Result<Vec<T>, DriverError> {
    let bound = values.iter().map(|value| Bound::String(value.text()));
    let statement = Statement::from_sql_and_values(DbBackend::Postgres, sql, bound);
    let rows = connection.query_all_raw(statement).await.map_err(convert)?;
    rows.iter()
        .map(|row| row.try_get_by_index(0).map_err(convert))
        .collect()
}

fn convert(error: DbErr) -> DriverError {
    match error {
        DbErr::Query(RuntimeErr::SqlxError(error)) | DbErr::Exec(RuntimeErr::SqlxError(error)) => {
            super::sqlx::convert(&error).because(error)
        }
        DbErr::Conn(_) | DbErr::ConnectionAcquire(_) => {
            DriverError::connection(chain(&error)).because(error)
        }
        _ => DriverError::refused(chain(&error), None).because(error),
    }
}
