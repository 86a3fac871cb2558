//! Runs transactions: makes the calls of each step, waits, and leaves the rest to recovery.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::document::Document;
use super::execution::{Execution, Progress, Reason};
use super::failure::{Failure, result_of_end};
use super::request::{Request, Response};
use super::state::State;
use super::step::Step;
use super::store::Store;
use super::stored::{Record, TIMES_PIPELINE};
use super::transaction::{Effect, MAX_AMOUNT, Refusal, Transaction, TransactionId};
use crate::{Client, Error, ErrorKind, Operation};

/// Attempts of a call before it leaves a transaction to recovery: with the waits some seconds.
const MAX_ATTEMPTS: u32 = 10;
/// Attempts of recovery while it cannot write: a later pass retries, and other transactions wait.
const RECOVERY_ATTEMPTS: u32 = 3;
/// Attempts that may find documents set by others before a call abandons its transaction.
const MAX_BUSY_ATTEMPTS: u8 = 6;
/// The event for which a caller waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitFor {
    Settled,
    Ended,
}

/// The outcome of a creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CreateOutcome {
    /// It was the first write of its shard: the index may be new.
    First,
    Now,
    /// It existed before.
    Before,
}

const MIN_RETRY_WAIT: Duration = Duration::from_millis(5);
const MAX_RETRY_WAIT: Duration = Duration::from_secs(1);

/// Runs transactions on the documents of one index, and records them in another index.
///
/// Several coordinators, in any number of processes, may work on the same indexes and transaction.
///
/// ```no_run
/// use posthaste_elastic::Client;
/// use posthaste_elastic::two_phase::{Coordinator, Failure, Transaction};
///
/// # async fn example() -> Result<(), Failure> {
/// let client = Client::new(reqwest::Client::builder(), "http://localhost:9200")
///     .map_err(Failure::Unavailable)?;
/// let coordinator = Coordinator::new(client, "accounts", "transactions");
/// coordinator.prepare(1).await?;
/// coordinator.open("alice", 1000).await?;
/// coordinator.open("bob", 0).await?;
/// let rent = Transaction::transfer("rent-2026-12", "alice", "bob", 900)?;
/// match coordinator.run(&rent).await {
///     Ok(()) => println!("paid"),
///     Err(failure) => println!("{failure}"),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Coordinator {
    pub(super) store: Store,
    pub(super) checked_at: parking_lot::Mutex<Option<Instant>>,
}

impl Coordinator {
    /// Creates a coordinator on these two indexes.
    pub fn new(client: Client, documents: &str, transactions: &str) -> Self {
        let store = Store {
            client,
            documents: documents.to_owned(),
            transactions: transactions.to_owned(),
        };
        Self {
            store,
            checked_at: parking_lot::Mutex::default(),
        }
    }

    /// Returns its client.
    pub fn client(&self) -> &Client {
        &self.store.client
    }

    /// Creates a document with this balance. Returns whether it was created; an existing document
    /// stays unchanged.
    ///
    /// # Errors
    /// Also if its name or balance breaks a rule. After [`Failure::Unopened`] call it again.
    pub async fn open(&self, document: &str, balance: i64) -> Result<bool, Failure> {
        if !(0..=MAX_AMOUNT).contains(&balance) {
            return Err(Refusal::Amount(balance).into());
        }
        Effect::add(document, 1).check()?;
        self.check().await?;
        let new = Document {
            balance,
            opened: Some(balance),
            ..Document::default()
        };
        let create = Operation::create(&self.store.documents, document, &new);
        let unopened = |error| Failure::Unopened {
            document: document.to_owned(),
            error,
        };
        let create = create.map_err(Failure::Unavailable)?;
        let created = self.create_once(create, unopened).await?;
        if created == CreateOutcome::First {
            self.check_again().await?;
        }
        Ok(created != CreateOutcome::Before)
    }

    /// Records a transaction, to be run or recovered later. A repeated call changes nothing.
    ///
    /// # Errors
    /// [`Failure::Different`] if one of its name exists and has other effects.
    pub async fn create_transaction(&self, transaction: &Transaction) -> Result<(), Failure> {
        self.check().await?;
        let names = transaction.effects().iter();
        let names: Vec<&str> = names.map(|effect| effect.document.as_str()).collect();
        let found = self
            .store
            .read_documents(&names)
            .await
            .map_err(Failure::Unavailable)?;
        for (found, name) in found.into_iter().zip(names) {
            let found = found.map_err(Failure::Unavailable)?;
            found.ok_or_else(|| Failure::Missing(name.to_owned()))?;
        }
        let id = transaction.id().as_str();
        let record = Record::new(transaction, State::Created);
        let create = Operation::create(&self.store.transactions, id, &record);
        let create = create
            .map_err(Failure::Unavailable)?
            .through(TIMES_PIPELINE.0);
        let lost = Failure::Ambiguous;
        if self.create_once(create, lost).await? == CreateOutcome::First {
            self.check_again().await.map_err(Failure::after_recording)?;
        }
        match self.get(id).await.map_err(Failure::after_recording)? {
            Some(stored) if !transaction.has_effects(&stored.effects) => {
                Err(Failure::Different(transaction.id().clone()))
            }
            _ => Ok(()),
        }
    }

