//! tokio-postgres and deadpool-postgres.

use bytes::BytesMut;
use postgres_types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Error, Row};

use super::{DriverError, Executor, Unnamed, Value};
use crate::error;
use crate::store::json_text::JsonText;

/// Connections of the bare driver have no cache of prepared statements: an unnamed statement in one round trip.
macro_rules! unprepared {
    ($executor:ty) => {
        impl Executor for &$executor {
            const PREPARES: bool = false;

            async fn run(
                &mut self,
                sql: &'static str,
                values: &[Value<'_>],
            ) -> Result<Vec<i64>, DriverError> {
                let bound: Vec<Bound<'_>> = values.iter().map(Bound).collect();
                let parameters: Vec<(&(dyn ToSql + Sync), Type)> = bound
                    .iter()
                    .map(|value| (value as &(dyn ToSql + Sync), value.kind()))
                    .collect();
                numbers(self.query_typed(sql, &parameters).await)
            }
        }
    };
}
unprepared!(tokio_postgres::Client);
unprepared!(tokio_postgres::Transaction<'_>);

/// Pooled connections keep prepared statements.
macro_rules! prepared {
    ($executor:ty) => {
        impl Executor for &$executor {
            const PREPARES: bool = true;

            async fn run(
                &mut self,
                sql: &'static str,
                values: &[Value<'_>],
            ) -> Result<Vec<i64>, DriverError> {
                let bound: Vec<Bound<'_>> = values.iter().map(Bound).collect();
                let types: Vec<Type> = bound.iter().map(Bound::kind).collect();
                let parameters: Vec<&(dyn ToSql + Sync)> = bound
                    .iter()
                    .map(|value| value as &(dyn ToSql + Sync))
                    .collect();
                let statement = self.prepare_typed_cached(sql, &types).await?;
                numbers(self.query(&statement, &parameters).await)
            }
        }
    };
}
/// Pooled connections, as the bare ones that lie within.
macro_rules! unnamed {
    ($executor:ty, $bare:ty) => {
        impl Executor for Unnamed<&$executor> {
            const PREPARES: bool = false;

            async fn run(
                &mut self,
                sql: &'static str,
                values: &[Value<'_>],
            ) -> Result<Vec<i64>, DriverError> {
                let mut bare: &$bare = self.0;
                bare.run(sql, values).await
            }
        }
    };
}
unnamed!(deadpool_postgres::ClientWrapper, tokio_postgres::Client);
unnamed!(deadpool_postgres::Client, tokio_postgres::Client);
unnamed!(
    deadpool_postgres::Transaction<'_>,
    tokio_postgres::Transaction<'_>
);

prepared!(deadpool_postgres::ClientWrapper);
prepared!(deadpool_postgres::Client);
prepared!(deadpool_postgres::Transaction<'_>);

fn numbers(rows: Result<Vec<Row>, Error>) -> Result<Vec<i64>, DriverError> {
    let numbers: Result<Vec<i64>, Error> = rows?.iter().map(|row| row.try_get(0)).collect();
    Ok(numbers?)
}

impl From<Error> for DriverError {
    fn from(error: Error) -> Self {
        let message = error::describe(&error);
        let told = if error::is_connection(&error) {
            Self::connection(message)
        } else {
            Self::refused(message, error.code().map(|code| code.code()))
        };
        told.because(error)
    }
}

/// A value in the binary form of its own type: the casts of the statements change nothing.
#[derive(Debug)]
struct Bound<'a>(&'a Value<'a>);

impl Bound<'_> {
    fn kind(&self) -> Type {
        match self.0 {
            Value::Text(_) => Type::TEXT,
            Value::Json(_) => Type::JSONB,
            Value::Integer(_) => Type::INT4,
            Value::Long(_) => Type::INT8,
            Value::Time(_) => Type::TIMESTAMPTZ,
            Value::Uuid(_) => Type::UUID,
            Value::Texts(_) => Type::TEXT_ARRAY,
            Value::Integers(_) => Type::INT4_ARRAY,
            Value::Times(_) => Type::TIMESTAMPTZ_ARRAY,
        }
    }
}

impl ToSql for Bound<'_> {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self.0 {
            Value::Text(value) => value.to_sql(kind, out),
            Value::Json(value) => JsonText(value).to_sql(kind, out),
            Value::Integer(value) => value.to_sql(kind, out),
            Value::Long(value) => value.to_sql(kind, out),
            Value::Time(value) => value.to_sql(kind, out),
            Value::Uuid(value) => value.to_sql(kind, out),
            Value::Texts(value) => value.to_sql(kind, out),
            Value::Integers(value) => value.to_sql(kind, out),
            Value::Times(value) => value.to_sql(kind, out),
        }
    }

    /// Each is sent with its own [`Bound::kind`].
    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}
