//! Queries of a database that tests repeat until a condition holds.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use anyhow::Context as _;
use tokio_postgres::{Client, SimpleQueryMessage};

/// Returns the single number of a statement.
///
/// The session plans the statement once: planning some views takes six times as long as reading
/// them, and a waiting test reads them twenty times a second.
pub async fn number(client: &Client, sql: &str) -> anyhow::Result<i64> {
    let mut hasher = DefaultHasher::new();
    sql.hash(&mut hasher);
    let name = format!("look_{:016x}", hasher.finish());
    let planned = format!("SELECT FROM pg_catalog.pg_prepared_statements WHERE name = '{name}'");
    if first_column(client, &planned).await?.is_none() {
        client
            .batch_execute(&format!("PREPARE {name} AS {sql}"))
            .await?;
    }
    let row = first_column(client, &format!("EXECUTE {name}")).await?;
    let number = row.context("no row")?.context("no number")?;
    Ok(number.parse()?)
}

/// The first column of the first row.
async fn first_column(client: &Client, sql: &str) -> anyhow::Result<Option<Option<String>>> {
    let messages = client.simple_query(sql).await?;
    let row = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    Ok(row.map(|row| row.try_get(0).ok().flatten().map(str::to_owned)))
}
