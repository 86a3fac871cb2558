//! Sends requests: one client request for each step.

use serde::de::DeserializeOwned;

use super::document::{Document, Fence, Obstacle};
use super::execution::Reason;
use super::failure::Failure;
use super::request::{Request, Response};
use super::state::State;
use super::stored::{Record, TIMES_PIPELINE, script_call, touch_call};
use super::transaction::{MAX_AMOUNT, Transaction};
use crate::{Client, Effect as Done, Error, ErrorKind, Operation, Refusal, Script, Source};

/// The most retries on the server of an update that conflicts with other writes.
const MAX_UPDATE_RETRIES: u32 = 16;

/// The client and the names of the two indexes.
#[derive(Clone, Debug)]
pub(super) struct Store {
    pub(super) client: Client,
    pub(super) documents: String,
    pub(super) transactions: String,
}

/// The answers to a step's requests, and an error, if there was one.
pub(super) type Responses = (Vec<Response>, Option<Error>);

impl Store {
    /// Sends all requests of a step at once.
    pub(super) async fn send_requests(
        &self,
        transaction: &Transaction,
        requests: &[Request],
        reason: Option<Reason>,
    ) -> Responses {
        let asked = match requests.first() {
            Some(Request::Read) => self
                .read_state(transaction)
                .await
                .map(|state| (vec![state], None)),
            Some(Request::ReadMark(_)) => self.read_marks(transaction).await,
            _ => self.write_requests(transaction, requests, reason).await,
        };
        asked.unwrap_or_else(|error| (vec![Response::Ambiguous; requests.len()], Some(error)))
    }

    async fn read_state(&self, transaction: &Transaction) -> Result<Response, Error> {
        let record = self.read_record(transaction.id().as_str()).await?;
        Ok(match record {
            Some(record) if !transaction.has_effects(&record.effects) => Response::Different,
            record => Response::State(record.map(|record| record.transaction_state)),
        })
    }

    /// Reads these transactions, in their order.
    pub(super) async fn read_records(&self, ids: &[&str]) -> Result<Vec<Option<Record>>, Error> {
        let found = self
            .read_raw(&self.transactions, ids, Source::Whole)
            .await?;
        found.into_iter().map(parse_found).collect()
    }

    /// Reads a transaction's document.
    pub(super) async fn read_record(&self, id: &str) -> Result<Option<Record>, Error> {
        let found = self.client.get(&self.transactions, id).await?;
        found.map(|document| document.read()).transpose()
    }

    async fn read_marks(&self, transaction: &Transaction) -> Result<Responses, Error> {
        let ids: Vec<&str> = document_names(transaction).collect();
        let mut error = None;
        let mut answers = Vec::with_capacity(ids.len());
        for found in self.read_documents(&ids).await? {
            answers.push(match found {
                Ok(Some(document)) => Response::Mark(document.fence(transaction.id())),
                Ok(None) => Response::Missing,
                Err(refused) => {
                    error = Some(refused);
                    Response::Ambiguous
                }
            });
        }
        Ok((answers, error))
    }

    /// Reads these documents, each with a separate result.
    pub(super) async fn read_documents(
        &self,
        ids: &[&str],
    ) -> Result<Vec<Result<Option<Document>, Error>>, Error> {
        let found = self.read_raw(&self.documents, ids, Source::Whole).await?;
        Ok(found.into_iter().map(parse_found).collect())
    }

