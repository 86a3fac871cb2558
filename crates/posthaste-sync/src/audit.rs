//! The audit walks the rows and the documents, each in their own order, and compares each page with
//! the other side. Only one page is in memory at a time.

mod judge;

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use super::audit_report::{AuditReport, Difference, MAX_NAMED_DIFFERENCES};
use super::bisect::{PartialRead, bisect_read};
use super::compare::{MAKE_BATCH, SyncRequest};
use super::decide::{IndexedVersion, RowState, SyncStep, decide};
use super::index::{Index, IndexError, Proof};
use super::source::{Body, Row, RowVersion, Source};

/// The options of an audit. An audit without repair counts documents whose rows have a pending job
/// separately; they do not count as different.
///
/// ```no_run
/// # async fn example(pool: deadpool_postgres::Pool) -> Result<(), Box<dyn std::error::Error>> {
/// use posthaste_sync::{Audit, Postgres, Table};
///
/// let (source, index) = (Table::new(pool.clone(), "page"), Postgres::new(pool, "page"));
/// let audit = Audit { rate: Some(10_000), contents: true, ..Audit::default() };
/// let found = audit.run(&source, &index).await?;
/// assert!(found.is_equal(), "{found:?}");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Audit {
    /// The number of rows or documents per page.
    pub page: usize,
    /// The most rows or documents that are checked in a second; `None` for no limit.
    pub rate: Option<u32>,
    /// Whether documents that differ are written or deleted.
    pub repair: bool,
    /// Whether documents of the row's version are made again and compared with the contents of the
    /// index.
    pub contents: bool,
}

impl Default for Audit {
    /// Pages of 2,500 without a rate limit, and no repair.
    fn default() -> Self {
        Self {
            page: 2_500,
            rate: None,
            repair: false,
            contents: false,
        }
    }
}

impl Audit {
    /// Compares both sides, and returns the differences.
    pub async fn run(
        self,
        source: &dyn Source,
        index: &dyn Index,
    ) -> Result<AuditReport, IndexError> {
        let mut walk = AuditRun {
            audit: self,
            source,
            index,
            found: AuditReport::default(),
            started: Instant::now(),
            looked_at: 0,
            waited: Duration::ZERO,
        };
        if self.contents || self.repair {
            source.check().await?;
        }
        // Before the rows: a document that another client wrote in the place of a row's document
        // may have the row's version.
        walk.audit_unmanaged().await?;
        walk.audit_rows().await?;
        walk.audit_documents().await?;
        Ok(walk.found)
    }
}

/// A document that differs from its row.
struct DifferingDocument {
    id: String,
    /// The version of the row, if it exists.
    version: Option<i64>,
    difference: Difference,
}

/// The side that a walk reads pages of.
#[derive(Clone, Copy, PartialEq)]
enum AuditSide {
    Rows,
    Documents,
}

struct AuditRun<'a> {
    audit: Audit,
    source: &'a dyn Source,
    index: &'a dyn Index,
    found: AuditReport,
    started: Instant,
    looked_at: u64,
    /// The time spent waiting for documents that the index refuses temporarily.
    waited: Duration,
}

