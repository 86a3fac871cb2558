//! Creation and checks of the indexes, before anything is written.

use serde_json::{Value, json};

use super::failure::Failure;
use super::store::Store;
use super::stored::{DOCUMENTS_MAPPING, SCRIPTS, TIMES_PIPELINE, TRANSACTIONS_MAPPING};
use crate::{Error, ErrorKind};

impl Store {
    pub(super) async fn prepare(&self, replicas: u8) -> Result<(), Failure> {
        // Existing indexes are checked before any is created.
        let mut absent = Vec::new();
        let mut copied = None;
        for (index, mapping) in self.index_mappings() {
            let described = self.client.describe_index(index).await;
            let has_replicas = match described.map_err(Failure::Unavailable)? {
                Some(described) => {
                    check_index(&described, &parse_json(mapping)?)
                        .map_err(|rule| misconfigured(index, rule))?;
                    replica_count(&described) != "0"
                }
                None => {
                    absent.push((index, mapping));
                    replicas > 0
                }
            };
            copied = copied.or(has_replicas.then_some(index));
        }
        if let Some(index) = copied {
            self.require_two_data_nodes(index).await?;
        }
        for (index, mapping) in absent {
            let definition = json!({
                "settings": {"index": {
                    "number_of_replicas": replicas.to_string(),
                    "translog.durability": "request",
                    "write.wait_for_active_shards": if replicas == 0 { 1 } else { 2 }.to_string(),
                }},
                "mappings": parse_json(mapping)?,
            });
            let created = self.client.create_index(index, &definition).await;
            created.map_err(Failure::Unavailable)?;
        }
        self.put_scripts().await
    }

    /// Requires two data nodes: with one, a write that waits for a second copy never completes.
    async fn require_two_data_nodes(&self, index: &str) -> Result<(), Failure> {
        match self.client.data_nodes().await {
            Ok(0 | 1) => Err(misconfigured(
                index,
                "requires two nodes to acknowledge a write, but only one node holds data: create \
                 it with 0 replicas (--replicas 0), or add a second node",
            )),
            Ok(_) => Ok(()),
            Err(error) => Err(Failure::Unavailable(error)),
        }
    }

    /// Stores the scripts and the pipeline.
    pub(super) async fn put_scripts(&self) -> Result<(), Failure> {
        for (id, source) in SCRIPTS {
            let stored = self.client.put_script(id, source).await;
            stored.map_err(Failure::Unavailable)?;
        }
        let stored = self
            .client
            .put_pipeline(TIMES_PIPELINE.0, &parse_json(TIMES_PIPELINE.1)?)
            .await;
        stored.map_err(Failure::Unavailable)
    }

    /// Checks that acknowledged writes persist, and that fields have the expected types.
    pub(super) async fn check(&self) -> Result<(), Failure> {
        for (index, mapping) in self.index_mappings() {
            let described = self.client.describe_index(index).await;
            let described = described.map_err(Failure::Unavailable)?;
            let described = described.ok_or_else(|| misconfigured(index, "does not exist"))?;
            check_index(&described, &parse_json(mapping)?)
                .map_err(|rule| misconfigured(index, rule))?;
        }
        Ok(())
    }

    /// Checks that acknowledged writes persist, regardless of the fields.
    pub(super) async fn require_durability(&self) -> Result<(), Failure> {
        for (index, _) in self.index_mappings() {
            let described = self.client.describe_index(index).await;
            let described = described.map_err(Failure::Unavailable)?;
            let described = described.ok_or_else(|| misconfigured(index, "does not exist"))?;
            check_durability(&described).map_err(|rule| misconfigured(index, rule))?;
        }
        Ok(())
    }

    /// Adds missing fields to existing indexes, and makes strict ones not strict: no coordinator
    /// works on them until they are strict again, because recovery would run transactions that are
    /// only partly adopted.
    pub(super) async fn put_fields(&self) -> Result<(), Failure> {
        for (index, mapping) in self.index_mappings() {
            let mapping = parse_json(mapping)?;
            let fields = json!({"dynamic": "false", "properties": mapping["properties"]});
            self.put_mapping(index, &fields).await?;
        }
        Ok(())
    }

    /// Makes the indexes reject unknown fields.
    pub(super) async fn require_strict_mapping(&self) -> Result<(), Failure> {
        for (index, _) in self.index_mappings() {
            self.put_mapping(index, &json!({"dynamic": "strict"}))
                .await?;
        }
        Ok(())
    }

