//! Statements of [`crate::Client`], in the caller's transaction. With every driver, each row of an
//! answer is a JSON text.

mod answer;
mod filter;
mod rate;

use std::time::Duration;

use serde::de::DeserializeOwned;
use uuid::Uuid;

use self::answer::{Attempt, ChangedJob, Counted, Found, Listed};
use crate::counters::Counters;
use crate::error::Error;
use crate::error::driver::DriverError;
use crate::executor::{Executor, Value};
use crate::history::{Failure, FoundJob, ListedJob};
use crate::job::{JobId, State};
pub use filter::Filter;
pub use rate::Rate;

pub(crate) async fn find<E: Executor>(
    executor: &mut E,
    id: JobId,
) -> Result<Option<FoundJob>, Error> {
    let what = "cannot find a job";
    let sql = include_str!("find.sql");
    let found: Vec<Found> = query_json(executor, what, sql, &[Value::Long(id.0)]).await?;
    Ok(found.into_iter().next().map(|one| one.0))
}

pub(crate) async fn list<E: Executor>(
    executor: &mut E,
    filter: &Filter,
) -> Result<Vec<ListedJob>, Error> {
    let sql = include_str!("list.sql");
    let listed: Vec<Listed> =
        query_json(executor, "cannot list jobs", sql, &list_parameters(filter)).await?;
    Ok(listed.into_iter().map(|one| one.0).collect())
}

pub(crate) async fn dead<E: Executor>(
    executor: &mut E,
    filter: &Filter,
) -> Result<Vec<FoundJob>, Error> {
    let sql = include_str!("dead.sql");
    let found: Vec<Found> = query_json(
        executor,
        "cannot list dead jobs",
        sql,
        &list_parameters(filter),
    )
    .await?;
    Ok(found.into_iter().map(|one| one.0).collect())
}

/// Returns the stored arguments of each job.
pub(crate) async fn enqueued<E: Executor>(
    executor: &mut E,
    name: &str,
) -> Result<Vec<String>, Error> {
    let sql = include_str!("enqueued.sql");
    let kwargs = executor.texts(sql, &[Value::Text(Some(name))]).await;
    kwargs.map_err(Error::driver("cannot find enqueued jobs"))
}

pub(crate) async fn failures<E: Executor>(
    executor: &mut E,
    id: JobId,
) -> Result<Vec<Failure>, Error> {
    let what = "cannot read failed attempts";
    let sql = include_str!("attempts.sql");
    let failures: Vec<Attempt> = query_json(executor, what, sql, &[Value::Long(id.0)]).await?;
    Ok(failures.into_iter().map(|one| one.0).collect())
}

pub(crate) async fn cancel<E: Executor>(
    executor: &mut E,
    ids: &[JobId],
) -> Result<Vec<(JobId, State)>, Error> {
    let ids = Value::Longs(Some(ids.iter().map(|id| id.0).collect()));
    let sql = include_str!("cancel.sql");
    let met: Vec<ChangedJob> = query_json(executor, "cannot cancel jobs", sql, &[ids]).await?;
    Ok(met.into_iter().map(ChangedJob::into).collect())
}

pub(crate) async fn retry<E: Executor>(
    executor: &mut E,
    filter: &Filter,
) -> Result<Vec<(JobId, State)>, Error> {
    let sql = include_str!("retry.sql");
    let met: Vec<ChangedJob> = query_json(
        executor,
        "cannot retry jobs",
        sql,
        &change_parameters(filter),
    )
    .await?;
    Ok(met.into_iter().map(ChangedJob::into).collect())
}

pub(crate) async fn redrive<E: Executor>(
    executor: &mut E,
    filter: &Filter,
) -> Result<Vec<JobId>, Error> {
    let values = change_parameters(filter);
    let sent = executor.run(include_str!("redrive.sql"), &values).await;
    let sent = sent.map_err(Error::driver("cannot redrive jobs"))?;
    Ok(sent.into_iter().map(JobId).collect())
}

pub(crate) async fn pause<E: Executor>(executor: &mut E, queue: &str) -> Result<bool, Error> {
    let (what, sql) = (
        "cannot pause a queue",
        "SELECT posthaste.pause($1::text)::text AS answer",
    );
    query_one(executor, what, sql, &[Value::Text(Some(queue))]).await
}

pub(crate) async fn resume<E: Executor>(executor: &mut E, queue: &str) -> Result<bool, Error> {
    let (what, sql) = (
        "cannot resume a queue",
        "SELECT posthaste.resume($1::text)::text AS answer",
    );
    query_one(executor, what, sql, &[Value::Text(Some(queue))]).await
}

