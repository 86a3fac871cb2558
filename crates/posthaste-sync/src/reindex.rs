//! Re-indexing: documents that are checked again, after everything new.

use crate::queue;

/// The queue of a synced table's re-indexes: its changes do not wait for them.
pub fn reindex_queue(table: &str) -> String {
    format!("{}.reindex", queue(table))
}

/// Which documents of a synced table are checked again. Without any condition: those of all rows.
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
    /// Those with these ids, also such that have no row any more; then nothing else counts.
    pub ids: Option<Vec<String>>,
    /// Rows for which this is true. It is SQL, and runs as such: nobody else's text.
    pub condition: Option<String>,
    /// Rows by what this column has.
    pub column: Option<String>,
    /// It is this value, as Postgres reads it.
    pub equals: Option<String>,
    /// It is this, or later.
    pub since: Option<String>,
    /// It is before this.
    pub until: Option<String>,
    /// Distinguishes these jobs from others.
    pub tag: String,
    /// Among re-indexes, the lower goes first.
    pub priority: i32,
    /// Also where the index has the row's version: true by default.
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

/// What a re-index would do.
#[derive(Clone, Debug, PartialEq)]
pub struct ReindexPlan {
    /// The statement that is run, with its values in it.
    pub statement: String,
    /// How many documents it takes, as the planner guesses.
    pub about: f64,
    /// What its jobs have as `reindex` among their arguments: it tells them from those of others.
    pub mark: String,
}
