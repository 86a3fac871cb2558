//! Indexes and aliases, stored scripts and pipelines.

use std::collections::BTreeMap;

use reqwest::Method;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::search::Shards;
use super::send::Call;
use super::{Client, name};
use crate::{Error, ErrorKind};

/// A change of an alias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AliasChange<'a> {
    /// Adds this index to the alias, as the one to which the alias writes.
    Add {
        /// The name of the alias.
        alias: &'a str,
        /// The index to add.
        index: &'a str,
    },
    /// Removes this index from the alias.
    Remove {
        /// The name of the alias.
        alias: &'a str,
        /// The index to remove.
        index: &'a str,
    },
}

/// The server's report whether all nodes that must know of the change have acknowledged it.
#[derive(Deserialize)]
struct Acknowledged {
    acknowledged: bool,
}

impl Client {
    /// Creates an index with these `settings`, `mappings` and `aliases`. Returns whether it was
    /// created; an existing index stays unchanged.
    pub async fn create_index(&self, index: &str, definition: &Value) -> Result<bool, Error> {
        const CREATE_CALL: &str = "create index";
        let path = [name::check_index_name(CREATE_CALL, index)?];
        let call = Call::new(CREATE_CALL, Method::PUT, &path)
            .with_query("timeout", self.timeout_parameter())
            .with_json(definition)?;
        let answer = self.send(call).await?;
        if answer.is_success() {
            require_acknowledged(CREATE_CALL, &answer.parse(CREATE_CALL)?)?;
            return Ok(true);
        }
        if answer.has_error_type("resource_already_exists_exception") {
            return Ok(false);
        }
        Err(answer.to_error(CREATE_CALL))
    }

