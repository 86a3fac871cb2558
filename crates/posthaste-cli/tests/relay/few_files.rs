//! A process that may open few files and sends many concurrent requests.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::post;
use posthaste_testkit::Child;
use tokio::sync::watch;

use super::*;

/// Far fewer files than concurrent requests.
const FEW: &str = "ulimit -n 96";
const LACKS: &str = "this process has reached its limit of open files (ulimit -n)";
const JOBS: i32 = 400;

/// A receiver that delays all answers until it is opened.
struct Receiver {
    address: SocketAddr,
    /// The delivery id and the attempt of each answered request.
    taken: Arc<Mutex<Vec<(String, String)>>>,
    opened: watch::Sender<bool>,
}

impl Receiver {
    async fn start() -> anyhow::Result<Self> {
        let (opened, seen) = watch::channel(false);
        let taken: Arc<Mutex<Vec<_>>> = Arc::default();
        let keep = Arc::clone(&taken);
        let answer = post(async move |headers: HeaderMap| {
            let header = |name: &str| headers[name].to_str().unwrap_or_default().to_owned();
            let one = (header("webhook-id"), header("posthaste-attempt"));
            let _ = seen.clone().wait_for(|is_open| *is_open).await;
            let mut taken = keep.lock().unwrap_or_else(PoisonError::into_inner);
            taken.push(one);
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let routes = Router::new().route("/hook", answer);
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Ok(Self {
            address,
            taken,
            opened,
        })
    }

    fn taken(&self) -> Vec<(String, String)> {
        let taken = self.taken.lock();
        taken.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Opens the receiver once the process has reported a lack of file descriptors, and waits until
    /// each job is done. Returns the log.
    async fn gets_all(&self, child: &mut Child, client: &Client) -> anyhow::Result<Vec<String>> {
        child.error_line(LACKS, BOUND).await?;
        self.opened.send_replace(true);
        eventually(BOUND, "each is done", async || {
            Ok(number(client, "SELECT count(*) FROM posthaste.job").await? == 0)
        })
        .await?;
        child.terminate()?;
        ensure!(child.exit(BOUND).await?.success());
        let taken = self.taken();
        let ids: BTreeSet<&str> = taken.iter().map(|(id, _)| &**id).collect();
        ensure!(ids.len() == usize::try_from(JOBS)?, "{} jobs", ids.len());
        let is_first = |(_, attempt): &(String, String)| attempt == "1";
        ensure!(taken.iter().all(is_first), "an attempt was counted");
        let failed = "SELECT count(*) FROM posthaste.attempt";
        ensure!(number(client, failed).await? == 0);
        Ok(child.stderr())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn relays_out_of_file_descriptors_send_with_fewer_connections() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let (client, receiver) = (database.client().await?, Receiver::start().await?);
    let route = format!(
        "[route.hooks]\nqueue = 'a'\nto = 'http://{}/hook'\nnetworks = ['127.0.0.1']\n\
         requests = 200\nbatch = 50\n",
        receiver.address
    );
    stage.write("posthaste.toml", &route)?;
    enqueue(&client, JOBS).await?;
    let mut command = stage.started_by(FEW, &["relay", "run"]);
    let mut relay = Child::spawn(command.env("DATABASE_URL", database.url()))?;
    let output = receiver.gets_all(&mut relay, &client).await?;
    let lacks = output.iter().filter(|line| line.contains(LACKS));
    assert_eq!(lacks.count(), 1, "{output:#?}");
    // The webhook causes no other log line.
    let blamed = output.iter().filter(|line| line.contains("destination="));
    assert_eq!(blamed.count(), 1, "{output:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn file_descriptor_exhaustion_counts_no_attempt() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let (client, receiver) = (database.client().await?, Receiver::start().await?);
    enqueue(&client, JOBS).await?;
    let http = format!("n=http://{}/hook", receiver.address);
    let mut command = stage.started_by(FEW, &["work", "--queue", "a=200", "--http", &http]);
    command.env("NO_PROXY", "127.0.0.1");
    let mut worker = Child::spawn(command.env("DATABASE_URL", database.url()))?;
    receiver.gets_all(&mut worker, &client).await?;
    Ok(())
}
