//! Transactions, slots and replicas that keep rows from being removed.

use std::time::SystemTime;

use tokio_postgres::{Client, Row};

use crate::error::Error;

/// Somebody who keeps rows from being removed, as [`holders`] finds them. Claims do not care; other
/// tables cannot be vacuumed.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Holder {
    /// What it is.
    pub kind: HolderKind,
    /// The server process, where there is one.
    pub pid: Option<i32>,
    /// The name of a prepared transaction or of a replication slot.
    pub name: Option<String>,
    /// Whose it is.
    pub role: Option<String>,
    /// What the program calls itself; empty where it does not.
    pub application: Option<String>,
    /// From where it is connected; nothing for this machine.
    pub address: Option<String>,
    /// In which database, where that is known.
    pub database: Option<String>,
    /// What a session or a replica does, such as `idle in transaction`.
    pub state: Option<String>,
    /// Of a slot: somebody reads it.
    pub is_read: bool,
    /// Of a slot: it is a logical one that keeps rows of all tables.
    pub is_logical: bool,
    /// Of a replica: the slot that it reads keeps what its readers need, and is found as well.
    pub is_by_slot: bool,
    /// For how long, where that is known: not where it began before the clock went back.
    pub seconds: Option<f64>,
    /// The age of its snapshot in transactions; none while it keeps nothing.
    pub transactions: Option<i64>,
    /// The role of a session is a superuser.
    pub is_superuser: bool,
    /// When the session of a server process began, by the server's clock.
    pub backend_start: Option<SystemTime>,
    /// When the transaction began or was prepared, by the server's clock.
    pub transaction_start: Option<SystemTime>,
    /// What a session waits for, such as `ClientRead`.
    pub wait_event: Option<String>,
    /// The running or the last statement of a session, at most 2,000 letters of it. It may hold
    /// secrets: redact it before you show it.
    pub query: Option<String>,
}

/// What keeps rows from being removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum HolderKind {
    /// A transaction that was prepared and has not ended.
    Prepared,
    /// A replica that says what its readers need (hot_standby_feedback).
    Replica,
    /// A session with a transaction.
    #[default]
    Session,
    /// A replication slot.
    Slot,
}

/// Whatever keeps rows from being removed, however briefly, the longest first. Roles that may not
/// read the sessions of others (`pg_read_all_stats`) see only their own.
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

/// As [`holders`], with the sessions whose transaction keeps no rows: a READ COMMITTED transaction
/// that has written nothing keeps rows only while a statement runs. Their
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
    let all: Result<Vec<Option<Holder>>, _> = rows.iter().map(read).collect();
    let all = all.map_err(Error::postgres(failed))?;
    Ok(all.into_iter().flatten().collect())
}

fn read(row: &Row) -> Result<Option<Holder>, tokio_postgres::Error> {
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
