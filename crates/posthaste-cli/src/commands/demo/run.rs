//! One run over one folder. Its state is in the database, so a killed process loses only its
//! progress display.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use posthaste::NewJob;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Transaction};

use super::snapshot;
use crate::progress::Unit;
use crate::terminal::Terminal;

/// The name of the job, and the queue that separates it from other jobs of the database.
pub(crate) const JOB_NAME: &str = "file.digest";
pub(crate) const QUEUE_NAME: &str = "file";

/// Rows per transaction, each with its job.
const BATCH_ROWS: i64 = 1_000;
const MAX_ATTEMPTS: i32 = 10;

/// The tables of the run and the columns by which they are identified as ours.
const TABLES: [(&str, &str); 3] = [
    (
        "public.file",
        "id bigint, run bigint, n bigint, size bigint, attempts integer, worked_at timestamp with \
         time zone, path bytea, sha256 bytea, problem text",
    ),
    ("public.file_list", "run bigint, n bigint, path bytea"),
    (
        "public.file_run",
        "id bigint, files bigint, unlisted bigint, committed bigint, differing bigint, \
         started_at timestamp with time zone, finished_at timestamp with time zone, folder bytea, \
         proof jsonb",
    ),
];

/// The arguments of `file.digest`: the row to fill.
#[derive(Deserialize, Serialize)]
pub(crate) struct FileDigest {
    pub(crate) file: i64,
}

/// A run with a complete list of files.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) id: i64,
    pub(crate) folder: PathBuf,
    pub(crate) files: u64,
    pub(crate) unreadable_folders: u64,
    /// Rows and jobs that earlier processes committed.
    pub(crate) committed_before: u64,
    pub(crate) continued: bool,
    /// The result of the comparison, if an earlier process made it.
    pub(crate) proof: Option<Value>,
}

impl Run {
    /// Continues the unfinished run over `folder`, or begins one with a new list. A proven run is
    /// continued only if another step follows the proof.
    pub(crate) async fn open(
        client: &mut Client,
        folder: &Path,
        besides: Option<&Path>,
        with_proof: bool,
        terminal: &Terminal,
    ) -> anyhow::Result<Self> {
        let folder =
            std::fs::canonicalize(folder).map_err(|error| snapshot::cannot_list(folder, &error))?;
        prepare_tables(client, &TABLES, include_str!("schema.sql")).await?;
        if let Some(run) = Self::unfinished(client, &folder, with_proof).await? {
            return Ok(run);
        }
        let besides = besides.and_then(|path| std::fs::canonicalize(path).ok());
        Self::begin(client, folder, besides, terminal).await
    }

    async fn unfinished(
        client: &Client,
        folder: &Path,
        with_proof: bool,
    ) -> anyhow::Result<Option<Self>> {
        let name = folder.as_os_str().as_bytes();
        let found = client
            .query_typed_opt(
                include_str!("run_unfinished.sql"),
                &[(&name, Type::BYTEA), (&with_proof, Type::BOOL)],
            )
            .await?;
        let Some(row) = found else { return Ok(None) };
        Ok(Some(Self {
            id: row.try_get("id")?,
            folder: folder.to_owned(),
            files: row.try_get::<_, i64>("files")?.unsigned_abs(),
            unreadable_folders: row.try_get::<_, i64>("unlisted")?.unsigned_abs(),
            committed_before: row.try_get::<_, i64>("committed")?.unsigned_abs(),
            continued: true,
            proof: row.try_get("proof")?,
        }))
    }

    /// Inserts the run and its list in one transaction: the next process cannot find a run with an
    /// incomplete list.
    async fn begin(
        client: &mut Client,
        folder: PathBuf,
        besides: Option<PathBuf>,
        terminal: &Terminal,
    ) -> anyhow::Result<Self> {
        let progress = terminal.progress("listing", None, Unit::Files);
        let name = folder.as_os_str().as_bytes();
        let transaction = client.transaction().await?;
        transaction
            .execute_typed(include_str!("run_forget.sql"), &[(&name, Type::BYTEA)])
            .await?;
        let begun = transaction
            .query_typed_one(include_str!("run_begin.sql"), &[(&name, Type::BYTEA)])
            .await?;
        let id: i64 = begun.try_get(0)?;
        let (mut chunks, walking) = snapshot::walk(folder.clone(), besides);
        let mut n: i64 = 0;
        while let Some(chunk) = chunks.recv().await {
            let paths: Vec<&[u8]> = chunk
                .iter()
                .map(|path| path.as_os_str().as_bytes())
                .collect();
            // COPY is not used: the driver would prepare a named statement.
            n += transaction
                .execute_typed(
                    include_str!("run_list.sql"),
                    &[
                        (&id, Type::INT8),
                        (&n, Type::INT8),
                        (&paths, Type::BYTEA_ARRAY),
                    ],
                )
                .await?
                .cast_signed();
            progress.set(n.unsigned_abs());
        }
        let walked = walking.await.context("the walk ended early")??;
        let unlisted = i64::try_from(walked.unreadable_folders)?;
        transaction
            .execute_typed(
                include_str!("run_listed.sql"),
                &[(&id, Type::INT8), (&n, Type::INT8), (&unlisted, Type::INT8)],
            )
            .await?;
        transaction.commit().await?;
        Ok(Self {
            id,
            files: n.unsigned_abs(),
            unreadable_folders: walked.unreadable_folders,
            committed_before: 0,
            continued: false,
            proof: None,
            folder,
        })
    }

