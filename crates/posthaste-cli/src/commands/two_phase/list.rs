//! `posthaste two-phase list` and `show`: transactions, and what blocks them.

use std::fmt::{self, Write as _};
use std::time::Duration;

use anyhow::Context as _;
use posthaste_elastic::two_phase::{Coordinator, Listed, Record, State, Stuck};
use posthaste_observe::format::pluralize;
use serde::Serialize;

use crate::options::parse_duration;
use crate::terminal::Terminal;

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// List transactions in this state, which can be final (repeatable; default: all open states)
    #[arg(long, value_name = "STATE", value_parser = parse_state, conflicts_with = "stuck_for")]
    state: Vec<State>,

    /// List open transactions whose state has not changed for this long, oldest first, with the
    /// cause
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    stuck_for: Option<Duration>,

    /// Maximum number of transactions to list
    #[arg(
        long,
        value_name = "N",
        default_value_t = 50,
        conflicts_with = "stuck_for",
        value_parser = clap::value_parser!(u16).range(1..=10_000)
    )]
    limit: u16,
}

fn parse_state(text: &str) -> Result<State, String> {
    let known = State::ALL.map(|state| state.to_string());
    let mut states = State::ALL.into_iter();
    states
        .find(|state| state.to_string() == text)
        .ok_or_else(|| format!("the states are {}", known.join(", ")))
}

pub(super) async fn run(
    arguments: &Arguments,
    coordinator: &Coordinator,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    if let Some(time) = arguments.stuck_for {
        let stuck = coordinator.list_stuck(time).await?;
        let lines: Vec<StuckRow> = stuck.into_iter().map(StuckRow).collect();
        return terminal.print_results(&lines, "no transaction matches");
    }
    let listed = coordinator
        .list(&arguments.state, usize::from(arguments.limit))
        .await?;
    let list = TransactionList(listed);
    terminal.print_result(&list, &list)
}

/// A transaction that needs attention, with the cause.
#[derive(Serialize)]
#[serde(transparent)]
pub(super) struct StuckRow(pub(super) Stuck);

impl fmt::Display for StuckRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stuck = &self.0;
        match &stuck.record {
            Ok(record) => {
                let since = record.modification_time.as_deref().unwrap_or("ever");
                let attempts = record.attempts.unwrap_or_default();
                let state = record.transaction_state;
                write!(
                    f,
                    "{} has been {state} since {since}, {}: ",
                    stuck.id,
                    pluralize(attempts, "attempt", "attempts")
                )?;
            }
            Err(why) => write!(f, "{} cannot be read ({why}): ", stuck.id)?,
        }
        let blockers: Vec<String> = stuck.blockers.iter().map(ToString::to_string).collect();
        match (&stuck.record, blockers.is_empty()) {
            (Err(_), true) => write!(f, "another client has written it"),
            (Ok(_), true) => write!(f, "nothing blocks it; it waits for recovery"),
            _ => write!(f, "{}", blockers.join(", ")),
        }
    }
}

#[derive(Serialize)]
#[serde(transparent)]
struct TransactionList(Vec<Listed>);

impl fmt::Display for TransactionList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return write!(f, "no transactions match");
        }
        let wide = self.0.iter().map(|one| one.id.len()).max();
        let wide = wide.unwrap_or(0).max("transaction".len());
        write!(
            f,
            "{:wide$}  {:11}  {:24}  {:>8}  effects",
            "transaction", "state", "changed", "attempts"
        )?;
        for one in &self.0 {
            match &one.record {
                Ok(record) => write!(
                    f,
                    "\n{:wide$}  {:11}  {:24}  {:>8}  {}",
                    one.id,
                    record.transaction_state,
                    record.modification_time.as_deref().unwrap_or("unknown"),
                    record.attempts.unwrap_or_default(),
                    effects_text(record)
                )?,
                Err(why) => write!(f, "\n{:wide$}  cannot be read: {why}", one.id)?,
            }
        }
        Ok(())
    }
}

/// Summarizes the effects of a transaction.
fn effects_text(record: &Record) -> String {
    const MAX_SHOWN_EFFECTS: usize = 4;
    let shown = record.effects.iter().take(MAX_SHOWN_EFFECTS).map(|effect| {
        let sets = if effect.set.is_empty() { "" } else { " sets" };
        let adds = match effect.add {
            0 => String::new(),
            add => format!(" {add:+}"),
        };
        format!("{}{adds}{sets}", effect.document)
    });
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if record.effects.len() > MAX_SHOWN_EFFECTS {
        text.push_str(", …");
    }
    text
}

#[derive(Serialize)]
struct TransactionDetails<'a> {
    id: &'a str,
    #[serde(flatten)]
    record: Record,
}

impl fmt::Display for TransactionDetails<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let record = &self.record;
        let none = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
        let reason = record.reason.map(|reason| reason.to_string());
        let mut text = String::new();
        for (label, value) in [
            ("transaction", self.id.to_owned()),
            ("state", record.transaction_state.to_string()),
            ("reason", none(&reason)),
            ("attempts", record.attempts.unwrap_or_default().to_string()),
            ("created", none(&record.creation_time)),
            ("changed", none(&record.modification_time)),
            ("next attempt", none(&record.next_attempt_at)),
        ] {
            writeln!(text, "{label:14}{value}")?;
        }
        for effect in &record.effects {
            let mut done = Vec::new();
            if effect.add != 0 {
                done.push(format!("{:+}", effect.add));
            }
            if !effect.set.is_empty() {
                let set = serde_json::to_string(&effect.set).map_err(|_| fmt::Error)?;
                done.push(format!("sets {set}"));
            }
            writeln!(
                text,
                "{:14}{} {}",
                "effect",
                effect.document,
                done.join(", ")
            )?;
        }
        f.write_str(text.trim_end())
    }
}

pub(super) async fn show(
    id: &str,
    coordinator: &Coordinator,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let record = coordinator.get(id).await?;
    let record = record.with_context(|| format!("transaction {id} does not exist."))?;
    let shown = TransactionDetails { id, record };
    terminal.print_result(&shown, &shown)
}
