//! The state of the fake, and each call that it knows. Nothing here is random.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::index::Index;
use super::moments::Moments;
use super::query;
use super::reply::Reply;
use super::write::Write;

/// A stored script, as a function of `ctx` (with `_source`, `op` and `_now`) and its parameters.
pub(super) type Script = Arc<dyn Fn(&mut Value, &Value) -> Result<(), String> + Send + Sync>;

/// The first time of its clock, which advances by a millisecond for each request.
const FIRST_TIME: i64 = 1_767_225_600_000;

#[derive(Clone)]
pub(super) struct State {
    pub(super) indexes: BTreeMap<String, Index>,
    aliases: BTreeMap<String, BTreeSet<String>>,
    stored: BTreeSet<String>,
    pub(super) scripts: BTreeMap<String, Script>,
    pipelines: BTreeMap<String, Value>,
    pub(super) moments: Moments,
    /// Whether it is an Elasticsearch, which has different calls for points in time and does not
    /// sort by the ID of a document.
    pub(super) is_elasticsearch: bool,
    pub(super) now: i64,
}

impl Default for State {
    fn default() -> Self {
        Self {
            indexes: BTreeMap::new(),
            aliases: BTreeMap::new(),
            stored: BTreeSet::new(),
            scripts: BTreeMap::new(),
            pipelines: BTreeMap::new(),
            moments: Moments::default(),
            is_elasticsearch: false,
            now: FIRST_TIME,
        }
    }
}

impl State {
    /// Resolves the name of an index or an alias to the name of the index.
    pub(super) fn resolve_name<'a>(&'a self, name: &'a str) -> &'a str {
        let aliased = self.aliases.get(name).and_then(BTreeSet::first);
        aliased.map_or(name, String::as_str)
    }

    pub(super) fn index(&self, name: &str) -> Result<&Index, Reply> {
        let index = self.indexes.get(self.resolve_name(name));
        index.ok_or_else(|| Reply::no_index(name))
    }

    /// Handles a call that reads or changes something other than a document.
    pub(super) fn manage(
        &mut self,
        method: &str,
        path: &[&str],
        body: &Value,
    ) -> Result<Reply, Reply> {
        if let Some(reply) = self.moment(method, path, body) {
            return reply;
        }
        match (method, path) {
            ("GET", []) => {
                let version = match self.is_elasticsearch {
                    true => json!({"number": "8.19.0"}),
                    false => json!({"number": "2.19.0", "distribution": "opensearch"}),
                };
                Ok(Reply::ok(
                    json!({"cluster_name": "fake", "version": version}),
                ))
            }
            ("GET", ["_cluster", "health"]) => Ok(Reply::ok(json!({"number_of_data_nodes": 1}))),
            ("PUT", ["_scripts", id]) => {
                self.stored.insert((*id).to_owned());
                Ok(Reply::acknowledged())
            }
            ("PUT", ["_ingest", "pipeline", id]) => {
                self.pipelines.insert((*id).to_owned(), body.clone());
                Ok(Reply::acknowledged())
            }
            ("POST", ["_aliases"]) => self.change_aliases(body),
            ("GET", ["_alias", alias]) => {
                let held = self.aliases.get(*alias).filter(|held| !held.is_empty());
                let held = held.ok_or_else(|| {
                    let error = format!("alias [{alias}] missing");
                    let body = json!({"error": error, "status": 404});
                    Reply {
                        status: 404,
                        ..Reply::ok(body)
                    }
                })?;
                let held = held.iter().map(|index| (index.clone(), json!({})));
                Ok(Reply::ok(Value::Object(held.collect())))
            }
            ("POST", [index, "_refresh"]) => {
                self.index(index)?;
                let name = self.resolve_name(index).to_owned();
                if let Some(index) = self.indexes.get_mut(&name) {
                    index.refresh();
                }
                Ok(Reply::ok(
                    json!({"_shards": {"total": 1, "successful": 1, "failed": 0}}),
                ))
            }
            ("PUT", [index, "_settings"]) => {
                self.index(index)?;
                let name = self.resolve_name(index).to_owned();
                if let Some(index) = self.indexes.get_mut(&name) {
                    merge_settings(&mut index.definition["settings"], body);
                }
                Ok(Reply::acknowledged())
            }
            ("PUT", [index, "_mapping"]) => {
                let known = &self.index(index)?.definition["mappings"]["properties"];
                for (field, wanted) in body["properties"].as_object().into_iter().flatten() {
                    let (has, wanted) = (&known[field]["type"], &wanted["type"]);
                    if !has.is_null() && has != wanted {
                        let reason = format!(
                            "mapper [{field}] cannot be changed from type [{has}] to [{wanted}]"
                        );
                        return Err(Reply::error(400, "illegal_argument_exception", &reason));
                    }
                }
                let name = self.resolve_name(index).to_owned();
                if let Some(index) = self.indexes.get_mut(&name) {
                    merge_settings(&mut index.definition["mappings"], body);
                }
                Ok(Reply::acknowledged())
            }
            ("PUT", [index]) => self.create(index, body),
            ("DELETE", [index]) => self.delete(index),
            ("GET", [index]) => {
                let definition = self.index(index)?.definition.clone();
                Ok(Reply::ok(json!({self.resolve_name(index): definition})))
            }
            _ => {
                let reason = format!("no handler found for {method} /{}", path.join("/"));
                Err(Reply::error(400, "illegal_argument_exception", &reason))
            }
        }
    }

