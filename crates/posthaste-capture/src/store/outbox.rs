//! Statements about rows of an outbox.

use posthaste::__private::Parameter;
use tokio_postgres::Row;

use super::{Store, read_error};
use crate::error::Error;
use crate::handed_rows::HandedRows;
use crate::source::TableName;

/// Deletes captured rows of an outbox.
#[derive(Clone, Debug)]
pub(crate) struct Deletion {
    /// The columns of its primary key.
    pub(crate) key: Vec<String>,
    statement: String,
}

impl Store {
    /// For this table; an error says why its rows cannot be deleted.
    pub(crate) async fn prepare_deletion(
        &self,
        table: &TableName,
    ) -> Result<Result<Deletion, String>, Error> {
        let values: [&dyn Parameter; 2] = [&table.schema, &table.name];
        let what = "cannot read the key of the outbox";
        let rows = self
            .query(what, include_str!("outbox_key.sql"), &values)
            .await?;
        let read = |row: &Row| -> Result<_, tokio_postgres::Error> {
            let (key, statement) = (row.try_get(0)?, row.try_get(2)?);
            let may_delete: bool = row.try_get(1)?;
            Ok((may_delete, Deletion { key, statement }))
        };
        let found = rows.first().map(read).transpose().map_err(read_error)?;
        Ok(match found {
            Some((true, deletion)) => Ok(deletion),
            Some((false, _)) => Err(format!(
                "outbox_delete: the role may not delete rows of {table}"
            )),
            None => Err(format!("outbox_delete: {table} has no primary key")),
        })
    }

    /// Deletes rows that this transaction sees.
    pub(super) async fn delete_rows(
        &self,
        deletion: Option<&Deletion>,
        rows: &HandedRows,
    ) -> Result<(), Error> {
        let Some(deletion) = deletion.filter(|_| !rows.is_empty()) else {
            return Ok(());
        };
        let (what, keys) = ("cannot delete rows of the outbox", rows.keys_json());
        self.query(what, &deletion.statement, &[&keys])
            .await
            .map(drop)
    }
}
