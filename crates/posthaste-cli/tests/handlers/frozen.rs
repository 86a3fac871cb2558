//! A worker process that is stopped with jobs in hand and goes on after others have rescued them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::http::HeaderMap;
use axum::routing::post;
use posthaste_testkit::{Child, eventually, number};
use tokio_postgres::Client;

use super::{NO_PROXY, done, work};
use crate::stage::{self, BOUND, Stage};

/// One at a time: more may be begun in the moment in which the worker is stopped.
const ONE: [&str; 2] = ["--queue", "default=1"];
/// In the line of the stopped worker.
const ENOUGH: usize = 3;

/// The requests of each worker, by the id of the job.
#[derive(Clone, Default)]
struct Received(Arc<Mutex<HashMap<(String, i64), usize>>>);

impl Received {
    /// Says yes at once; each worker has a path.
    async fn serve(&self) -> anyhow::Result<std::net::SocketAddr> {
        let received = self.clone();
        let answer = post(
            async move |Path(worker): Path<String>, headers: HeaderMap| {
                let id = headers.get("posthaste-job-id");
                let id = id.and_then(|id| id.to_str().ok()?.parse().ok());
                let mut received = received.0.lock().unwrap_or_else(PoisonError::into_inner);
                *received.entry((worker, id.unwrap_or(0))).or_default() += 1;
            },
        );
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let routes = Router::new().route("/{worker}", answer);
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Ok(address)
    }

    fn times(&self, worker: &str, id: i64) -> usize {
        let received = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        received
            .get(&(worker.to_owned(), id))
            .copied()
            .unwrap_or_default()
    }
}

async fn enqueue(client: &Client, jobs: i64) -> anyhow::Result<()> {
    let enqueue = "INSERT INTO posthaste.job (name) SELECT 'x' FROM generate_series(1, $1::bigint)";
    client.execute(enqueue, &[&jobs]).await?;
    Ok(())
}

/// Stops the worker in a moment in which it has claimed jobs that it has not begun: which.
async fn stopped(
    worker: &mut Child,
    client: &Client,
    received: &Received,
) -> anyhow::Result<Vec<i64>> {
    for _ in 0..200 {
        worker.pause()?;
        // The last request that went out has arrived by then.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let running = "SELECT id FROM posthaste.job WHERE state = 'running'";
        let rows = client.query(running, &[]).await?;
        let ids = rows.iter().map(|row| row.get(0));
        let unbegun: Vec<i64> = ids.filter(|id| received.times("one", *id) == 0).collect();
        if unbegun.len() > ENOUGH {
            return Ok(unbegun);
        }
        worker.resume()?;
        enqueue(client, 50).await?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    anyhow::bail!("no jobs stood in line")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_was_stopped_begins_nothing_that_others_have_rescued() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let received = Received::default();
    let address = received.serve().await?;
    let start = async |name: &str| {
        let (url, [option, queue]) = (format!("x=http://{address}/{name}"), ONE);
        let arguments = ["--http", &url, option, queue];
        work(&stage, &database, &arguments, &[NO_PROXY]).await
    };
    enqueue(&client, 500).await?;
    let mut one = start("one").await?;
    eventually(BOUND, "it works", async || {
        Ok(number(&client, "SELECT count(*) FROM posthaste.job").await? < 400)
    })
    .await?;
    let unbegun = stopped(&mut one, &client, &received).await?;

    let mut other = start("other").await?;
    other
        .error_line("rescued the jobs of a dead worker", BOUND)
        .await?;
    done(&client).await?;
    one.resume()?;
    one.error_line("it continues under a new id", BOUND).await?;
    other.terminate()?;
    assert!(other.exit(BOUND).await?.success());
    // It continues, after it has checked the jobs that it still held.
    enqueue(&client, 50).await?;
    done(&client).await?;
    one.terminate()?;
    assert!(one.exit(BOUND).await?.success());

    let begun = unbegun.iter().filter(|id| received.times("one", **id) > 0);
    let begun = begun.count();
    assert!(begun <= 1, "{begun} of {} were begun again", unbegun.len());
    for id in unbegun {
        assert_eq!(received.times("other", id), 1, "{id}");
    }
    Ok(())
}
