//! Reads by ids that isolate an id which blocks the others: if rows cannot be read, are not read in
//! time, or panic, the ids are split into parts until that id is alone.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, timeout};

use super::source::{Body, Row, Source, SourceError};
use posthaste::__private::panic_text;

/// The result of reading some ids.
pub(super) struct PartialRead<T> {
    pub(super) read: Vec<T>,
    /// The ids that cannot be read.
    pub(super) unreadable: Vec<UnreadableId>,
    /// The ids for which no time was left.
    pub(super) unasked: Vec<String>,
}

/// An id that cannot be read, with the reason.
pub(super) struct UnreadableId {
    pub(super) id: String,
    pub(super) reason: String,
    /// Whether it stays unreadable until the row is changed.
    pub(super) is_for_good: bool,
}

impl UnreadableId {
    fn new(id: &str, reason: String) -> Self {
        Self {
            id: id.to_owned(),
            reason,
            is_for_good: false,
        }
    }
}

/// The time limits of a read.
#[derive(Clone, Copy)]
pub(super) struct ReadBudget {
    /// The time after which no query is started.
    until: Instant,
    /// The limit for several ids at once. Splitting into eight parts at most five times isolates
    /// one of thousands of ids.
    many: Duration,
    /// The limit for a single id.
    one: Duration,
}

impl ReadBudget {
    /// Starts a budget now.
    pub(super) fn new(time: Duration) -> Self {
        Self {
            until: Instant::now() + time,
            many: time / 8,
            one: time / 4,
        }
    }

    pub(super) fn is_over(self) -> bool {
        Instant::now() >= self.until
    }
}

/// Reads these ids, in parts if necessary. Returns an error only if no single id caused it.
pub(super) async fn bisect_read<'i, T>(
    ids: &'i [String],
    ask: impl Fn(&'i [String]) -> BoxFuture<'i, Result<Vec<T>, SourceError>> + Send + Sync,
) -> Result<PartialRead<T>, SourceError> {
    bisect_read_within(None, ids, ask).await
}

/// As [`bisect_read`], within this budget: a timeout counts as an error of one of the ids.
pub(super) async fn bisect_read_within<'i, T>(
    budget: Option<ReadBudget>,
    ids: &'i [String],
    ask: impl Fn(&'i [String]) -> BoxFuture<'i, Result<Vec<T>, SourceError>> + Send + Sync,
) -> Result<PartialRead<T>, SourceError> {
    let mut all = PartialRead {
        read: Vec::with_capacity(ids.len()),
        unreadable: Vec::new(),
        unasked: Vec::new(),
    };
    // A stack: the last part is read first.
    let mut parts = vec![ids];
    while let Some(part) = parts.pop() {
        if budget.is_some_and(ReadBudget::is_over) {
            all.unasked.extend_from_slice(part);
            continue;
        }
        let asked = catch_panic(async { ask(part).await });
        let limit = budget.map(|budget| match part {
            [_] => budget.one,
            _ => budget.many,
        });
        let answer = match limit {
            Some(limit) => timeout(limit, asked).await.map_err(|_| limit),
            None => Ok(asked.await),
        };
        match (answer, part) {
            (Ok(Ok(rows)), _) => all.read.extend(rows),
            (Ok(Err(SourceError::Down(reason))), _) => return Err(SourceError::Down(reason)),
            (Ok(Err(SourceError::Rows(reason))), [id]) => {
                all.unreadable.push(UnreadableId::new(id, reason));
            }
            (Ok(Err(SourceError::TooLarge(reason))), [id]) => {
                let reason = format!("the row {id} is too large for a document: {reason}");
                let unreadable = UnreadableId::new(id, reason);
                let is_for_good = true;
                all.unreadable.push(UnreadableId {
                    is_for_good,
                    ..unreadable
                });
            }
            (Ok(Err(SourceError::Rows(_) | SourceError::TooLarge(_))), _) => {
                parts.extend(split_ids(part, 2));
            }
            (Err(limit), [id]) => {
                let reason = format!("its row was not read within {} s", limit.as_secs_f32());
                all.unreadable.push(UnreadableId::new(id, reason));
            }
            (Err(_), _) => parts.extend(split_ids(part, 8)),
        }
    }
    Ok(all)
}

/// Returns rows in the order of these ids, to show search results. The ids come from the index and
/// the rows are read from Postgres; ids whose row is gone or hidden are omitted, so nothing stale
/// is ever shown. A row that cannot be read is omitted too.
pub async fn rows_of(source: &dyn Source, ids: &[String]) -> Result<Vec<Row>, SourceError> {
    let rows = bisect_read(ids, |part| source.rows(part)).await?.read;
    let mut rows: std::collections::HashMap<String, Row> =
        rows.into_iter().map(|row| (row.id.clone(), row)).collect();
    let found = ids.iter().filter_map(|id| rows.remove(id));
    Ok(found
        .filter(|row| matches!(row.body, Body::Document(_)))
        .collect())
}

/// Splits the ids into at most this many parts, the last part first.
fn split_ids(ids: &[String], parts: usize) -> impl Iterator<Item = &[String]> {
    ids.chunks(ids.len().div_ceil(parts).max(1)).rev()
}

/// Converts a panic of the source into an error of one of the ids, so that bisecting finds that id.
async fn catch_panic<T>(
    asked: impl Future<Output = Result<T, SourceError>>,
) -> Result<T, SourceError> {
    let answer = AssertUnwindSafe(asked).catch_unwind().await;
    answer.unwrap_or_else(|panic| {
        let reason = format!("panicked: {}", panic_text(&*panic));
        Err(SourceError::Rows(reason))
    })
}

#[cfg(test)]
mod tests {
    use super::split_ids;

    /// Returns how many reads time out until the id that is never read is isolated.
    fn late(count: usize, stuck: usize) -> u32 {
        let ids: Vec<String> = (0..count).map(|n| n.to_string()).collect();
        let mut part: &[String] = &ids;
        for late in 0.. {
            if part.len() == 1 {
                return late;
            }
            let parts = split_ids(part, 8);
            part = parts
                .into_iter()
                .find(|one| one.contains(&ids[stuck]))
                .unwrap();
        }
        unreachable!()
    }

    #[test]
    fn a_slow_row_is_isolated_within_the_budget() {
        // Each timeout costs an eighth of the time, and the last one a quarter.
        for count in [1, 2, 7, 8, 9, 250, 2_500, 20_000] {
            for stuck in [0, count / 3, count - 1] {
                assert!(late(count, stuck) <= 5, "{stuck} of {count}");
            }
        }
    }

    #[test]
    fn split_parts_cover_every_id_in_order() {
        let ids: Vec<String> = (0..10).map(|n| n.to_string()).collect();
        let parts: Vec<&[String]> = split_ids(&ids, 8).collect();
        assert_eq!(parts.len(), 5);
        assert_eq!(
            parts.into_iter().rev().flatten().collect::<Vec<_>>(),
            ids.iter().collect::<Vec<_>>()
        );
        assert_eq!(split_ids(&ids[..1], 2).count(), 1);
        assert_eq!(split_ids(&[], 2).count(), 0);
    }
}
