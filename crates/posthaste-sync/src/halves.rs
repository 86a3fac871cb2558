//! Reads by ids of which one may be in the way of all others: where rows cannot be read, or that
//! panics, the halves are, until it stands alone.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::source::SourceError;
use posthaste::error::panic_text;

/// What was read of some ids.
pub(super) struct Halves<T> {
    pub(super) read: Vec<T>,
    /// Those of which nothing can be read, and why.
    pub(super) unreadable: Vec<(String, String)>,
}

/// Asks for these ids, in parts where it must be. An error is one that lies with none of them.
pub(super) async fn halves<'i, T>(
    ids: &'i [String],
    ask: impl Fn(&'i [String]) -> BoxFuture<'i, Result<Vec<T>, SourceError>> + Send + Sync,
) -> Result<Halves<T>, SourceError> {
    let mut read = Vec::with_capacity(ids.len());
    let mut unreadable = Vec::new();
    let mut parts = vec![ids];
    while let Some(part) = parts.pop() {
        match (caught(async { ask(part).await }).await, part) {
            (Ok(rows), _) => read.extend(rows),
            (Err(SourceError::Down(reason)), _) => return Err(SourceError::Down(reason)),
            (Err(SourceError::Rows(reason)), [id]) => unreadable.push((id.clone(), reason)),
            (Err(SourceError::Rows(_)), _) => {
                let (first, second) = part.split_at(part.len() / 2);
                let some = [second, first].into_iter().filter(|part| !part.is_empty());
                parts.extend(some);
            }
        }
    }
    Ok(Halves { read, unreadable })
}

/// A panic of the one that makes rows is an error that lies with one of the ids, until it is known
/// with which.
async fn caught<T>(asked: impl Future<Output = Result<T, SourceError>>) -> Result<T, SourceError> {
    let answer = AssertUnwindSafe(asked).catch_unwind().await;
    answer.unwrap_or_else(|panic| {
        let reason = format!("panicked: {}", panic_text(&*panic));
        Err(SourceError::Rows(reason))
    })
}
