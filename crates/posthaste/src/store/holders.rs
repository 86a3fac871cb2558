//! Transactions, slots and replicas that prevent dead rows from being removed.

use std::time::SystemTime;

use tokio_postgres::{Client, Row};

use crate::error::Error;

/// A transaction, slot or replica that prevents dead rows from being removed, as returned by
/// [`holders`]. posthaste's claims are not affected; VACUUM cannot clean other tables.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Holder {
    /// The kind of holder.
    pub kind: HolderKind,
    /// The process id of the server process, if there is one.
    pub pid: Option<i32>,
    /// The name of a prepared transaction or of a replication slot.
    pub name: Option<String>,
    /// The role that owns it.
    pub role: Option<String>,
    /// The `application_name`; empty if it is not set.
    pub application: Option<String>,
    /// The address of the client; `None` for this machine.
    pub address: Option<String>,
    /// The database, if it is known.
    pub database: Option<String>,
    /// The state of a session or a replica, such as `idle in transaction`.
    pub state: Option<String>,
    /// Whether a slot is being read.
    pub is_read: bool,
    /// Whether a slot is a logical one that prevents removal of rows of all tables.
    pub is_logical: bool,
    /// Whether a replica reads from a slot that keeps what its readers need; that slot is returned
    /// too.
    pub is_by_slot: bool,
    /// The duration in seconds; `None` if it is unknown, or if it began before the clock was set
    /// back.
    pub seconds: Option<f64>,
    /// The age of its snapshot in transactions; `None` while it holds back no rows.
    pub transactions: Option<i64>,
    /// Whether the role of a session is a superuser.
    pub is_superuser: bool,
    /// When the session of a server process began, by the server's clock.
    pub backend_start: Option<SystemTime>,
    /// When the transaction began or was prepared, by the server's clock.
    pub transaction_start: Option<SystemTime>,
    /// The event that a session waits for, such as `ClientRead`.
    pub wait_event: Option<String>,
    /// The running or the last statement of a session, at most 2,000 characters. It may contain
    /// secrets: redact it before you show it.
    pub query: Option<String>,
}

/// The kind of a [`Holder`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum HolderKind {
    /// A prepared transaction.
    Prepared,
    /// A replica that reports what its readers need (hot_standby_feedback).
    Replica,
    /// A session with an open transaction.
    #[default]
    Session,
    /// A replication slot.
    Slot,
}

/// Returns everything that prevents dead rows from being removed, however briefly, the longest
/// first. Roles without access to the sessions of others (`pg_read_all_stats`) see only their own.
///
/// ```no_run
/// # async fn example(client: &tokio_postgres::Client) -> Result<(), posthaste::Error> {
/// for holder in posthaste::__private::holders(client).await? {
///     println!("{:?} {:?}: {:?} s", holder.kind, holder.name, holder.seconds);
/// }
/// # Ok(()) }
/// ```
pub async fn holders(client: &Client) -> Result<Vec<Holder>, Error> {
    let mut all = transactions(client).await?;
    all.retain(|one| one.kind != HolderKind::Session || one.transactions.is_some());
    Ok(all)
}

/// As [`holders`], with the sessions whose transaction holds back no rows: a READ COMMITTED
/// transaction that has written nothing does so only while a statement runs. Their
/// [`transactions`](Holder::transactions) is `None`. Works on a replica too.
///
/// ```no_run
/// # async fn example(client: &tokio_postgres::Client) -> Result<(), posthaste::Error> {
/// let all = posthaste::__private::transactions(client).await?;
/// let harmless = all.iter().filter(|one| one.transactions.is_none());
/// println!("{} transactions keep nothing", harmless.count());
/// # Ok(()) }
/// ```
pub async fn transactions(client: &Client) -> Result<Vec<Holder>, Error> {
    let failed = "cannot read the open transactions";
    let rows = client.query_typed(include_str!("holders.sql"), &[]).await;
    let rows = rows.map_err(Error::postgres(failed))?;
    let all: Result<Vec<Option<Holder>>, _> = rows.iter().map(holder_from_row).collect();
    let all = all.map_err(Error::postgres(failed))?;
    Ok(all.into_iter().flatten().collect())
}

fn holder_from_row(row: &Row) -> Result<Option<Holder>, tokio_postgres::Error> {
    let kind = match row.try_get("kind")? {
        "prepared" => HolderKind::Prepared,
        "replica" => HolderKind::Replica,
        "session" => HolderKind::Session,
        "slot" => HolderKind::Slot,
        _ => return Ok(None),
    };
    Ok(Some(Holder {
        kind,
        pid: row.try_get("pid")?,
        name: row.try_get("name")?,
        role: row.try_get("role")?,
        application: row.try_get("application")?,
        address: row.try_get("address")?,
        database: row.try_get("database")?,
        state: row.try_get("state")?,
        is_read: row.try_get("is_read")?,
        is_logical: row
            .try_get::<_, Option<bool>>("is_logical")?
            .unwrap_or(false),
        is_by_slot: row.try_get("is_by_slot")?,
        seconds: row.try_get("seconds")?,
        transactions: row.try_get("transactions")?,
        is_superuser: row.try_get("is_superuser")?,
        backend_start: row.try_get("backend_start")?,
        transaction_start: row.try_get("transaction_start")?,
        wait_event: row.try_get("wait_event")?,
        query: row.try_get("query")?,
    }))
}
