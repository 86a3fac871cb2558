//! Writes in requests that the server accepts: smaller ones after it reports that a request is too
//! large or that there are too many.

use std::sync::atomic::Ordering;
use std::time::Duration;

use posthaste_elastic::{Condition, ErrorKind, Operation, Refusal};

use super::{Elastic, document};
use crate::{IndexError, Write, WriteOutcome};
use posthaste::Backoff;

/// The most retries of an overloaded server, with increasing waits.
const MAX_RETRIES: u32 = 4;
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Writes that are not done, each with its position among the answers.
type PendingWrites = Vec<(usize, Operation)>;

impl Elastic {
    pub(super) async fn write_parts(
        &self,
        writes: &[Write],
    ) -> Result<Vec<WriteOutcome>, IndexError> {
        let now = document::now_ms();
        let mut answers = Vec::with_capacity(writes.len());
        let mut waiting = PendingWrites::new();
        for write in writes {
            let answer = match self.to_operation(write, now) {
                Ok(operation) => {
                    waiting.push((answers.len(), operation));
                    retry_outcome("the write was not sent")
                }
                Err(answer) => answer,
            };
            answers.push(answer);
        }
        // A single write cannot be split, and a direct write does not wait.
        let mut tries = if writes.len() > 1 { MAX_RETRIES } else { 0 };
        let mut most = usize::MAX;
        loop {
            waiting = match self.send_writes(waiting, most, &mut answers).await? {
                BulkOutcome::All => return Ok(answers),
                BulkOutcome::TooLarge(waiting) => waiting,
                BulkOutcome::TooMany { waiting, .. } if tries == 0 => {
                    for (at, _) in waiting {
                        answers[at] = retry_outcome("the server is overloaded");
                    }
                    return Ok(answers);
                }
                BulkOutcome::TooMany { waiting, wait } => {
                    most = waiting.iter().map(|(_, one)| one.size()).sum::<usize>() / 2;
                    self.pause_before_retry(MAX_RETRIES - tries, wait).await;
                    tries -= 1;
                    waiting
                }
            };
        }
    }

    fn to_operation(&self, write: &Write, now: i64) -> Result<Operation, WriteOutcome> {
        if !document::is_id(&write.id) {
            let reason = "an id has 1 to 512 bytes".into();
            return Err(WriteOutcome::Never { reason });
        }
        let refused = |reason| WriteOutcome::Rejected { reason };
        let number = write.mark.as_number();
        let number = number.ok_or_else(|| refused("a version must be from 0 to 2^51".into()))?;
        let text = document::stored_text(write, now).map_err(refused)?;
        let operation = Operation::index(&self.write_target, &write.id, &text);
        let operation = operation.map_err(|error| refused(error.to_string()))?;
        Ok(operation.when(Condition::Newer(number)).by_alias())
    }

    /// Sends these writes in requests of at most this many bytes.
    async fn send_writes(
        &self,
        waiting: PendingWrites,
        most: usize,
        answers: &mut [WriteOutcome],
    ) -> Result<BulkOutcome, IndexError> {
        let mut again = PendingWrites::new();
        let mut rest = waiting;
        while !rest.is_empty() {
            let largest = self.shared.largest.load(Ordering::Relaxed);
            let (size, part) = take_request(&mut rest, most.min(largest));
            let (places, operations): (Vec<usize>, Vec<Operation>) = part.into_iter().unzip();
            let outcomes = match self.client().bulk(&operations).await {
                Ok(outcomes) => outcomes,
                Err(error) if error.kind() == ErrorKind::TooLarge => {
                    if let [at] = places[..] {
                        let (id, bytes) = (operations[0].id(), operations[0].size());
                        let reason = format!(
                            "the document {id} has {bytes} bytes, more than the server accepts: \
                             {error}"
                        );
                        answers[at] = WriteOutcome::Never { reason };
                        continue;
                    }
                    self.shared.largest.fetch_min(size / 2, Ordering::Relaxed);
                    again.extend(places.into_iter().zip(operations));
                    again.append(&mut rest);
                    return Ok(BulkOutcome::TooLarge(again));
                }
                Err(error) if error.kind() == ErrorKind::TooMany => {
                    again.extend(places.into_iter().zip(operations));
                    again.append(&mut rest);
                    let (waiting, wait) = (again, error.retry_after());
                    return Ok(BulkOutcome::TooMany { waiting, wait });
                }
                Err(error) => return Err(error.into()),
            };
            for ((at, operation), outcome) in places.into_iter().zip(operations).zip(outcomes) {
                match outcome.map_err(|refusal| outcome_of_refusal(operation.id(), refusal)) {
                    Ok(_) => answers[at] = WriteOutcome::Taken,
                    Err(Some(answer)) => answers[at] = answer,
                    Err(None) => again.push((at, operation)),
                }
            }
        }
        if again.is_empty() {
            return Ok(BulkOutcome::All);
        }
        let (waiting, wait) = (again, None);
        Ok(BulkOutcome::TooMany { waiting, wait })
    }

