//! Operations that every driver must support in a transaction that is not committed.

use std::time::Duration;

use posthaste::{Client, Executor, Filter, FoundJob, JobId, NewJob, Rate, State, enqueue};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::support::{number, unfinished};

/// Arguments as Postgres prints them.
const KWARGS: &str = "{\"n\": 123456789012345678901234567890.000000001, \"big\": \
                      9223372036854775808, \"text\": \"\\\"quoted\\\", \\\\ and \u{1F680}\"}";
const QUEUE: &str = "q'u\"e";
const NAME: &str = "it's \u{1F680}";
const TAG: &str = "t\\\u{e4}\"g,{}";

/// Calls each operation with values that need quoting, and checks its answer.
pub async fn everything<E: Executor>(mut executor: E) {
    let scheduled_at = "2999-12-31T23:59:59.999999Z".parse().unwrap();
    let kwargs = RawValue::from_string(KWARGS.to_owned()).unwrap();
    let job = NewJob::new(NAME, &kwargs).unwrap().queue(QUEUE).tag(TAG);
    let job = job.priority(-7).max_attempts(None).unique_key("k'\\\"");
    let job = job.scheduled_at(scheduled_at);
    let id = enqueue(&mut executor, &job).await.unwrap();
    let mut all = Client::new(executor);

    let found = all.find(id).await.unwrap().unwrap();
    assert_eq!((found.id, &*found.name, &*found.queue), (id, NAME, QUEUE));
    assert_eq!((found.priority, &*found.tag), (-7, TAG));
    assert_eq!(found.scheduled_at, scheduled_at);
    assert_eq!(found.kwargs_json(), KWARGS);
    assert_eq!(found.unique_key.as_deref(), Some("k'\\\""));
    assert_eq!((found.attempts, found.max_attempts), (0, None));
    assert_eq!(found.state, State::Scheduled);
    assert_eq!(all.find(JobId(i64::MAX)).await.unwrap().map(|_| ()), None);
    assert_eq!(all.failures(id).await.unwrap(), []);

    let this = Filter::new().ids([id]).queue(QUEUE).name(NAME).tag(TAG);
    let listed = all.list(&this).await.unwrap();
    let job = &listed[0];
    assert_eq!((listed.len(), job.id, &*job.name), (1, id, NAME));
    assert_eq!((&*job.queue, &*job.tag), (QUEUE, TAG));
    assert_eq!(job.enqueued_at, found.enqueued_at);
    assert_eq!(
        (job.scheduled_at, job.expires_at),
        (scheduled_at, found.expires_at)
    );
    assert_eq!((job.state, job.max_attempts), (State::Scheduled, None));
    assert_eq!((&job.unique_key, job.priority), (&found.unique_key, -7));

    let missed = this.clone().state(State::Retrying);
    assert_eq!(
        all.retry_where(&missed).await.unwrap(),
        [(id, State::Scheduled)]
    );
    assert_eq!(all.retry(&[id]).await.unwrap(), [(id, State::Available)]);
    let counted = all.counters().await.unwrap();
    let of = counted.jobs.iter().find(|of| of.queue == QUEUE).unwrap();
    assert_eq!((&*of.name, &*of.tag), (NAME, TAG));
    assert_eq!((of.available, of.scheduled), (1, 0));
    assert_eq!(
        (counted.oldest.len(), &*counted.oldest[0].queue),
        (1, QUEUE)
    );
    assert!(!counted.oldest[0].is_worked);

    assert_eq!(all.cancel(&[id]).await.unwrap(), [(id, State::Cancelled)]);
    let kept = all
        .dead(&this.clone().state(State::Cancelled))
        .await
        .unwrap();
    let found = all.find(id).await.unwrap().unwrap();
    assert_eq!(
        kept.iter().map(describe).collect::<Vec<_>>(),
        [describe(&found)]
    );
    assert_eq!(
        all.redrive_where(&missed.state(State::Dead)).await.unwrap(),
        []
    );
    assert_eq!(all.redrive(&[id]).await.unwrap(), [id]);

    assert!(all.pause(QUEUE).await.unwrap());
    assert!(!all.pause(QUEUE).await.unwrap(), "it is paused already");
    assert!(all.resume(QUEUE).await.unwrap());
    let rate = Rate::new(90, Duration::from_millis(60_500)).burst(3);
    all.limit(QUEUE, Some(rate)).await.unwrap();
    all.limit(QUEUE, None).await.unwrap();
    let week = Duration::from_secs(7 * 86_400);
    assert!(all.keep(QUEUE, Some(week)).await.unwrap());
    assert!(all.keep(QUEUE, None).await.unwrap());
    assert!(all.uncounted(5).await.unwrap() <= 5);
    assert!(all.confirm(found.delivery_id).await.unwrap());
    assert!(!all.confirm(Uuid::new_v4()).await.unwrap());
}

/// Checks that the transaction was rolled back.
pub async fn no_job_remains_unfinished(client: &tokio_postgres::Client) {
    assert_eq!(unfinished(client).await, 0);
    let queues = "SELECT count(*) FROM posthaste.queue";
    assert_eq!(number(client, queues).await, 0);
}

/// Formats all fields of a job.
pub fn describe(job: &FoundJob) -> String {
    format!(
        "{job:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        (job.priority, job.scheduled_at, job.expires_at),
        (job.enqueued_at, &job.tag, &job.unique_key),
        (&job.ordering_key, job.attempts, job.max_attempts),
        (&job.last_error, job.worker, &job.worker_name),
        (job.claimed_at, job.ended_at, job.delivery_id),
        job.kwargs_json(),
    )
}

/// Returns the time in this column of the only row, in microseconds since 1970.
pub async fn microseconds(client: &tokio_postgres::Client, column: &str, from: &str) -> i64 {
    let sql = format!("SELECT (extract(epoch FROM {column}) * 1000000)::bigint FROM {from}");
    number(client, &sql).await
}
