//! Decides about documents that seem to differ: they are checked again, left to pending jobs, or
//! repaired.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::{AuditRun, AuditSide, DifferingDocument};
use crate::audit_report::Difference;
use crate::compare::{DELETED_BY_OTHERS, Pass, SyncOutcome, SyncRequest};
use crate::index::{IndexError, Proof};

/// Time for which the audit retries documents that other clients deleted: servers refuse such
/// writes for 60 s by default.
const RETRY_REFUSED_FOR: Duration = Duration::from_secs(75);
const RETRY_REFUSED_INTERVAL: Duration = Duration::from_secs(5);

impl AuditRun<'_> {
    /// Checks these ids again, the index before Postgres, so that changes between the two reads of
    /// a page do not count. Then counts the differences, and repairs them if the audit repairs.
    pub(super) async fn recheck_and_repair(
        &mut self,
        ids: Vec<String>,
        side: AuditSide,
    ) -> Result<(), IndexError> {
        let mut different = self.find_different(&ids, side).await?;
        if !self.audit.repair {
            different = self.leave_out_pending(different, side).await?;
        }
        for one in &different {
            self.found.note_difference(&one.id, one.difference);
        }
        if !self.audit.repair || different.is_empty() {
            return Ok(());
        }
        let requests: Vec<SyncRequest> = different
            .iter()
            .map(|one| SyncRequest {
                id: one.id.clone(),
                force: one.difference == Difference::Altered,
                deleted: None,
            })
            .collect();
        self.write_and_retry(&requests).await;
        let ids: Vec<String> = requests.into_iter().map(|request| request.id).collect();
        let still = self.find_different(&ids, side).await?;
        let before: HashMap<&str, Option<i64>> = different
            .iter()
            .map(|one| (&*one.id, one.version))
            .collect();
        let is_other = |one: &&DifferingDocument| before.get(&*one.id) != Some(&one.version);
        self.found.changed += still.iter().filter(is_other).count() as u64;
        self.found.repaired += (ids.len() - still.len()) as u64;
        Ok(())
    }

    /// Returns the documents whose rows have no pending job. A job that completed between the check
    /// of a document and the check for jobs has made the document equal, so documents without a job
    /// are checked again.
    async fn leave_out_pending(
        &mut self,
        mut different: Vec<DifferingDocument>,
        side: AuditSide,
    ) -> Result<Vec<DifferingDocument>, IndexError> {
        for is_last in [false, true] {
            let mends = |one: &&DifferingDocument| match one.difference {
                Difference::Missing | Difference::Stale | Difference::Orphaned => true,
                // A job finds these versions equal, or cannot repair them.
                Difference::Altered | Difference::Ahead | Difference::Unreadable => false,
            };
            let ids: Vec<String> = different
                .iter()
                .filter(mends)
                .map(|one| one.id.clone())
                .collect();
            let pending = match ids.is_empty() {
                true => HashSet::new(),
                false => self.source.pending(&ids).await?,
            };
            self.found.pending += pending.len() as u64;
            different.retain(|one| !pending.contains(&one.id));
            if !is_last && !ids.is_empty() {
                let left: Vec<String> = different.iter().map(|one| one.id.clone()).collect();
                different = self.find_different(&left, side).await?;
            }
        }
        Ok(different)
    }

    /// Writes these, and retries for a limited time those that other clients deleted recently.
    async fn write_and_retry(&mut self, requests: &[SyncRequest]) {
        let mut left = requests.to_vec();
        loop {
            let unwritten = self.write_documents(&left).await;
            let is_refused = |reason: &String| reason == DELETED_BY_OTHERS;
            let refused = unwritten.iter().filter(|(_, reason)| is_refused(reason));
            let again: HashSet<&str> = refused.map(|(id, _)| &**id).collect();
            if again.is_empty() || self.waited >= RETRY_REFUSED_FOR {
                self.found.count_unwritten(unwritten);
                return;
            }
            left.retain(|request| again.contains(&*request.id));
            let others = unwritten.into_iter();
            self.found
                .count_unwritten(others.filter(|(_, reason)| !is_refused(reason)));
            tokio::time::sleep(RETRY_REFUSED_INTERVAL).await;
            self.waited += RETRY_REFUSED_INTERVAL;
        }
    }

    /// Returns the ids that were not written, each with the reason.
    pub(super) async fn write_documents(&self, requests: &[SyncRequest]) -> Vec<(String, String)> {
        let pass = Pass {
            source: self.source,
            index: self.index,
            proof: Proof::Stored,
            bytes: 10 << 20,
        };
        let outcomes = requests.iter().zip(pass.run(requests).await);
        let unwritten = outcomes.filter_map(|(request, outcome)| match outcome {
            SyncOutcome::Failed(reason)
            | SyncOutcome::Rejected(reason)
            | SyncOutcome::Rescheduled(reason) => Some((request.id.clone(), reason)),
            SyncOutcome::Done(_) | SyncOutcome::Written(_) => None,
        });
        unwritten.collect()
    }
}
