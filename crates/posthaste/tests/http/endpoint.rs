//! An endpoint that accepts nothing for a while: jobs wait, and one at a time is tried.

use std::time::Instant;

use super::*;
use crate::support::database;

/// An endpoint that answers all jobs with one status, and those named `bad` with their own.
#[derive(Clone, Default)]
struct Switch(Arc<Mutex<Switched>>);

#[derive(Default)]
struct Switched {
    status: StatusCode,
    asked: usize,
}

impl Switch {
    async fn serve(listener: TcpListener) -> Self {
        let switch = Self::default();
        let answer = async |State(switch): State<Self>, headers: HeaderMap| {
            let mut switched = switch.0.lock().unwrap();
            switched.asked += 1;
            match headers["posthaste-job-name"] == "bad" {
                true => StatusCode::NOT_FOUND,
                false => switched.status,
            }
        };
        let routes = Router::new().route("/", post(answer));
        let routes = routes.with_state(switch.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        switch
    }

    fn answers(&self, status: u16) {
        let mut switched = self.0.lock().unwrap();
        switched.status = StatusCode::from_u16(status).unwrap();
        switched.asked = 0;
    }

    async fn is_asked(&self, times: usize) {
        let asked = async || Ok(self.0.lock().unwrap().asked >= times);
        eventually(SOON, "it is asked", asked).await.unwrap();
    }
}

/// Checks that all jobs wait: none has ended, and none has an attempt.
async fn all_wait(client: &Client, jobs: i64) {
    let waiting = "SELECT count(*) FILTER (WHERE attempt = 0) FROM posthaste.job \
                   WHERE state IN ('available', 'scheduled', 'running')";
    let waiting: i64 = client.one(waiting).await.unwrap();
    assert_eq!((waiting, unfinished(client).await), (jobs, jobs));
}

async fn put_many(client: &Client, name: &str, jobs: i32) {
    let sql = "SELECT count(posthaste.enqueue($1, '{}')) FROM generate_series(1, $2::int)";
    client.execute(sql, &[&name, &jobs]).await.unwrap();
}

/// Starts a worker that posts every job to the root.
async fn post_to(db: &TestDb, address: &str) -> WorkerHandle {
    worker(&db.pool(4).unwrap())
        .queue("default", 8)
        .handler("*", http(address).handler())
        .start()
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_wait_without_attempts_while_their_endpoint_rejects_all() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    let switch = Switch::serve(listener).await;
    let worker = post_to(&db, &address).await;
    for status in [401, 404, 302, 503] {
        switch.answers(status);
        let since = Instant::now();
        put_many(&client, "m", 40).await;
        // Eight at once at the beginning, and then one at a time with growing delays.
        switch.is_asked(11).await;
        assert!(since.elapsed() > Duration::from_millis(100), "{status}");
        all_wait(&client, 40).await;
        switch.answers(204);
        all_done(&client).await;
    }
    worker.stop().await.unwrap();
    let failed = "SELECT count(*) FROM posthaste.attempt";
    let failed: i64 = client.one(failed).await.unwrap();
    assert_eq!(failed, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_are_not_followed() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let (address, seen) = serve().await;
    let worker = start(&db, &address, &["302-trap"]).await;
    put(&client, "302-trap", &json!({})).await;
    let asked = async || Ok(seen.lock().unwrap().len() > 2);
    eventually(SOON, "it is asked again", asked).await.unwrap();
    all_wait(&client, 1).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_wait_without_attempts_while_no_endpoint_is_reachable() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let there = listener.local_addr().unwrap();
    drop(listener);
    put_many(&client, "m", 40).await;
    let worker = post_to(&db, &format!("http://ann:geheim@{there}/")).await;
    let errors = "SELECT DISTINCT last_error FROM posthaste.job WHERE last_error IS NOT NULL";
    let is_recorded = async || Ok(!client.query(errors, &[]).await?.is_empty());
    eventually(SOON, "the reason is recorded", is_recorded).await?;
    all_wait(&client, 40).await;
    for row in client.query(errors, &[]).await? {
        let error: &str = row.get(0);
        assert!(error.starts_with("cannot connect: "), "{error}");
        assert!(!error.contains("geheim"), "{error}");
    }
    let listener = TcpListener::bind(there).await?;
    let _switch = Switch::serve(listener).await;
    all_done(&client).await;
    worker.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_rejected_alone_counts_attempts_and_blocks_no_other() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}/", listener.local_addr().unwrap());
    let _switch = Switch::serve(listener).await;
    put_many(&client, "bad", 1).await;
    let worker = post_to(&db, &address).await;
    eventually(SOON, "it has an attempt", async || {
        put_many(&client, "m", 20).await;
        let counted = "SELECT count(*) FROM posthaste.job WHERE name = 'bad' AND attempt > 0";
        let counted: i64 = client.one(counted).await?;
        Ok(counted == 1)
    })
    .await?;
    let left = async || Ok(unfinished(&client).await == 1);
    eventually(SOON, "all others are done", left).await?;
    worker.stop().await?;
    Ok(())
}
