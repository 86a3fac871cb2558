//! A server with logical replication, a database on it, and the recorded jobs of a capture.

use std::time::Duration;

use posthaste::Database;
use posthaste_capture::{
    Capture, CapturedTable, Error, Options, OutboxColumns, Running, Source, TableName, Until,
};
use posthaste_testkit::{PgServer, PgVersion, TestDb, connect, eventually};
use serde_json::Value;
use tokio_postgres::Client;

use crate::support;

pub(super) const SOON: Duration = Duration::from_secs(60);

pub(super) const OUTBOX: &str = "CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT \
     gen_random_uuid(), type text NOT NULL DEFAULT 'event', payload text, headers jsonb)";

pub(super) struct World {
    // Declared first, so that it is dropped before its server.
    pub(super) db: TestDb,
    pub(super) server: PgServer,
    pub(super) client: Client,
}

/// A job in the form that a receiver gets.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Job {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) body: String,
    pub(super) row: Value,
}

impl World {
    pub(super) async fn new(version: PgVersion, more: &[(&str, &str)]) -> Self {
        let settings = [("wal_level", "logical")];
        let settings: Vec<_> = settings.into_iter().chain(more.iter().copied()).collect();
        let server = PgServer::start(version, &settings).unwrap();
        let db = support::migrated(&server).await;
        let client = db.client().await.unwrap();
        Self { db, server, client }
    }

    pub(super) fn database(&self) -> Database {
        posthaste::connect(self.db.url()).unwrap()
    }

    pub(super) async fn sql(&self, sql: &str) {
        self.client.batch_execute(sql).await.unwrap();
    }

    pub(super) async fn text(&self, sql: &str) -> String {
        self.client.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// Reconnects after a restart of the server.
    pub(super) async fn reconnect(&mut self) {
        self.client = connect(self.db.url()).await.unwrap();
    }

    pub(super) async fn install(&self, capture: &Capture) {
        capture.install(&self.database()).await.unwrap();
    }

    /// Captures everything that is committed now.
    pub(super) async fn catch_up(&self, capture: &Capture) -> Result<(), Error> {
        let mut running = capture.clone().start(self.database(), Until::Caught)?;
        let ended = tokio::time::timeout(SOON, running.ended()).await;
        let ended = ended.expect("it ends by itself");
        // The server detects the closed connection only after some time.
        let left = "SELECT count(*)::text FROM pg_replication_slots WHERE active";
        let is_let_go = async || Ok(self.text(left).await == "0");
        eventually(SOON, "the slot is let go", is_let_go)
            .await
            .unwrap();
        ended
    }

    pub(super) fn start(&self, capture: &Capture) -> Running {
        let capture = capture.clone();
        capture.start(self.database(), Until::Stopped).unwrap()
    }

    /// Returns the jobs of the queue in the order in which they were written.
    pub(super) async fn jobs(&self) -> Vec<Job> {
        let sql = "SELECT name, kwargs FROM posthaste.job WHERE queue = 'captured' ORDER BY id";
        let rows = self.client.query(sql, &[]).await.unwrap();
        let job = |row: &tokio_postgres::Row| {
            let kwargs: Value = row.get(1);
            let envelope = &kwargs["posthaste.outbox"];
            let text = |field: &str| envelope[field].as_str().map(ToOwned::to_owned);
            let body = text("text").or_else(|| text("hex")).unwrap();
            Job {
                id: text("id").unwrap(),
                name: row.get(0),
                row: serde_json::from_str(&body).unwrap_or(Value::Null),
                body,
            }
        };
        rows.iter().map(job).collect()
    }

    pub(super) async fn bodies(&self) -> Vec<String> {
        self.jobs().await.into_iter().map(|job| job.body).collect()
    }

    pub(super) async fn until_captured(&self, count: usize) {
        let captured = async || Ok(self.jobs().await.len() >= count);
        eventually(SOON, "all is captured", captured).await.unwrap();
    }
}

pub(super) fn capture(source: Source) -> Capture {
    Capture {
        name: "all".into(),
        queue: "captured".into(),
        direct: None,
        source,
        slot: "posthaste_all".into(),
        server: None,
        options: Options::default(),
    }
}

pub(super) fn outbox() -> Capture {
    capture(Source::Outbox {
        table: TableName::read("public.outbox").unwrap(),
        columns: OutboxColumns::default(),
    })
}

pub(super) fn table(name: &str) -> CapturedTable {
    CapturedTable {
        table: TableName::read(name).unwrap(),
        columns: Vec::new(),
        filter: None,
        operations: Vec::new(),
        key: Vec::new(),
    }
}

pub(super) fn tables(names: &[&str]) -> Capture {
    capture(Source::Tables(
        names.iter().map(|name| table(name)).collect(),
    ))
}
