//! `posthaste two-phase create`: writes a transaction, and finishes it if requested.

use anyhow::Context as _;
use posthaste_elastic::two_phase::{Coordinator, Effect, State, Transaction};
use serde_json::{Map, Value};

use super::{explain, print_state};
use crate::terminal::Terminal;

/// Create a transaction, which recovery finishes; creating the same one again changes nothing
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Name of the transaction, [A-Za-z0-9_-]{1,64}; a name identifies one transaction
    id: String,

    /// Move AMOUNT from one document to another
    #[arg(
        long,
        num_args = 3,
        allow_negative_numbers = true,
        value_names = ["FROM", "TO", "AMOUNT"],
        required_unless_present_any = ["add", "set"],
        conflicts_with_all = ["add", "set"]
    )]
    transfer: Vec<String>,

    /// Add N, which can be negative, to a document's balance (repeatable)
    #[arg(long, value_name = "DOCUMENT=N", value_parser = parse_amount, allow_hyphen_values = true)]
    add: Vec<(String, i64)>,

    /// Set fields of a document's data (repeatable)
    #[arg(long, value_name = "DOCUMENT=JSON", value_parser = parse_fields)]
    set: Vec<(String, Map<String, Value>)>,

    /// Finish the transaction immediately
    #[arg(long)]
    run: bool,
}

/// Parses `DOCUMENT=N`.
pub(super) fn parse_amount(text: &str) -> Result<(String, i64), String> {
    let (document, amount) = text.rsplit_once('=').ok_or("write DOCUMENT=N")?;
    let amount = amount
        .parse()
        .map_err(|_| format!("{amount:?} is not a whole number"))?;
    Ok((document.to_owned(), amount))
}

/// Parses `DOCUMENT=JSON`.
fn parse_fields(text: &str) -> Result<(String, Map<String, Value>), String> {
    let (document, fields) = text.split_once('=').ok_or("write DOCUMENT=JSON")?;
    let fields = serde_json::from_str(fields).map_err(|error| format!("not an object: {error}"))?;
    Ok((document.to_owned(), fields))
}

impl Arguments {
    fn transaction(&self) -> anyhow::Result<Transaction> {
        if let [from, to, amount] = self.transfer.as_slice() {
            let amount = amount.parse();
            let amount = amount.context("the amount must be a whole number from 1 to 2^53")?;
            return Ok(Transaction::transfer(&self.id, from, to, amount)?);
        }
        let mut effects: Vec<Effect> = Vec::new();
        for (document, add) in &self.add {
            effects.push(Effect::add(document, *add));
        }
        for (document, set) in &self.set {
            // A document has one effect, which may add and set.
            let known = effects
                .iter_mut()
                .find(|effect| effect.document == *document && effect.set.is_empty());
            match known {
                Some(effect) => effect.set.clone_from(set),
                None => effects.push(Effect::set(document, set.clone())),
            }
        }
        Ok(Transaction::new(&self.id, effects)?)
    }
}

pub(super) async fn run(
    arguments: &Arguments,
    coordinator: &Coordinator,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let transaction = arguments.transaction()?;
    let failed = |failure| explain(failure, &arguments.id);
    if arguments.run {
        coordinator.run(&transaction).await.map_err(failed)?;
        return print_state(terminal, &arguments.id, State::Finished);
    }
    coordinator
        .create_transaction(&transaction)
        .await
        .map_err(failed)?;
    let record = coordinator.get(&arguments.id).await?;
    let state = record.map_or(State::Created, |record| record.transaction_state);
    print_state(terminal, &arguments.id, state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_and_fields_are_parsed_or_rejected() {
        assert_eq!(parse_amount("a=-3"), Ok(("a".to_owned(), -3)));
        for wrong in ["a", "a=", "a=1.5", "a=NaN", "a=1e3"] {
            assert!(parse_amount(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_fields(r#"a={"x":"="}"#).unwrap().1["x"], "=");
        assert!(parse_fields("a=[]").is_err());
    }
}
