//! Audit: the rows and the documents are walked, each in their own order, and each page is held against the other side. What is in memory is a page.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use super::decide::{Seen, Step, Truth, decide};
use super::halves::{Halves, halves};
use super::index::{Index, Proof, Trouble};
use super::pass::{Pass, Wish};
use super::source::{RowVersion, Source};

/// So many differences are named, beside being counted.
const NAMED: usize = 100;

/// How a document differs from its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Difference {
    /// The index does not have it.
    Missing,
    /// The index has an older version.
    Stale,
    /// The index has it, and there is no such row, or it must not be found.
    Orphaned,
    /// The index has a version that Postgres does not know.
    Ahead,
    /// Nothing can be read of its row: the statement for it fails with this id.
    Unreadable,
}

/// What an audit found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Audited {
    /// Rows that may be found.
    pub rows: u64,
    /// Documents in the index, without what deletions left.
    pub documents: u64,
    /// Documents that the index lacks.
    pub missing: u64,
    /// Documents of an older version.
    pub stale: u64,
    /// Documents without a row, and such that no sync wrote.
    pub orphaned: u64,
    /// Documents of a version that Postgres does not know.
    pub ahead: u64,
    /// Ids with which nothing can be read of a row: whether it differs is not known, and nothing is repaired.
    pub unreadable: u64,
    /// How many of all these were seen to be true after they were written or deleted.
    pub repaired: u64,
    /// How many differed again after that, because their rows had changed meanwhile: they have jobs of their own.
    pub changed: u64,
    /// The first hundred of them.
    pub named: Vec<(String, Difference)>,
}

impl Audited {
    /// Whether both sides were equal, by id and version.
    pub fn is_equal(&self) -> bool {
        self.differences() == 0
    }

    /// How many documents differed.
    pub fn differences(&self) -> u64 {
        self.missing + self.stale + self.orphaned + self.ahead + self.unreadable
    }

    /// How many of them could not be repaired.
    pub fn unrepaired(&self) -> u64 {
        self.differences() - self.repaired - self.changed
    }

    fn note(&mut self, id: &str, difference: Difference) {
        *match difference {
            Difference::Missing => &mut self.missing,
            Difference::Stale => &mut self.stale,
            Difference::Orphaned => &mut self.orphaned,
            Difference::Ahead => &mut self.ahead,
            Difference::Unreadable => &mut self.unreadable,
        } += 1;
        if self.named.len() < NAMED {
            self.named.push((id.to_owned(), difference));
        }
    }
}

/// How an audit goes about it. Rows that change meanwhile may be found to differ, because their jobs are not due yet.
///
/// ```no_run
/// # async fn example(pool: deadpool_postgres::Pool) -> Result<(), Box<dyn std::error::Error>> {
/// use posthaste::sync::{Audit, Postgres, Table};
///
/// let (source, index) = (Table::new(pool.clone(), "page"), Postgres::new(pool, "page"));
/// let found = Audit { page: 2_500, rate: Some(10_000), repair: false }.run(&source, &index).await?;
/// assert!(found.is_equal(), "{found:?}");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Audit {
    /// So many are asked for at once.
    pub page: usize,
    /// So many are looked at in a second, at most, on either side.
    pub rate: Option<u32>,
    /// Whether what differs is written or deleted.
    pub repair: bool,
}

impl Default for Audit {
    /// Pages of 2,500 as fast as it goes, and nothing is changed.
    fn default() -> Self {
        Self {
            page: 2_500,
            rate: None,
            repair: false,
        }
    }
}

impl Audit {
    /// Walks both sides.
    pub async fn run(self, source: &dyn Source, index: &dyn Index) -> Result<Audited, Trouble> {
        let mut walk = Walk {
            audit: self,
            source,
            index,
            found: Audited::default(),
            started: Instant::now(),
            looked_at: 0,
        };
        // Before the rows: what somebody else wrote in the place of a row's document may have its version.
        walk.strangers().await?;
        walk.rows().await?;
        walk.documents().await?;
        Ok(walk.found)
    }
}

/// A document that differs from its row.
struct Different {
    id: String,
    /// That of the row, if there is one.
    version: Option<i64>,
    difference: Difference,
}

/// Of which side the pages are.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Rows,
    Documents,
}

struct Walk<'a> {
    audit: Audit,
    source: &'a dyn Source,
    index: &'a dyn Index,
    found: Audited,
    started: Instant,
    looked_at: u64,
}

