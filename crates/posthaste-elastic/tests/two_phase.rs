//! The two-phase commit on a real server: its scripts do the same as the model's, an executor that
//! stops anywhere leaves nothing open, and no money is lost.

mod adopted;
mod agreement;
mod audited;
mod crowd;
mod fake;
mod large;
mod opened;
mod played;
mod pruned;
mod recovered;
mod refused;
mod repeated;
mod schedules;
mod settled;
mod stopped;
mod times;
mod view;
mod walked;

use std::collections::BTreeMap;

use posthaste_elastic::two_phase::{Coordinator, Document, State};

use posthaste_testkit::ran;

use crate::support;

/// Returns a coordinator with separate indexes on the shared server, `None` if this machine has
/// none.
async fn coordinator(test: &str) -> Option<Coordinator> {
    let client = support::opensearch(test)?;
    let (documents, transactions) = (format!("{test}-documents"), format!("{test}-transactions"));
    let coordinator = Coordinator::new(client, &documents, &transactions);
    coordinator.prepare(0).await.unwrap();
    ran::note("two-phase");
    Some(coordinator)
}

async fn opened(coordinator: &Coordinator, balances: &[(&str, i64)]) {
    for (document, balance) in balances {
        coordinator.open(document, *balance).await.unwrap();
    }
}

async fn document(coordinator: &Coordinator, id: &str) -> Document {
    coordinator.document(id).await.unwrap().unwrap()
}

async fn state(coordinator: &Coordinator, id: &str) -> Option<State> {
    let record = coordinator.get(id).await.unwrap();
    record.map(|record| record.transaction_state)
}

/// Returns the balances of documents once nothing is held.
async fn balances(coordinator: &Coordinator, ids: &[&str]) -> BTreeMap<String, i64> {
    let mut balances = BTreeMap::new();
    for id in ids {
        let document = document(coordinator, id).await;
        assert_eq!(document.holds, [], "{id} still holds something");
        balances.insert((*id).to_owned(), document.balance);
    }
    balances
}
