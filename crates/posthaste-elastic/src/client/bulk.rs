//! Writes: one or several in one request, each with a separate outcome.

use std::collections::BTreeMap;

use reqwest::Method;
use serde::Deserialize;

use super::Client;
use super::answer::ErrorBody;
use super::operation::{Action, BULK_CALL, Effect, Operation, Refusal, Seen, Written};
use super::send::Call;
use crate::{Error, ErrorKind};

impl Client {
    /// Executes these writes in one request, and returns the outcome of each, in their order.
    ///
    /// Writes to the same document are executed in their order; others in any order. Split requests
    /// by [`Operation::size`]: a server rejects a request that is too large as a whole, without
    /// reading it.
    ///
    /// # Errors
    /// The request as a whole got no answer that contains the outcome of each write. A refused
    /// write is not an error.
    pub async fn bulk(
        &self,
        operations: &[Operation],
    ) -> Result<Vec<Result<Written, Refusal>>, Error> {
        if operations.is_empty() {
            return Ok(Vec::new());
        }
        let size = operations.iter().map(Operation::size).sum();
        let mut lines = Vec::with_capacity(size);
        for operation in operations {
            operation.check()?;
            operation.write_to(&mut lines);
        }
        let call = Call::new(BULK_CALL, Method::POST, &["_bulk"]);
        let call = call
            .with_query("timeout", self.timeout_parameter())
            .with_lines(lines);
        match_outcomes(self.send_and_parse(call).await?, operations)
    }

    /// Executes one write.
    ///
    /// # Errors
    /// The write was refused, or got no answer.
    pub async fn write(&self, operation: &Operation) -> Result<Written, Error> {
        let outcomes = self.bulk(std::slice::from_ref(operation)).await?;
        match outcomes.into_iter().next() {
            Some(Ok(written)) => Ok(written),
            Some(Err(refusal)) => {
                Err(Error::new("write", refusal.kind, refusal.reason)
                    .with_status(refusal.status, None))
            }
            None => Err(mismatch_error("as many as there were writes")),
        }
    }
}

#[derive(Deserialize)]
struct BulkResponse {
    /// Each item is a map of one entry: the action and its outcome.
    items: Vec<BTreeMap<Action, BulkItem>>,
}

#[derive(Deserialize)]
struct BulkItem {
    #[serde(rename = "_id")]
    id: String,
    status: u16,
    error: Option<ErrorBody>,
    result: Option<Effect>,
    #[serde(rename = "_version")]
    version: Option<i64>,
    #[serde(rename = "_seq_no")]
    seq_no: Option<u64>,
    #[serde(rename = "_primary_term")]
    primary_term: Option<u64>,
}

impl BulkItem {
    fn into_outcome(self) -> Option<Result<Written, Refusal>> {
        if let Some(error) = self.error {
            return Some(Err(Refusal {
                kind: ErrorKind::from_status(self.status, error.error_type()),
                status: self.status,
                reason: error.to_line(),
            }));
        }
        let seen = Seen {
            seq_no: self.seq_no?,
            primary_term: self.primary_term?,
        };
        Some(Ok(Written {
            effect: self.result?,
            version: self.version?,
            seen,
        }))
    }
}

/// Returns the outcomes. An answer that does not report every write, in their order, is rejected as
/// a whole.
fn match_outcomes(
    bulk: BulkResponse,
    operations: &[Operation],
) -> Result<Vec<Result<Written, Refusal>>, Error> {
    if bulk.items.len() != operations.len() {
        return Err(mismatch_error("as many as there were writes"));
    }
    let pairs = bulk.items.into_iter().zip(operations);
    pairs
        .map(|(mut item, asked)| {
            let item = item.remove(&asked.action);
            let item = item.filter(|item| item.id == asked.id);
            let item = item.ok_or_else(|| mismatch_error("in the order of the writes"))?;
            let outcome = item
                .into_outcome()
                .filter(|outcome| asked.accepts_outcome(outcome));
            outcome.ok_or_else(|| mismatch_error("possible results of the writes"))
        })
        .collect()
}

fn mismatch_error(what: &str) -> Error {
    let reason = format!("the answer's items are not {what}");
    Error::new(BULK_CALL, ErrorKind::Unanswered, reason)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn error_kinds(items: Value, operations: &[Operation]) -> Result<Vec<ErrorKind>, Error> {
        let bulk = serde_json::from_value(json!({"errors": true, "items": items})).unwrap();
        let outcomes = match_outcomes(bulk, operations)?;
        Ok(outcomes
            .into_iter()
            .map(|outcome| outcome.map_or_else(|refusal| refusal.kind, |_| ErrorKind::Invalid))
            .collect())
    }

    #[test]
    fn mismatched_responses_are_rejected() {
        let asked = [Operation::delete("a", "1"), Operation::delete("a", "2")];
        let gone = |id: &str| {
            json!({"delete": {"_id": id, "status": 200, "result": "deleted",
                "_version": 2, "_seq_no": 1, "_primary_term": 1}})
        };
        let conflict = json!({"delete": {"_id": "2", "status": 409,
            "error": {"type": "version_conflict_engine_exception", "reason": "r"}}});
        let right = error_kinds(json!([gone("1"), conflict.clone()]), &asked).unwrap();
        assert_eq!(right, [ErrorKind::Invalid, ErrorKind::Conflict]);
        let created = json!({"delete": {"_id": "2", "status": 201, "result": "created",
            "_version": 2, "_seq_no": 1, "_primary_term": 1}});
        let indexed = json!({"index": gone("2")["delete"]});
        let bare = json!({"delete": {"_id": "2", "status": 200, "result": "deleted"}});
        for wrong in [
            json!([gone("1")]),
            json!([gone("2"), gone("1")]),
            json!([gone("1"), created]),
            json!([gone("1"), indexed]),
            json!([gone("1"), bare]),
        ] {
            let error = error_kinds(wrong.clone(), &asked).unwrap_err();
            assert!(error.may_have_been_done(), "{wrong}");
        }
    }
}
