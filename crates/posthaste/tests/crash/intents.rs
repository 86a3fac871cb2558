//! Producers that record their enqueues, because the database may lose them in a crash.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use posthaste::NewJob;
use posthaste_testkit::{Sql as _, connect};
use tokio::task::JoinSet;
use tokio_postgres::Client;

/// The result of a transaction as its producer knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitResult {
    Committed,
    RolledBack,
    /// The answer to COMMIT never came.
    Ambiguous,
}

/// Running producers.
pub struct Intents {
    stop: Arc<AtomicBool>,
    producers: JoinSet<Vec<(i64, CommitResult)>>,
}

static KEYS: AtomicI64 = AtomicI64::new(1);

impl Intents {
    /// Starts this many producers; each writes the keys of its jobs into a separate table too.
    pub async fn start(url: &str, producers: usize) -> Self {
        connect(url)
            .await
            .expect("a connection")
            .run("CREATE TABLE kept (key bigint PRIMARY KEY)")
            .await
            .expect("a table");
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for _ in 0..producers {
            tasks.spawn(produce(url.to_owned(), Arc::clone(&stop)));
        }
        Self {
            stop,
            producers: tasks,
        }
    }

    /// Stops the producers and returns their results.
    pub async fn stop(self) -> HashMap<i64, CommitResult> {
        self.stop.store(true, Ordering::SeqCst);
        self.producers
            .join_all()
            .await
            .into_iter()
            .flatten()
            .collect()
    }
}

/// Returns the keys whose transactions the database kept.
pub async fn kept(client: &Client) -> HashSet<i64> {
    let keys = client.rows("SELECT key FROM kept").await;
    keys.expect("the keys").into_iter().collect()
}

async fn produce(url: String, stop: Arc<AtomicBool>) -> Vec<(i64, CommitResult)> {
    let mut results = Vec::new();
    let mut client = None;
    while !stop.load(Ordering::SeqCst) {
        if client.as_ref().is_none_or(Client::is_closed) {
            client = connect(&url).await.ok();
        }
        let Some(client) = client.as_mut() else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let count = fastrand::i64(1..5);
        let first = KEYS.fetch_add(count, Ordering::Relaxed);
        let keys: Vec<i64> = (first..first + count).collect();
        let result = one(client, &keys).await;
        results.extend(keys.into_iter().map(|key| (key, result)));
    }
    results
}

/// Runs one transaction; returns its result as its producer knows it.
async fn one(client: &mut Client, keys: &[i64]) -> CommitResult {
    let Ok(tx) = client.transaction().await else {
        return CommitResult::RolledBack;
    };
    for key in keys {
        let mut job = NewJob::new("crash", &serde_json::json!({ "key": key })).expect("a job");
        if key % 7 == 0 {
            let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_millis(150);
            job = job.scheduled_at(soon);
        }
        let written = tx
            .execute("INSERT INTO kept (key) VALUES ($1)", &[key])
            .await;
        // Without a commit, none of its rows can last.
        if written.is_err() || posthaste::enqueue(&tx, &job).await.is_err() {
            return CommitResult::RolledBack;
        }
    }
    if fastrand::u32(0..8) == 0 {
        drop(tx.rollback().await);
        return CommitResult::RolledBack;
    }
    match tx.commit().await {
        Ok(()) => CommitResult::Committed,
        Err(_) => CommitResult::Ambiguous,
    }
}
