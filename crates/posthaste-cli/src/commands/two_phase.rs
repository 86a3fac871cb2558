//! `posthaste two-phase`: changes several documents of Elasticsearch or OpenSearch together or not
//! at all.

mod audit;
mod create;
mod list;
mod recover;

use std::fmt;
use std::time::Duration;

use anyhow::Context as _;
use clap::Subcommand;
use posthaste_elastic::two_phase::{Adopted, Coordinator, DocumentView, Failure, Pruned, State};
use posthaste_observe::format::pluralize;
use serde::Serialize;
use serde_json::json;

use crate::elastic::ServerOptions;
use crate::failure;
use crate::options::parse_duration;
use crate::signals::Signals;
use crate::terminal::{Terminal, escape_name};

/// Change several documents of Elasticsearch or OpenSearch atomically
///
/// Needs no Postgres. A transaction changes a document's `balance`, fields of its `data`, or both.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: ServerOptions,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create the two indexes if they do not exist, and store the scripts
    Prepare {
        /// Number of replicas. With at least one, writes are acknowledged when two copies have
        /// them, which requires two nodes; use 0 for a single node
        #[arg(long, value_name = "N", default_value_t = 1)]
        replicas: u8,
    },
    /// Create documents with these balances unless they exist
    Open {
        /// Document and its balance, such as alice=1000
        #[arg(
            required = true,
            value_name = "DOCUMENT=BALANCE",
            value_parser = create::parse_amount
        )]
        documents: Vec<(String, i64)>,
    },
    Create(create::Arguments),
    /// List open transactions, newest first
    List(list::Arguments),
    /// Show one transaction
    Show {
        /// Name of the transaction
        id: String,
    },
    /// Roll back a transaction unless it is already decided
    RollBack {
        /// Name of the transaction
        id: String,
    },
    Recover(recover::Arguments),
    /// Show the balances of documents; each transaction is included completely or not at all
    Balance {
        /// Names of the documents
        #[arg(required = true, value_name = "DOCUMENT")]
        documents: Vec<String>,
    },
    /// Compare all documents with all transactions, and list those that disagree; exit code 3 if
    /// any do
    Audit,
    /// Delete transactions that finished or were rolled back long ago; the balances of documents do
    /// not change
    Prune {
        /// Minimum time since the end of a transaction, such as 30d or 36h, at least 1h. It must be
        /// longer than clients may repeat a transaction and requests may be delayed
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        older_than: Duration,
    },
    /// Take over indexes of the published protocol after their writers have stopped
    Adopt,
}

impl Arguments {
    /// Whether the command runs until it is stopped.
    pub(crate) fn is_long_running(&self) -> bool {
        matches!(&self.command, Command::Recover(recover) if recover.is_long_running())
    }
}

pub(crate) async fn run(
    arguments: &Arguments,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    let coordinator = arguments.place.coordinator()?;
    if let Command::Recover(arguments) = &arguments.command {
        return recover::run(arguments, &coordinator, terminal, signals).await;
    }
    tokio::select! {
        outcome = run_short(&arguments.command, &coordinator, terminal) => outcome,
        // An unfinished transaction stays open, and recovery ends it.
        () = signals.stop_token().cancelled() => anyhow::bail!("stopped."),
    }
}

async fn run_short(
    command: &Command,
    coordinator: &Coordinator,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    match command {
        Command::Prepare { replicas } => {
            coordinator.prepare(*replicas).await?;
            terminal.print_result("the indexes are ready", &json!({ "ready": true }))
        }
        Command::Open { documents } => open(documents, coordinator, terminal).await,
        Command::Create(arguments) => create::run(arguments, coordinator, terminal).await,
        Command::List(arguments) => list::run(arguments, coordinator, terminal).await,
        Command::Show { id } => list::show(id, coordinator, terminal).await,
        Command::RollBack { id } => {
            let rolled_back = coordinator.roll_back(id).await;
            rolled_back.map_err(|failure| explain(failure, id))?;
            print_state(terminal, id, State::RolledBack)
        }
        Command::Balance { documents } => balance(documents, coordinator, terminal).await,
        Command::Audit => audit::run(coordinator, terminal).await,
        Command::Prune { older_than } => {
            let pruned = coordinator.prune(*older_than).await?;
            let Pruned { forgotten, kept } = pruned;
            let text = format!(
                "{} deleted, {kept} equally old ones kept",
                pluralize(forgotten, "transaction", "transactions")
            );
            terminal.print_result(text, &pruned)
        }
        Command::Adopt => {
            let adopted = ForgottenTransactions(coordinator.adopt().await?);
            terminal.print_result(&adopted, &adopted)
        }
        // `recover` ran before.
        Command::Recover(_) => Ok(()),
    }
}

