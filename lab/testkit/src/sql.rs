//! Short forms of the statements that tests send most. An error includes the statement.

use std::future::Future;

use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::Value;
use tokio_postgres::types::{FromSqlOwned, ToSql};
use tokio_postgres::{GenericClient, Row};
use uuid::Uuid;

/// The values of a statement's parameters.
type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Statements on any session or transaction.
pub trait Sql {
    /// Runs statements, separated by semicolons.
    fn run(&self, sql: &str) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Returns the only row of a statement.
    fn one<T: FromRow>(&self, sql: &str) -> impl Future<Output = anyhow::Result<T>> + Send;

    /// Returns the only row of a statement with parameters.
    fn one_with<T: FromRow>(
        &self,
        sql: &str,
        parameters: Parameters<'_>,
    ) -> impl Future<Output = anyhow::Result<T>> + Send;

    /// Returns all rows of a statement.
    fn rows<T: FromRow>(&self, sql: &str) -> impl Future<Output = anyhow::Result<Vec<T>>> + Send;

    /// Returns all rows of a statement with parameters.
    fn rows_with<T: FromRow>(
        &self,
        sql: &str,
        parameters: Parameters<'_>,
    ) -> impl Future<Output = anyhow::Result<Vec<T>>> + Send;
}

impl<C: GenericClient + Sync> Sql for C {
    async fn run(&self, sql: &str) -> anyhow::Result<()> {
        self.batch_execute(sql).await.context(sql.to_owned())
    }

    async fn one<T: FromRow>(&self, sql: &str) -> anyhow::Result<T> {
        self.one_with(sql, &[]).await
    }

    async fn one_with<T: FromRow>(
        &self,
        sql: &str,
        parameters: Parameters<'_>,
    ) -> anyhow::Result<T> {
        let row = self.query_one(sql, parameters).await;
        row.and_then(|row| T::from_row(&row))
            .context(sql.to_owned())
    }

    async fn rows<T: FromRow>(&self, sql: &str) -> anyhow::Result<Vec<T>> {
        self.rows_with(sql, &[]).await
    }

    async fn rows_with<T: FromRow>(
        &self,
        sql: &str,
        parameters: Parameters<'_>,
    ) -> anyhow::Result<Vec<T>> {
        let rows = self.query(sql, parameters).await.context(sql.to_owned())?;
        let values = rows.iter().map(T::from_row).collect::<Result<_, _>>();
        values.context(sql.to_owned())
    }
}

/// A value that is read from a row: one column, or a tuple of all columns.
pub trait FromRow: Sized {
    /// Reads the row.
    fn from_row(row: &Row) -> Result<Self, tokio_postgres::Error>;
}

macro_rules! one_column {
    ($($of:ty),*) => { $(
        impl FromRow for $of {
            fn from_row(row: &Row) -> Result<Self, tokio_postgres::Error> {
                row.try_get(0)
            }
        }
    )* };
}

one_column!(bool, i16, i32, i64, f64, String, Timestamp, Uuid, Value);

impl<T> FromRow for Option<T>
where
    Self: FromSqlOwned,
{
    fn from_row(row: &Row) -> Result<Self, tokio_postgres::Error> {
        row.try_get(0)
    }
}

impl<T> FromRow for Vec<T>
where
    Self: FromSqlOwned,
{
    fn from_row(row: &Row) -> Result<Self, tokio_postgres::Error> {
        row.try_get(0)
    }
}

macro_rules! columns {
    ($($of:ident $index:literal),*) => {
        impl<$($of: FromSqlOwned),*> FromRow for ($($of,)*) {
            fn from_row(row: &Row) -> Result<Self, tokio_postgres::Error> {
                Ok(($(row.try_get::<_, $of>($index)?,)*))
            }
        }
    };
}

columns!(A 0, B 1);
columns!(A 0, B 1, C 2);
columns!(A 0, B 1, C 2, D 3);
