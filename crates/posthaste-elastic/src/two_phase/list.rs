//! Lists of transactions for operators.

use serde::Serialize;
use serde_json::json;

use super::coordinator::Coordinator;
use super::failure::Failure;
use super::read::Scan;
use super::recover::OPEN_STATES;
use super::state::State;
use super::stored::{Record, record_or_error};

/// A transaction in a list.
#[derive(Clone, Debug, Serialize)]
pub struct Listed {
    /// The id of the transaction.
    pub id: String,
    /// The stored transaction, or the reason why it cannot be read (`unreadable`).
    #[serde(flatten, serialize_with = "record_or_error")]
    pub record: Result<Record, String>,
}

impl Coordinator {
    /// Lists transactions in these states, the last changed first; without any state, the open
    /// ones.
    ///
    /// # Errors
    /// The transactions could not be read.
    pub async fn list(&self, states: &[State], limit: usize) -> Result<Vec<Listed>, Failure> {
        let states = if states.is_empty() {
            &OPEN_STATES
        } else {
            states
        };
        self.store.refresh_transactions().await?;
        let query = json!({"bool": {"filter": [{"terms": {"transaction_state": states}}]}});
        let mut listed = Vec::new();
        let walk = Scan::new(&self.store.transactions, &query, json!(true));
        let mut walk = walk.sort_by("modification_time", "desc").limit_page(limit);
        while let Some(page) = self.store.next_page(&mut walk).await? {
            listed.extend(page.hits.into_iter().map(|hit| {
                let source = hit.source.as_deref().map_or("null", |source| source.get());
                let record = serde_json::from_str(source).map_err(|error| error.to_string());
                Listed { id: hit.id, record }
            }));
            if listed.len() >= limit {
                break;
            }
        }
        self.store.end_scan(&mut walk).await;
        listed.truncate(limit);
        Ok(listed)
    }
}
