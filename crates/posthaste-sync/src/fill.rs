//! Fills an empty index, and continues searches past deleted rows.

use std::collections::HashSet;

use super::bisect::rows_of;
use super::index::{Index, IndexError};
use super::source::{Row, Source};

/// The most ids that are requested from an index for one search.
const MAX_SEARCH_IDS: usize = 10_000;

/// Enqueues a check of all rows if the index is empty, and creates the index if it does not exist.
/// Returns the number of jobs. A sync calls this automatically.
pub async fn fill(source: &dyn Source, index: &dyn Index) -> Result<u64, IndexError> {
    if !index.is_empty().await? {
        return Ok(0);
    }
    let jobs = source.fill().await?;
    if jobs > 0 {
        let index = index.label();
        tracing::warn!(
            index,
            jobs,
            "the index is empty; all rows are queued for indexing"
        );
    }
    // After the jobs: a process that dies between the two leaves an index that is still empty.
    index.create_if_missing(&source.fields().await?).await?;
    Ok(jobs)
}

/// Returns the rows that match a query, the best first, as they are in Postgres now. Returns as
/// many rows as requested if that many match, although rows of the best ids may be gone.
pub async fn search_rows(
    source: &dyn Source,
    index: &dyn Index,
    query: &str,
    most: usize,
) -> Result<Vec<Row>, IndexError> {
    let (mut rows, mut known) = (Vec::new(), HashSet::new());
    let mut asked = most;
    loop {
        let mut ids = index.search(query, asked).await?;
        let is_all = ids.len() < asked;
        ids.retain(|id| known.insert(id.clone()));
        rows.extend(rows_of(source, &ids).await?);
        if rows.len() >= most || is_all || asked >= MAX_SEARCH_IDS {
            rows.truncate(most);
            return Ok(rows);
        }
        asked = asked.saturating_mul(4).min(MAX_SEARCH_IDS);
    }
}
