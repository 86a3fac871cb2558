//! Writers of the outbox: transactions of a few rows each, of which some roll back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use posthaste_testkit::connect;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;

use super::lsn;
use crate::history::{APART, OutboxRow};

const WRITERS: i64 = 2;
/// The timeout of a writer, after which it closes its connection.
const PATIENCE: Duration = Duration::from_secs(2);
const INSERT: &str = "INSERT INTO public.outbox (key, payload) VALUES ($1, $2)";
const LOG_END: &str = "SELECT pg_catalog.pg_current_wal_insert_lsn()::text";

/// The end of the log soon after the commit of each row.
type Answered = Arc<Mutex<HashMap<i64, u64>>>;

pub(super) struct Writers {
    url: watch::Sender<String>,
    is_over: watch::Sender<bool>,
    tasks: JoinSet<()>,
    answered: Answered,
}

impl Writers {
    pub(super) fn start(url: &str, is_idle: bool) -> Self {
        let mut writers = Self {
            url: watch::Sender::new(url.to_owned()),
            is_over: watch::Sender::new(false),
            tasks: JoinSet::new(),
            answered: Answered::default(),
        };
        for number in 0..WRITERS {
            let writer = Writer {
                url: writers.url.subscribe(),
                is_over: writers.is_over.subscribe(),
                answered: Arc::clone(&writers.answered),
                is_idle,
                next: number * APART + 1,
            };
            writers.tasks.spawn(writer.run());
        }
        writers
    }

    pub(super) fn move_to(&self, url: &str) {
        self.url.send_replace(url.to_owned());
    }

    /// Stops the writers after their current transactions.
    pub(super) async fn stop(&mut self) {
        self.is_over.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }

    /// Writes one more row, which belongs to no writer.
    pub(super) async fn write_last(&self, client: &Client) -> anyhow::Result<()> {
        let key = WRITERS * APART;
        let payload = json!({ "key": key }).to_string();
        client.execute(INSERT, &[&key, &payload]).await?;
        Ok(())
    }

    /// The rows of the table.
    pub(super) async fn rows(&self, client: &Client) -> anyhow::Result<Vec<OutboxRow>> {
        let rows = "SELECT key, at::text FROM public.outbox ORDER BY key";
        let rows = client.query(rows, &[]).await?;
        let answered = self.answered.lock();
        let answered = answered.unwrap_or_else(PoisonError::into_inner);
        let row = |row: &tokio_postgres::Row| {
            let key = row.get(0);
            Ok(OutboxRow {
                key,
                from: lsn(row.get(1))?,
                until: answered.get(&key).copied(),
            })
        };
        rows.iter().map(row).collect()
    }
}

struct Writer {
    url: watch::Receiver<String>,
    is_over: watch::Receiver<bool>,
    answered: Answered,
    is_idle: bool,
    next: i64,
}

impl Writer {
    async fn run(mut self) {
        while !*self.is_over.borrow() {
            let url = self.url.borrow().clone();
            if let Ok(Ok(mut client)) = timeout(PATIENCE, connect(&url)).await {
                // Ends when the server dies, or when another takes over.
                while !*self.is_over.borrow() && *self.url.borrow() == url {
                    let written = timeout(PATIENCE, self.write(&mut client)).await;
                    if !matches!(written, Ok(Ok(()))) {
                        break;
                    }
                    self.rest().await;
                }
            }
            self.rest().await;
        }
    }

    async fn rest(&self) {
        let most = if self.is_idle { 1_000 } else { 60 };
        sleep(Duration::from_millis(fastrand::u64(5..most))).await;
    }

    async fn write(&mut self, client: &mut Client) -> anyhow::Result<()> {
        let tx = client.transaction().await?;
        let mut keys = Vec::new();
        for _ in 0..fastrand::u32(1..5) {
            let key = self.next;
            // Also if the result of the COMMIT is unknown.
            self.next += 1;
            let payload = json!({ "key": key, "chance": fastrand::u32(..) }).to_string();
            tx.execute(INSERT, &[&key, &payload]).await?;
            keys.push(key);
        }
        if fastrand::u32(..6) == 0 {
            return Ok(tx.rollback().await?);
        }
        tx.commit().await?;
        let end: String = client.query_one(LOG_END, &[]).await?.get(0);
        let end = lsn(&end)?;
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        answered.extend(keys.into_iter().map(|key| (key, end)));
        Ok(())
    }
}