    fn create(&mut self, name: &str, definition: &Value) -> Result<Reply, Reply> {
        if self.indexes.contains_key(self.resolve_name(name)) {
            let reason = format!("index [{name}] already exists");
            let named = "resource_already_exists_exception";
            return Err(Reply::error(400, named, &reason));
        }
        for alias in definition["aliases"].as_object().into_iter().flatten() {
            let held = self.aliases.entry(alias.0.clone()).or_default();
            held.insert(name.to_owned());
        }
        self.indexes.insert(name.to_owned(), Index::new(definition));
        Ok(Reply::acknowledged())
    }

    fn delete(&mut self, name: &str) -> Result<Reply, Reply> {
        if self.resolve_name(name) != name {
            let reason = format!(
                "The provided expression [{name}] matches an alias, specify the corresponding \
                 concrete indices instead."
            );
            return Err(Reply::error(400, "illegal_argument_exception", &reason));
        }
        self.indexes
            .remove(name)
            .ok_or_else(|| Reply::no_index(name))?;
        for held in self.aliases.values_mut() {
            held.remove(name);
        }
        Ok(Reply::acknowledged())
    }

    fn change_aliases(&mut self, body: &Value) -> Result<Reply, Reply> {
        let actions = body["actions"].as_array().into_iter().flatten();
        let actions = actions.filter_map(Value::as_object).flatten();
        let text = |what: &Value, name: &str| what[name].as_str().unwrap_or_default().to_owned();
        // Whether each index may be changed is checked before any is changed.
        for (_, what) in actions.clone() {
            let index = text(what, "index");
            let at = self.indexes.get(&index);
            at.ok_or_else(|| Reply::no_index(&index))?
                .check_changeable()?;
        }
        let mut aliases = self.aliases.clone();
        for (action, what) in actions {
            let (alias, index) = (text(what, "alias"), text(what, "index"));
            let held = aliases.entry(alias).or_default();
            let was_held = held.remove(&index);
            match action.as_str() {
                "remove" if was_held => {}
                "remove" => {
                    let named = "aliases_not_found_exception";
                    return Err(Reply::error(404, named, "required alias does not exist"));
                }
                _ => drop(held.insert(index)),
            }
        }
        // An alias has one index for writes.
        if aliases.values().any(|held| held.len() > 1) {
            let reason = "alias has more than one write index";
            return Err(Reply::error(400, "illegal_argument_exception", reason));
        }
        self.aliases = aliases;
        Ok(Reply::acknowledged())
    }

    /// Executes one write of a bulk request.
    pub(super) fn write(&mut self, write: &Write) -> Reply {
        let name = self.resolve_name(&write.index).to_owned();
        let mut reply = self
            .try_write(&name, write)
            .unwrap_or_else(|refused| refused);
        reply.body["_index"] = json!(name);
        reply.body["_id"] = json!(write.id);
        reply.body["status"] = json!(reply.status);
        reply
    }

    fn try_write(&mut self, name: &str, write: &Write) -> Result<Reply, Reply> {
        let Write {
            id, demand, body, ..
        } = write;
        if write.by_alias && name == write.index {
            return Err(Reply::no_index(name));
        }
        let source = self.run_pipeline(write.pipeline.as_deref(), body)?;
        let run = self.script(body);
        if !self.indexes.contains_key(name) {
            // The first write to an index creates it; an update needs an existing document.
            self.create(name, &Value::Null)?;
        }
        let Some(index) = self.indexes.get_mut(name) else {
            return Err(Reply::no_index(name));
        };
        match write.action.as_str() {
            "index" => index.put(id, source, false, *demand),
            "create" => index.put(id, source, true, *demand),
            "delete" => index.delete(id, *demand),
            _ => index.update(id, *demand, |context| run?(context)),
        }
    }

