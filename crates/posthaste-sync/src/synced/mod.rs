//! A synced table of a configuration file: its rows, its documents and its index. Pure, except for
//! opening the index.

mod rows;
mod target;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio_postgres::Client;

use super::{Index, IndexSync, Proof, Source, SyncBuilder, SyncOptions, queue};
use crate::store::Connections;
use crate::store::install::{SyncTableArguments, install_statement};
use posthaste::settings::Fields;
use posthaste::{Database, Error};
use rows::ConfiguredRows;
use target::IndexTarget;

/// The longest name of a synced table, in bytes: sequences and functions are named after it.
const MAX_NAME_BYTES: usize = 40;

/// A synced table of a configuration file: a table whose rows are indexed.
///
/// | setting | meaning |
/// |---|---|
/// | `index` | the address of the index, see below; the only required setting |
/// | `table` | the table, with its schema if necessary; the name of the sync by default |
/// | `id`, `version` | the key column (`id`) and the version column (`posthaste_version`) |
/// | `deleted` | a boolean column that hides rows from searches |
/// | `delay` | time from a change until its job is due (60 s) |
/// | `draw` | false: the program assigns versions, increasing for each key and across deletions |
/// | `enqueue` | false: changes enqueue no jobs automatically, the program calls `posthaste.sync` |
/// | `always` | true: the triggers fire also under `session_replication_role = replica` |
/// | `rows` | a statement for the documents of a batch of ids; by default all columns |
/// | `versions` | a cheaper statement without the documents |
/// | `document` | a table of a document's fields and their columns; by default all columns |
/// | `fields` | a table of the searched fields and their weights; by default all texts |
/// | `language` | Postgres: the text search configuration (`english`) |
/// | `api_key` | Elasticsearch and OpenSearch: a key |
/// | `definition` | Elasticsearch and OpenSearch: a table of `settings` and `mappings` |
/// | `period`, `batch` | time between two polls (60 s), and jobs in a batch (2,500) |
/// | `bytes` | the approximate size of a write (10 MiB) |
/// | `time_limit` | the time limit of a batch (5 minutes) |
/// | `proof` | `stored` or `searchable`: the condition for a document's job to be done |
/// | `keep_deletions` | how long the index retains the marks of deletions (7 days) |
///
/// Times are written `"30s"`, `"5m"`, `"24h"`, `"7d"`, or as a number of seconds. Unknown settings
/// are refused. [`install_statement`](Self::install_statement) adds the version column. The
/// statements are those of [`Query::new`](super::Query::new) and
/// [`Query::versions`](super::Query::versions). A weight is a number for Tantivy, and `A` to `D`
/// for Postgres. An index is created with the `settings` and `mappings` of its `definition`.
///
/// | `index` | location |
/// |---|---|
/// | another word and a colon | an index of another crate, see [`read_with`](Self::read_with) |
/// | `postgres:`, `postgres:name` | full-text search in the database of the rows |
/// | `postgres://…` | full-text search in another database, which is migrated too |
/// | `https://host:9200/alias`, `http://…` | Elasticsearch or OpenSearch (feature `elastic`) |
///
/// An index without a name or alias in its address has the name of the sync. The address of a
/// server may include a user name and a password. `tantivy:///folder` is an index of
/// posthaste-tantivy.
///
/// ```
/// use posthaste_sync::Synced;
/// # fn main() -> Result<(), posthaste::Error> {
/// let settings = serde_json::json!({"table": "page", "index": "postgres:",
///     "document": {"title": "name"}});
/// let pages = Synced::read("pages", settings.as_object().into_iter().flatten())?;
/// assert_eq!((pages.name(), &*pages.queue()), ("pages", "sync.pages"));
/// # Ok(()) }
/// ```
pub struct Synced {
    name: String,
    pub(crate) arguments: SyncTableArguments,
    rows: Option<String>,
    versions: Option<String>,
    document: Vec<(String, String)>,
    target: IndexTarget,
    options: SyncOptions,
}

/// A kind of index from another crate, which settings select by the first word of the address.
pub trait IndexKind: Sync {
    /// Returns the word before the colon.
    fn scheme(&self) -> &'static str;
    /// Returns the name of this kind in errors.
    fn name(&self) -> &'static str;
    /// Parses the address after the colon, and takes the settings of this kind. The error never
    /// quotes a value.
    fn read(&self, rest: &str, settings: &mut Fields) -> Result<OpenIndex, String>;
}

/// A function that opens an index.
pub type OpenIndex = Box<dyn Fn(Access) -> Result<Arc<dyn Index>, Error> + Send + Sync>;

