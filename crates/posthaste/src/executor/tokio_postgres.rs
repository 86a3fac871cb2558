//! Executors for tokio-postgres and deadpool-postgres.

use bytes::BytesMut;
use postgres_types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Error, Row};

use super::{Executor, Unnamed, Value};
use crate::error;
use crate::error::driver::DriverError;
use crate::json_text::JsonText;

/// Runs an unnamed statement in one round trip: connections of the plain driver have no cache of
/// prepared statements.
macro_rules! unprepared {
    ($client:ident, $sql:ident, $values:ident) => {{
        let bound: Vec<Bound<'_>> = $values.iter().map(Bound).collect();
        first($client.query_typed($sql, &typed(&bound)).await)
    }};
}

/// Runs a prepared statement of the pooled connection's cache.
macro_rules! prepared {
    ($client:ident, $sql:ident, $values:ident) => {{
        let bound: Vec<Bound<'_>> = $values.iter().map(Bound).collect();
        let (parameters, types): (Vec<_>, Vec<_>) = typed(&bound).into_iter().unzip();
        let statement = $client.prepare_typed_cached($sql, &types).await?;
        first($client.query(&statement, &parameters).await)
    }};
}

/// Implements `Executor`; `self`, or its field, is a reference to the client.
macro_rules! executor {
    ($executor:ty $(, $field:tt)?; $prepares:literal, $rows:ident by $client:ty) => {
        impl Executor for $executor {
            const PREPARES: bool = $prepares;

            async fn run(
                &mut self,
                sql: &'static str,
                values: &[Value<'_>],
            ) -> Result<Vec<i64>, DriverError> {
                let client: &$client = self$(.$field)?;
                $rows!(client, sql, values)
            }

            async fn texts(
                &mut self,
                sql: &'static str,
                values: &[Value<'_>],
            ) -> Result<Vec<String>, DriverError> {
                let client: &$client = self$(.$field)?;
                $rows!(client, sql, values)
            }
        }
    };
}

/// Implements `Executor` for a client of the plain driver.
macro_rules! bare {
    ($client:ty) => {
        executor!(&$client; false, unprepared by $client);
    };
}
bare!(tokio_postgres::Client);
bare!(tokio_postgres::Transaction<'_>);

/// Implements `Executor` for a client of a pool; `Unnamed` uses the plain client within.
macro_rules! pooled {
    ($client:ty, $bare:ty) => {
        executor!(&$client; true, prepared by $client);
        executor!(Unnamed<&$client>, 0; false, unprepared by $bare);
    };
}
pooled!(deadpool_postgres::ClientWrapper, tokio_postgres::Client);
pooled!(deadpool_postgres::Client, tokio_postgres::Client);
pooled!(
    deadpool_postgres::Transaction<'_>,
    tokio_postgres::Transaction<'_>
);

/// Returns the values with their types, as the driver takes them.
fn typed<'a>(bound: &'a [Bound<'a>]) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    let typed = bound.iter();
    typed
        .map(|value| (value as &(dyn ToSql + Sync), value.kind()))
        .collect()
}

/// Returns the first column.
fn first<T: for<'a> FromSql<'a>>(rows: Result<Vec<Row>, Error>) -> Result<Vec<T>, DriverError> {
    let first: Result<Vec<T>, Error> = rows?.iter().map(|row| row.try_get(0)).collect();
    Ok(first?)
}

impl From<Error> for DriverError {
    fn from(error: Error) -> Self {
        let message = error::describe(&error);
        let driver_error = if error::is_connection(&error) {
            Self::connection(message)
        } else {
            Self::refused(message, error.code().map(|code| code.code()))
        };
        driver_error.because(error)
    }
}

/// A value in the binary format of its type: the casts of the statements change nothing.
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
            Value::Longs(_) => Type::INT8_ARRAY,
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
            Value::Longs(value) => value.to_sql(kind, out),
            Value::Integers(value) => value.to_sql(kind, out),
            Value::Times(value) => value.to_sql(kind, out),
        }
    }

    /// Each value is sent with the type of its [`Bound::kind`].
    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}
