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
        const CREATE: &str = "create index";
        let path = [name::index(CREATE, index)?];
        let call = Call::new(CREATE, Method::PUT, &path)
            .with("timeout", self.patience())
            .json(definition)?;
        let answer = self.send(call).await?;
        if answer.is_success() {
            acknowledged(CREATE, &answer.read(CREATE)?)?;
            return Ok(true);
        }
        if answer.names("resource_already_exists_exception") {
            return Ok(false);
        }
        Err(answer.error(CREATE))
    }

    /// Deletes an index with its documents. Returns whether it existed. An alias is refused.
    pub async fn delete_index(&self, index: &str) -> Result<bool, Error> {
        const DELETE: &str = "delete index";
        let path = [name::index(DELETE, index)?];
        let call = Call::new(DELETE, Method::DELETE, &path).with("timeout", self.patience());
        let done = self.ask::<Acknowledged>(call).await;
        match done {
            Ok(done) => acknowledged(DELETE, &done).map(|()| true),
            Err(error) if error.kind() == ErrorKind::NoIndex => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads the `settings`, `mappings` and `aliases` of an index, `None` if it does not exist. For
    /// an alias, reads the index to which it points.
    pub async fn describe_index(&self, index: &str) -> Result<Option<Value>, Error> {
        const DESCRIBE: &str = "describe index";
        let path = [name::index(DESCRIBE, index)?];
        let call = Call::new(DESCRIBE, Method::GET, &path);
        match self.ask::<BTreeMap<String, Value>>(call).await {
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
        Ok(self.ask::<Health>(call).await?.number_of_data_nodes)
    }

    /// Whether an index or an alias of this name exists.
    pub async fn index_exists(&self, index: &str) -> Result<bool, Error> {
        Ok(self.describe_index(index).await?.is_some())
    }

    /// Changes settings of an index, such as `{"index": {"refresh_interval": "30s"}}`.
    pub async fn put_settings(&self, index: &str, settings: &Value) -> Result<(), Error> {
        const SETTINGS: &str = "put settings";
        let path = [name::index(SETTINGS, index)?, "_settings"];
        self.put(SETTINGS, &path, settings).await
    }

    /// Adds fields to an index, or configures how it treats unknown fields (`dynamic`). Existing
    /// fields stay mapped as they are.
    pub async fn put_mapping(&self, index: &str, mapping: &Value) -> Result<(), Error> {
        const MAPPING: &str = "put mapping";
        let path = [name::index(MAPPING, index)?, "_mapping"];
        self.put(MAPPING, &path, mapping).await
    }

    /// Points an alias to this index only, atomically, and removes it from all other indexes.
    ///
    /// # Errors
    /// Also if another client switches the alias at the same time: one of the two is refused.
    pub async fn switch_alias(&self, alias: &str, index: &str) -> Result<(), Error> {
        const SWITCH: &str = "switch alias";
        let (alias, index) = (name::index(SWITCH, alias)?, name::index(SWITCH, index)?);
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
        let call = Call::new(SWITCH, Method::POST, &["_aliases"])
            .with("timeout", self.patience())
            .json(&json!({"actions": actions}))?;
        acknowledged(SWITCH, &self.ask(call).await?)
    }

    /// Changes aliases atomically: either all changes are made or none.
    ///
    /// # Errors
    /// Also if an alias to remove does not exist ([`Missing`](ErrorKind::Missing)): another client
    /// changed it before.
    pub async fn change_aliases(&self, changes: &[AliasChange<'_>]) -> Result<(), Error> {
        const CHANGE: &str = "change aliases";
        let actions: Result<Vec<Value>, Error> = changes
            .iter()
            .map(|change| {
                let (AliasChange::Add { alias, index } | AliasChange::Remove { alias, index }) =
                    *change;
                let (alias, index) = (name::index(CHANGE, alias)?, name::index(CHANGE, index)?);
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
        let call = Call::new(CHANGE, Method::POST, &["_aliases"])
            .with("timeout", self.patience())
            .json(&json!({"actions": actions?}))?;
        acknowledged(CHANGE, &self.ask(call).await?)
    }

    /// Returns the indexes to which an alias points; none if the alias does not exist.
    pub async fn resolve_alias(&self, alias: &str) -> Result<Vec<String>, Error> {
        const ALIAS: &str = "alias";
        let path = ["_alias", name::index(ALIAS, alias)?];
        let call = Call::new(ALIAS, Method::GET, &path);
        let answer = self.send(call).await?;
        if answer.is_success() {
            let indexes: BTreeMap<String, IgnoredAny> = answer.read(ALIAS)?;
            return Ok(indexes.into_keys().collect());
        }
        // A 404 of a proxy whose backend is unavailable does not mean that the alias is missing.
        match answer.status == 404 && answer.is_the_servers() {
            true => Ok(Vec::new()),
            false => Err(answer.error(ALIAS)),
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
        const REFRESH: &str = "refresh";
        let path = [name::index(REFRESH, index)?, "_refresh"];
        let call = Call::new(REFRESH, Method::POST, &path);
        self.ask::<RefreshBody>(call).await?.shards.all(REFRESH)
    }

    /// Stores a Painless script, and replaces another one of this name.
    pub async fn put_script(&self, id: &str, source: &str) -> Result<(), Error> {
        const SCRIPT: &str = "put script";
        let path = ["_scripts", name::thing(SCRIPT, id)?];
        let body = json!({"script": {"lang": "painless", "source": source}});
        self.put(SCRIPT, &path, &body).await
    }

    /// Stores an ingest pipeline, and replaces another one of this name.
    pub async fn put_pipeline(&self, id: &str, definition: &Value) -> Result<(), Error> {
        const PIPELINE: &str = "put pipeline";
        let path = ["_ingest", "pipeline", name::thing(PIPELINE, id)?];
        self.put(PIPELINE, &path, definition).await
    }

    async fn put(&self, call: &'static str, path: &[&str], body: &Value) -> Result<(), Error> {
        let put = Call::new(call, Method::PUT, path)
            .with("timeout", self.patience())
            .json(body)?;
        acknowledged(call, &self.ask(put).await?)
    }
}

fn acknowledged(call: &'static str, done: &Acknowledged) -> Result<(), Error> {
    if done.acknowledged {
        return Ok(());
    }
    let reason = "the change was applied, but not every node has acknowledged it";
    Err(Error::new(call, ErrorKind::TimedOut, reason))
}
