//! Statements about publications and slots.

use std::time::{Duration, Instant};

use bytes::Bytes;
use posthaste::__private::Parameter;
use serde_json::json;
use tokio::time::sleep;
use tokio_postgres::Row;

use super::{Store, read_error};
use crate::error::Error;
use crate::lsn::Lsn;
use crate::requirements::{CandidateTable, ServerSettings};
use crate::source::{Source, TableName};

/// A slot that stays active for longer is in use.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

const SLOT_STATEMENT: &str = "SELECT pg_catalog.format('SELECT \
     pg_catalog.pg_create_logical_replication_slot(%L, %L%s)', $1, 'pgoutput'::text, \
     CASE WHEN $2::boolean THEN ', failover => true' ELSE '' END)";
const COPY_SLOT: &str = "SELECT pg_catalog.pg_copy_logical_replication_slot($1::text::name, \
     $2::text::name, true)";
const DROP_SLOT: &str = "SELECT pg_catalog.pg_drop_replication_slot($1::text::name)";
const DROP_PUBLICATION: &str = "SELECT pg_catalog.format('DROP PUBLICATION IF EXISTS %I', $1)";

/// A publication of the database.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PublicationState {
    /// It publishes all tables, or all of a schema.
    pub(crate) has_more: bool,
    pub(crate) tables: Vec<String>,
}

impl Store {
    pub(crate) async fn server_settings(&self) -> Result<ServerSettings, Error> {
        let what = "cannot read the settings of the server";
        let rows = self
            .query(what, include_str!("requirements.sql"), &[])
            .await?;
        let row = rows.first().ok_or_else(|| Error::lost(what))?;
        let read = |row: &Row| -> Result<_, tokio_postgres::Error> {
            Ok(ServerSettings {
                wal_level: row.try_get(0)?,
                version: row.try_get(1)?,
                may_replicate: row.try_get::<_, Option<bool>>(2)?.unwrap_or(false),
                slots_left: row.try_get(3)?,
                senders: row.try_get(4)?,
            })
        };
        read(row).map_err(read_error)
    }

    pub(crate) async fn candidate_tables(
        &self,
        source: &Source,
    ) -> Result<Vec<CandidateTable>, Error> {
        let (schemas, names) = schemas_and_names(&source.tables());
        let rows = self
            .query(
                "cannot read the tables",
                include_str!("tables.sql"),
                &[&schemas, &names],
            )
            .await?;
        let read = |row: &Row| -> Result<_, tokio_postgres::Error> {
            Ok(CandidateTable {
                name: row.try_get(0)?,
                is_there: row.try_get(1)?,
                kind: row.try_get(2)?,
                persistence: row.try_get(3)?,
                is_own: row.try_get(4)?,
                columns: row.try_get(5)?,
            })
        };
        let tables: Result<_, tokio_postgres::Error> = rows.iter().map(read).collect();
        tables.map_err(read_error)
    }

    pub(crate) async fn publication_state(
        &self,
        publication: &str,
    ) -> Result<Option<PublicationState>, Error> {
        let what = "cannot read the publication";
        let rows = self
            .query(what, include_str!("published.sql"), &[&publication])
            .await?;
        let read = |row: &Row| -> Result<_, tokio_postgres::Error> {
            Ok(PublicationState {
                has_more: row.try_get(0)?,
                tables: row.try_get(1)?,
            })
        };
        rows.first().map(read).transpose().map_err(read_error)
    }

    /// The statement that creates the publication.
    pub(crate) async fn publication_statement(
        &self,
        publication: &str,
        source: &Source,
        version: i32,
    ) -> Result<String, Error> {
        let tables = publication_tables_json(source).to_string();
        let operations = source.published_operations();
        // Without generated columns every UPDATE of a table with a full identity would fail.
        let with_generated = version >= 180_000 && matches!(source, Source::Tables(_));
        let values: [&dyn Parameter; 4] = [&publication, &tables, &operations, &with_generated];
        let what = "cannot describe the publication";
        let rows = self
            .query(what, include_str!("publication.sql"), &values)
            .await?;
        let row = rows.first().ok_or_else(|| Error::lost(what))?;
        row.try_get(0).map_err(read_error)
    }

    /// The statement that creates the slot.
    pub(crate) async fn slot_statement(
        &self,
        slot: &str,
        is_failover: bool,
    ) -> Result<String, Error> {
        let what = "cannot describe the slot";
        let values: [&dyn Parameter; 2] = [&slot, &is_failover];
        let rows = self.query(what, SLOT_STATEMENT, &values).await?;
        let row = rows.first().ok_or_else(|| Error::lost(what))?;
        row.try_get(0).map_err(read_error)
    }

