//! Points in time: named snapshots of the searchable state of an index, by the calls of either kind
//! of server.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::index::Searchable;
use super::reply::Reply;
use super::state::State;

/// The open points in time, each with its index and the documents that searches saw.
#[derive(Clone, Default)]
pub(super) struct Moments {
    held: BTreeMap<String, (String, Searchable)>,
    opened: u64,
}

impl Moments {
    pub(super) fn get(&self, id: &str) -> Option<(String, Searchable)> {
        self.held.get(id).cloned()
    }

    pub(super) fn count(&self) -> usize {
        self.held.len()
    }

    /// Closes all points in time.
    pub(super) fn close_all(&mut self) {
        self.held.clear();
    }
}

impl State {
    /// Opens or closes a point in time, if the request is such a call of this kind of server.
    pub(super) fn moment(
        &mut self,
        method: &str,
        path: &[&str],
        body: &Value,
    ) -> Option<Result<Reply, Reply>> {
        Some(match (method, path, self.is_elasticsearch) {
            ("DELETE", ["_search", "point_in_time"], false) => {
                for id in body["pit_id"].as_array().into_iter().flatten() {
                    self.close_moment(id);
                }
                Ok(Reply::ok(json!({"pits": []})))
            }
            ("DELETE", ["_pit"], true) => {
                self.close_moment(&body["id"]);
                Ok(Reply::ok(json!({"succeeded": true})))
            }
            ("POST", [index, "_search", "point_in_time"], false) => {
                let opened = self.open_moment(index);
                opened.map(|id| Reply::ok(json!({"pit_id": id})))
            }
            ("POST", [index, "_pit"], true) => {
                let opened = self.open_moment(index);
                opened.map(|id| Reply::ok(json!({"id": id})))
            }
            _ => return None,
        })
    }

    fn open_moment(&mut self, index: &str) -> Result<String, Reply> {
        let searchable = self.index(index)?.searchable.clone();
        let name = self.resolve_name(index).to_owned();
        self.moments.opened += 1;
        let id = format!("moment-{}", self.moments.opened);
        self.moments.held.insert(id.clone(), (name, searchable));
        Ok(id)
    }

    fn close_moment(&mut self, id: &Value) {
        self.moments.held.remove(id.as_str().unwrap_or_default());
    }
}
