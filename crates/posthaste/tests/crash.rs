//! Crashes: workers survive a crash of the server, the server survives its own unfinished
//! maintenance, and answers get lost.

mod asynchronous;
mod forgotten;
mod intents;
mod unanswered;
mod undone;
mod verified;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use posthaste::{Outcome, WorkerHandle};
use posthaste_testkit::{PgServer, PgVersion, eventually};

use crate::support;
use intents::{CommitResult, Intents};

/// Crashes in one run; `POSTHASTE_CRASHES` sets another number.
fn crashes() -> u64 {
    std::env::var("POSTHASTE_CRASHES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(3)
}

/// The number of runs of each key.
#[derive(Clone, Default)]
pub struct Worked(Arc<Mutex<HashMap<i64, u32>>>);

impl Worked {
    fn note(&self, key: i64) {
        let mut worked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *worked.entry(key).or_default() += 1;
    }

    pub fn all(&self) -> HashMap<i64, u32> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub fn has(&self, key: i64) -> bool {
        let worked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        worked.contains_key(&key)
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// Starts a worker whose handler only records its runs, and panics if an attempt was counted: no
/// run here ever fails.
pub async fn remembering(url: &str, worked: &Worked) -> WorkerHandle {
    let manager = deadpool_postgres::Manager::new(url.parse().unwrap(), tokio_postgres::NoTls);
    let pool = deadpool_postgres::Pool::builder(manager)
        .max_size(4)
        .build()
        .unwrap();
    let worked = worked.clone();
    let config = posthaste::Config {
        segment_bytes: 256 << 10,
        ..support::quick()
    };
    support::worker(&pool)
        .config(config)
        .queue("default", 16)
        .handler("crash", move |_context, job| {
            let worked = worked.clone();
            async move {
                let key: serde_json::Value = job.kwargs()?;
                assert_eq!(job.attempt, 1, "an attempt was counted by nobody's fault");
                worked.note(key["key"].as_i64().expect("a key"));
                Ok(Outcome::Done)
            }
        })
        .start()
        .await
        .expect("a worker")
}

async fn committed_jobs_survive(version: PgVersion) {
    let server = PgServer::start(version, &[]).expect("a server");
    let database = support::migrated(&server).await;
    let worked = Worked::default();
    let workers = [
        remembering(database.url(), &worked).await,
        remembering(database.url(), &worked).await,
    ];
    let intents = Intents::start(database.url(), 6).await;
    for _ in 0..crashes() {
        let before = worked.len();
        eventually(support::SOON, "the workers are busy", async || {
            Ok(worked.len() > before + 200)
        })
        .await
        .expect("work goes on after a crash");
        tokio::task::block_in_place(|| {
            server.stop_immediate().expect("a crash");
            server.restart().expect("a restart");
        });
    }
    let results = intents.stop().await;
    let client = database.client().await.expect("a connection");
    eventually(Duration::from_secs(60), "all jobs are done", async || {
        Ok(support::unfinished(&client).await == 0)
    })
    .await
    .unwrap_or_else(|error| panic!("{error:#}"));
    for worker in workers {
        worker.stop().await.expect("a clean stop");
    }
    let kept = intents::kept(&client).await;
    judge(&results, &kept, &worked.all());
    posthaste_testkit::ran::count("crashes", crashes());
}

/// Compares what producers intended, what the database stored and what was run.
fn judge(
    results: &HashMap<i64, CommitResult>,
    kept: &std::collections::HashSet<i64>,
    worked: &HashMap<i64, u32>,
) {
    let mut committed = 0;
    for (key, result) in results {
        let (is_kept, is_worked) = (kept.contains(key), worked.contains_key(key));
        match result {
            CommitResult::Committed => {
                assert!(is_kept && is_worked, "job {key} was committed and is lost")
            }
            CommitResult::RolledBack => {
                assert!(
                    !is_kept && !is_worked,
                    "job {key} was rolled back and worked"
                )
            }
            CommitResult::Ambiguous => {
                assert_eq!(is_kept, is_worked, "job {key}: neither all nor nothing")
            }
        }
        committed += usize::from(*result == CommitResult::Committed);
    }
    assert!(committed > 300, "only {committed} jobs were committed");
    for key in worked.keys() {
        assert!(results.contains_key(key), "job {key} came from nowhere");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn committed_jobs_survive_server_crashes_under_load_on_15() {
    committed_jobs_survive(PgVersion::V15).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn committed_jobs_survive_server_crashes_under_load_on_18() {
    committed_jobs_survive(PgVersion::V18).await;
}
