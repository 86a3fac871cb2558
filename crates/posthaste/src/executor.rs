//! Access to the caller's transaction over any driver. The contract is the same for all drivers: a
//! statement, a list of [`Value`]s, and rows of one number or one text.

#[cfg(feature = "diesel-async")]
mod diesel;
#[cfg(feature = "sea-orm")]
mod sea_orm;
#[cfg(feature = "sqlx")]
mod sqlx;
mod tokio_postgres;

use std::future::Future;

use jiff::Timestamp;
use uuid::Uuid;

use crate::error::driver::DriverError;

/// A parameter of a statement, bound in its type, or as text if the driver has no such type. The
/// statements cast.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Value<'a> {
    /// `text`.
    Text(Option<&'a str>),
    /// `jsonb`, as text.
    Json(&'a str),
    /// `integer`.
    Integer(Option<i32>),
    /// `bigint`.
    Long(i64),
    /// `timestamptz`.
    Time(Option<Timestamp>),
    /// `uuid`.
    Uuid(Uuid),
    /// `text[]`.
    Texts(Vec<Option<&'a str>>),
    /// `bigint[]`.
    Longs(Option<Vec<i64>>),
    /// `integer[]`.
    Integers(Vec<Option<i32>>),
    /// `timestamptz[]`.
    Times(Vec<Option<Timestamp>>),
}

/// Runs a statement in the caller's transaction.
///
/// Implemented for references to the transactions and connections of tokio-postgres and
/// deadpool-postgres, and with the features `sqlx`, `diesel-async` and `sea-orm` for those of these
/// crates. A connection without an open transaction runs each statement in a separate one.
///
/// | driver | pass |
/// |---|---|
/// | tokio-postgres, deadpool-postgres | `&transaction` or `&client` |
/// | sqlx | `&mut *transaction` or `&mut connection` |
/// | diesel-async | `&mut connection`: the one that its `transaction` hands to the closure |
/// | sea-orm | `&transaction` or `&connection` |
///
/// diesel-async exposes no SQLSTATE, and does not always report that the server closed the
/// connection: [`Error::sqlstate`](crate::Error::sqlstate) is `None` there, and
/// [`Error::is_connection`](crate::Error::is_connection) is certain to hold only for the call after
/// such a disconnect.
#[diagnostic::on_unimplemented(
    message = "posthaste cannot run statements in a `{Self}`",
    label = "this is not a transaction or connection that posthaste supports",
    note = "tokio-postgres and deadpool-postgres: pass `&transaction` or `&client`",
    note = "sqlx: pass `&mut *transaction` or `&mut connection` (feature `sqlx`)",
    note = "diesel-async: pass `&mut connection` (feature `diesel-async`)",
    note = "sea-orm: pass `&transaction` or `&connection` (feature `sea-orm`)"
)]
pub trait Executor: Send {
    /// Whether a repeated statement is not planned again, and arguments are bound as `jsonb`. Then
    /// a plain job is enqueued by a faster statement, which takes longer to plan.
    const PREPARES: bool;

    /// Runs one statement and returns the first column of its rows, named `id`.
    fn run(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> impl Future<Output = Result<Vec<i64>, DriverError>> + Send;

    /// Runs one statement and returns the first column of its rows, which is `text`, never NULL and
    /// named `answer`.
    fn texts(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> impl Future<Output = Result<Vec<String>, DriverError>> + Send;
}

/// An executor that uses unnamed statements with a driver that would name them:
/// `Unnamed(&transaction)` of deadpool-postgres, `Unnamed(&mut *transaction)` of sqlx.
///
/// With a pooler in transaction mode that does not track prepared statements (PgBouncer before
/// 1.21, or without `max_prepared_statements`), a named statement is missing in the next
/// transaction, or is another program's. Transactions of tokio-postgres use no names here and need
/// no wrapper.
///
/// ```no_run
/// use posthaste::{NewJob, Unnamed, enqueue};
///
/// # async fn example(tx: deadpool_postgres::Transaction<'_>)
/// #     -> Result<(), Box<dyn std::error::Error>> {
/// let job = NewJob::new("mail.welcome", &serde_json::json!({ "account": 7 }))?;
/// enqueue(Unnamed(&tx), &job).await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Unnamed<E>(pub E);

impl<E: Executor> Executor for &mut E {
    const PREPARES: bool = E::PREPARES;

    async fn run(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Vec<i64>, DriverError> {
        (**self).run(sql, values).await
    }

    async fn texts(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Vec<String>, DriverError> {
        (**self).texts(sql, values).await
    }
}

#[cfg(any(feature = "sqlx", feature = "diesel-async", feature = "sea-orm"))]
impl Value<'_> {
    /// Returns the text form of the value in Postgres; `None` for NULL.
    fn text(&self) -> Option<String> {
        fn array<T>(values: &[Option<T>], text: impl Fn(&T) -> String) -> Option<String> {
            let values = values.iter().map(|value| match value {
                Some(value) => {
                    let escaped = text(value).replace('\\', "\\\\").replace('"', "\\\"");
                    format!("\"{escaped}\"")
                }
                None => "NULL".to_owned(),
            });
            Some(format!("{{{}}}", values.collect::<Vec<_>>().join(",")))
        }
        match self {
            Self::Text(value) => value.map(str::to_owned),
            Self::Json(value) => Some((*value).to_owned()),
            Self::Integer(value) => value.map(|value| value.to_string()),
            Self::Long(value) => Some(value.to_string()),
            Self::Time(value) => value.map(|value| value.to_string()),
            Self::Uuid(value) => Some(value.to_string()),
            Self::Texts(values) => array(values, |value| (*value).to_owned()),
            Self::Longs(values) => {
                let values = values.as_ref()?.iter().map(i64::to_string);
                Some(format!("{{{}}}", values.collect::<Vec<_>>().join(",")))
            }
            Self::Integers(values) => array(values, i32::to_string),
            Self::Times(values) => array(values, Timestamp::to_string),
        }
    }
}