pub(crate) async fn limit<E: Executor>(
    executor: &mut E,
    queue: &str,
    rate: Option<&Rate>,
) -> Result<(), Error> {
    // The function requires a time even without a rate.
    let per = format_interval(rate.map_or(Duration::from_secs(1), |rate| rate.per));
    let integer = |jobs: u32| i32::try_from(jobs).unwrap_or(i32::MAX);
    let values = [
        Value::Text(Some(queue)),
        Value::Integer(rate.map(|rate| integer(rate.jobs))),
        Value::Text(Some(&per)),
        Value::Integer(rate.and_then(|rate| rate.burst).map(integer)),
    ];
    let (what, sql) = ("cannot limit a queue", include_str!("limit.sql"));
    query_one::<_, bool>(executor, what, sql, &values)
        .await
        .map(drop)
}

pub(crate) async fn keep<E: Executor>(
    executor: &mut E,
    queue: &str,
    keep: Option<Duration>,
) -> Result<bool, Error> {
    let keep = keep.map(format_interval);
    let values = [Value::Text(Some(queue)), Value::Text(keep.as_deref())];
    let what = "cannot set how long completed jobs are kept";
    query_one(
        executor,
        what,
        "SELECT posthaste.keep($1::text, $2::text::interval)::text AS answer",
        &values,
    )
    .await
}

pub(crate) async fn confirm<E: Executor>(
    executor: &mut E,
    delivery_id: Uuid,
) -> Result<bool, Error> {
    let (what, sql) = (
        "cannot confirm a job",
        "SELECT posthaste.confirm($1::uuid)::text AS answer",
    );
    query_one(executor, what, sql, &[Value::Uuid(delivery_id)]).await
}

pub(crate) async fn counters<E: Executor>(
    executor: &mut E,
    most: Option<u32>,
) -> Result<Counters, Error> {
    let (what, sql) = ("cannot count jobs", include_str!("counters.sql"));
    let most = most.map(|most| i32::try_from(most).unwrap_or(i32::MAX));
    let counted: Counted = query_one(executor, what, sql, &[Value::Integer(most)]).await?;
    Ok(counted.into())
}

pub(crate) async fn uncounted<E: Executor>(executor: &mut E, most: u32) -> Result<u32, Error> {
    let (what, sql) = (
        "cannot read the number of uncounted jobs",
        "SELECT posthaste.uncounted($1::integer)::text AS answer",
    );
    let most = i32::try_from(most).unwrap_or(i32::MAX);
    query_one(executor, what, sql, &[Value::Integer(Some(most))]).await
}

/// Returns the conditions of a filter, in the order of the parameters of all these statements.
fn filter_parameters(filter: &Filter) -> [Value<'_>; 6] {
    let ids = filter.ids.as_ref();
    [
        Value::Longs(ids.map(|ids| ids.iter().map(|id| id.0).collect())),
        Value::Text(filter.queue.as_deref()),
        Value::Text(filter.name.as_deref()),
        Value::Text(filter.tag.as_deref()),
        Value::Text(filter.state.map(State::name)),
        Value::Text(filter.error.as_deref()),
    ]
}

/// Returns the parameters of a statement that lists jobs.
fn list_parameters(filter: &Filter) -> Vec<Value<'_>> {
    let order = if filter.oldest_first { 1 } else { -1 };
    let limit = i64::from(filter.limit_or(Filter::DEFAULT_LIST_LIMIT));
    let mut values = Vec::from(filter_parameters(filter));
    values.extend([Value::Long(order), Value::Long(limit)]);
    values
}

/// Returns the parameters of a statement that changes jobs.
fn change_parameters(filter: &Filter) -> Vec<Value<'_>> {
    let limit = filter.limit_or(Filter::DEFAULT_CHANGE_LIMIT);
    let mut values = Vec::from(filter_parameters(filter));
    values.push(Value::Integer(Some(
        i32::try_from(limit).unwrap_or(i32::MAX),
    )));
    values
}

/// Formats an interval so that Postgres reads it under every `intervalstyle`.
fn format_interval(time: Duration) -> String {
    format!("{} microseconds", time.as_micros())
}

async fn query_json<E: Executor, T: DeserializeOwned>(
    executor: &mut E,
    what: &'static str,
    sql: &'static str,
    values: &[Value<'_>],
) -> Result<Vec<T>, Error> {
    let answers = executor.texts(sql, values).await;
    let answers = answers.map_err(Error::driver(what))?;
    let read = answers.iter().map(|answer| serde_json::from_str(answer));
    read.collect::<Result<_, _>>()
        .map_err(|error: serde_json::Error| {
            let text = format!("the answer cannot be read: {error}");
            Error::driver(what)(DriverError::refused(text, None).because(error))
        })
}

async fn query_one<E: Executor, T: DeserializeOwned>(
    executor: &mut E,
    what: &'static str,
    sql: &'static str,
    values: &[Value<'_>],
) -> Result<T, Error> {
    let answers = query_json(executor, what, sql, values).await?;
    answers.into_iter().next().ok_or_else(|| {
        Error::driver(what)(DriverError::refused("the database returned no row", None))
    })
}
