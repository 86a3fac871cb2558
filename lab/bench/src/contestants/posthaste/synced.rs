//! Indexes of a table, written by the sync and by a client alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::posthaste::consumer::{Consumer, Delivery};
use ::posthaste::{Outcome, Worker};
use ::posthaste_sync::{
    Body, Direct, Elastic, ElasticClient, Index, IndexSync, Row, Source, SyncStatus, Table,
};
use ::posthaste_tantivy::Tantivy;
use ::posthaste_testkit::receivers::OpenSearch;
use anyhow::{Context, Result, anyhow, ensure};
use posthaste_elastic::Operation;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_postgres::NoTls;

use super::crew::pool;
use super::statements;
use crate::database::Database;

const QUEUE: &str = "sync.page";
/// The number of documents that are read or written together.
const BATCH: usize = 2_500;
const LIMIT: Duration = Duration::from_secs(900);

/// The place of the documents.
pub(crate) enum Place {
    Folder(TempDir),
    Server(Box<OpenSearch>),
}

impl Place {
    /// Creates a separate folder.
    pub(crate) fn folder() -> Result<Self> {
        Ok(Self::Folder(tempfile::tempdir()?))
    }

    /// Starts a separate server.
    pub(crate) fn server() -> Result<Self> {
        let server = tokio::task::block_in_place(|| OpenSearch::start_optimised(&[]))?;
        Ok(Self::Server(Box::new(server)))
    }

    /// Creates an empty index of this name for a sync.
    pub(crate) async fn index(&self, name: &str) -> Result<Arc<dyn Index>> {
        Ok(match self {
            Self::Folder(folder) => Arc::new(Tantivy::builder(folder.path().join(name)).open()?),
            Self::Server(server) => {
                let index = Elastic::new(client(server)?, name).definition(definition());
                index.open().await?;
                Arc::new(index)
            }
        })
    }

    /// Writes these documents with the index's own library, in batches of the sync's size.
    pub(crate) async fn write_bare(&self, name: &str, documents: Vec<Row>) -> Result<Duration> {
        match self {
            Self::Folder(folder) => {
                let path = folder.path().join(name);
                tokio::task::spawn_blocking(move || Bare::folder(&path, &documents)).await?
            }
            Self::Server(server) => Bare::server(&client(server)?, name, &documents).await,
        }
    }
}

fn client(server: &OpenSearch) -> Result<ElasticClient> {
    let kind = reqwest::Client::builder().no_proxy();
    let client = ElasticClient::new(kind, &server.url())?;
    Ok(client.time_limit(Duration::from_secs(60)))
}

fn definition() -> serde_json::Value {
    let text = json!({"type": "text"});
    json!({
        "settings": {"number_of_shards": 1, "number_of_replicas": 0},
        "mappings": {"properties": {"id": {"type": "long"}, "title": text, "body": text}},
    })
}

/// Writes to the indexes without a sync.
struct Bare;

impl Bare {
    fn folder(path: &std::path::Path, documents: &[Row]) -> Result<Duration> {
        use tantivy::schema::{
            IndexRecordOption, STORED, STRING, Schema, TextFieldIndexing, TextOptions,
        };
        std::fs::create_dir_all(path)?;
        let mut schema = Schema::builder();
        let words = TextFieldIndexing::default()
            .set_tokenizer("en_stem")
            .set_index_option(IndexRecordOption::WithFreqsAndPositions);
        let id = schema.add_text_field("id", STRING | STORED);
        let text = TextOptions::default().set_indexing_options(words);
        let text = schema.add_text_field("text", text);
        let index = tantivy::Index::create_in_dir(path, schema.build())?;
        let mut writer = index.writer_with_num_threads(1, 64 << 20)?;
        let begun = Instant::now();
        for batch in documents.chunks(BATCH) {
            for row in batch {
                let fields: serde_json::Map<String, serde_json::Value> =
                    serde_json::from_str(body(row)?)?;
                let mut document = tantivy::TantivyDocument::new();
                document.add_text(id, &row.id);
                let texts = fields.values().filter_map(|value| value.as_str());
                texts.for_each(|one| document.add_text(text, one));
                writer.add_document(document)?;
            }
            writer.commit()?;
        }
        Ok(begun.elapsed())
    }

    async fn server(client: &ElasticClient, name: &str, documents: &[Row]) -> Result<Duration> {
        client.create_index(name, &definition()).await?;
        let begun = Instant::now();
        for batch in documents.chunks(BATCH) {
            let operation = |row: &Row| -> Result<Operation> {
                let document: &serde_json::value::RawValue = serde_json::from_str(body(row)?)?;
                Ok(Operation::index(name, &row.id, &document)?)
            };
            let operations: Vec<Operation> = batch.iter().map(operation).collect::<Result<_>>()?;
            for outcome in client.bulk(&operations).await? {
                outcome?;
            }
        }
        let taken = begun.elapsed();
        client.delete_index(name).await?;
        Ok(taken)
    }
}

fn body(row: &Row) -> Result<&str> {
    match &row.body {
        Body::Document(text) => Ok(text),
        other => Err(anyhow!("row {} has no document: {other:?}", row.id)),
    }
}

/// A table with rows that an index lacks.
pub(crate) struct Indexed {
    database: Database,
    rows: u64,
}