impl Walk<'_> {
    /// Documents that no sync wrote. With repair, those in the place of a row's are written over, and the others deleted.
    async fn strangers(&mut self) -> Result<(), Trouble> {
        let (all, mut some) = self.index.strangers(self.audit.page).await?;
        self.found.orphaned += all;
        let left_to_name = NAMED.saturating_sub(self.found.named.len());
        let named = some.iter().take(left_to_name);
        let named = named.map(|id| (id.clone(), Difference::Orphaned));
        self.found.named.extend(named);
        let mut left = all;
        while self.audit.repair && !some.is_empty() {
            self.replace(&some).await?;
            self.pace(some.len()).await;
            let (now, next) = self.index.strangers(self.audit.page).await?;
            if now >= left {
                break;
            }
            (left, some) = (now, next);
        }
        self.found.repaired += all - left;
        Ok(())
    }

    async fn replace(&self, strangers: &[String]) -> Result<(), Trouble> {
        let Halves { read, unreadable } =
            halves(strangers, |part| self.source.versions(part)).await?;
        let force = |row: &RowVersion| Wish {
            id: row.id.clone(),
            force: true,
            deleted: None,
        };
        let wishes: Vec<Wish> = read.iter().map(force).collect();
        self.pass().run(&wishes).await;
        let rows = read.iter().map(|row| &*row.id);
        let kept: HashSet<&str> = rows.chain(unreadable.iter().map(|(id, _)| &**id)).collect();
        let others = strangers.iter().filter(|id| !kept.contains(&***id));
        let others: Vec<String> = others.cloned().collect();
        self.index.remove_strangers(&others).await
    }

    /// Every row against its document.
    async fn rows(&mut self) -> Result<(), Trouble> {
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
            let pairs = ids.iter().zip(page.iter().map(Some).zip(seen));
            self.judge(suspicious(pairs), Side::Rows).await?;
            self.pace(page.len()).await;
            after = Some(last);
        }
    }

    /// Every document that has no row; the others were held against theirs.
    async fn documents(&mut self) -> Result<(), Trouble> {
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
            let rows = halves(&live, |part| self.source.versions(part)).await?.read;
            let there: HashSet<&str> = rows.iter().map(|row| &*row.id).collect();
            let orphans = live.iter().filter(|id| !there.contains(&***id));
            self.judge(orphans.cloned().collect(), Side::Documents)
                .await?;
            self.pace(page.len()).await;
            after = Some(last);
        }
    }

    /// Looks at them once more, the index before Postgres, so that nothing that changed between the two looks of a page counts.
    async fn judge(&mut self, ids: Vec<String>, side: Side) -> Result<(), Trouble> {
        let different = self.different(&ids, side).await?;
        for one in &different {
            self.found.note(&one.id, one.difference);
        }
        if !self.audit.repair || different.is_empty() {
            return Ok(());
        }
        let wishes: Vec<Wish> = different
            .iter()
            .map(|one| Wish {
                id: one.id.clone(),
                ..Wish::default()
            })
            .collect();
        self.pass().run(&wishes).await;
        let ids: Vec<String> = wishes.into_iter().map(|wish| wish.id).collect();
        let still = self.different(&ids, side).await?;
        let before: HashMap<&str, Option<i64>> = different
            .iter()
            .map(|one| (&*one.id, one.version))
            .collect();
        let is_other = |one: &&Different| before.get(&*one.id) != Some(&one.version);
        self.found.changed += still.iter().filter(is_other).count() as u64;
        self.found.repaired += (ids.len() - still.len()) as u64;
        Ok(())
    }

    fn pass(&self) -> Pass<'_> {
        Pass {
            source: self.source,
            index: self.index,
            proof: Proof::Stored,
            bytes: 10 << 20,
        }
    }

    async fn different(&self, ids: &[String], side: Side) -> Result<Vec<Different>, Trouble> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let seen = self.index.read(ids, Proof::Stored).await?;
        let Halves { read, unreadable } = halves(ids, |part| self.source.versions(part)).await?;
        let rows: HashMap<&str, &RowVersion> = read.iter().map(|row| (&*row.id, row)).collect();
        let unreadable: HashSet<&str> = unreadable.iter().map(|(id, _)| &**id).collect();
        let all = ids.iter().zip(seen);
        let different = all.filter_map(|(id, seen)| {
            let row = rows.get(&**id).copied();
            let difference = match unreadable.contains(&**id) {
                false => difference(row, seen)?,
                true => {
                    // One that has a document comes again with the documents; it counts once.
                    let is_live = seen.is_some_and(|seen| seen.is_live);
                    (is_live == (side == Side::Documents)).then_some(Difference::Unreadable)?
                }
            };
            Some(Different {
                id: id.clone(),
                version: row.map(|row| row.version),
                difference,
            })
        });
        Ok(different.collect())
    }

    /// Waits as long as the rate asks for.
    async fn pace(&mut self, looked_at: usize) {
        self.looked_at += looked_at as u64;
        if let Some(rate) = self.audit.rate {
            let due = Duration::from_secs_f64(self.looked_at as f64 / f64::from(rate.max(1)));
            tokio::time::sleep(due.saturating_sub(self.started.elapsed())).await;
        }
    }
}

/// Those that differ at a first look.
fn suspicious<'a>(
    pairs: impl Iterator<Item = (&'a String, (Option<&'a RowVersion>, Option<Seen>))>,
) -> Vec<String> {
    let different = pairs.filter(|(_, (row, seen))| difference(*row, *seen).is_some());
    different.map(|(id, _)| id.clone()).collect()
}

fn difference(row: Option<&RowVersion>, seen: Option<Seen>) -> Option<Difference> {
    let truth = match row {
        Some(row) if row.is_live => Truth::Live {
            version: row.version,
        },
        // What a hidden row, or none, leaves in the index is nothing that anybody finds.
        _ => {
            let is_found = seen.is_some_and(|seen| seen.is_live);
            return is_found.then_some(Difference::Orphaned);
        }
    };
    match decide(truth, seen, false) {
        Step::Done(_) => None,
        Step::Ahead(_) => Some(Difference::Ahead),
        _ if seen.is_some_and(|seen| seen.is_live) => Some(Difference::Stale),
        _ => Some(Difference::Missing),
    }
}
