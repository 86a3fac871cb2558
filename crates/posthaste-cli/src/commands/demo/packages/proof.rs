//! Deletes documents directly in the index, and proves that the index equals the table at the end.

use posthaste_sync::{Access, Audit, AuditReport, Index, Synced};
use sha2::{Digest as _, Sha256};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::connect::Address;
use crate::syncs;

/// The number of documents that are deleted after each kill.
const DELETED_PER_KILL: i64 = 25;
const PAGE_DOCUMENTS: usize = 5_000;

/// Deletes documents as if they had never been written, and records the number of kills. Returns
/// how many were deleted in all. Only an audit can detect the deletions.
pub(super) async fn remove_some(client: &Client, run: i64, kills: i32) -> anyhow::Result<u64> {
    let somewhere = char::from(fastrand::u8(b'a'..=b'z')).to_string();
    let row = client
        .query_typed_one(
            include_str!("remove.sql"),
            &[
                (&somewhere, Type::TEXT),
                (&DELETED_PER_KILL, Type::INT8),
                (&run, Type::INT8),
                (&kills, Type::INT4),
            ],
        )
        .await?;
    Ok(row.try_get::<_, i64>(0)?.unsigned_abs())
}

/// The results of the audits and of an independent count.
pub(super) struct Proof {
    pub(super) before: AuditReport,
    pub(super) after: AuditReport,
    pub(super) search: Vec<String>,
    /// The counts of Postgres and of the index, each with a digest of ids and versions.
    pub(super) postgres: (u64, String),
    pub(super) index: (u64, String),
}

impl Proof {
    pub(super) async fn compute(
        client: &Client,
        table: &Synced,
        address: &Address,
        query: &str,
    ) -> anyhow::Result<Self> {
        let sides = syncs::open_source_and_index(table, address, Access::Write)?;
        let (source, index) = (&*sides.source, &*sides.index);
        let repair = Audit {
            repair: true,
            ..Audit::default()
        };
        let before = repair.run(source, index).await?;
        let after = Audit::default().run(source, index).await?;
        let row = client
            .query_typed_one(include_str!("count.sql"), &[])
            .await?;
        let rows: i64 = row.try_get(0)?;
        Ok(Self {
            before,
            after,
            search: index.search(query, 3).await?,
            postgres: (rows.unsigned_abs(), row.try_get(1)?),
            index: count_index(index).await?,
        })
    }

    /// Returns the first problem, `None` if the proof holds; `removed` documents were deleted.
    pub(super) fn problem(&self, removed: u64) -> Option<String> {
        let AuditReport {
            missing,
            stale,
            orphaned,
            ahead,
            ..
        } = self.before;
        if stale + orphaned + ahead > 0 || missing > removed {
            return Some(format!(
                "before any repair, {missing} documents were missing where {removed} had been \
                 removed, {stale} stale, {orphaned} orphaned, {ahead} ahead"
            ));
        }
        if !self.after.is_equal() {
            return Some("the audit did not repair everything".into());
        }
        (self.postgres != self.index).then(|| {
            let ((rows, _), (documents, _)) = (&self.postgres, &self.index);
            format!(
                "the audit found no difference, but the counts differ: {rows} rows, {documents} \
                 documents"
            )
        })
    }
}

/// The number of rows or documents, and a digest of their ids and versions in the order of ids,
/// computed as in Postgres.
#[derive(Default)]
pub(super) struct CountAndDigest {
    count: u64,
    digest: Sha256,
}

impl CountAndDigest {
    pub(super) fn add(&mut self, id: &str, version: i64) {
        self.count += 1;
        self.digest.update(format!("{id} {version}\n"));
    }

    pub(super) fn finish(self) -> (u64, String) {
        let digest = self.digest.finalize();
        let digest = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        (self.count, digest)
    }
}

/// Counts all documents of the index, independently of the audit.
async fn count_index(index: &dyn Index) -> anyhow::Result<(u64, String)> {
    let mut counted = CountAndDigest::default();
    let mut after: Option<String> = None;
    loop {
        let page = index.walk(after.as_deref(), PAGE_DOCUMENTS).await?;
        let Some((last, _)) = page.last() else {
            break;
        };
        after = Some(last.clone());
        for (id, seen) in page.iter().filter(|(_, seen)| seen.is_live) {
            counted.add(id, seen.mark.version);
        }
    }
    Ok(counted.finish())
}