    /// Deletes an index with its documents. Returns whether it existed. An alias is refused.
    pub async fn delete_index(&self, index: &str) -> Result<bool, Error> {
        const DELETE_CALL: &str = "delete index";
        let path = [name::check_index_name(DELETE_CALL, index)?];
        let call = Call::new(DELETE_CALL, Method::DELETE, &path)
            .with_query("timeout", self.timeout_parameter());
        let done = self.send_and_parse::<Acknowledged>(call).await;
        match done {
            Ok(done) => require_acknowledged(DELETE_CALL, &done).map(|()| true),
            Err(error) if error.kind() == ErrorKind::NoIndex => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads the `settings`, `mappings` and `aliases` of an index, `None` if it does not exist. For
    /// an alias, reads the index to which it points.
    pub async fn describe_index(&self, index: &str) -> Result<Option<Value>, Error> {
        const DESCRIBE_CALL: &str = "describe index";
        let path = [name::check_index_name(DESCRIBE_CALL, index)?];
        let call = Call::new(DESCRIBE_CALL, Method::GET, &path);
        match self.send_and_parse::<BTreeMap<String, Value>>(call).await {
            Ok(described) => Ok(described.into_values().next()),
            Err(error) if error.kind() == ErrorKind::NoIndex => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the number of nodes that may hold a copy of an index.
    pub async fn data_nodes(&self) -> Result<u64, Error> {
        #[derive(Deserialize)]
        struct Health {
            number_of_data_nodes: u64,
        }
        let call = Call::new("health", Method::GET, &["_cluster", "health"]);
        Ok(self
            .send_and_parse::<Health>(call)
            .await?
            .number_of_data_nodes)
    }

    /// Whether an index or an alias of this name exists.
    pub async fn index_exists(&self, index: &str) -> Result<bool, Error> {
        Ok(self.describe_index(index).await?.is_some())
    }

    /// Changes settings of an index, such as `{"index": {"refresh_interval": "30s"}}`.
    pub async fn put_settings(&self, index: &str, settings: &Value) -> Result<(), Error> {
        const SETTINGS_CALL: &str = "put settings";
        let path = [name::check_index_name(SETTINGS_CALL, index)?, "_settings"];
        self.put_json(SETTINGS_CALL, &path, settings).await
    }

    /// Adds fields to an index, or configures how it treats unknown fields (`dynamic`). Existing
    /// fields stay mapped as they are.
    pub async fn put_mapping(&self, index: &str, mapping: &Value) -> Result<(), Error> {
        const MAPPING_CALL: &str = "put mapping";
        let path = [name::check_index_name(MAPPING_CALL, index)?, "_mapping"];
        self.put_json(MAPPING_CALL, &path, mapping).await
    }

    /// Points an alias to this index only, atomically, and removes it from all other indexes.
    ///
    /// # Errors
    /// Also if another client switches the alias at the same time: one of the two is refused.
    pub async fn switch_alias(&self, alias: &str, index: &str) -> Result<(), Error> {
        const SWITCH_CALL: &str = "switch alias";
        let (alias, index) = (
            name::check_index_name(SWITCH_CALL, alias)?,
            name::check_index_name(SWITCH_CALL, index)?,
        );
        // Removes indexes by their names: a pattern would also match indexes that are read-only, or
        // to which the client has no access.
        let mut actions: Vec<Value> = self
            .resolve_alias(alias)
            .await?
            .iter()
            .filter(|old| *old != index)
            .map(|old| json!({"remove": {"index": old, "alias": alias, "must_exist": true}}))
            .collect();
        actions.push(json!({"add": {"index": index, "alias": alias, "is_write_index": true}}));
        let call = Call::new(SWITCH_CALL, Method::POST, &["_aliases"])
            .with_query("timeout", self.timeout_parameter())
            .with_json(&json!({"actions": actions}))?;
        require_acknowledged(SWITCH_CALL, &self.send_and_parse(call).await?)
    }

    /// Changes aliases atomically: either all changes are made or none.
    ///
    /// # Errors
    /// Also if an alias to remove does not exist ([`Missing`](ErrorKind::Missing)): another client
    /// changed it before.
    pub async fn change_aliases(&self, changes: &[AliasChange<'_>]) -> Result<(), Error> {
        const CHANGE_CALL: &str = "change aliases";
        let actions: Result<Vec<Value>, Error> = changes
            .iter()
            .map(|change| {
                let (AliasChange::Add { alias, index } | AliasChange::Remove { alias, index }) =
                    *change;
                let (alias, index) = (
                    name::check_index_name(CHANGE_CALL, alias)?,
                    name::check_index_name(CHANGE_CALL, index)?,
                );
                Ok(match change {
                    AliasChange::Add { .. } => {
                        json!({"add": {"index": index, "alias": alias, "is_write_index": true}})
                    }
                    AliasChange::Remove { .. } => {
                        json!({"remove": {"index": index, "alias": alias, "must_exist": true}})
                    }
                })
            })
            .collect();
        let call = Call::new(CHANGE_CALL, Method::POST, &["_aliases"])
            .with_query("timeout", self.timeout_parameter())
            .with_json(&json!({"actions": actions?}))?;
        require_acknowledged(CHANGE_CALL, &self.send_and_parse(call).await?)
    }

    /// Returns the indexes to which an alias points; none if the alias does not exist.
    pub async fn resolve_alias(&self, alias: &str) -> Result<Vec<String>, Error> {
        const ALIAS_CALL: &str = "alias";
        let path = ["_alias", name::check_index_name(ALIAS_CALL, alias)?];
        let call = Call::new(ALIAS_CALL, Method::GET, &path);
        let answer = self.send(call).await?;
        if answer.is_success() {
            let indexes: BTreeMap<String, IgnoredAny> = answer.parse(ALIAS_CALL)?;
            return Ok(indexes.into_keys().collect());
        }
        // A 404 of a proxy whose backend is unavailable does not mean that the alias is missing.
        match answer.status == 404 && answer.is_server_error() {
            true => Ok(Vec::new()),
            false => Err(answer.to_error(ALIAS_CALL)),
        }
    }

    /// Makes all previous writes visible to searches.
    ///
    /// # Errors
    /// Also if part of the index was unreachable.
    pub async fn refresh(&self, index: &str) -> Result<(), Error> {
        #[derive(Deserialize)]
        struct RefreshBody {
            #[serde(rename = "_shards")]
            shards: Shards,
        }
        const REFRESH_CALL: &str = "refresh";
        let path = [name::check_index_name(REFRESH_CALL, index)?, "_refresh"];
        let call = Call::new(REFRESH_CALL, Method::POST, &path);
        self.send_and_parse::<RefreshBody>(call)
            .await?
            .shards
            .require_all(REFRESH_CALL)
    }

    /// Stores a Painless script, and replaces another one of this name.
    pub async fn put_script(&self, id: &str, source: &str) -> Result<(), Error> {
        const SCRIPT_CALL: &str = "put script";
        let path = ["_scripts", name::check_stored_name(SCRIPT_CALL, id)?];
        let body = json!({"script": {"lang": "painless", "source": source}});
        self.put_json(SCRIPT_CALL, &path, &body).await
    }

    /// Stores an ingest pipeline, and replaces another one of this name.
    pub async fn put_pipeline(&self, id: &str, definition: &Value) -> Result<(), Error> {
        const PIPELINE_CALL: &str = "put pipeline";
        let path = [
            "_ingest",
            "pipeline",
            name::check_stored_name(PIPELINE_CALL, id)?,
        ];
        self.put_json(PIPELINE_CALL, &path, definition).await
    }

    async fn put_json(&self, call: &'static str, path: &[&str], body: &Value) -> Result<(), Error> {
        let put = Call::new(call, Method::PUT, path)
            .with_query("timeout", self.timeout_parameter())
            .with_json(body)?;
        require_acknowledged(call, &self.send_and_parse(put).await?)
    }
}

fn require_acknowledged(call: &'static str, done: &Acknowledged) -> Result<(), Error> {
    if done.acknowledged {
        return Ok(());
    }
    let reason = "the change was applied, but not every node has acknowledged it";
    Err(Error::new(call, ErrorKind::TimedOut, reason))
}