    async fn put_mapping(&self, index: &str, mapping: &Value) -> Result<(), Failure> {
        match self.client.put_mapping(index, mapping).await {
            Err(error) if error.kind() == ErrorKind::Refused => Err(Failure::Misconfigured(
                format!("the index {index}: {error}"),
            )),
            done => done.map_err(Failure::Unavailable),
        }
    }

    fn index_mappings(&self) -> [(&str, &'static str); 2] {
        let (documents, transactions) = (self.documents.as_str(), self.transactions.as_str());
        [
            (documents, DOCUMENTS_MAPPING),
            (transactions, TRANSACTIONS_MAPPING),
        ]
    }
}

fn parse_json(text: &str) -> Result<Value, Failure> {
    serde_json::from_str(text)
        .map_err(|error| Failure::Unavailable(Error::invalid("prepare", error.to_string())))
}

fn misconfigured(index: &str, rule: &str) -> Failure {
    Failure::Misconfigured(format!("the index {index} {rule}"))
}

fn replica_count(described: &Value) -> &str {
    let replicas = described.pointer("/settings/index/number_of_replicas");
    replicas.and_then(Value::as_str).unwrap_or("1")
}

/// Returns the durability rule that an index breaks, if any.
fn check_durability(described: &Value) -> Result<(), &'static str> {
    let says = |path: &str| described.pointer(path).and_then(Value::as_str);
    if says("/settings/index/translog/durability").is_some_and(|how| how != "request") {
        return Err(
            "acknowledges writes that are not on disk: index.translog.durability must be request",
        );
    }
    if says("/settings/index/auto_expand_replicas").is_some_and(|range| range != "false") {
        return Err(
            "gets and loses replicas as nodes come and go, and no write waits for them: \
             index.auto_expand_replicas must be false",
        );
    }
    let replicas = replica_count(described);
    let waits_for = says("/settings/index/write/wait_for_active_shards").unwrap_or("1");
    if replicas != "0" && matches!(waits_for, "0" | "1") {
        return Err(
            "has replicas and acknowledges writes that only the primary has: \
             index.write.wait_for_active_shards must be 2 or more",
        );
    }
    Ok(())
}

/// Returns the rule that an index breaks, if any. It may have more fields than the mapping.
fn check_index(described: &Value, mapping: &Value) -> Result<(), &'static str> {
    check_durability(described)?;
    let dynamic = described.pointer("/mappings/dynamic");
    if dynamic.and_then(Value::as_str) != Some("strict") {
        return Err("accepts unknown fields: its mapping must be strict");
    }
    match includes_mapping(&described["mappings"]["properties"], &mapping["properties"]) {
        true => Ok(()),
        false => Err("has a different mapping than the two-phase commit needs"),
    }
}

fn includes_mapping(found: &Value, needed: &Value) -> bool {
    match needed {
        Value::Object(fields) => fields.iter().all(|(name, field)| {
            let implied = name == "type" && field == "object";
            implied || includes_mapping(&found[name], field)
        }),
        needed => found == needed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index_description(settings: Value, mappings: Value) -> Value {
        json!({"settings": {"index": settings}, "mappings": mappings})
    }

    #[test]
    fn unsafe_indexes_are_refused_with_the_rule() {
        let mapping = parse_json(DOCUMENTS_MAPPING).unwrap();
        let none = json!({"number_of_replicas": "0"});
        let judged = |settings: &Value, mappings: &Value| {
            let index = index_description(settings.clone(), mappings.clone());
            check_index(&index, &mapping).err().unwrap_or("fits")
        };
        assert_eq!(judged(&none, &mapping), "fits");
        let two = json!({"number_of_replicas": "1", "write": {"wait_for_active_shards": "2"}});
        assert_eq!(judged(&two, &mapping), "fits");
        let one = json!({"number_of_replicas": "1"});
        assert!(judged(&one, &mapping).contains("wait_for_active_shards"));
        let expands = json!({"number_of_replicas": "0", "auto_expand_replicas": "0-1"});
        assert!(judged(&expands, &mapping).contains("auto_expand_replicas"));
        let late = json!({"number_of_replicas": "0", "translog": {"durability": "async"}});
        assert!(judged(&late, &mapping).contains("translog.durability"));
        assert!(judged(&none, &json!({})).contains("strict"));
        let mut other = mapping.clone();
        other["properties"]["balance"]["type"] = "keyword".into();
        assert!(judged(&none, &other).contains("a different mapping"));
        let mut more = mapping.clone();
        more["properties"]["owner"] = json!({"type": "keyword"});
        assert_eq!(judged(&none, &more), "fits");
    }
}