    async fn pause_before_retry(&self, tried: u32, asked: Option<Duration>) {
        let backoff = Backoff {
            base: self.shared.pause,
            cap: MAX_PAUSE,
        };
        let pause = asked.unwrap_or_else(|| backoff.after(tried, fastrand::f64()));
        if !pause.is_zero() {
            tokio::time::sleep(pause.min(MAX_PAUSE)).await;
        }
    }
}

enum BulkOutcome {
    All,
    /// The server refused a whole request as too large.
    TooLarge(PendingWrites),
    TooMany {
        waiting: PendingWrites,
        /// The pause that the server requests.
        wait: Option<Duration>,
    },
}

/// Removes the writes of the next request: as many as fit, and at least one.
fn take_request(waiting: &mut PendingWrites, most: usize) -> (usize, PendingWrites) {
    let mut size = 0;
    let mut fit = 0;
    for (_, operation) in &*waiting {
        if fit > 0 && size + operation.size() > most {
            break;
        }
        size += operation.size();
        fit += 1;
    }
    let rest = waiting.split_off(fit);
    (size, std::mem::replace(waiting, rest))
}

/// Part of the error that servers return for a word longer than Lucene can index. The error names
/// the field and not the document.
const WORD_TOO_LONG: &str = "immense term in field";

/// Returns the outcome of a write that was refused, or `None` if it is retried.
fn outcome_of_refusal(id: &str, refusal: Refusal) -> Option<WriteOutcome> {
    let Refusal { kind, reason, .. } = refusal;
    match kind {
        ErrorKind::TooMany => None,
        ErrorKind::Conflict => Some(WriteOutcome::Older),
        ErrorKind::Refused if reason.contains(WORD_TOO_LONG) => {
            let reason = format!("the document {id}: {reason}");
            Some(WriteOutcome::Never { reason })
        }
        ErrorKind::Refused | ErrorKind::Invalid | ErrorKind::TooLarge => {
            Some(WriteOutcome::Rejected { reason })
        }
        // The index or the shard has the problem, not the document.
        _ => Some(WriteOutcome::Retry { reason }),
    }
}

fn retry_outcome(reason: &str) -> WriteOutcome {
    let reason = reason.into();
    WriteOutcome::Retry { reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(sizes: &[usize]) -> PendingWrites {
        let one = |size: &usize| {
            let bare = Operation::delete("i", "1").size();
            let text = "x".repeat(size - bare - r#"{"t":""}"#.len());
            let document = serde_json::json!({ "t": text });
            Operation::index("i", "1", &document).unwrap()
        };
        sizes.iter().map(one).enumerate().collect()
    }

    #[test]
    fn requests_are_split_by_size_with_at_least_one_write() {
        for (sizes, most, cuts) in [
            (vec![200, 200, 200], usize::MAX, vec![3]),
            (vec![200, 200, 200], 400, vec![2, 1]),
            (vec![200, 200, 200], 399, vec![1, 1, 1]),
            (vec![200, 900, 200, 200], 400, vec![1, 1, 2]),
            (vec![200], 0, vec![1]),
        ] {
            let mut waiting = waiting(&sizes);
            let mut made = Vec::new();
            while !waiting.is_empty() {
                let (size, part) = take_request(&mut waiting, most);
                assert_eq!(size, part.iter().map(|(_, one)| one.size()).sum::<usize>());
                made.push(part.len());
            }
            assert_eq!(made, cuts, "{sizes:?} {most}");
        }
    }
}
