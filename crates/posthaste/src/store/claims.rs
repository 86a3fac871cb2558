//! Claims: a statement that claims jobs with a short answer, and one that reads them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;
use uuid::Uuid;

use super::prose::Prose;
use super::reconnecting::{ReconnectingClient, Statement};
use super::{Fence, one};
use crate::error::Error;
use crate::job::{Job, JobId};
use crate::json_text::JsonText;

/// A claimed job and its fence.
pub(crate) type Claimed = (Fence, Arc<Job>);

/// The result of a claim: its jobs, and those whose rows this version cannot read, with the reason.
pub(crate) struct Claim {
    pub(crate) jobs: Vec<Claimed>,
    pub(crate) unreadable: Vec<(Fence, JobId, String)>,
    /// Another claim must follow after this delay: zero if this one stopped at a limit of expired
    /// jobs, lanes or bytes, longer if the queue's rate stopped it. `None`: no job is left in the
    /// lanes, or the claim is full.
    pub(crate) again: Option<Duration>,
}

/// The most bytes of rows in the answer of a claim. Its lanes are locked until the answer is sent,
/// so the answer has to fit into the send buffers for a client that reads nothing. Over a
/// connection without acknowledgements these were at least 40 kB (decision 36).
const MAX_ANSWER_BYTES: i32 = 20 * 1024;

/// The batches of a claim whose jobs [`claimed_jobs`] has to read.
#[derive(Default)]
pub(crate) struct UnreadBatches {
    slots: Vec<i16>,
    batches: Vec<i64>,
}

impl UnreadBatches {
    /// Returns the batches that the answer of a claim names.
    pub(crate) fn from_rows(rows: &[Row]) -> Result<Self, Error> {
        let mut unread = Self::default();
        let read = rows.iter().try_for_each(|row| {
            let slot: Option<i16> = row.try_get(0)?;
            if let (Some(slot), None) = (slot, id_if_any(row)) {
                unread.slots.push(slot);
                unread.batches.push(row.try_get(1)?);
            }
            Ok(())
        });
        read.map_err(Error::postgres("cannot read a claim"))?;
        Ok(unread)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }
}

/// The parameters of a claim.
pub(crate) struct ClaimRequest<'a> {
    pub(crate) queue: &'a str,
    pub(crate) priorities: &'a [i32],
    pub(crate) worker: i64,
    pub(crate) token: Uuid,
    pub(crate) limit: i32,
    /// The approximate limit of arguments, in bytes.
    pub(crate) bytes: i64,
    /// Whether jobs that do not fit into the answer are read in the same round trip.
    pub(crate) reads_on: bool,
}

/// Claims jobs. Returns rows for [`read_claim`] and [`UnreadBatches::from_rows`], and the jobs that
/// were read after the claim; the latter are empty if [`claimed_jobs`] still has to read them.
pub(crate) async fn claim(
    link: &ReconnectingClient,
    request: &ClaimRequest<'_>,
) -> Result<(Vec<Row>, Vec<Row>), Error> {
    let what = "cannot claim";
    let (queue, priorities) = (request.queue, request.priorities);
    let (worker, token) = (request.worker, request.token);
    let (limit, bytes) = (request.limit, request.bytes);
    let claim = Statement {
        sql: include_str!("claim.sql"),
        parameters: &[
            &queue,
            &priorities,
            &worker,
            &token,
            &limit,
            &bytes,
            &MAX_ANSWER_BYTES,
        ],
    };
    if !request.reads_on {
        let rows = link.call(what, claim.sql, claim.parameters).await?;
        return Ok((rows, Vec::new()));
    }
    let read = Statement {
        sql: include_str!("claimed_now.sql"),
        parameters: &[&worker, &token],
    };
    let (rows, read) = link.call_and_fetch(what, claim, read).await?;
    // Jobs that could not be read are read again by a separate statement.
    Ok((rows, read.unwrap_or_default()))
}

/// Returns the batches of a claim whose answer was lost.
pub(crate) async fn claim_batches(
    link: &ReconnectingClient,
    queue: &str,
    priorities: &[i32],
    worker: i64,
    token: Uuid,
) -> Result<UnreadBatches, Error> {
    let what = "cannot search for a claim";
    let rows = link
        .fetch(
            what,
            include_str!("claim_batches.sql"),
            &[&queue, &priorities, &worker, &token],
        )
        .await?;
    let mut unread = UnreadBatches::default();
    let read = rows.iter().try_for_each(|row| {
        unread.slots.push(row.try_get(0)?);
        unread.batches.push(row.try_get(1)?);
        Ok(())
    });
    read.map_err(Error::postgres(what))?;
    Ok(unread)
}

/// Reads the jobs of a committed claim, or those of them in `ids`. Returns rows for [`read_claim`].
/// No lock is held while they are sent.
pub(crate) async fn claimed_jobs(
    link: &ReconnectingClient,
    worker: i64,
    token: Uuid,
    unread: &UnreadBatches,
    ids: Option<&[i64]>,
) -> Result<Vec<Row>, Error> {
    link.fetch(
        "cannot read the jobs of a claim",
        include_str!("claimed_jobs.sql"),
        &[&worker, &token, &unread.slots, &unread.batches, &ids],
    )
    .await
}

/// Returns the jobs of a committed claim without reading them.
pub(crate) async fn claimed_ids(
    link: &ReconnectingClient,
    worker: i64,
    token: Uuid,
    unread: &UnreadBatches,
) -> Result<Vec<(Fence, JobId)>, Error> {
    let what = "cannot read the jobs of a claim";
    let rows = link
        .fetch(
            what,
            "SELECT slot, batch, id FROM posthaste.claimed_jobs($1, $2, $3, $4, NULL)",
            &[&worker, &token, &unread.slots, &unread.batches],
        )
        .await?;
    let ids: Result<_, _> = rows.iter().map(|row| fence_from_row(row, token)).collect();
    ids.map_err(Error::postgres(what))
}