    /// Creates the publication, unless it would make statements of applications fail.
    pub(crate) async fn create_publication(
        &self,
        statement: &str,
        source: &Source,
    ) -> Result<(), Error> {
        let what = "cannot create the publication";
        self.transaction(what, async {
            self.run(what, statement).await?;
            if !matches!(source, Source::Tables(_)) {
                return Ok(());
            }
            let (schemas, names) = schemas_and_names(&source.tables());
            let probes = include_str!("probes.sql");
            for row in self.query(what, probes, &[&schemas, &names]).await? {
                let probe: String = row.try_get(0).map_err(read_error)?;
                self.run("statements of others would fail", &probe).await?;
            }
            Ok(())
        })
        .await
    }

    /// Creates the slot, and returns its place. Waits for open transactions.
    pub(crate) async fn create_slot(&self, slot: &str, is_failover: bool) -> Result<Lsn, Error> {
        let what = "cannot create the slot";
        let statement = self.slot_statement(slot, is_failover).await?;
        self.run_unbounded(what, &statement).await?;
        let made = self.find_slot(slot).await?;
        made.map(|made| made.confirmed)
            .ok_or_else(|| Error::lost(what))
    }

    /// Waits until the server notices that the previous reader of the slot is gone.
    pub(crate) async fn drop_slot(&self, slot: &str) -> Result<(), Error> {
        let end = Instant::now() + RELEASE_TIMEOUT;
        loop {
            let dropped = self
                .query("cannot drop the slot", DROP_SLOT, &[&slot])
                .await;
            match dropped {
                Err(error) if error.code() == Some("55006") && Instant::now() < end => {
                    sleep(Duration::from_millis(100)).await;
                }
                dropped => return dropped.map(drop),
            }
        }
    }

    /// Creates a temporary copy of the slot.
    pub(crate) async fn copy_slot(&self, slot: &str, copy: &str) -> Result<(), Error> {
        let what = "cannot copy the slot";
        self.query(what, COPY_SLOT, &[&slot, &copy]).await.map(drop)
    }

    /// Peeks at the next changes of a slot, with the places of their records.
    pub(crate) async fn peek_changes(
        &self,
        slot: &str,
        publication: &str,
        (with_messages, local_only): (bool, bool),
        count: usize,
    ) -> Result<Vec<(Lsn, Bytes)>, Error> {
        let publication = format!("\"{publication}\"");
        let mut options = vec!["proto_version", "1", "publication_names", &publication];
        if with_messages {
            options.extend(["messages", "true"]);
        }
        if local_only {
            options.extend(["origin", "none"]);
        }
        let options: Vec<String> = options.into_iter().map(ToOwned::to_owned).collect();
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        let rows = self
            .query(
                "cannot read the next changes",
                include_str!("peek.sql"),
                &[&slot, &count, &options],
            )
            .await?;
        let read = |row: &Row| -> Result<_, tokio_postgres::Error> {
            Ok((
                super::lsn_from_row(row, 0)?,
                row.try_get::<_, Vec<u8>>(1)?.into(),
            ))
        };
        let changes: Result<_, tokio_postgres::Error> = rows.iter().map(read).collect();
        changes.map_err(read_error)
    }

    pub(crate) async fn drop_publication(&self, publication: &str) -> Result<(), Error> {
        let what = "cannot drop the publication";
        let rows = self.query(what, DROP_PUBLICATION, &[&publication]).await?;
        let row = rows.first().ok_or_else(|| Error::lost(what))?;
        let statement: String = row.try_get(0).map_err(read_error)?;
        self.run(what, &statement).await
    }
}

fn schemas_and_names(tables: &[&TableName]) -> (Vec<String>, Vec<String>) {
    let tables = tables.iter();
    tables
        .map(|table| (table.schema.clone(), table.name.clone()))
        .unzip()
}

/// The tables of the publication's statement, as JSON.
fn publication_tables_json(source: &Source) -> serde_json::Value {
    let one = |table: &TableName, columns: &[String], filter: Option<&String>| {
        json!({
            "schema": table.schema, "name": table.name, "columns": columns, "filter": filter,
        })
    };
    match source {
        Source::Outbox { table, .. } => json!([one(table, &[], None)]),
        Source::Messages(_) => json!([]),
        Source::Tables(tables) => tables
            .iter()
            .map(|table| one(&table.table, &table.columns, table.filter.as_ref()))
            .collect(),
    }
}
