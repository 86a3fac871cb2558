//! The mail example while Redis is lost and restored.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use posthaste_testkit::eventually;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::queue::{LEASE, Queue};
use super::reconcile::Reconciler;
use super::{KEPT, Log, Setup, UnqueryableProvider};
use crate::support::SOON;

/// Orders mails that have no task yet.
async fn ordered(setup: &Setup) -> Vec<Uuid> {
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(setup.ordered().await);
    }
    ids
}

async fn are_sent(setup: &Setup, ids: &[Uuid]) {
    eventually(SOON, "they are sent", async || {
        for id in ids {
            if setup.state(*id).await != "sent" {
                return Ok(false);
            }
        }
        Ok(true)
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_and_reconciler_survive_a_redis_restart() {
    let test = "workers_and_reconciler_go_on_when_redis_cuts_them_off";
    let Some(setup) = Setup::with(test, &KEPT).await else {
        return;
    };
    let stop = CancellationToken::new();
    let mut working = Vec::new();
    for _ in 0..2 {
        let (worker, stop) = (setup.worker(), stop.clone());
        working.push(tokio::spawn(async move { worker.run(stop).await }));
    }
    let (reconciler, url) = (
        setup.reconciler(UnqueryableProvider),
        setup.db.url().to_owned(),
    );
    let reconciling = tokio::spawn(async move { reconciler.run(&url).await });
    are_sent(&setup, &ordered(&setup).await).await;

    let killed = setup.redis.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
    assert!(killed.unwrap().as_u64() >= Some(1), "they were connected");
    are_sent(&setup, &ordered(&setup).await).await;

    setup.redis.kill9().unwrap();
    let meanwhile = ordered(&setup).await;
    setup.redis.restart().unwrap();
    are_sent(&setup, &meanwhile).await;
    assert_eq!(setup.mails(), 15, "each once");
    reconciling.abort();
    stop.cancel();
    for one in working {
        one.await.unwrap();
    }
}

#[tokio::test]
async fn lost_leases_and_failed_renewals_are_logged() {
    let test = "lost_leases_and_failed_renewals_are_logged";
    let Some(setup) = Setup::new(test).await else {
        return;
    };
    let (log, _guard) = Log::begin();
    setup
        .server
        .set_behaviour(&json!({ "delay": 3600 }))
        .unwrap();
    let id = setup.order().await;
    let worker = setup.worker();
    let looking = async {
        let taken = async || Ok(setup.mails() == 1);
        eventually(SOON, "the server has it", taken).await.unwrap();
        let lease = ["ZREM", "asynq:{mail}:lease", &id.to_string()];
        setup.redis.ask(&lease).unwrap();
        let lost = async || Ok(log.count("its lease is somebody else's by now") > 0);
        eventually(SOON, "it says so", lost).await.unwrap();
        setup.redis.kill9().unwrap();
        let gone = async || Ok(log.count("its lease could not be renewed") > 0);
        eventually(SOON, "it says so", gone).await.unwrap();
    };
    tokio::select! {
        ended = worker.step() => panic!("{:?}", ended.map_err(|error| error.to_string())),
        () = looking => {}
    }
    assert!(log.count(&id.to_string()) > 1, "each time of which mail");
}

#[tokio::test]
async fn redis_errors_name_the_server_without_its_password() {
    let test = "redis_errors_name_the_server_without_its_password";
    let Some(setup) = Setup::new(test).await else {
        return;
    };
    setup.redis.kill9().unwrap();
    let url = setup.redis.url().replace("//", "//user:geheim@");
    let queue = super::Queue::open(&url, "mail", Duration::from_secs(30)).unwrap();
    let error = queue.take().await.unwrap_err().to_string();
    let address = format!("Redis at 127.0.0.1:{}: ", setup.redis.port());
    assert!(error.starts_with(&address), "{error}");
    assert!(!error.contains("geheim"), "{error}");
}

/// After a few failures in a row the rest of the page would fail too.
#[tokio::test]
async fn a_pass_stops_when_redis_is_lost() {
    let test = "a_pass_stops_when_redis_is_lost";
    let Some(setup) = Setup::new(test).await else {
        return;
    };
    for _ in 0..4 {
        ordered(&setup).await;
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}/0", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let hangs_up = tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let reconciler = Reconciler {
        queue: Queue::open(&url, "mail", LEASE).unwrap(),
        ..setup.reconciler(UnqueryableProvider)
    };
    reconciler.pass().await.unwrap_err();
    assert_eq!(asked.load(Ordering::Relaxed), 3);
    hangs_up.abort();
}
