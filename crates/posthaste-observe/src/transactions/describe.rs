//! Descriptions of transactions, for people and for programs.

use posthaste::HolderKind;
use serde::Serialize;

use super::plan::{Decision, ObservedHolder, Step};
use crate::finding::Kind;
use crate::format::{age, one_line, pluralize};
use crate::holders::{holder_detail, holder_name};

/// A transaction that has reached an age of its rule.
#[derive(Debug, Serialize)]
pub struct LongTransaction {
    /// The kind, as in the findings of a store.
    #[serde(rename = "id")]
    pub kind: Kind,
    /// The server.
    pub server: String,
    /// A sentence: who it is, since when, and its cost.
    pub text: String,
    pid: Option<i32>,
    name: Option<String>,
    role: Option<String>,
    application: Option<String>,
    address: Option<String>,
    database: Option<String>,
    state: Option<String>,
    seconds: Option<f64>,
    /// Transactions since the oldest row version that it may still read.
    transactions: Option<i64>,
    is_oldest: bool,
    queue_tables: i64,
    has_enqueued: bool,
    query: Option<String>,
}

/// A step that was taken, or that would be taken without a dry run.
#[derive(Debug, Serialize)]
pub struct Action {
    /// The step.
    pub action: Step,
    /// `done`, `gone`, `dry run`, or an error.
    pub outcome: String,
    /// The rule that decided, 1 for the first.
    pub rule: usize,
    /// The server.
    pub server: String,
    pid: Option<i32>,
    name: Option<String>,
    /// A sentence for people.
    pub text: String,
}

/// The outcome of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server carried out the step.
    Done,
    /// The transaction had ended.
    Gone,
    /// The step was only reported.
    DryRun,
    /// The step failed and will be retried.
    Failed(String),
    /// The server refused the step.
    Refused(String),
}

impl Outcome {
    /// Returns the outcome as it is recorded.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Done => "done",
            Self::Gone => "gone",
            Self::DryRun => "dry run",
            Self::Failed(error) | Self::Refused(error) => error,
        }
    }
}

/// Describes a transaction.
pub fn describe_transaction(seen: &ObservedHolder) -> LongTransaction {
    let holder = &seen.holder;
    LongTransaction {
        kind: match holder.kind {
            HolderKind::Prepared => Kind::TransactionPrepared,
            HolderKind::Slot => Kind::TransactionSlot,
            HolderKind::Replica => Kind::TransactionReplica,
            _ => Kind::TransactionLong,
        },
        server: seen.server.clone(),
        text: transaction_sentence(seen),
        pid: holder.pid,
        name: holder.name.clone(),
        role: holder.role.clone(),
        application: holder.application.clone(),
        address: holder.address.clone(),
        database: holder.database.clone(),
        state: holder.state.clone(),
        seconds: holder.seconds,
        transactions: holder.transactions,
        is_oldest: seen.is_oldest,
        queue_tables: seen.queue_tables,
        has_enqueued: seen.has_enqueued,
        query: holder.query.clone(),
    }
}

/// Describes a step and its outcome.
pub fn describe_action(decision: &Decision<'_>, outcome: &Outcome) -> Action {
    let seen = decision.seen;
    Action {
        action: decision.step,
        outcome: outcome.as_str().to_owned(),
        rule: decision.rule,
        server: seen.server.clone(),
        pid: seen.holder.pid,
        name: seen.holder.name.clone(),
        text: action_sentence(decision.step, outcome, &subject(seen)),
    }
}

fn action_sentence(step: Step, outcome: &Outcome, subject: &str) -> String {
    let (did, does) = match step {
        Step::Warn => ("warned about", "warn about"),
        Step::Cancel => ("cancelled the statement of", "cancel the statement of"),
        Step::Terminate => ("terminated", "terminate"),
    };
    match outcome {
        Outcome::Done => format!("{did} {subject}"),
        Outcome::Gone => format!("did not {does} {subject}: its transaction had ended"),
        Outcome::DryRun => format!("dry run: would {does} {subject}"),
        Outcome::Failed(error) | Outcome::Refused(error) => {
            format!("could not {does} {subject}: {error}")
        }
    }
}

/// Returns the subject of a sentence, such as
///
/// `primary: session 4711 (app, psql, from 10.0.0.5, idle in transaction)`.
fn subject(seen: &ObservedHolder) -> String {
    let name = one_line(&holder_name(&seen.holder), 120);
    let detail = one_line(&holder_detail(&seen.holder), 160);
    format!("{}: {name} ({detail})", seen.server)
}

/// Returns a sentence about a transaction: who it is, since when, and its cost.
pub fn transaction_sentence(seen: &ObservedHolder) -> String {
    let holder = &seen.holder;
    let mut text = subject(seen);
    if let Some(seconds) = holder.seconds {
        text.push_str(&format!(" has been open for {}", age(seconds.max(0.0))));
    }
    for cost in cost_sentences(seen) {
        text.push_str("; ");
        text.push_str(&cost);
    }
    text
}

fn cost_sentences(seen: &ObservedHolder) -> Vec<String> {
    let holder = &seen.holder;
    let mut costs = Vec::new();
    match (holder.transactions, seen.has_feedback) {
        (Some(_), Some(false)) => costs.push(
            "the primary retains no rows for it (hot_standby_feedback is off), but replay may wait \
             for it"
                .to_owned(),
        ),
        (Some(transactions), _) => costs.push(retained_rows_sentence(transactions, seen.is_oldest)),
        (None, _) if holder.kind == HolderKind::Session => costs.push(
            "it retains no rows: it has no snapshot between statements and has written nothing"
                .to_owned(),
        ),
        (None, _) => {}
    }
    if seen.has_enqueued {
        costs.push("it has enqueued jobs, so the space of their segment is retained".to_owned());
    } else if seen.queue_tables > 0 {
        costs.push(format!(
            "it has locks on {} of queues, so their space is retained",
            pluralize(seen.queue_tables, "table", "tables")
        ));
    }
    costs
}

fn retained_rows_sentence(transactions: i64, is_oldest: bool) -> String {
    let died = match transactions {
        0 => "from now on".to_owned(),
        many => format!(
            "within the last {}",
            pluralize(many, "transaction", "transactions")
        ),
    };
    let oldest = match is_oldest {
        true => "; no other transaction retains more",
        false => "",
    };
    format!("VACUUM cannot remove rows that die {died}{oldest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn action_sentences_state_the_outcome() {
        let sentence = |step, outcome| action_sentence(step, &outcome, "session 7");
        assert_eq!(
            sentence(Step::Warn, Outcome::Done),
            "warned about session 7"
        );
        let dry = sentence(Step::Terminate, Outcome::DryRun);
        assert_eq!(dry, "dry run: would terminate session 7");
        let failed = sentence(Step::Cancel, Outcome::Failed("no answer".into()));
        assert_eq!(
            failed,
            "could not cancel the statement of session 7: no answer"
        );
    }

    #[test]
    fn the_newest_transaction_holds_back_only_future_dead_rows() {
        let rows = retained_rows_sentence(0, false);
        assert_eq!(rows, "VACUUM cannot remove rows that die from now on");
        let rows = retained_rows_sentence(1, true);
        assert!(
            rows.ends_with("within the last 1 transaction; no other transaction retains more"),
            "{rows}"
        );
    }
}
