//! Checks the final state. No I/O and no clock.

use std::collections::BTreeMap;

use posthaste_elastic::two_phase::{Document, State, Transaction};

use super::lane::Claim;

/// A violation of a rule, in words.
pub type Finding = String;

/// The complete final state.
pub(super) struct Ending {
    /// The initial balance of each account.
    pub(super) opened: i64,
    pub(super) accounts: BTreeMap<String, Document>,
    /// Each transfer with the state of its transaction, if one was created.
    pub(super) transfers: Vec<(Transaction, Option<State>)>,
    pub(super) claims: Vec<Claim>,
}

/// The counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Transfers that succeeded.
    pub finished: usize,
    /// Transfers that were rolled back.
    pub rolled_back: usize,
    /// Transfers without a record: their executor was killed, or could not connect.
    pub absent: usize,
    /// Reports of executors.
    pub claims: usize,
}

/// Counts, and returns violations of rules.
pub(super) fn judge(ending: &Ending) -> (Load, Vec<Finding>) {
    let mut findings = Vec::new();
    let mut load = Load {
        claims: ending.claims.len(),
        ..Load::default()
    };
    let mut expected: BTreeMap<&str, i64> = ending
        .accounts
        .keys()
        .map(|name| (name.as_str(), ending.opened))
        .collect();
    for (transfer, state) in &ending.transfers {
        match state {
            Some(State::Finished) => {
                load.finished += 1;
                for effect in transfer.effects() {
                    *expected.entry(&effect.document).or_default() += effect.add;
                }
            }
            Some(State::RolledBack) => load.rolled_back += 1,
            None => load.absent += 1,
            Some(open) => findings.push(format!("{} is {open} for ever", transfer.id())),
        }
    }
    for (name, document) in &ending.accounts {
        let expected = expected.get(name.as_str()).copied().unwrap_or_default();
        if document.balance != expected {
            let has = document.balance;
            findings.push(format!("{name} has {has}, and should have {expected}"));
        }
        if document.balance < 0 {
            findings.push(format!("{name} has spent what it never had"));
        }
        for hold in &document.holds {
            findings.push(format!("{name} still holds something for {}", hold.id));
        }
    }
    let has: i64 = ending.accounts.values().map(|held| held.balance).sum();
    let had = ending.opened * ending.accounts.len() as i64;
    if has != had {
        findings.push(format!("all accounts had {had} and have {has}"));
    }
    findings.extend(
        ending
            .claims
            .iter()
            .filter_map(|claim| belied(ending, claim)),
    );
    (load, findings)
}

/// Returns a finding if the state contradicts the report of an executor.
fn belied(ending: &Ending, claim: &Claim) -> Option<Finding> {
    let state = ending.transfers.get(claim.at).and_then(|(_, state)| *state);
    let is_so = match claim.said.as_str() {
        "finished" => state == Some(State::Finished),
        "rolled-back" => state == Some(State::RolledBack),
        "unmoved" => matches!(state, None | Some(State::RolledBack)),
        _ => true,
    };
    let (at, said) = (claim.at, &claim.said);
    (!is_so).then(|| format!("of t{at} it was said that it is {said}, and it is {state:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One transfer of five units from a to b, one that was rolled back, one that was never made.
    fn well() -> Ending {
        let transfer = |name: &str| Transaction::transfer(name, "a", "b", 5);
        let states = [Some(State::Finished), Some(State::RolledBack), None];
        let transfers = ["t0", "t1", "t2"].into_iter().zip(states);
        let transfers = transfers.filter_map(|(name, state)| Some((transfer(name).ok()?, state)));
        let account = |balance| Document {
            balance,
            ..Document::default()
        };
        Ending {
            opened: 10,
            accounts: [("a".to_owned(), account(5)), ("b".to_owned(), account(15))].into(),
            transfers: transfers.collect(),
            claims: vec![
                claim(0, "finished"),
                claim(1, "rolled-back"),
                claim(2, "unmoved"),
            ],
        }
    }

    fn claim(at: usize, said: &str) -> Claim {
        let said = said.to_owned();
        Claim { at, said }
    }

    fn found(change: impl FnOnce(&mut Ending)) -> String {
        let mut ending = well();
        change(&mut ending);
        judge(&ending).1.join("; ")
    }

    #[test]
    fn sound_transfers_break_no_rule() {
        let (load, findings) = judge(&well());
        assert_eq!(findings, Vec::<Finding>::new());
        assert_eq!((load.finished, load.rolled_back, load.absent), (1, 1, 1));
    }

    #[test]
    fn each_broken_rule_has_a_finding() {
        let balance = |name: &'static str, balance: i64| {
            move |ending: &mut Ending| {
                if let Some(account) = ending.accounts.get_mut(name) {
                    account.balance = balance;
                }
            }
        };
        assert!(found(balance("a", 4)).contains("a has 4, and should have 5"));
        assert!(found(balance("a", 4)).contains("had 20 and have 19"));
        assert!(found(balance("a", -1)).contains("never had"));
        assert!(found(|ending| ending.transfers[1].1 = Some(State::Pending)).contains("for ever"));
        assert!(found(|ending| ending.claims[0].at = 1).contains("said that it is finished"));
        assert!(found(|ending| ending.claims[1].at = 0).contains("said that it is rolled-back"));
        assert!(found(|ending| ending.claims[2].at = 0).contains("said that it is unmoved"));
        let held = serde_json::json!({"balance": 5, "holds": [{"id": "t1", "add": -5}]});
        let held: Option<Document> = serde_json::from_value(held).ok();
        let holds =
            |ending: &mut Ending| ending.accounts.extend(held.map(|held| ("a".into(), held)));
        assert!(found(holds).contains("a still holds something for t1"));
    }
}
