//! An index of the fake: its documents with their versions, the state that searches see, and its
//! mapping.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::mapping;
use super::reply::Reply;

/// The number of earlier states of a document that a stale copy can still return.
const MAX_OLD_STATES: usize = 4;

/// The documents that searches see.
pub(super) type Searchable = Arc<BTreeMap<String, Doc>>;

/// A document or a tombstone.
#[derive(Clone, Debug)]
pub(super) struct Doc {
    pub(super) version: i64,
    pub(super) seq_no: u64,
    pub(super) term: u64,
    pub(super) source: Option<Arc<Value>>,
}

#[derive(Clone, Debug)]
pub(super) struct Index {
    pub(super) definition: Value,
    pub(super) read_only: bool,
    pub(super) searchable: Searchable,
    pub(super) docs: BTreeMap<String, Doc>,
    before: BTreeMap<String, VecDeque<Option<Doc>>>,
    seq_no: u64,
    pub(super) term: u64,
}

/// The condition of a write on the existing document.
#[derive(Clone, Copy, Debug)]
pub(super) enum WriteCondition {
    None,
    Seen(u64, u64),
    Newer(i64),
    NotOlder(i64),
}

impl Index {
    pub(super) fn new(definition: &Value) -> Self {
        let mut definition = definition.clone();
        if !definition.is_object() {
            definition = json!({});
        }
        for part in ["settings", "mappings", "aliases"] {
            if !definition[part].is_object() {
                definition[part] = json!({});
            }
        }
        Self {
            definition,
            read_only: false,
            searchable: Arc::default(),
            docs: BTreeMap::new(),
            before: BTreeMap::new(),
            seq_no: 0,
            term: 1,
        }
    }

    pub(super) fn refresh(&mut self) {
        let live = self.docs.iter().filter(|(_, doc)| doc.source.is_some());
        self.searchable = Arc::new(live.map(|(id, doc)| (id.clone(), doc.clone())).collect());
    }

    /// Whether searches see writes after a while without a refresh request.
    pub(super) fn refreshes_itself(&self) -> bool {
        let settings = &self.definition["settings"];
        let interval = [
            &settings["refresh_interval"],
            &settings["index.refresh_interval"],
            &settings["index"]["refresh_interval"],
        ];
        !interval
            .iter()
            .any(|one| **one == json!(-1) || **one == json!("-1"))
    }

    pub(super) fn live_document(&self, id: &str) -> Option<&Doc> {
        self.docs.get(id).filter(|doc| doc.source.is_some())
    }

    /// The answer of a stale copy: one of the states before the last.
    pub(super) fn stale_document(&self, id: &str, which: usize) -> Option<&Doc> {
        let before = self.before.get(id);
        let state = before.and_then(|states| states.get(which % states.len().max(1)));
        match state {
            Some(state) => state.as_ref().filter(|doc| doc.source.is_some()),
            None => self.live_document(id),
        }
    }

    /// Puts a document, unless the existing one does not satisfy the condition.
    pub(super) fn put(
        &mut self,
        id: &str,
        source: Value,
        is_new: bool,
        demand: WriteCondition,
    ) -> Result<Reply, Reply> {
        self.check_writable()?;
        mapping::admit_document(&mut self.definition["mappings"], id, &source)?;
        if is_new && let Some(doc) = self.live_document(id) {
            let now = doc.version;
            return Err(conflict_reply(
                id,
                &format!("document already exists (current version [{now}])"),
            ));
        }
        let version = self.next_version(id, demand)?;
        let result = match self.live_document(id) {
            Some(_) => (200, "updated"),
            None => (201, "created"),
        };
        Ok(self.record_write(id, version, Some(source), result))
    }

    /// Deletes a document, or creates a tombstone if there is no document.
    pub(super) fn delete(&mut self, id: &str, demand: WriteCondition) -> Result<Reply, Reply> {
        self.check_writable()?;
        let version = self.next_version(id, demand)?;
        let result = match self.live_document(id) {
            Some(_) => (200, "deleted"),
            None => (404, "not_found"),
        };
        Ok(self.record_write(id, version, None, result))
    }

