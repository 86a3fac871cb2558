//! Handles requests: draws a fault, executes the request and answers it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};

use super::faults::{Fault, Faults};
use super::index::{Doc, Index};
use super::reply::Reply;
use super::state::{State, project_field};
use super::write::Write;

/// The longest duration of a temporary fault, in requests.
const MAX_FAULT_REQUESTS: u64 = 20;
/// One request in this many makes previous writes visible to searches.
const REFRESH_ODDS: u32 = 4;

pub(super) struct FakeServer {
    pub(super) state: State,
    pub(super) faults: Faults,
    pub(super) next: VecDeque<Option<Fault>>,
    pub(super) keeps_silent: bool,
    pub(super) authorization: Option<String>,
    pub(super) largest: usize,
    pub(super) requests: u64,
    /// Documents whose shard cannot be read.
    pub(super) away: BTreeSet<(String, String)>,
    rng: fastrand::Rng,
    late: Vec<(u64, Request)>,
    /// Indexes whose primary is isolated: their earlier state, and until which request.
    dirty: BTreeMap<String, (Index, u64)>,
    read_only: BTreeMap<String, u64>,
}

#[derive(Clone, Debug)]
pub(super) struct Request {
    method: String,
    path: Vec<String>,
    query: String,
    pub(super) authorization: Option<String>,
    body: Vec<u8>,
}

impl Request {
    pub(super) fn new(method: &str, path: &str, body: Vec<u8>) -> Self {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let path = path.split('/').filter(|part| !part.is_empty());
        Self {
            method: method.to_owned(),
            path: path.map(str::to_owned).collect(),
            query: query.to_owned(),
            authorization: None,
            body,
        }
    }

    fn has_parameter(&self, parameter: &str) -> bool {
        self.query.split('&').any(|one| one == parameter)
    }

    fn value(&self, parameter: &str) -> Option<&str> {
        let mut all = self.query.split('&').filter_map(|one| one.split_once('='));
        all.find(|(name, _)| *name == parameter)
            .map(|(_, value)| value)
    }

    fn is_bulk(&self) -> bool {
        self.path.last().is_some_and(|last| last == "_bulk")
    }
}