    /// Commits the listed files: each transaction inserts rows of `file` and their jobs.
    pub(crate) async fn commit_all(&self, client: &mut Client) -> anyhow::Result<()> {
        loop {
            let transaction = client.transaction().await?;
            let all = self.commit_batch(&transaction).await?;
            transaction.commit().await?;
            if all {
                return Ok(());
            }
        }
    }

    async fn commit_batch(&self, transaction: &Transaction<'_>) -> anyhow::Result<bool> {
        let turn = transaction
            .query_typed_one(include_str!("batch_begin.sql"), &[(&self.id, Type::INT8)])
            .await?;
        let (from, files): (i64, i64) = (turn.try_get("committed")?, turn.try_get("files")?);
        let to = files.min(from + BATCH_ROWS);
        if from == to {
            return Ok(true);
        }
        let rows = transaction
            .query_typed(
                include_str!("batch_rows.sql"),
                &[
                    (&self.id, Type::INT8),
                    (&from, Type::INT8),
                    (&to, Type::INT8),
                ],
            )
            .await?;
        let mut jobs = Vec::with_capacity(rows.len());
        for row in &rows {
            let arguments = FileDigest {
                file: row.try_get("id")?,
            };
            jobs.push(
                NewJob::new(JOB_NAME, &arguments)?
                    .queue(QUEUE_NAME)
                    .max_attempts(Some(MAX_ATTEMPTS)),
            );
        }
        posthaste::enqueue_many(transaction, &jobs).await?;
        transaction
            .execute_typed(
                include_str!("batch_end.sql"),
                &[(&self.id, Type::INT8), (&to, Type::INT8)],
            )
            .await?;
        Ok(to == files)
    }

    pub(crate) async fn figures(&self, client: &Client) -> anyhow::Result<Figures> {
        let row = client
            .query_typed_one(include_str!("progress.sql"), &[(&self.id, Type::INT8)])
            .await?;
        let dead = client
            .query_typed_one(include_str!("dead.sql"), &[(&self.id, Type::INT8)])
            .await?;
        let count = |row: &tokio_postgres::Row, column: &str| {
            row.try_get::<_, i64>(column).map(i64::unsigned_abs)
        };
        Ok(Figures {
            committed: count(&row, "rows")?,
            worked: count(&row, "worked")?,
            retried: count(&row, "retried")?,
            unreadable: count(&row, "unreadable")?,
            bytes: count(&row, "bytes")?,
            dead: count(&dead, "count")?,
        })
    }

    /// Returns the number of jobs of this run that are not dead, expired or discarded.
    pub(crate) async fn count_unfinished_jobs(&self, client: &Client) -> anyhow::Result<i64> {
        let row = client
            .query_typed_one(include_str!("open.sql"), &[(&self.id, Type::INT8)])
            .await?;
        Ok(row.try_get(0)?)
    }

    /// Records the result of the comparison, which is not repeated: files change.
    pub(crate) async fn prove(
        &self,
        client: &Client,
        differing: u64,
        proof: &Value,
    ) -> anyhow::Result<()> {
        let differing = i64::try_from(differing)?;
        client
            .execute_typed(
                include_str!("run_proven.sql"),
                &[
                    (&self.id, Type::INT8),
                    (&differing, Type::INT8),
                    (&proof, Type::JSONB),
                ],
            )
            .await?;
        Ok(())
    }

    pub(crate) async fn finish(&self, client: &Client) -> anyhow::Result<()> {
        client
            .execute_typed(include_str!("run_finish.sql"), &[(&self.id, Type::INT8)])
            .await?;
        Ok(())
    }
}

/// The progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) committed: u64,
    pub(crate) worked: u64,
    pub(crate) retried: u64,
    pub(crate) unreadable: u64,
    pub(crate) dead: u64,
    pub(crate) bytes: u64,
}

/// Makes the tables of a run. Fails if other tables have these names.
pub(super) async fn prepare_tables(
    client: &Client,
    tables: &[(&str, &str)],
    schema: &str,
) -> anyhow::Result<()> {
    for (table, columns) in tables {
        let found = client
            .query_typed_one(include_str!("shape.sql"), &[(table, Type::TEXT)])
            .await?;
        match found.try_get::<_, Option<String>>(0)? {
            Some(found) if found != *columns => bail!(
                "this database has a table {table} that is not posthaste's. Run 'posthaste demo' \
                 on another database, or leave DATABASE_URL unset."
            ),
            _ => {}
        }
    }
    client
        .batch_execute(schema)
        .await
        .context("cannot create the tables of the run")
}