/// Reads the jobs of the claim with this token. If it fails, the claim is in effect although its
/// jobs cannot be run.
pub(crate) fn read_claim(rows: &[Row], queue: &Arc<str>, token: Uuid) -> Result<Claim, Error> {
    let mut claim = Claim {
        jobs: Vec::with_capacity(rows.len()),
        unreadable: Vec::new(),
        again: None,
    };
    claim.extend(rows, queue, token)?;
    Ok(claim)
}

impl Claim {
    /// Returns the ids of all jobs, readable or not.
    pub(crate) fn ids(&self) -> impl Iterator<Item = JobId> {
        let readable = self.jobs.iter().map(|(_, job)| job.id);
        readable.chain(self.unreadable.iter().map(|(_, id, _)| *id))
    }

    /// Adds more jobs of the claim. A job that a leader moved to posthaste.in_flight after the
    /// first answer is read again there; it is added once.
    pub(crate) fn extend(
        &mut self,
        rows: &[Row],
        queue: &Arc<str>,
        token: Uuid,
    ) -> Result<(), Error> {
        let what = "cannot read a claim";
        let known: HashSet<i64> = self.ids().map(|id| id.0).collect();
        for row in rows {
            let Some(id) = id_if_any(row) else {
                let slot: Option<i16> = row.try_get(0).map_err(Error::postgres(what))?;
                // A row with a slot stands for a batch.
                if slot.is_none() {
                    let wait: i64 = row.try_get(1).map_err(Error::postgres(what))?;
                    self.again = Some(Duration::from_millis(wait.unsigned_abs()));
                }
                continue;
            };
            if known.contains(&id) {
                continue;
            }
            match claimed_from_row(row, queue, token) {
                Ok(job) => self.jobs.push(job),
                Err(error) => {
                    let (fence, id) = fence_from_row(row, token).map_err(Error::postgres(what))?;
                    self.unreadable.push((fence, id, error.to_string()));
                }
            }
        }
        Ok(())
    }
}

/// Returns the number of jobs in the answer of a claim.
pub(crate) fn count_jobs(rows: &[Row]) -> usize {
    rows.iter().filter(|row| id_if_any(row).is_some()).count()
}

/// Returns the id of the job, `None` for a row without one.
fn id_if_any(row: &Row) -> Option<i64> {
    row.try_get(2).unwrap_or_default()
}

fn fence_from_row(row: &Row, token: Uuid) -> Result<(Fence, JobId), tokio_postgres::Error> {
    Ok((
        Fence {
            slot: row.try_get(0)?,
            batch: row.try_get(1)?,
            token,
        },
        JobId(row.try_get(2)?),
    ))
}

/// Claims one job whose worker died; returns how many it claimed, for [`claimed_jobs`].
pub(crate) async fn claim_quarantined(
    link: &ReconnectingClient,
    queue: &str,
    worker: i64,
    token: Uuid,
) -> Result<i64, Error> {
    one(
        link,
        "cannot claim a quarantined job",
        include_str!("claim_quarantined.sql"),
        &[&queue, &worker, &token],
    )
    .await
}

/// Claims at most this many jobs whose worker died once, and which do not end by one more counted
/// attempt; returns how many it claimed, for [`claimed_jobs`].
pub(crate) async fn claim_quarantined_batch(
    link: &ReconnectingClient,
    queue: &str,
    worker: i64,
    token: Uuid,
    most: usize,
) -> Result<i64, Error> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    one(
        link,
        "cannot claim quarantined jobs",
        include_str!("claim_quarantined_batch.sql"),
        &[&queue, &worker, &token, &most],
    )
    .await
}

/// Dead-letters the next job of a queue if it cannot be read.
pub(crate) async fn dead_letter_next(
    link: &ReconnectingClient,
    queue: &str,
    priorities: &[i32],
    worker: i64,
    token: Uuid,
    error: &str,
) -> Result<i64, Error> {
    one(
        link,
        "cannot dead-letter an unreadable job",
        "SELECT posthaste.dead_letter_next($1, $2, $3, $4, $5)",
        &[&queue, &priorities, &worker, &token, &Prose(Some(error))],
    )
    .await
}

fn claimed_from_row(row: &Row, queue: &Arc<str>, token: Uuid) -> Result<Claimed, Error> {
    let read = || -> Result<Claimed, tokio_postgres::Error> {
        let (fence, id) = fence_from_row(row, token)?;
        let job = Job {
            id,
            queue: Arc::clone(queue),
            enqueued_at: row.try_get(3)?,
            scheduled_at: row.try_get(4)?,
            expires_at: row.try_get(5)?,
            priority: row.try_get(6)?,
            attempt: row.try_get::<_, i32>(7)?.saturating_add(1),
            max_attempts: row.try_get(8)?,
            crashes: row.try_get(9)?,
            name: row.try_get::<_, &str>(10)?.into(),
            tag: row.try_get::<_, &str>(11)?.into(),
            unique_key: row.try_get::<_, Option<&str>>(12)?.map(Into::into),
            ordering_key: row.try_get::<_, Option<&str>>(13)?.map(Into::into),
            trace: row.try_get::<_, Option<&str>>(14)?.map(Into::into),
            kwargs: row.try_get::<_, JsonText<'_>>(15)?.0.into(),
        };
        Ok((fence, Arc::new(job)))
    };
    read().map_err(Error::postgres("cannot read a claimed job"))
}