impl FakeServer {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            state: State::default(),
            faults: Faults::default(),
            next: VecDeque::new(),
            keeps_silent: false,
            authorization: None,
            largest: usize::MAX,
            requests: 0,
            away: BTreeSet::new(),
            rng: fastrand::Rng::with_seed(seed),
            late: Vec::new(),
            dirty: BTreeMap::new(),
            read_only: BTreeMap::new(),
        }
    }

    /// Draws how many other requests may overtake this one.
    pub(super) fn draw_overtaking_requests(&mut self) -> u32 {
        // Usually none, sometimes many.
        match self.rng.u32(..8) {
            0..4 => 0,
            4..7 => self.rng.u32(..4),
            _ => self.rng.u32(..32),
        }
    }

    /// Handles a request. Returns the answer, or `None` if the client gets none.
    pub(super) fn handle(&mut self, request: Request) -> Option<Reply> {
        self.requests += 1;
        self.state.now += 1;
        self.execute_due();
        if self.authorization.is_some() && self.authorization != request.authorization {
            let reason = "missing authentication credentials";
            return Some(Reply::error(401, "security_exception", reason));
        }
        if request.body.len() > self.largest {
            let body = Value::Null;
            return Some(Reply {
                status: 413,
                ..Reply::ok(body)
            });
        }
        let drawn = self.faults.draw(&mut self.rng);
        match self.next.pop_front().unwrap_or(drawn) {
            Some(Fault::LostBefore) => None,
            Some(Fault::Late) => {
                let due = self.requests + self.rng.u64(1..=MAX_FAULT_REQUESTS);
                self.late.push((due, request));
                None
            }
            Some(Fault::TooMany) => Some(Reply::too_many()),
            Some(Fault::UnavailableBefore) => Some(Reply::unavailable()),
            Some(Fault::Lie) if request.is_bulk() => {
                let truth = self.state.clone();
                let told = self.execute(&request);
                self.state = truth;
                told
            }
            Some(Fault::LostAfter) => self.execute(&request).and(None),
            Some(Fault::UnavailableAfter) => {
                self.execute(&request);
                Some(Reply::unavailable())
            }
            Some(Fault::Lie) | None => self.execute(&request),
        }
    }

    /// Executes late requests that are due, and ends temporary faults that are over.
    fn execute_due(&mut self) {
        let now = self.requests;
        let (due, late) = std::mem::take(&mut self.late)
            .into_iter()
            .partition(|(due, _)| *due <= now);
        self.late = late;
        self.execute_late(due);
        let over: Vec<String> = self
            .dirty
            .iter()
            .filter(|(_, (_, until))| *until <= now)
            .map(|(index, _)| index.clone())
            .collect();
        for index in over {
            self.reconcile(&index);
        }
        let state = &mut self.state;
        self.read_only.retain(|index, until| {
            if *until <= now
                && let Some(index) = state.indexes.get_mut(index)
            {
                index.read_only = false;
            }
            *until > now
        });
        for index in self.state.indexes.values_mut() {
            if index.refreshes_itself() && self.rng.u32(..REFRESH_ODDS) == 0 {
                index.refresh();
            }
        }
    }

    fn execute_late(&mut self, mut due: Vec<(u64, Request)>) {
        self.rng.shuffle(&mut due);
        for (_, request) in due {
            self.execute(&request);
        }
    }

    /// Reconnects an isolated primary. Its writes are kept or lost.
    fn reconcile(&mut self, index: &str) {
        let Some((before, _)) = self.dirty.remove(index) else {
            return;
        };
        let is_lost = self.rng.bool();
        if let Some(index) = self.state.indexes.get_mut(index) {
            index.promote(is_lost.then_some(before));
        }
    }

    pub(super) fn settle(&mut self) {
        self.faults = Faults::default();
        self.next.clear();
        let late = std::mem::take(&mut self.late);
        self.execute_late(late);
        let dirty: Vec<String> = self.dirty.keys().cloned().collect();
        for index in dirty {
            self.reconcile(&index);
        }
        for index in std::mem::take(&mut self.read_only).into_keys() {
            if let Some(index) = self.state.indexes.get_mut(&index) {
                index.read_only = false;
            }
        }
    }

    pub(super) fn fail_over(&mut self) {
        self.state.moments.close_all();
        for index in self.state.indexes.values_mut() {
            index.promote(None);
        }
    }

    /// Executes a request. Returns no answer if a write could not be replicated.
    fn execute(&mut self, request: &Request) -> Option<Reply> {
        let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
        if request.is_bulk() {
            return self.bulk(&request.body);
        }
        let body = match serde_json::from_slice(&request.body) {
            Ok(body) => body,
            Err(_) if request.body.is_empty() => Value::Null,
            Err(error) => {
                return Some(Reply::error(400, "parsing_exception", &error.to_string()));
            }
        };
        let outcome = match (request.method.as_str(), path.as_slice()) {
            ("POST", [index, "_mget"]) => Ok(self.multi_get(index, request, &body)),
            ("POST", ["_search"]) => self.state.search(None, &body),
            ("POST", [index, "_search"]) => self.state.search(Some(index), &body),
            ("POST", [index, "_count"]) => self.count(index, &body),
            (method, path) => self.state.manage(method, path, &body),
        };
        Some(outcome.unwrap_or_else(|refused| refused))
    }

    fn bulk(&mut self, lines: &[u8]) -> Option<Reply> {
        let writes = match Write::parse_all(lines) {
            Ok(writes) => writes,
            Err(refused) => return Some(refused),
        };
        let mut items = Vec::with_capacity(writes.len());
        let mut is_lost = false;
        for write in &writes {
            let name = self.state.resolve_name(&write.index).to_owned();
            self.draw_lasting_fault(&name);
            let reply = if self.rng.f64() < self.faults.partial {
                self.refuse_write(&name, write)
            } else {
                self.state.write(write)
            };
            is_lost |= reply.wrote && self.dirty.contains_key(&name);
            items.push(json!({write.action.as_str(): reply.body}));
        }
        (!is_lost).then(|| Reply::ok(json!({"took": 1, "items": items})))
    }

    fn refuse_write(&mut self, index: &str, write: &Write) -> Reply {
        let mut refused = match self.rng.bool() {
            true => Reply::too_many(),
            false => Reply::unavailable(),
        };
        refused.body["_index"] = json!(index);
        refused.body["_id"] = json!(write.id);
        refused
    }

    /// May isolate the primary of an index or fill its disk from now on.
    fn draw_lasting_fault(&mut self, name: &str) {
        let until = self.requests + self.rng.u64(1..=MAX_FAULT_REQUESTS);
        let (dirty, read_only) = (self.rng.f64(), self.rng.f64());
        let Some(index) = self.state.indexes.get_mut(name) else {
            return;
        };
        if dirty < self.faults.dirty && !self.dirty.contains_key(name) {
            let before = (index.clone(), until);
            self.dirty.insert(name.to_owned(), before);
        }
        if read_only < self.faults.read_only && !index.read_only {
            index.read_only = true;
            self.read_only.insert(name.to_owned(), until);
        }
    }

    fn multi_get(&mut self, name: &str, request: &Request, body: &Value) -> Reply {
        let ids = body["ids"].as_array().cloned().unwrap_or_default();
        let concrete = self.state.resolve_name(name).to_owned();
        let docs = ids.iter().map(|id| {
            let id = id.as_str().unwrap_or_default();
            let (is_stale, which) = (self.rng.f64() < self.faults.stale, self.rng.usize(..));
            let mut got = json!({"_index": concrete, "_id": id});
            if self.away.contains(&(concrete.clone(), id.to_owned())) {
                let reason = format!("No shard available for [get [{concrete}][{id}]]");
                let away = Reply::error(503, "no_shard_available_action_exception", &reason);
                got["error"] = away.body["error"].clone();
                return got;
            }
            let index = match self.state.index(name) {
                Ok(index) => index,
                Err(refused) => {
                    got["error"] = refused.body["error"].clone();
                    return got;
                }
            };
            let doc = match (request.has_parameter("realtime=false"), is_stale) {
                (true, _) => index.searchable.get(id),
                (false, true) => index.stale_document(id, which),
                (false, false) => index.live_document(id),
            };
            put_document(&mut got, doc, !request.has_parameter("_source=false"));
            if let Some(field) = request.value("_source_includes") {
                got["_source"] = project_field(got["_source"].take(), Some(field));
            }
            got
        });
        let docs: Vec<Value> = docs.collect();
        Reply::ok(json!({ "docs": docs }))
    }

    fn count(&self, index: &str, body: &Value) -> Result<Reply, Reply> {
        let query = json!({"query": body["query"], "size": 0});
        let found = self.state.search(Some(index), &query)?.body;
        let count = &found["hits"]["total"]["value"];
        Ok(Reply::ok(
            json!({"count": count, "_shards": {"total": 1, "failed": 0}}),
        ))
    }
}

fn put_document(got: &mut Value, doc: Option<&Doc>, with_source: bool) {
    got["found"] = json!(doc.is_some());
    let Some(doc) = doc else { return };
    got["_version"] = json!(doc.version);
    got["_seq_no"] = json!(doc.seq_no);
    got["_primary_term"] = json!(doc.term);
    if with_source {
        got["_source"] = doc.source.as_deref().cloned().unwrap_or_default();
    }
}