    async fn write_requests(
        &self,
        transaction: &Transaction,
        requests: &[Request],
        reason: Option<Reason>,
    ) -> Result<Responses, Error> {
        let operations: Result<Vec<_>, Error> = requests
            .iter()
            .map(|request| self.to_operation(transaction, *request, reason))
            .collect();
        let mut error = None;
        let mut answers = Vec::with_capacity(requests.len());
        for outcome in self.client.bulk(&operations?).await? {
            answers.push(match outcome {
                Ok(done) if done.effect == Done::Noop => Response::Elsewhere,
                // The index may have been deleted, and this write may have created it again: then
                // no document holds the transaction.
                Ok(done) if done.effect == Done::Created && done.seen.is_first() => {
                    match self.check().await {
                        Err(Failure::Misconfigured(why)) => {
                            error = Some(Error::new("create", ErrorKind::NoIndex, why));
                            Response::Ambiguous
                        }
                        _ => Response::Acknowledged,
                    }
                }
                Ok(_) => Response::Acknowledged,
                Err(refusal) if refusal.kind == ErrorKind::Missing => Response::Missing,
                // The name is taken, or other clients wrote the document at each retry.
                Err(refusal) if refusal.kind == ErrorKind::Conflict => Response::Elsewhere,
                Err(refusal) => {
                    error = Some(Error::new("bulk", refusal.kind, refusal.reason));
                    Response::Ambiguous
                }
            });
        }
        if requests
            .iter()
            .any(|request| matches!(request, Request::Hold(..)))
        {
            self.explain_rejections(transaction, requests, &mut answers)
                .await;
        }
        Ok((answers, error))
    }

    fn to_operation(
        &self,
        transaction: &Transaction,
        request: Request,
        reason: Option<Reason>,
    ) -> Result<Operation, Error> {
        let id = transaction.id().as_str();
        // Never zero, which means no mark.
        let mark = Fence(fastrand::u64(1..MAX_AMOUNT as u64));
        let Some(call) = script_call(transaction, request, reason, mark) else {
            let record = Record::new(transaction, State::Pending);
            let create = Operation::create(&self.transactions, id, &record)?;
            return Ok(create.through(TIMES_PIPELINE.0));
        };
        let (index, id) = match request {
            Request::Hold(at, _) | Request::Settle(at) | Request::Undo(at) => (
                &self.documents,
                document_names(transaction).nth(at).unwrap_or(id),
            ),
            _ => (&self.transactions, id),
        };
        let script = Script {
            id: call.script,
            params: call.params,
        };
        Ok(Operation::update(index, id, &script)?.retried(MAX_UPDATE_RETRIES))
    }

    /// Counts an attempt at a transaction and postpones the next one, if it is in this state, even
    /// if it breaks a rule. If that fails, the next pass finds it again.
    pub(super) async fn postpone(&self, id: &str, state: State) {
        let call = touch_call(state, true);
        let script = Script {
            id: call.script,
            params: call.params,
        };
        if let Ok(operation) = Operation::update(&self.transactions, id, &script) {
            let _ = self
                .client
                .write(&operation.retried(MAX_UPDATE_RETRIES))
                .await;
        }
    }

    /// Determines from the documents, by the same rules, why a script wrote nothing. The result is
    /// a hint.
    async fn explain_rejections(
        &self,
        transaction: &Transaction,
        requests: &[Request],
        answers: &mut [Response],
    ) {
        if !answers.contains(&Response::Elsewhere) {
            return;
        }
        let ids: Vec<&str> = document_names(transaction).collect();
        let found = self.read_documents(&ids).await.unwrap_or_default();
        for (answer, request) in answers.iter_mut().zip(requests) {
            let Request::Hold(at, mark) = request else {
                continue;
            };
            if *answer != Response::Elsewhere {
                continue;
            }
            let effect = transaction.effects().get(*at);
            let document = found.get(*at).and_then(|found| found.as_ref().ok());
            if let (Some(effect), Some(Some(document))) = (effect, document) {
                let held = document.clone().hold(transaction.id(), effect, *mark);
                *answer = Response::Rejected(held.err().unwrap_or(Obstacle::Fenced));
            }
        }
    }
}

fn document_names(transaction: &Transaction) -> impl Iterator<Item = &str> {
    transaction
        .effects()
        .iter()
        .map(|effect| effect.document.as_str())
}

fn parse_found<T: DeserializeOwned>(
    found: Result<Option<crate::Document>, Refusal>,
) -> Result<Option<T>, Error> {
    let found = found.map_err(|refusal| refusal.into_error("get"))?;
    found.map(|document| document.read()).transpose()
}
