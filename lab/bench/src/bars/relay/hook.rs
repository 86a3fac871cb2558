//! A thousand requests in flight to one webhook, from a separate process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Router, routing::post};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::bars::memory;
use crate::bench::Bench;
use crate::contestants::posthaste::REQUESTS;
use crate::rounds::Figures;
use crate::verdict::{Bound, Evidence, Judgement, Requirement};

pub(super) const NAME: &str = "webhook";
/// The delay of the webhook's answers.
const PAUSE: Duration = Duration::from_millis(250);
const UNDER_WAY: &str = "requests_under_way";

pub(super) fn judge(evidence: &Evidence<'_>) -> Result<Vec<Judgement>> {
    let bound = Bound::AtLeast(REQUESTS as f64);
    let under_way = Requirement::bar("requests under way at once, webhook", "requests", bound);
    let growth = "growth of resident memory after the first fifth, webhook";
    let growth = Requirement::bar(growth, "MiB", Bound::AtMost(4.0));
    Ok(vec![
        evidence.median(under_way, NAME, UNDER_WAY)?,
        evidence.median(growth, NAME, memory::GROWTH)?,
    ])
}

pub(super) async fn once(bench: &Bench<'_>, jobs: u64) -> Result<Figures> {
    let database = super::filled(bench, jobs).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    let hook = Arc::new(Hook::default());
    let routes = Router::new().route("/", post(take));
    let routes = routes.with_state(Arc::clone(&hook));
    let mut serving = JoinSet::new();
    serving.spawn(async move { axum::serve(listener, routes).await });
    let figures = memory::work_in_a_process(&database, jobs, Some(&url)).await?;
    let taken = hook.taken.load(Ordering::SeqCst);
    ensure!(taken as u64 == jobs, "{taken} of {jobs} requests came");
    Ok(figures.with(UNDER_WAY, hook.most.load(Ordering::SeqCst) as f64))
}

/// The requests that the webhook has received.
#[derive(Default)]
struct Hook {
    under_way: AtomicUsize,
    most: AtomicUsize,
    taken: AtomicUsize,
}

async fn take(State(hook): State<Arc<Hook>>) -> StatusCode {
    let under_way = hook.under_way.fetch_add(1, Ordering::SeqCst) + 1;
    hook.most.fetch_max(under_way, Ordering::SeqCst);
    tokio::time::sleep(PAUSE).await;
    hook.under_way.fetch_sub(1, Ordering::SeqCst);
    hook.taken.fetch_add(1, Ordering::SeqCst);
    StatusCode::NO_CONTENT
}