/// The mode in which an index is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// For writing. Only one process at a time may open an index in a folder for writing.
    Write,
    /// For searches and audits.
    Read,
}

impl Synced {
    /// Parses the settings of the synced table of this name. The error names the setting and never
    /// quotes its value, which may be a secret.
    pub fn read<'a>(
        name: &str,
        settings: impl IntoIterator<Item = (&'a String, &'a Value)>,
    ) -> Result<Self, Error> {
        Self::read_with(name, settings, &[])
    }

    /// As [`read`](Self::read), with kinds of indexes from other crates.
    pub fn read_with<'a>(
        name: &str,
        settings: impl IntoIterator<Item = (&'a String, &'a Value)>,
        kinds: &[&dyn IndexKind],
    ) -> Result<Self, Error> {
        let settings = settings.into_iter();
        let settings = settings.map(|(name, value)| (name.clone(), value.clone()));
        read_settings(name, Fields::new(settings.collect()), kinds)
            .map_err(|problem| Error::config(format!("sync {name}: {problem}")))
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of its table.
    pub fn table(&self) -> &str {
        &self.arguments.table
    }

    /// Returns the name of the queue of its jobs.
    pub fn queue(&self) -> String {
        queue(&self.name)
    }

    /// Returns the time between two polls.
    pub fn period(&self) -> Duration {
        self.options.period
    }

    /// Returns the URL of its index's database if it differs from that of the rows. The URL is a
    /// secret.
    pub fn index_database(&self) -> Option<&str> {
        self.target.database()
    }

    /// Returns whether both have the same index, however its address is written: each would treat
    /// the documents of the other as orphans.
    pub fn shares_index_with(&self, other: &Self) -> bool {
        self.target.is_same(&other.target)
    }

    /// Returns the statement that prepares the table: it adds the versions, and the triggers that
    /// enqueue a job with each change. It may be run again, also after the settings have changed.
    pub async fn install_statement(&self, client: &Client) -> Result<String, Error> {
        let recipe = rows::recipe_digest(self);
        install_statement(client, &self.name, &self.arguments, &recipe).await
    }

    /// Returns its rows in this database: a pool of deadpool-postgres or of sqlx, or a URL, as for
    /// a [`Table`](crate::Table).
    pub fn source(&self, database: impl Into<Database>) -> Arc<dyn Source> {
        Arc::new(ConfiguredRows::new(Connections::new(database), self))
    }

    /// Opens its index. Pass the database of [`index_database`](Self::index_database) if there is
    /// one, else that of the rows.
    pub fn index(
        &self,
        database: impl Into<Database>,
        access: Access,
    ) -> Result<Arc<dyn Index>, Error> {
        self.target.open(database.into(), access)
    }

    /// Returns its index if it can be [rebuilt](super::Elastic::rebuild) beside the one that is
    /// searched, else `None`.
    #[cfg(feature = "elastic")]
    pub fn elastic(&self) -> Result<Option<super::Elastic>, Error> {
        self.target.open_elastic()
    }

    /// Returns a builder for a sync of this index with these rows, with the configured options.
    pub fn sync(&self, source: Arc<dyn Source>, index: Arc<dyn Index>) -> SyncBuilder {
        SyncBuilder {
            options: self.options.clone(),
            ..IndexSync::builder_any(source, index)
        }
    }
}

/// The statements and the address are omitted: they may be confidential.
impl std::fmt::Debug for Synced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Synced")
            .field("name", &self.name)
            .field("table", &self.arguments.table)
            .finish_non_exhaustive()
    }
}

fn read_settings(
    name: &str,
    mut fields: Fields,
    kinds: &[&dyn IndexKind],
) -> Result<Synced, String> {
    let begins = name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_');
    let plain = |letter: char| matches!(letter, 'a'..='z' | '0'..='9' | '_');
    if !begins || name.len() > MAX_NAME_BYTES || !name.chars().all(plain) {
        return Err(
            "its name must have 1 to 40 lowercase letters, digits and underscores, and not begin \
             with a digit"
                .into(),
        );
    }
    let index: String = fields
        .take("index")?
        .ok_or("index: is missing; it is the address of the index")?;
    let target = IndexTarget::read(&index, name, &mut fields, kinds)?;
    let arguments = read_arguments(name, &mut fields)?;
    let document: BTreeMap<String, String> = fields.take("document")?.unwrap_or_default();
    let synced = Synced {
        name: name.to_owned(),
        arguments,
        rows: fields.take("rows")?,
        versions: fields.take("versions")?,
        document: document.into_iter().collect(),
        options: read_options(&mut fields)?,
        target,
    };
    if synced.versions.is_some() && synced.rows.is_none() {
        return Err("versions: is for a table with rows".into());
    }
    fields.all_known(&format!("a synced table in {}", synced.target.name()))?;
    Ok(synced)
}