/// A document that was to be opened.
#[derive(Serialize)]
struct OpenedDocument<'a> {
    document: &'a str,
    /// `None`: the document has no opening balance, because another program wrote it.
    opened: Option<i64>,
    /// Whether this call made it.
    made: bool,
}

impl fmt::Display for OpenedDocument<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let document = escape_name(self.document);
        match (self.made, self.opened) {
            (true, Some(balance)) => write!(f, "opened {document} with {balance}"),
            (_, Some(balance)) => write!(f, "{document} exists, opened with {balance}"),
            (_, None) => write!(f, "{document} exists, not opened by posthaste"),
        }
    }
}

async fn open(
    documents: &[(String, i64)],
    coordinator: &Coordinator,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let mut all = Vec::with_capacity(documents.len());
    let mut others = 0;
    for (document, balance) in documents {
        let failed = || format!("document {document}");
        let made = coordinator.open(document, *balance).await;
        let made = made.with_context(failed)?;
        let opened = match made {
            true => Some(*balance),
            false => {
                let found = coordinator.document(document).await;
                found.with_context(failed)?.and_then(|found| found.opened)
            }
        };
        others += usize::from(opened != Some(*balance));
        all.push(OpenedDocument {
            document,
            opened,
            made,
        });
    }
    terminal.print_results(&all, "no documents")?;
    anyhow::ensure!(
        others == 0,
        "not changed, because they have another opening balance: {others} of {} documents.",
        all.len()
    );
    Ok(())
}

/// The state of a transaction after the command.
#[derive(Serialize)]
struct TransactionResult<'a> {
    id: &'a str,
    state: State,
}

fn print_state(terminal: &Terminal, id: &str, state: State) -> anyhow::Result<()> {
    terminal.print_result(
        format_args!("{id} is {state}"),
        &TransactionResult { id, state },
    )
}

/// Returns the error, and tells programs whether anything may have moved.
fn explain(failure: Failure, id: &str) -> anyhow::Error {
    let line = format!("{id}: {}", failure::redact(&failure.to_string()));
    let more = match failure {
        _ if failure.may_have_moved_by_this_call() => "",
        Failure::Absent(_) => {
            " This call moved nothing; a delayed creation of it may still arrive and be applied."
        }
        _ if failure.may_have_moved() => {
            " This call moved nothing; 'posthaste two-phase show' shows what an earlier one of \
             this name did."
        }
        _ => " Nothing was moved.",
    };
    anyhow::anyhow!("{line}.{more}")
}

#[derive(Serialize)]
struct BalanceRow<'a> {
    document: &'a str,
    #[serde(flatten)]
    view: Option<DocumentView>,
}

async fn balance(
    documents: &[String],
    coordinator: &Coordinator,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let names: Vec<&str> = documents.iter().map(String::as_str).collect();
    let views = coordinator.views(&names).await?;
    let balances = BalanceTotals(
        names
            .into_iter()
            .zip(views)
            .map(|(document, view)| BalanceRow { document, view })
            .collect(),
    );
    terminal.print_result(&balances, &balances)?;
    let absent = balances.0.iter().filter(|one| one.view.is_none());
    let absent = absent.count();
    anyhow::ensure!(
        absent == 0,
        "not found: {absent} of {} documents.",
        balances.0.len()
    );
    Ok(())
}

#[derive(Serialize)]
#[serde(transparent)]
struct BalanceTotals<'a>(Vec<BalanceRow<'a>>);

impl fmt::Display for BalanceTotals<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wide = self.0.iter().map(|one| one.document.len());
        let wide = wide.max().unwrap_or(0).max("document".len());
        write!(
            f,
            "{:wide$}  {:>16}  {:>16}",
            "document", "total", "available"
        )?;
        for one in &self.0 {
            match &one.view {
                Some(DocumentView {
                    total, available, ..
                }) => {
                    write!(f, "\n{:wide$}  {total:>16}  {available:>16}", one.document)?;
                }
                None => write!(f, "\n{:wide$}  does not exist", one.document)?,
            }
        }
        Ok(())
    }
}

#[derive(Serialize)]
#[serde(transparent)]
struct ForgottenTransactions(Adopted);

impl fmt::Display for ForgottenTransactions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Adopted {
            documents,
            transactions,
            doubts,
        } = &self.0;
        write!(
            f,
            "adopted: {}, {}",
            pluralize(*documents, "document", "documents"),
            pluralize(*transactions, "transaction", "transactions")
        )?;
        for doubt in doubts {
            write!(f, "\nin doubt: {doubt}")?;
        }
        Ok(())
    }
}
