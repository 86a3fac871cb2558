//! A worker process that is stopped with claimed jobs and continues after other workers have
//! rescued them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::http::HeaderMap;
use axum::routing::post;
use posthaste_testkit::{Child, PgServer, PgVersion, Proxy, eventually, number};
use tokio::sync::watch;
use tokio_postgres::Client;

use super::{NO_PROXY, done, work};
use crate::stage::{self, BOUND, Stage};

/// The stopped worker must have more claimed jobs that it has not begun.
const ENOUGH: usize = 1;

/// The number of requests by worker and job.
#[derive(Clone, Default)]
struct Received {
    requests: Arc<Mutex<HashMap<(String, i64), usize>>>,
    is_held: watch::Sender<bool>,
}

impl Received {
    /// Answers requests with success, those of the first worker only while its answers are not held
    /// back. Each worker has a separate path.
    async fn serve(&self) -> anyhow::Result<std::net::SocketAddr> {
        let received = self.clone();
        let answer = post(
            async move |Path(worker): Path<String>, headers: HeaderMap| {
                let id = headers.get("posthaste-job-id");
                let id = id.and_then(|id| id.to_str().ok()?.parse().ok());
                received.note(&worker, id.unwrap_or(0));
                if worker == "one" {
                    let mut held = received.is_held.subscribe();
                    let _ = held.wait_for(|is_held| !is_held).await;
                }
            },
        );
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let routes = Router::new().route("/{worker}", answer);
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Ok(address)
    }

    fn note(&self, worker: &str, id: i64) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((worker.to_owned(), id)).or_default() += 1;
    }

    fn times(&self, worker: &str, id: i64) -> usize {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let times = requests.get(&(worker.to_owned(), id));
        times.copied().unwrap_or_default()
    }
}

async fn enqueue(client: &Client, jobs: i64) -> anyhow::Result<()> {
    let enqueue = "INSERT INTO posthaste.job (name) SELECT 'x' FROM generate_series(1, $1::bigint)";
    client.execute(enqueue, &[&jobs]).await?;
    Ok(())
}

/// Returns the jobs that the worker has claimed and not begun.
async fn unbegun(client: &Client, received: &Received) -> anyhow::Result<Vec<i64>> {
    let running = "SELECT id FROM posthaste.job WHERE state = 'running' ORDER BY id";
    let rows = client.query(running, &[]).await?;
    let ids = rows.iter().map(|row| row.get(0));
    Ok(ids.filter(|id| received.times("one", *id) == 0).collect())
}

/// Stops the worker while one job holds its slot and others are claimed and not begun, and returns
/// their ids. Their number depends on the speed of the last runs, so it is retried until there are
/// some.
async fn stop_with_a_line(
    worker: &mut Child,
    client: &Client,
    received: &Received,
) -> anyhow::Result<Vec<i64>> {
    for _ in 0..200 {
        enqueue(client, 50).await?;
        tokio::time::sleep(Duration::from_millis(20)).await;
        received.is_held.send_replace(true);
        // The answer to a pending claim has arrived by then.
        tokio::time::sleep(Duration::from_millis(100)).await;
        worker.pause()?;
        let line = unbegun(client, received).await?;
        if line.len() > ENOUGH {
            return Ok(line);
        }
        worker.resume()?;
        received.is_held.send_replace(false);
    }
    anyhow::bail!("no jobs stood in line")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_worker_starts_no_rescued_jobs() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let proxy = Proxy::start(PgServer::shared(PgVersion::any())?.address()).await?;
    let proxied = proxy.url(database.name());
    let received = Received::default();
    let address = received.serve().await?;
    let start = async |name: &str| {
        let url = format!("x=http://{address}/{name}");
        let arguments = ["--http", &url, "--queue", "default=1"];
        let environment = [NO_PROXY, ("DATABASE_URL", &proxied)];
        work(&stage, &database, &arguments, &environment).await
    };
    enqueue(&client, 500).await?;
    let mut one = start("one").await?;
    eventually(BOUND, "it works", async || {
        Ok(number(&client, "SELECT count(*) FROM posthaste.job").await? < 400)
    })
    .await?;
    let unbegun = stop_with_a_line(&mut one, &client, &received).await?;
    // The slot becomes free once the worker continues.
    received.is_held.send_replace(false);

    let mut other = start("other").await?;
    other
        .error_line("rescued the jobs of a dead worker", BOUND)
        .await?;
    done(&client).await?;
    other.terminate()?;
    assert!(other.exit(BOUND).await?.success());
    // The answer to its heartbeat would cancel its jobs too: the worker must notice without one.
    proxy.stall();
    one.resume()?;
    // By now it has had time to begin them. It may also release all of them at once.
    one.error_line("an acknowledgement failed", BOUND).await?;
    proxy.restore().await?;
    one.error_line("it continues under a new id", BOUND).await?;
    // It continues after it has checked the jobs that it still held.
    enqueue(&client, 50).await?;
    done(&client).await?;
    one.terminate()?;
    assert!(one.exit(BOUND).await?.success());

    for id in unbegun {
        let times = ["one", "other"].map(|worker| received.times(worker, id));
        assert_eq!(times, [0, 1], "{id}");
    }
    Ok(())
}