    fn run_pipeline(&self, pipeline: Option<&str>, source: &Value) -> Result<Value, Reply> {
        let mut source = source.clone();
        let Some(name) = pipeline else {
            return Ok(source);
        };
        let pipeline = self.pipelines.get(name).ok_or_else(|| {
            let reason = format!("pipeline with id [{name}] does not exist");
            Reply::error(400, "illegal_argument_exception", &reason)
        })?;
        for processor in pipeline["processors"].as_array().into_iter().flatten() {
            let set = &processor["set"];
            let field = set["field"].as_str().unwrap_or_default();
            let value = match set["value"].as_str() {
                Some("{{_ingest.timestamp}}") => json!(format_time(self.now)),
                _ => set["value"].clone(),
            };
            source[field.strip_prefix("_source.").unwrap_or(field)] = value;
        }
        Ok(source)
    }

    fn script(
        &self,
        body: &Value,
    ) -> Result<impl FnOnce(&mut Value) -> Result<(), Reply> + use<>, Reply> {
        let id = body["script"]["id"].as_str().unwrap_or_default().to_owned();
        let params = body["script"]["params"].clone();
        let failed = |why: &str| {
            let reason = format!("failed to execute script: {why}");
            Reply::error(400, "illegal_argument_exception", &reason)
        };
        let script = self.scripts.get(&id).cloned();
        let stored = self.stored.contains(&id);
        let now = self.now;
        if !stored {
            return Err(failed(&format!(
                "unable to find script [{id}] in cluster state"
            )));
        }
        let script = script.ok_or_else(|| failed("nobody has told the fake what it does"))?;
        Ok(move |context: &mut Value| {
            context["_now"] = json!(now);
            script(context, &params).map_err(|why| failed(&why))
        })
    }

    /// Searches or counts documents.
    pub(super) fn search(&self, index: Option<&str>, body: &Value) -> Result<Reply, Reply> {
        let (name, searchable) = match index {
            Some(index) => {
                let searchable = self.index(index)?.searchable.clone();
                (self.resolve_name(index).to_owned(), searchable)
            }
            None => {
                let id = body["pit"]["id"].as_str().unwrap_or_default();
                let held = self.moments.get(id);
                let reason = "No search context found for id";
                let gone = || Reply::error(404, "search_context_missing_exception", reason);
                held.ok_or_else(gone)?
            }
        };
        query::refuse_unsortable(&body["sort"], self.is_elasticsearch)?;
        let mappings = self.indexes.get(&name);
        let mappings = mappings.map_or(&Value::Null, |index| &index.definition["mappings"]);
        let mut found = Vec::new();
        for (id, doc) in searchable.iter() {
            if query::matches_query(&body["query"], id, doc, mappings, self.now)? {
                found.push((query::sort_keys(&body["sort"], id, doc, mappings), id, doc));
            }
        }
        found.sort_by(|one, other| query::compare_hits(&body["sort"], &one.0, &other.0));
        let total = found.len();
        if let Some(after) = body["search_after"].as_array() {
            found.retain(|one| query::compare_hits(&body["sort"], &one.0, after).is_gt());
        }
        let size = body["size"].as_u64().unwrap_or(10);
        found.truncate(usize::try_from(size).unwrap_or(usize::MAX));
        let hits = found.into_iter().map(|(keys, id, doc)| {
            let mut hit = json!({"_index": name, "_id": id});
            if body["version"] == json!(true) {
                hit["_version"] = json!(doc.version);
            }
            if body["seq_no_primary_term"] == json!(true) {
                hit["_seq_no"] = json!(doc.seq_no);
                hit["_primary_term"] = json!(doc.term);
            }
            if body["_source"] != json!(false) {
                let source = doc.source.as_deref().cloned().unwrap_or_default();
                hit["_source"] = project_field(source, body["_source"].as_str());
            }
            if !keys.is_empty() {
                hit["sort"] = json!(keys);
            }
            hit
        });
        let mut answer = json!({"timed_out": false, "_shards": {"total": 1, "failed": 0},
            "hits": {"total": {"value": total, "relation": "eq"},
            "hits": hits.collect::<Vec<_>>()}});
        if index.is_none() {
            answer["pit_id"] = body["pit"]["id"].clone();
        }
        Ok(Reply::ok(answer))
    }
}

/// Returns a document, or one of its fields.
pub(super) fn project_field(source: Value, field: Option<&str>) -> Value {
    match (field, source) {
        (Some(field), Value::Object(mut fields)) => {
            fields.retain(|name, _| name == field);
            Value::Object(fields)
        }
        (_, source) => source,
    }
}

/// Merges settings by their names, with dots or as objects. A null removes a setting.
fn merge_settings(into: &mut Value, from: &Value) {
    let Some(from) = from.as_object() else { return };
    for (name, value) in from {
        match value {
            Value::Null => drop(into.as_object_mut().and_then(|into| into.remove(name))),
            Value::Object(_) => merge_settings(&mut into[name], value),
            value => into[name] = value.clone(),
        }
    }
}

/// Formats a time as the server does.
fn format_time(now: i64) -> String {
    Timestamp::from_millisecond(now).map_or_else(|_| String::new(), |now| now.to_string())
}
