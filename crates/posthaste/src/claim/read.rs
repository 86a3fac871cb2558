//! Reads the jobs of a committed claim whose answer had no room for them. A job that cannot be read
//! is found by reading parts of the claim, and is ended.

use tokio_postgres::Row;

use super::claimer::Claimer;
use super::pending::PendingClaim;
use super::unreadable::{SHRINK_FACTOR, is_caused_by_data};
use crate::error::Error;
use crate::job::JobId;
use crate::store::{self, Fence, UnreadBatches};

/// The jobs of a claim.
#[derive(Default)]
pub(super) struct ReadJobs {
    pub(super) rows: Vec<Row>,
    /// Jobs that the server cannot send, with the reason.
    pub(super) unreadable: Vec<(Fence, JobId, String)>,
}

impl ReadJobs {
    /// Jobs that were all read.
    pub(super) fn complete(rows: Vec<Row>) -> Self {
        Self {
            rows,
            unreadable: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len() + self.unreadable.len()
    }
}

impl Claimer {
    /// Reads all jobs in the order of the claim. After an error the claim stays open without a
    /// worker.
    pub(super) async fn read(
        &self,
        sent: &PendingClaim<'_>,
        unread: &UnreadBatches,
    ) -> Result<ReadJobs, Error> {
        match self.read_jobs(sent, unread, None).await {
            Err(error) if is_caused_by_data(&error) => self.read_parts(sent, unread).await,
            whole => whole.map(ReadJobs::complete),
        }
    }

    async fn read_parts(
        &self,
        sent: &PendingClaim<'_>,
        unread: &UnreadBatches,
    ) -> Result<ReadJobs, Error> {
        let (worker, token) = (sent.worker.id, sent.token);
        let whole = store::claimed_ids(&self.link, worker, token, unread).await?;
        let mut jobs = ReadJobs::default();
        let mut parts: Vec<&[(Fence, JobId)]> = split_in_reverse(&whole).collect();
        while let Some(part) = parts.pop() {
            let ids: Vec<i64> = part.iter().map(|(_, id)| id.0).collect();
            match (self.read_jobs(sent, unread, Some(&ids)).await, part) {
                (Ok(rows), _) => jobs.rows.extend(rows),
                (Err(error), _) if !is_caused_by_data(&error) => return Err(error),
                (Err(error), [(fence, id)]) => {
                    jobs.unreadable.push((*fence, *id, error.to_string()));
                }
                (Err(_), part) => parts.extend(split_in_reverse(part)),
            }
        }
        Ok(jobs)
    }

    async fn read_jobs(
        &self,
        sent: &PendingClaim<'_>,
        unread: &UnreadBatches,
        ids: Option<&[i64]>,
    ) -> Result<Vec<Row>, Error> {
        store::claimed_jobs(&self.link, sent.worker.id, sent.token, unread, ids).await
    }
}

/// Splits a part into smaller ones, in reverse order.
fn split_in_reverse<T>(part: &[T]) -> impl Iterator<Item = &[T]> {
    part.chunks(part.len().div_ceil(SHRINK_FACTOR).max(1)).rev()
}

#[cfg(test)]
mod tests {
    use super::{SHRINK_FACTOR, split_in_reverse};

    #[test]
    fn reads_parts_in_claim_order_down_to_single_jobs() {
        let whole: Vec<usize> = (0..5_000).collect();
        let mut parts: Vec<&[usize]> = split_in_reverse(&whole).collect();
        assert!(parts.len() <= SHRINK_FACTOR);
        let (mut met, mut reads) = (Vec::new(), 0);
        while let Some(part) = parts.pop() {
            reads += 1;
            match part {
                [one] => met.push(*one),
                part if part.contains(&4_321) => parts.extend(split_in_reverse(part)),
                part => met.extend(part),
            }
        }
        assert_eq!(met, whole);
        assert!(reads <= 200, "{reads} reads");
    }
}
