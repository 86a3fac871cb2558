//! Re-indexing: documents are checked again, after all new changes.

use crate::queue;

/// Returns the name of the queue of a synced table's re-indexes. It is a separate queue, so that
/// changes do not wait for them.
pub fn reindex_queue(table: &str) -> String {
    format!("{}.reindex", queue(table))
}

/// Selects documents of a synced table to be checked again. Without a condition, all rows are
/// selected.
///
/// ```no_run
/// # async fn example(client: &tokio_postgres::Client) -> Result<(), posthaste::Error> {
/// use posthaste_sync::Reindex;
///
/// let of_one_user = Reindex {
///     column: Some("owner".into()),
///     equals: Some("7".into()),
///     ..Reindex::default()
/// };
/// let plan = of_one_user.plan(client, "annotation").await?;
/// println!("about {} documents", plan.about);
/// let jobs = plan.begin(client).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Reindex {
    /// Documents with these ids, including ids without a row; all other conditions are then
    /// ignored.
    pub ids: Option<Vec<String>>,
    /// Rows for which this SQL condition is true. It is executed as it is: never accept it from an
    /// untrusted source.
    pub condition: Option<String>,
    /// The column that `equals`, `since` and `until` compare.
    pub column: Option<String>,
    /// Rows whose column has this value, as Postgres parses it.
    pub equals: Option<String>,
    /// Rows whose column has this value or a later one.
    pub since: Option<String>,
    /// Rows whose column has an earlier value.
    pub until: Option<String>,
    /// The tag of these jobs.
    pub tag: String,
    /// The priority among re-indexes; lower values run first.
    pub priority: i32,
    /// Whether documents are written although the index has the row's version; true by default.
    pub force: bool,
}

impl Default for Reindex {
    fn default() -> Self {
        Self {
            ids: None,
            condition: None,
            column: None,
            equals: None,
            since: None,
            until: None,
            tag: "reindex".to_owned(),
            priority: 1_000,
            force: true,
        }
    }
}

/// A planned re-index.
#[derive(Clone, Debug, PartialEq)]
pub struct ReindexPlan {
    /// The statement, with its values included.
    pub statement: String,
    /// The number of documents as the planner estimates it.
    pub about: f64,
    /// The value of `reindex` among the arguments of its jobs, which distinguishes them from other
    /// jobs.
    pub mark: String,
}