impl Indexed {
    /// Creates this many rows, each with its job.
    pub(crate) async fn filled(database: Database, rows: u64) -> Result<Self> {
        let client = database.connect().await?;
        for name in ["synced_table", "sync_table"] {
            client.batch_execute(statements().get(name)?).await?;
        }
        let count = i64::try_from(rows)?;
        client
            .execute(statements().get("sync_fill")?, &[&count])
            .await?;
        client.batch_execute("ANALYZE").await?;
        Ok(Self { database, rows })
    }

    fn table(&self) -> Result<Table> {
        Ok(Table::new(pool(self.database.config().clone())?, "page"))
    }

    /// Reads all documents.
    pub(crate) async fn documents(&self) -> Result<Vec<Row>> {
        let table = self.table()?;
        let ids: Vec<String> = (1..=self.rows).map(|n| n.to_string()).collect();
        let mut all = Vec::with_capacity(ids.len());
        for ids in ids.chunks(BATCH) {
            all.extend(table.rows(ids).await?);
        }
        Ok(all)
    }

    /// Only reads and renders all rows and drains their jobs.
    pub(crate) async fn read(&self) -> Result<Duration> {
        let (claims, claimed) = unbounded_channel();
        let reader = Arc::new(Reader {
            claims,
            in_hand: AtomicU64::new(0),
        });
        let begun = Instant::now();
        let worker = self
            .worker()?
            .consumer(QUEUE, Arc::clone(&reader))
            .start()
            .await?;
        let reading = reader.read(self.table()?, claimed, self.rows);
        tokio::time::timeout(LIMIT, reading).await??;
        worker.stop().await?;
        Ok(begun.elapsed())
    }

    /// Syncs until all rows were written to an index that lacks them. Measures from the start of
    /// the worker to its end, when all jobs are acknowledged.
    pub(crate) async fn write(&self, index: Arc<dyn Index>) -> Result<Duration> {
        self.sync(index, "written").await
    }

    /// Enqueues all rows again, and syncs until all were verified.
    pub(crate) async fn verify(&self, index: Arc<dyn Index>) -> Result<Duration> {
        let client = self.database.connect().await?;
        client.execute(statements().get("sync_again")?, &[]).await?;
        self.sync(index, "done").await
    }

    async fn sync(&self, index: Arc<dyn Index>, what: &str) -> Result<Duration> {
        // Verification of the written documents begins long after this has ended.
        let sync = IndexSync::builder_any(Arc::new(self.table()?), index)
            .period(Duration::from_secs(7_200))
            .start()?;
        let begun = Instant::now();
        let worker = self.worker()?.consumer(QUEUE, sync.clone()).start().await?;
        while sync.status().total(what) < self.rows {
            ensure!(begun.elapsed() < LIMIT, "{}", told(&sync.status()));
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        worker.stop().await?;
        let taken = begun.elapsed();
        let status = sync.status();
        let others = ["failed", "rescheduled"].map(|what| status.total(what));
        ensure!(others == [0, 0], "{}", told(&status));
        Ok(taken)
    }

    fn worker(&self) -> Result<::posthaste::WorkerBuilder> {
        let address = self.database.config().clone();
        Ok(Worker::builder(pool(address.clone())?).notifier(address, NoTls))
    }

    /// The median duration of this many direct writes for their caller.
    pub(crate) async fn direct(index: Arc<dyn Index>, writes: u32) -> Result<Duration> {
        let direct = Direct::to_any(index).budget(Duration::from_secs(5));
        let mut taken = Vec::new();
        for n in 0..writes {
            let begun = Instant::now();
            direct
                .put(format!("direct {n}"), 1, r#"{"title": "direct"}"#)
                .await;
            taken.push(begun.elapsed());
        }
        ensure!(
            direct.counts().taken == u64::from(writes),
            "{:?}",
            direct.counts()
        );
        taken.sort();
        taken.get(taken.len() / 2).copied().context("no writes")
    }
}

fn told(status: &SyncStatus) -> String {
    let counts: Vec<_> = status.counts().collect();
    format!("{counts:?}, {:?}", status.last_error)
}

/// Passes claims to a task, at most two batches at once.
struct Reader {
    claims: UnboundedSender<Vec<Delivery>>,
    in_hand: AtomicU64,
}

impl Reader {
    async fn read(
        &self,
        table: Table,
        mut claims: UnboundedReceiver<Vec<Delivery>>,
        rows: u64,
    ) -> Result<()> {
        #[derive(serde::Deserialize)]
        struct Arguments {
            id: String,
        }
        let mut read = 0;
        while read < rows {
            let claim = claims.recv().await.context("the worker has ended")?;
            let jobs = claim.len() as u64;
            let ids: Result<Vec<String>> = claim
                .iter()
                .map(|one| Ok(one.job.kwargs::<Arguments>()?.id))
                .collect();
            let documents = table.rows(&ids?).await?;
            ensure!(documents.len() as u64 == jobs, "rows are missing");
            claim
                .into_iter()
                .for_each(|one| one.ticket.settle(Outcome::Done));
            self.in_hand.fetch_sub(jobs, Ordering::SeqCst);
            read += jobs;
        }
        Ok(())
    }
}

impl Consumer for Reader {
    fn capacity(&self) -> usize {
        let in_hand = usize::try_from(self.in_hand.load(Ordering::SeqCst)).unwrap_or(usize::MAX);
        (2 * BATCH).saturating_sub(in_hand).min(BATCH)
    }
    fn consume(&self, claim: Vec<Delivery>) {
        self.in_hand.fetch_add(claim.len() as u64, Ordering::SeqCst);
        // The channel is closed when everything is read.
        let _ = self.claims.send(claim);
    }
    fn give_back(&self) {}
    fn abort(&self) {}
}
