//! Rows of an outbox whose events were delivered, which are deleted with the mark. Pure.

use serde_json::{Map, Value};

use crate::event::Event;

/// The keys of the rows, and the transactions that wrote them.
#[derive(Clone, Debug, Default)]
pub(crate) struct HandedRows {
    keys: Vec<Map<String, Value>>,
    xids: Vec<u32>,
}

impl HandedRows {
    /// Collects the rows of these events.
    pub(crate) fn from_events(events: &[Event], xids: &[u32]) -> Self {
        let keys = events.iter().filter_map(|event| event.row.clone());
        let keys: Vec<_> = keys.collect();
        let xids = if keys.is_empty() { &[] } else { xids };
        Self {
            keys,
            xids: xids.to_vec(),
        }
    }

    pub(crate) fn append(&mut self, more: &Self) {
        self.keys.extend(more.keys.iter().cloned());
        self.xids.extend(&more.xids);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The transactions that a deletion must see.
    pub(crate) fn xids(&self) -> &[u32] {
        &self.xids
    }

    /// The keys, as one JSON array.
    pub(crate) fn keys_json(&self) -> String {
        let keys = self.keys.iter().cloned().map(Value::Object);
        Value::Array(keys.collect()).to_string()
    }
}
