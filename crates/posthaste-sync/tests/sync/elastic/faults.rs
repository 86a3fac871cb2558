//! A real server fails during a running sync: both sides are equal in the end.

use std::time::Duration;

use posthaste::{Backoff, WorkerHandle};
use posthaste_sync::{Audit, Elastic, IndexSync, Table};
use posthaste_testkit::receivers::{OpenSearch, Receiver, are_here};
use posthaste_testkit::{PgVersion, Proxy, Sql as _, TestDb, TestResult, eventually};
use serde_json::{Value, json};
use tokio_postgres::Client;

use super::{alias, client, notes};
use crate::support::{SOON, database, number, unfinished, worker};

/// A server may take long to restart.
pub const LONG: Duration = Duration::from_secs(120);

struct Setup {
    db: TestDb,
    client: Client,
    index: Elastic,
    sync: IndexSync,
    worker: WorkerHandle,
}

/// Creates a table, and a sync of it with this index.
async fn setup(index: Elastic) -> Setup {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    client.run(super::super::NOTES).await.unwrap();
    let table = Table::new(db.pool(2).unwrap(), "note");
    let quick = Backoff {
        base: Duration::from_millis(20),
        cap: Duration::from_millis(100),
    };
    let sync = IndexSync::builder(table, index.clone())
        .period(Duration::from_millis(200))
        .backoff(quick)
        .start()
        .unwrap();
    let worker = worker(&db.pool(2).unwrap()).consumer("sync.note", sync.clone());
    let worker = worker.start().await.unwrap();
    Setup {
        db,
        client,
        index,
        sync,
        worker,
    }
}

impl Setup {
    async fn run(&self, sql: &str) {
        self.client.run(sql).await.unwrap();
    }

    async fn wait_for_rescheduled(&self) {
        let before = self.sync.status().total("rescheduled");
        eventually(LONG, "it is noticed", async || {
            Ok(self.sync.status().total("rescheduled") > before)
        })
        .await
        .unwrap();
    }

    /// Waits until all jobs are done, and checks that both sides are equal.
    async fn becomes_true(self) {
        eventually(LONG, "all jobs are done", async || {
            Ok(unfinished(&self.client).await == 0)
        })
        .await
        .unwrap();
        self.worker.stop().await.unwrap();
        let table = Table::new(self.db.pool(1).unwrap(), "note");
        let found = Audit::default().run(&table, &self.index).await.unwrap();
        let rows = number(&self.client, "SELECT count(*) FROM note").await;
        assert!(
            found.is_equal() && found.documents == rows as u64,
            "{found:?}"
        );
        let counted = "SELECT count(*) FROM posthaste.job WHERE attempt > 0";
        assert_eq!(number(&self.client, counted).await, 0);
    }
}

const EDITS: &str = "INSERT INTO note SELECT n, 'n ' || n FROM generate_series(1, 300) n;
    UPDATE note SET body = 'other' WHERE id % 3 = 0; DELETE FROM note WHERE id % 5 = 0;
    INSERT INTO note SELECT n, 'again' FROM generate_series(10, 300, 10) n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_node_keeps_acknowledged_writes_and_receives_the_rest() {
    let test = "a node that is started again has what it acknowledged and gets the rest";
    if !are_here(test, &[Receiver::OpenSearch]) {
        return;
    }
    let server = tokio::task::spawn_blocking(|| OpenSearch::start(&[]));
    let server = server.await.unwrap().unwrap();
    let index = Elastic::new(client(&server.url()), alias()).definition(notes());
    let setup = setup(index).await;
    setup.run(EDITS).await;
    eventually(LONG, "some are written", async || {
        Ok(setup.sync.status().total("written") > 0)
    })
    .await
    .unwrap();
    server.kill9().unwrap();
    setup
        .run("UPDATE note SET body = 'meanwhile' WHERE id < 100; DELETE FROM note WHERE id > 250")
        .await;
    setup.wait_for_rescheduled().await;
    let restarting = tokio::task::spawn_blocking(move || server.restart().map(|()| server));
    let _server = restarting.await.unwrap().unwrap();
    setup.becomes_true().await;
    posthaste_testkit::ran::note("elastic-restart");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_index_counts_no_attempt_and_drains_later() -> TestResult {
    let test =
        "an index that the disk watch has closed counts as no attempt and drains when it is open";
    let Some(index) = super::on_the_server(test).await else {
        return Ok(());
    };
    let server = client(&OpenSearch::shared().unwrap().url());
    let label = posthaste_sync::Index::label(&index);
    let name = label.strip_prefix("elastic: ").unwrap();
    let closed = |closed: Value| json!({"index": {"blocks": {"read_only_allow_delete": closed}}});
    server.put_settings(name, &closed(json!(true))).await?;
    let setup = setup(index).await;
    setup.run(EDITS).await;
    setup.wait_for_rescheduled().await;
    assert_eq!(setup.sync.status().total("written"), 0);
    server.put_settings(name, &closed(Value::Null)).await?;
    setup.becomes_true().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mapping_conflict_delays_only_its_document_and_is_reported() -> TestResult {
    let test = "a document that does not fit the mapping delays only itself and is reported";
    let Some(index) = super::on_the_server(test).await else {
        return Ok(());
    };
    let setup = setup(index).await;
    // All columns are in the document. The first document with a number decides the type of `id`,
    // and of the values in the JSON column.
    setup
        .run("ALTER TABLE note ADD extra jsonb; INSERT INTO note (id, extra) VALUES (1, '5')")
        .await;
    eventually(SOON, "the field is a number", async || {
        Ok(unfinished(&setup.client).await == 0)
    })
    .await?;
    setup
        .run(
            "INSERT INTO note (id, extra) SELECT n, '7' FROM generate_series(2, 50) n; UPDATE note \
             SET extra = '\"no number\"' WHERE id = 41",
        )
        .await;
    let left = "SELECT count(*) FROM posthaste.job WHERE kwargs ->> 'id' = '41' AND attempt > 1 \
                AND last_error LIKE '%mapper_parsing_exception%'";
    eventually(SOON, "all others are done", async || {
        Ok(unfinished(&setup.client).await == 2 && number(&setup.client, left).await == 2)
    })
    .await?;
    setup.run("UPDATE note SET extra = '8' WHERE id = 41").await;
    setup.becomes_true().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_connection_costs_one_poll() -> TestResult {
    let test = "a half-open connection costs one poll and no more";
    if !are_here(test, &[Receiver::OpenSearch]) {
        return Ok(());
    }
    let server = tokio::task::spawn_blocking(OpenSearch::shared).await?;
    let address = server.unwrap().url().replace("http://", "").parse()?;
    let proxy = Proxy::start_raw(address).await?;
    let through = client(&format!("http://{}", proxy.address()));
    let patience = Duration::from_secs(5);
    let index = Elastic::new(through.time_limit(patience), alias()).definition(notes());
    let setup = setup(index).await;
    proxy.half_open();
    setup.run(EDITS).await;
    setup.wait_for_rescheduled().await;
    proxy.restore().await?;
    setup.becomes_true().await;
    Ok(())
}
