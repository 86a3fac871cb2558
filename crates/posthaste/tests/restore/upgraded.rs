//! A store after `pg_upgrade`: the cluster is another one, and its transaction ids continue.

use posthaste::migrate;
use posthaste_testkit::{PgServer, PgVersion, TestDb, ran};

use super::story::Past;

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn pg_upgrade_runs_each_unfinished_job_once() {
    let old = PgServer::start(PgVersion::V15, &[]).unwrap();
    // Not a copy of the template, which accepts no connections: pg_upgrade rejects such a database.
    let source = TestDb::empty(&old).await.unwrap();
    migrate(&mut source.client().await.unwrap()).await.unwrap();
    let past = Past::fill(&source, 4000).await.unwrap();
    let Some(new) = old.upgrade_to(PgVersion::V18).unwrap() else {
        return;
    };
    let target = TestDb::of(&new, source.name());
    past.goes_on_in(&target, true).await.unwrap();
    ran::count("upgraded", 1);
}