    /// Creates a document, unless it exists. `lost` converts the error of a missing answer.
    async fn create_once(
        &self,
        create: Operation,
        lost: impl Fn(Error) -> Failure,
    ) -> Result<CreateOutcome, Failure> {
        match self.store.client.write(&create).await {
            Ok(written) if written.seen.is_first() => Ok(CreateOutcome::First),
            Ok(_) => Ok(CreateOutcome::Now),
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(CreateOutcome::Before),
            Err(error) if error.may_have_been_done() => Err(lost(error)),
            Err(error) => Err(Failure::Unavailable(error)),
        }
    }

    /// Creates a transaction, if it does not exist, and runs it to its end.
    ///
    /// # Errors
    /// It was rolled back, or its outcome is unknown: see [`Failure::may_have_moved`]. After each
    /// failure for which that is true the same call may be repeated.
    pub async fn run(&self, transaction: &Transaction) -> Result<(), Failure> {
        self.check().await?;
        let execution = Execution::for_new(transaction.effects().len(), MAX_BUSY_ATTEMPTS);
        let (state, reason) = self
            .run_execution(transaction, execution, MAX_ATTEMPTS, WaitFor::Ended)
            .await?;
        result_of_end(state, reason)
    }

    /// Like [`run`](Self::run), but returns a round trip earlier: once every document is settled.
    ///
    /// It stays `committed` until its end is recorded, by recovery if this process ends.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn run_to_settled(&self, transaction: &Transaction) -> Result<(), Failure> {
        self.check().await?;
        let execution = Execution::for_new(transaction.effects().len(), MAX_BUSY_ATTEMPTS);
        let (state, reason) = self
            .run_execution(transaction, execution, MAX_ATTEMPTS, WaitFor::Settled)
            .await?;
        result_of_end(state, reason)
    }

    /// Rolls a transaction back, unless it is decided.
    ///
    /// # Errors
    /// [`Failure::Committed`] if it was committed before; it is then finished. [`Failure::Absent`]
    /// if it does not exist: [create](Self::create_transaction) it first, as an earlier creation
    /// may arrive late.
    pub async fn roll_back(&self, id: &str) -> Result<(), Failure> {
        let transaction = self.read_transaction(id).await?;
        let execution = Execution::for_rollback(transaction.effects().len(), Reason::Asked);
        match self
            .run_execution(&transaction, execution, MAX_ATTEMPTS, WaitFor::Ended)
            .await?
            .0
        {
            State::Finished => Err(Failure::Committed),
            _ => Ok(()),
        }
    }

    /// Runs an existing transaction to its end.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn resume(&self, id: &str) -> Result<(), Failure> {
        self.resume_within(id, MAX_ATTEMPTS).await
    }

    /// Like [`resume`](Self::resume), with fewer attempts, for a caller that retries later.
    pub(super) async fn resume_soon(&self, id: &str) -> Result<(), Failure> {
        self.resume_within(id, RECOVERY_ATTEMPTS).await
    }

    async fn resume_within(&self, id: &str, attempts: u32) -> Result<(), Failure> {
        let transaction = self.read_transaction(id).await?;
        let execution = Execution::for_existing(transaction.effects().len(), MAX_BUSY_ATTEMPTS);
        let ended_at = self.run_execution(&transaction, execution, attempts, WaitFor::Ended);
        let (state, reason) = ended_at.await?;
        result_of_end(state, reason)
    }

    async fn read_transaction(&self, id: &str) -> Result<Transaction, Failure> {
        self.check().await?;
        let record = self.get(id).await?;
        let record = record.ok_or(Failure::Absent(TransactionId::new(id)?))?;
        Ok(record.transaction(id)?)
    }

    /// Reads a transaction. The result may be outdated; `None` if it does not exist.
    ///
    /// # Errors
    /// It could not be read.
    pub async fn get(&self, id: &str) -> Result<Option<Record>, Failure> {
        TransactionId::new(id)?;
        self.store
            .read_record(id)
            .await
            .map_err(Failure::Unavailable)
    }

    /// Reads a document: its balance, and what of it is [available](Document::available).
    ///
    /// # Errors
    /// It could not be read.
    pub async fn document(&self, id: &str) -> Result<Option<Document>, Failure> {
        let found = self
            .store
            .read_documents(&[id])
            .await
            .map_err(Failure::Unavailable)?;
        match found.into_iter().next() {
            Some(found) => found.map_err(Failure::Unavailable),
            None => Ok(None),
        }
    }

    /// Makes the calls of one step.
    ///
    /// # Errors
    /// None: an error is returned beside the progress, which accounts for it.
    pub async fn run_step(
        &self,
        transaction: &Transaction,
        execution: &mut Execution,
    ) -> (Progress, Option<Error>) {
        let requests = execution.requests();
        let reason = execution.reason();
        let (answers, error) = self.send_requests(transaction, &requests, reason).await;
        (execution.apply_answers(&answers), error)
    }

    /// Sends requests that belong together, such as those of a step.
    pub async fn send_requests(
        &self,
        transaction: &Transaction,
        requests: &[Request],
        reason: Option<Reason>,
    ) -> (Vec<Response>, Option<Error>) {
        self.store
            .send_requests(transaction, requests, reason)
            .await
    }

    async fn run_execution(
        &self,
        transaction: &Transaction,
        mut execution: Execution,
        attempts: u32,
        waits_for: WaitFor,
    ) -> Result<(State, Option<Reason>), Failure> {
        let mut last = None;
        let mut attempt = 0;
        let mut has_written = false;
        while attempt < if has_written { MAX_ATTEMPTS } else { attempts } {
            let writes = execution.writes();
            let (progress, error) = self.run_step(transaction, &mut execution).await;
            let is_lost = error.as_ref().is_some_and(Error::may_have_been_done);
            // The write that created a misconfigured index may detect it.
            let is_unfit = error.as_ref().map(Error::kind) == Some(ErrorKind::NoIndex);
            has_written |= writes && (error.is_none() || is_lost || is_unfit);
            if is_unfit {
                let checked = self.check_again().await;
                let explain = |failure: Failure| match has_written {
                    true => failure.after_recording(),
                    false => failure,
                };
                checked.map_err(explain)?;
            }
            last = error.or(last);
            // With fewer attempts, a lost answer ends the call: the next transaction is due.
            if is_lost && attempts < MAX_ATTEMPTS && progress == Progress::Again {
                break;
            }
            match progress {
                // All documents are settled by acknowledged writes; the last step records that.
                Progress::Next
                    if waits_for == WaitFor::Settled && execution.step() == Step::Finish =>
                {
                    self.finish_in_background(transaction, &execution);
                    return Ok((State::Finished, None));
                }
                Progress::Next => {}
                Progress::Again => {
                    sleep(retry_wait(attempt, fastrand::f64())).await;
                    attempt += 1;
                }
                Progress::Ended(state) => {
                    return Ok((
                        state,
                        self.rollback_reason(transaction, state, &execution).await,
                    ));
                }
                Progress::Absent => return Err(Failure::Absent(transaction.id().clone())),
                Progress::Different => return Err(Failure::Different(transaction.id().clone())),
                Progress::Missing(at) => {
                    let effect = transaction.effects().get(at);
                    let name = effect.map_or_else(String::new, |effect| effect.document.clone());
                    return Err(Failure::Missing(name));
                }
            }
        }
        match last {
            Some(error) if !has_written => Err(Failure::Unavailable(error)),
            Some(error) if !execution.is_known_to_exist() => Err(Failure::Ambiguous(error)),
            last => Err(Failure::Open(last)),
        }
    }

    /// Makes one attempt: if it fails, recovery makes the next.
    fn finish_in_background(&self, transaction: &Transaction, execution: &Execution) {
        let (store, transaction) = (self.store.clone(), transaction.clone());
        let requests = execution.requests();
        tokio::spawn(async move { store.send_requests(&transaction, &requests, None).await });
    }

    /// Returns the recorded reason why a transaction was rolled back.
    async fn rollback_reason(
        &self,
        transaction: &Transaction,
        state: State,
        execution: &Execution,
    ) -> Option<Reason> {
        if state == State::Finished {
            return None;
        }
        let record = self.store.read_record(transaction.id().as_str()).await;
        let record = record.ok().flatten();
        record
            .and_then(|record| record.reason)
            .or(execution.reason())
    }
}

/// Returns the wait before an attempt: it doubles, and half is random to separate executors.
fn retry_wait(attempt: u32, chance: f64) -> Duration {
    let doubled = MIN_RETRY_WAIT
        .saturating_mul(1 << attempt.min(16))
        .min(MAX_RETRY_WAIT);
    doubled / 2 + doubled.mul_f64(chance / 2.0)
}

#[cfg(test)]
mod tests;