fn read_arguments(name: &str, fields: &mut Fields) -> Result<SyncTableArguments, String> {
    let or = |value: Option<String>, usual: &str| value.unwrap_or_else(|| usual.to_owned());
    Ok(SyncTableArguments {
        table: or(fields.take("table")?, name),
        id: or(fields.take("id")?, "id"),
        version: or(fields.take("version")?, "posthaste_version"),
        deleted: fields.take("deleted")?,
        delay: fields.take("delay")?.unwrap_or(Duration::from_secs(60)),
        draw: fields.take("draw")?.unwrap_or(true),
        enqueue: fields.take("enqueue")?.unwrap_or(true),
        always: fields.take("always")?.unwrap_or(false),
    })
}

fn read_options(fields: &mut Fields) -> Result<SyncOptions, String> {
    let usual = SyncOptions::default();
    let mut time = |name: &'static str, usual: Duration| match fields.take(name)? {
        Some(Duration::ZERO) => Err(format!("{name}: must be more than 0")),
        Some(time) => Ok(time),
        None => Ok(usual),
    };
    let (period, time_limit) = (
        time("period", usual.period)?,
        time("time_limit", usual.time_limit)?,
    );
    let keep_deletions = time("keep_deletions", usual.keep_deletions)?;
    let proofs = [("stored", Proof::Stored), ("searchable", Proof::Searchable)];
    Ok(SyncOptions {
        period,
        time_limit,
        keep_deletions,
        batch: fields.positive("batch")?.unwrap_or(usual.batch),
        bytes: fields.positive("bytes")?.unwrap_or(usual.bytes),
        proof: fields.word("proof", &proofs)?.unwrap_or(usual.proof),
        backoff: usual.backoff,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn synced(name: &str, settings: &Value) -> Result<Synced, Error> {
        Synced::read(name, settings.as_object().into_iter().flatten())
    }

    #[test]
    fn omitted_settings_have_defaults() {
        let pages = synced("page", &serde_json::json!({"index": "postgres:"})).unwrap();
        let arguments = &pages.arguments;
        assert_eq!(
            (&*arguments.table, &*arguments.id, &*arguments.version),
            ("page", "id", "posthaste_version")
        );
        assert!(arguments.draw && arguments.enqueue && arguments.deleted.is_none());
        assert_eq!(
            (pages.options.batch, pages.period()),
            (2_500, Duration::from_secs(60))
        );
    }

    #[test]
    fn invalid_settings_are_named_and_never_quoted() {
        for (settings, expected) in [
            (serde_json::json!({}), "sync page: index: is missing"),
            (
                serde_json::json!({"index": "redis://geheim"}),
                "index: must begin with",
            ),
            (
                serde_json::json!({"index": "https://geheim", "fields": {}}),
                "fields: is not a setting of a synced table in Elasticsearch or OpenSearch",
            ),
            (
                serde_json::json!({"index": "postgres:", "x": "geheim"}),
                "x: is not a setting of a synced table in Postgres",
            ),
            (
                serde_json::json!({"index": "postgres:", "period": "0s"}),
                "period: must be more than 0",
            ),
            (
                serde_json::json!({"index": "postgres:", "batch": 0}),
                "batch: must be at least 1",
            ),
            (
                serde_json::json!({"index": "postgres:", "delay": "geheim"}),
                "delay: must be a time",
            ),
            (
                serde_json::json!({"index": "postgres:", "fields": {"a": "geheim"}}),
                "fields: must give each field a weight of A, B, C or D",
            ),
            (
                serde_json::json!({"index": "postgres:", "versions": "geheim"}),
                "versions: is for a table with rows",
            ),
        ] {
            let error = synced("page", &settings).unwrap_err().to_string();
            assert!(error.contains(expected), "{settings}: {error}");
            assert!(!error.contains("geheim"), "{error}");
        }
        let index = serde_json::json!({"index": "postgres:"});
        for name in ["", "Page", "1st", "a.b", &"a".repeat(41)] {
            let error = synced(name, &index).unwrap_err().to_string();
            assert!(error.contains("its name must have"), "{name}: {error}");
        }
    }
}
