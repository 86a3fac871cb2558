//! How long a worker may begin the jobs it has claimed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use deadpool_postgres::{Manager, Pool};
use posthaste::Outcome;
use posthaste::consumer::{Consumer, Delivery};
use posthaste_testkit::{PgServer, PgVersion, Proxy, Sql as _, TestResult, eventually};
use tokio_postgres::NoTls;

use crate::support::{SOON, migrated, quick, worker};

/// Holds the jobs that it receives, and begins none of them.
#[derive(Default)]
struct Holder(Mutex<Vec<Delivery>>);

impl Holder {
    fn held(&self) -> MutexGuard<'_, Vec<Delivery>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Consumer for Holder {
    fn capacity(&self) -> usize {
        10
    }
    fn consume(&self, claim: Vec<Delivery>) {
        self.held().extend(claim);
    }
    fn give_back(&self) {
        self.held().clear();
    }
    fn abort(&self) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_begin_only_until_others_may_have_rescued_them() -> TestResult {
    let server = PgServer::shared(PgVersion::any()).expect("a server");
    let db = migrated(server).await;
    let proxy = Proxy::start(server.address()).await.expect("a proxy");
    let manager = Manager::new(proxy.url(db.name()).parse()?, NoTls);
    let pool = Pool::builder(manager).build().unwrap();
    let holder = Arc::new(Holder::default());
    let worker = worker(&pool)
        .consumer("default", Arc::clone(&holder))
        .start()
        .await?;
    let two = "INSERT INTO posthaste.job (name) VALUES ('first'), ('second')";
    db.client().await?.run(two).await?;
    let has_both = async || Ok(holder.held().len() == 2);
    eventually(SOON, "it holds both jobs", has_both).await?;
    let held: Vec<Delivery> = holder.held().drain(..).collect();
    let Ok([first, second]) = <[Delivery; 2]>::try_from(held) else {
        panic!("two jobs");
    };
    let first = first.begin().expect("its heartbeats are answered");
    first.ticket.settle(Outcome::Done);

    proxy.stall();
    // No answer arrives from here on: only the worker's own clocks can tell that the time is over.
    tokio::time::sleep(quick().rescue_after).await;
    assert!(second.begin().is_none());
    proxy.restore().await?;
    worker.stop().await?;
    Ok(())
}