impl AuditRun<'_> {
    /// Counts documents that no sync wrote. With repair, those of existing rows are overwritten and
    /// the others are deleted.
    async fn audit_unmanaged(&mut self) -> Result<(), IndexError> {
        let (all, mut some) = self.index.unmanaged(self.audit.page).await?;
        self.found.orphaned += all;
        let left_to_name = MAX_NAMED_DIFFERENCES.saturating_sub(self.found.named.len());
        let named = some.iter().take(left_to_name);
        let named = named.map(|id| (id.clone(), Difference::Orphaned));
        self.found.named.extend(named);
        let mut left = all;
        while self.audit.repair && !some.is_empty() {
            self.replace_unmanaged(&some).await?;
            self.limit_rate(some.len()).await;
            let (now, next) = self.index.unmanaged(self.audit.page).await?;
            if now >= left {
                break;
            }
            (left, some) = (now, next);
        }
        self.found.repaired += all - left;
        Ok(())
    }

    async fn replace_unmanaged(&mut self, unmanaged: &[String]) -> Result<(), IndexError> {
        let PartialRead {
            read, unreadable, ..
        } = bisect_read(unmanaged, |part| self.source.versions(part)).await?;
        let force = |row: &RowVersion| SyncRequest {
            id: row.id.clone(),
            force: true,
            deleted: None,
        };
        let requests: Vec<SyncRequest> = read.iter().map(force).collect();
        let unwritten = self.write_documents(&requests).await;
        self.found.count_unwritten(unwritten);
        let rows = read.iter().map(|row| &*row.id);
        let managed: HashSet<&str> = rows.chain(unreadable.iter().map(|one| &*one.id)).collect();
        let others = unmanaged.iter().filter(|id| !managed.contains(&***id));
        let others: Vec<String> = others.cloned().collect();
        self.index.remove_unmanaged(&others).await
    }

    /// Compares every row with its document. A page that is not full is the last one: reading on
    /// would continue for as long as other clients insert rows, and those rows have jobs of their
    /// own.
    async fn audit_rows(&mut self) -> Result<(), IndexError> {
        let mut after = None;
        loop {
            let page = self.source.walk(after.as_deref(), self.audit.page).await;
            let page = page?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            let last = last.id.clone();
            self.found.rows += page.iter().filter(|row| row.is_live).count() as u64;
            let ids: Vec<String> = page.iter().map(|row| row.id.clone()).collect();
            let seen = self.index.read(&ids, Proof::Stored).await?;
            let pairs = ids.iter().zip(page.iter().map(Some).zip(seen.clone()));
            let mut ids = find_differing_ids(pairs);
            let equal = page.iter().zip(seen).filter(|(row, _)| row.is_live);
            let equal = equal.filter(|(row, seen)| find_difference(Some(*row), *seen).is_none());
            let equal: Vec<&RowVersion> = equal.map(|(row, _)| row).collect();
            ids.extend(self.find_altered(&equal).await?);
            self.recheck_and_repair(ids, AuditSide::Rows).await?;
            self.limit_rate(page.len()).await;
            if page.len() < self.audit.page {
                return Ok(());
            }
            after = Some(last);
        }
    }

    /// Finds every document without a row; all others were compared with their rows.
    async fn audit_documents(&mut self) -> Result<(), IndexError> {
        let mut after = None;
        loop {
            let page = self.index.walk(after.as_deref(), self.audit.page).await?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            let last = last.clone();
            let live: Vec<String> = page
                .iter()
                .filter(|(_, seen)| seen.is_live)
                .map(|(id, _)| id.clone())
                .collect();
            self.found.documents += live.len() as u64;
            let rows = bisect_read(&live, |part| self.source.versions(part))
                .await?
                .read;
            let there: HashSet<&str> = rows.iter().map(|row| &*row.id).collect();
            let orphans = live.iter().filter(|id| !there.contains(&***id));
            self.recheck_and_repair(orphans.cloned().collect(), AuditSide::Documents)
                .await?;
            self.limit_rate(page.len()).await;
            if page.len() < self.audit.page {
                return Ok(());
            }
            after = Some(last);
        }
    }

    /// Returns the ids of these rows whose documents the index does not hold exactly, although it
    /// has their versions.
    async fn find_altered(&self, rows: &[&RowVersion]) -> Result<Vec<String>, IndexError> {
        let mut altered = Vec::new();
        if !self.audit.contents {
            return Ok(altered);
        }
        let versions = rows.iter().map(|row| (&*row.id, row.version));
        let versions: HashMap<&str, i64> = versions.collect();
        let ids: Vec<String> = rows.iter().map(|row| row.id.clone()).collect();
        for ids in ids.chunks(MAKE_BATCH) {
            let rows = bisect_read(ids, |part| self.source.rows(part)).await?.read;
            // A row that has changed has a job, and a document that cannot be made does not count
            // as altered.
            let same = rows
                .into_iter()
                .filter(|row| versions.get(&*row.id) == Some(&row.version));
            let documents = same.filter_map(|Row { id, body, .. }| match body {
                Body::Document(text) => Some((id, text)),
                Body::Hidden | Body::Unmade(_) => None,
            });
            let documents: Vec<(String, String)> = documents.collect();
            let held = self.index.match_documents(&documents).await?;
            let others = documents.into_iter().zip(held).filter(|(_, held)| !held);
            altered.extend(others.map(|((id, _), _)| id));
        }
        Ok(altered)
    }

    async fn find_different(
        &self,
        ids: &[String],
        side: AuditSide,
    ) -> Result<Vec<DifferingDocument>, IndexError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let seen = self.index.read(ids, Proof::Stored).await?;
        let PartialRead {
            read, unreadable, ..
        } = bisect_read(ids, |part| self.source.versions(part)).await?;
        let rows: HashMap<&str, &RowVersion> = read.iter().map(|row| (&*row.id, row)).collect();
        let unreadable: HashSet<&str> = unreadable.iter().map(|one| &*one.id).collect();
        let equal = ids.iter().zip(&seen).filter_map(|(id, seen)| {
            let row = rows.get(&**id).copied().filter(|row| row.is_live);
            row.filter(|row| find_difference(Some(*row), *seen).is_none())
        });
        let equal: Vec<&RowVersion> = equal.collect();
        let altered: HashSet<String> = self.find_altered(&equal).await?.into_iter().collect();
        let all = ids.iter().zip(seen);
        let different = all.filter_map(|(id, seen)| {
            let row = rows.get(&**id).copied();
            let difference = match unreadable.contains(&**id) {
                false if altered.contains(id) => Difference::Altered,
                false => find_difference(row, seen)?,
                true => {
                    // A row with a document is found again among the documents; it counts once.
                    let is_live = seen.is_some_and(|seen| seen.is_live);
                    (is_live == (side == AuditSide::Documents)).then_some(Difference::Unreadable)?
                }
            };
            Some(DifferingDocument {
                id: id.clone(),
                version: row.map(|row| row.version),
                difference,
            })
        });
        Ok(different.collect())
    }

    /// Waits as long as the rate limit requires.
    async fn limit_rate(&mut self, looked_at: usize) {
        self.looked_at += looked_at as u64;
        if let Some(rate) = self.audit.rate {
            let due = Duration::from_secs_f64(self.looked_at as f64 / f64::from(rate.max(1)));
            tokio::time::sleep(due.saturating_sub(self.started.elapsed())).await;
        }
    }
}

