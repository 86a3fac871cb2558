//! Reads the jobs of a committed claim whose answer had no room for them. A job that cannot be read
//! is found by reading parts of the claim, and is ended.

use tokio_postgres::Row;

use super::claimer::Claimer;
use super::pending::PendingClaim;
use super::unreadable::{CLOSING_IN, is_of_the_data};
use crate::error::Error;
use crate::job::JobId;
use crate::store::{self, Fence, Unread};

/// The jobs of a claim.
#[derive(Default)]
pub(super) struct Jobs {
    pub(super) rows: Vec<Row>,
    /// Jobs that the server cannot send, with the reason.
    pub(super) unreadable: Vec<(Fence, JobId, String)>,
}

impl Jobs {
    /// Jobs that were all read.
    pub(super) fn of(rows: Vec<Row>) -> Self {
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
        unread: &Unread,
    ) -> Result<Jobs, Error> {
        match self.read_those(sent, unread, None).await {
            Err(error) if is_of_the_data(&error) => self.read_parts(sent, unread).await,
            whole => whole.map(Jobs::of),
        }
    }

    async fn read_parts(&self, sent: &PendingClaim<'_>, unread: &Unread) -> Result<Jobs, Error> {
        let (worker, token) = (sent.worker.id, sent.token);
        let whole = store::claimed_ids(&self.link, worker, token, unread).await?;
        let mut jobs = Jobs::default();
        let mut parts: Vec<&[(Fence, JobId)]> = pieces(&whole).collect();
        while let Some(part) = parts.pop() {
            let ids: Vec<i64> = part.iter().map(|(_, id)| id.0).collect();
            match (self.read_those(sent, unread, Some(&ids)).await, part) {
                (Ok(rows), _) => jobs.rows.extend(rows),
                (Err(error), _) if !is_of_the_data(&error) => return Err(error),
                (Err(error), [(fence, id)]) => {
                    jobs.unreadable.push((*fence, *id, error.to_string()));
                }
                (Err(_), part) => parts.extend(pieces(part)),
            }
        }
        Ok(jobs)
    }

    async fn read_those(
        &self,
        sent: &PendingClaim<'_>,
        unread: &Unread,
        ids: Option<&[i64]>,
    ) -> Result<Vec<Row>, Error> {
        store::claimed_jobs(&self.link, sent.worker.id, sent.token, unread, ids).await
    }
}

/// Splits a part into smaller ones, in reverse order.
fn pieces<T>(part: &[T]) -> impl Iterator<Item = &[T]> {
    part.chunks(part.len().div_ceil(CLOSING_IN).max(1)).rev()
}

#[cfg(test)]
mod tests {
    use super::{CLOSING_IN, pieces};

    #[test]
    fn reads_parts_in_claim_order_down_to_single_jobs() {
        let whole: Vec<usize> = (0..5_000).collect();
        let mut parts: Vec<&[usize]> = pieces(&whole).collect();
        assert!(parts.len() <= CLOSING_IN);
        let (mut met, mut reads) = (Vec::new(), 0);
        while let Some(part) = parts.pop() {
            reads += 1;
            match part {
                [one] => met.push(*one),
                part if part.contains(&4_321) => parts.extend(pieces(part)),
                part => met.extend(part),
            }
        }
        assert_eq!(met, whole);
        assert!(reads <= 200, "{reads} reads");
    }
}
