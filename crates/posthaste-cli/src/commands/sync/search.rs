//! `posthaste sync search`: the index returns the matching ids, Postgres their current rows.

use std::fmt;

use posthaste_sync::{Access, Body, Row, search_rows};
use serde::Serialize;
use serde_json::Value;

use crate::database::Database;
use crate::syncs::{self, SourceAndIndex, SyncFile};
use crate::terminal::{Terminal, escape_name};

/// The maximum length of a document in the text output, in characters.
const MAX_LINE_CHARS: usize = 120;

/// Search a synced table: the index finds matching rows, Postgres returns their current contents
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Words, "phrases" and -excluded words to search for
    #[arg(value_name = "WORDS", required = true)]
    words: Vec<String>,

    /// Table to search; optional if the file has only one
    #[arg(long = "in", value_name = "TABLE")]
    table: Option<String>,

    /// Maximum number of rows to show
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10,
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    limit: u16,

    #[command(flatten)]
    config: SyncFile,
}

pub(super) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let table = arguments
        .config
        .table(database, arguments.table.as_deref())?;
    let client = database.address().connect().await?;
    syncs::require_installed(&client, &table).await?;
    let SourceAndIndex { source, index } =
        syncs::open_source_and_index(&table, database.address(), Access::Read)?;
    let words = arguments.words.join(" ");
    let rows = search_rows(&*source, &*index, &words, arguments.limit.into()).await?;
    let found: Vec<SearchHit> = rows.into_iter().filter_map(SearchHit::from_row).collect();
    terminal.print_results(&found, "nothing found")
}

/// A matching row.
#[derive(Serialize)]
struct SearchHit {
    id: String,
    version: i64,
    document: Value,
}

impl SearchHit {
    fn from_row(row: Row) -> Option<Self> {
        let Body::Document(document) = row.body else {
            return None;
        };
        Some(Self {
            id: row.id,
            version: row.version,
            document: serde_json::from_str(&document).ok()?,
        })
    }
}

impl fmt::Display for SearchHit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.document.as_object().into_iter().flatten();
        let texts = fields.filter_map(|(_, value)| value.as_str());
        let texts: Vec<&str> = texts.filter(|text| *text != self.id).collect();
        let line = texts.join(" | ");
        let plain = line.chars().map(|letter| match letter.is_control() {
            true => ' ',
            false => letter,
        });
        let plain: String = plain.take(MAX_LINE_CHARS).collect();
        write!(f, "{}  {plain}", escape_name(&self.id))
    }
}