/// Returns the ids of the pairs that differ in a first check.
fn find_differing_ids<'a>(
    pairs: impl Iterator<Item = (&'a String, (Option<&'a RowVersion>, Option<IndexedVersion>))>,
) -> Vec<String> {
    let different = pairs.filter(|(_, (row, seen))| find_difference(*row, *seen).is_some());
    different.map(|(id, _)| id.clone()).collect()
}

fn find_difference(row: Option<&RowVersion>, seen: Option<IndexedVersion>) -> Option<Difference> {
    let row_state = match row {
        Some(row) if row.is_live => RowState::Live {
            version: row.version,
        },
        // Without a visible row, only a document that searches find is a difference.
        _ => {
            let is_found = seen.is_some_and(|seen| seen.is_live);
            return is_found.then_some(Difference::Orphaned);
        }
    };
    match decide(row_state, seen, false) {
        SyncStep::Done(_) => None,
        // It was counted among the documents that no sync wrote.
        _ if seen.is_some_and(|seen| seen.is_foreign) => None,
        SyncStep::Ahead(_) => Some(Difference::Ahead),
        SyncStep::Write(mark, _) if mark.pass > 0 && seen.is_some_and(|seen| seen.is_altered) => {
            Some(Difference::Altered)
        }
        _ if seen.is_some_and(|seen| seen.is_live) => Some(Difference::Stale),
        _ => Some(Difference::Missing),
    }
}
