//! How a claimer ends its jobs: whole batches, or each job separately.

use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::super::ledger::{End, Handed};
use super::super::session::describe;
use super::{Batches, Claimer, Job};

impl Claimer {
    /// Closes all batches in one statement; job by job if one of them was moved while it ran, or
    /// was split by this claimer before.
    pub(super) async fn finish_whole(&self, token: Uuid, batches: &Batches) -> Result<(), String> {
        let mut open = batches.clone();
        let split = open.first_entry().filter(|_| fastrand::u32(0..8) == 0);
        let split = match split {
            Some(mut batch) => {
                let last = batch.get().len() - 1;
                let alone = batch.get_mut().split_off(last);
                self.finish(*batch.key(), token, &alone, true).await?;
                Some(*batch.key())
            }
            None => None,
        };
        let left = self.close(token, batches).await?;
        for (at, (fence, jobs)) in (1..).zip(&open) {
            if left.contains(&at) {
                self.finish(*fence, token, jobs, false).await?;
                continue;
            }
            if split == Some(*fence) {
                return Err(format!(
                    "batch {fence:?} was closed as a whole after it was split"
                ));
            }
            for job in jobs {
                self.stress.ledger.ended(job.handed, End::Done);
            }
            self.is_closed(*fence, token, jobs).await?;
            // Unlike settle, this does not release unique keys: the caller knows which jobs have
            // one.
            self.release_keys(jobs).await?;
        }
        Ok(())
    }

    /// Returns the positions, from 1, of batches that could not be closed as a whole.
    async fn close(&self, token: Uuid, batches: &Batches) -> Result<Vec<i32>, String> {
        let slots: Vec<i16> = batches.keys().map(|fence| fence.0).collect();
        let numbers: Vec<i64> = batches.keys().map(|fence| fence.1).collect();
        let tokens = vec![token; batches.len()];
        let expected: Vec<i32> = batches
            .values()
            .map(|jobs| i32::try_from(jobs.len()).unwrap_or(i32::MAX))
            .collect();
        let handed: Vec<Handed> = batches.values().flatten().map(|job| job.handed).collect();
        self.stress.ledger.closing(&handed);
        let parameters: [&(dyn ToSql + Sync); 4] = [&slots, &numbers, &tokens, &expected];
        self.client
            .query_one(&self.done, &parameters)
            .await
            .and_then(|row| row.try_get(0))
            .map_err(|error| describe("done()", &error))
    }

    /// Checks that a job whose batch was closed can no longer be changed.
    async fn is_closed(&self, fence: (i16, i64), token: Uuid, jobs: &[Job]) -> Result<(), String> {
        let Some(job) = fastrand::choice(jobs).filter(|_| fastrand::u32(0..8) == 0) else {
            return Ok(());
        };
        let ours = self
            .settle(fence, token, &[job.id], &[8], &[job.attempt])
            .await?;
        match ours.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "job {:?} was given back after its batch was closed",
                job.handed
            )),
        }
    }

    async fn release_keys(&self, jobs: &[Job]) -> Result<(), String> {
        let ids: Vec<i64> = jobs.iter().map(|job| job.id).collect();
        self.client
            .execute(
                "DELETE FROM posthaste.unique_key WHERE id = ANY ($1)",
                &[&ids],
            )
            .await
            .map(drop)
            .map_err(|error| describe("releasing keys", &error))
    }

    /// Settles the jobs of one batch, each with its own outcome, or all as done.
    pub(super) async fn finish(
        &self,
        fence: (i16, i64),
        token: Uuid,
        jobs: &[Job],
        mixed: bool,
    ) -> Result<(), String> {
        if jobs.is_empty() {
            return Ok(());
        }
        let handed: Vec<Handed> = jobs.iter().map(|job| job.handed).collect();
        self.stress.ledger.closing(&handed);
        let ids: Vec<i64> = jobs.iter().map(|job| job.id).collect();
        let ends: Vec<(i16, i32)> = jobs
            .iter()
            .map(|job| match fastrand::u32(0..10) {
                0 if mixed => (1, job.attempt + 1),
                1 if mixed => (1, job.attempt),
                2 if mixed => (8, job.attempt),
                _ => (0, job.attempt),
            })
            .collect();
        let kinds: Vec<i16> = ends.iter().map(|end| end.0).collect();
        let attempts: Vec<i32> = ends.iter().map(|end| end.1).collect();
        let ours = self.settle(fence, token, &ids, &kinds, &attempts).await?;
        for (job, (kind, attempt)) in jobs.iter().zip(ends) {
            if !ours.contains(&job.id) {
                return Err(format!(
                    "claimer {} lost job {:?} of batch {fence:?} although it lives",
                    self.number, job.handed
                ));
            }
            let end = match kind {
                0 => End::Done,
                _ => End::Again {
                    counted: attempt > job.attempt,
                },
            };
            self.stress.ledger.ended(job.handed, end);
        }
        Ok(())
    }

    pub(super) async fn settle(
        &self,
        fence: (i16, i64),
        token: Uuid,
        ids: &[i64],
        kinds: &[i16],
        attempts: &[i32],
    ) -> Result<Vec<i64>, String> {
        let waits: Vec<i64> = ids.iter().map(|_| fastrand::i64(0..400)).collect();
        let row = self
            .client
            .query_one(
                &self.settle,
                &[&fence.0, &fence.1, &token, &ids, &kinds, &attempts, &waits],
            )
            .await
            .map_err(|error| describe("settle()", &error))?;
        Ok(row.get(0))
    }
}