    /// Runs a script on an existing document.
    pub(super) fn update(
        &mut self,
        id: &str,
        demand: WriteCondition,
        run: impl FnOnce(&mut Value) -> Result<(), Reply>,
    ) -> Result<Reply, Reply> {
        self.check_writable()?;
        let doc = self.live_document(id).cloned().ok_or_else(|| {
            let reason = format!("[{id}]: document missing");
            Reply::error(404, "document_missing_exception", &reason)
        })?;
        let version = self.next_version(id, demand)?;
        let source = doc.source.as_deref().cloned().unwrap_or_default();
        let mut context = json!({"_source": source, "op": "index"});
        run(&mut context)?;
        match context["op"].as_str() {
            Some("index" | "create") => {
                let source = context["_source"].take();
                mapping::admit_document(&mut self.definition["mappings"], id, &source)?;
                Ok(self.record_write(id, version, Some(source), (200, "updated")))
            }
            Some("delete") => Ok(self.record_write(id, version, None, (200, "deleted"))),
            // The server logs an unknown operation and does nothing.
            _ => Ok(write_reply(id, &doc, (200, "noop"))),
        }
    }

    /// Starts a new term for the primary. If a state is given, it replaces everything that was
    /// written since.
    pub(super) fn promote(&mut self, state: Option<Self>) {
        let (term, read_only) = (self.term + 1, self.read_only);
        if let Some(state) = state {
            *self = state;
        }
        (self.term, self.read_only) = (term, read_only);
    }

    /// Whether the index itself may be changed. When the disk is full, the index may be deleted,
    /// but none of its documents.
    pub(super) fn check_changeable(&self) -> Result<(), Reply> {
        if self.read_only || self.is_blocked("read_only_allow_delete") {
            let reason = "index blocked by: [TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage \
                          watermark, index has read-only-allow-delete block];";
            return Err(Reply::error(429, "cluster_block_exception", reason));
        }
        Ok(())
    }

    /// Whether the index accepts writes.
    fn check_writable(&self) -> Result<(), Reply> {
        self.check_changeable()?;
        if self.is_blocked("write") {
            let reason = "index blocked by: [FORBIDDEN/8/index write (api)];";
            return Err(Reply::error(403, "cluster_block_exception", reason));
        }
        Ok(())
    }

    fn is_blocked(&self, name: &str) -> bool {
        let block = &self.definition["settings"]["index"]["blocks"][name];
        *block == json!(true) || *block == json!("true")
    }

    /// The version that a write gives the document, if the condition holds.
    fn next_version(&self, id: &str, demand: WriteCondition) -> Result<i64, Reply> {
        let there = self.docs.get(id);
        let now = there.map(|doc| doc.version);
        let next = now.map_or(1, |now| now + 1);
        match demand {
            WriteCondition::None => Ok(next),
            WriteCondition::Seen(seq_no, term) => match self.live_document(id) {
                Some(doc) if (doc.seq_no, doc.term) == (seq_no, term) => Ok(next),
                _ => Err(conflict_reply(id, "it is not as it was seen")),
            },
            WriteCondition::Newer(version) if now.is_none_or(|now| now < version) => Ok(version),
            WriteCondition::NotOlder(version) if now.is_none_or(|now| now <= version) => {
                Ok(version)
            }
            WriteCondition::Newer(version) | WriteCondition::NotOlder(version) => {
                let reason = format!("current version is not lower than [{version}]");
                Err(conflict_reply(id, &reason))
            }
        }
    }

    fn record_write(
        &mut self,
        id: &str,
        version: i64,
        source: Option<Value>,
        result: (u16, &str),
    ) -> Reply {
        let doc = Doc {
            version,
            seq_no: self.seq_no,
            term: self.term,
            source: source.map(Arc::new),
        };
        self.seq_no += 1;
        let states = self.before.entry(id.to_owned()).or_default();
        if states.len() == MAX_OLD_STATES {
            states.pop_front();
        }
        states.push_back(self.docs.insert(id.to_owned(), doc.clone()));
        Reply {
            wrote: true,
            ..write_reply(id, &doc, result)
        }
    }
}

fn write_reply(id: &str, doc: &Doc, (status, result): (u16, &str)) -> Reply {
    let mut body = Map::new();
    body.insert("_id".into(), id.into());
    body.insert("_version".into(), doc.version.into());
    body.insert("result".into(), result.into());
    body.insert("_seq_no".into(), doc.seq_no.into());
    body.insert("_primary_term".into(), doc.term.into());
    Reply {
        status,
        body: body.into(),
        wrote: false,
    }
}

fn conflict_reply(id: &str, why: &str) -> Reply {
    let reason = format!("[{id}]: version conflict, {why}");
    Reply::error(409, "version_conflict_engine_exception", &reason)
}
