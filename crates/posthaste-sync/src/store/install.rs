//! The statement that prepares a table (`posthaste.sync_table`).

use std::time::Duration;

use posthaste::__private::{Parameter, milliseconds, typed};
use posthaste::Error;
use tokio_postgres::Client;

/// The arguments of `posthaste.sync_table`.
pub(crate) struct SyncTableArguments {
    pub(crate) table: String,
    pub(crate) id: String,
    pub(crate) version: String,
    pub(crate) deleted: Option<String>,
    pub(crate) delay: Duration,
    pub(crate) draw: bool,
    pub(crate) enqueue: bool,
    pub(crate) always: bool,
}

pub(crate) async fn install_statement(
    client: &Client,
    name: &str,
    arguments: &SyncTableArguments,
    recipe: &str,
) -> Result<String, Error> {
    let delay = milliseconds(arguments.delay);
    let (table, id, version) = (&*arguments.table, &*arguments.id, &*arguments.version);
    let deleted = arguments.deleted.as_deref();
    let parameters: [&dyn Parameter; 10] = [
        &table,
        &id,
        &version,
        &name,
        &deleted,
        &delay,
        &arguments.draw,
        &arguments.enqueue,
        &arguments.always,
        &recipe,
    ];
    let asked = client
        .query_typed_one(include_str!("sync_install.sql"), &typed(&parameters))
        .await;
    let statement = asked.and_then(|row| row.try_get(0));
    statement.map_err(Error::postgres("synced table"))
}
