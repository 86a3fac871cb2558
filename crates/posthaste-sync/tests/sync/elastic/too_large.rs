//! Jobs of documents that the server can never accept are discarded, and the reason names the row
//! and the field.

use std::time::Duration;

use posthaste_sync::{
    Elastic, IndexSync, Pass, Proof, SyncOutcome, SyncRequest, Table, fill, lagging_syncs,
};
use posthaste_testkit::elastic::FakeElastic;
use posthaste_testkit::receivers::{OpenSearch, Receiver, are_here};
use posthaste_testkit::{PgVersion, Sql as _, TestResult, eventually};
use serde_json::json;

use super::{alias, client};
use crate::support::{SOON, connected, database, worker};
use crate::sync::NOTES;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_larger_than_a_request_are_discarded_and_named() -> TestResult {
    let fake = FakeElastic::start(3).await?;
    fake.largest_request(3_000);
    let (db, rows) = connected(PgVersion::any()).await?;
    rows.run(NOTES).await?;
    let index = Elastic::new(client(&fake.url()), "notes").pause(Duration::from_millis(1));
    let sync = IndexSync::builder(Table::new(db.pool(2)?, "note"), index);
    let sync = sync.period(Duration::from_millis(100)).start().unwrap();
    let worker = worker(&db.pool(2)?).consumer("sync.note", sync);
    let worker = worker.start().await?;
    let insert = "INSERT INTO note SELECT n, repeat('x', CASE n WHEN 7 THEN 4000 ELSE 1 END) \
                  FROM generate_series(1, 9) n";
    rows.run(insert).await?;
    // The job of the insert, and a job that fills the empty index if the sync had seen the row by
    // then.
    let reason = "kwargs ->> 'id' = '7' AND last_error LIKE 'the document 7 has 4% bytes%413%'";
    let given_up = format!(
        "SELECT count(*) BETWEEN 1 AND 2 \
                AND bool_and(coalesce(state = 'discarded' AND {reason}, false)) \
           FROM posthaste.job"
    );
    eventually(
        SOON,
        "it is given up and all others are there",
        async || {
            let row = rows.one::<Option<bool>>(&given_up).await?;
            Ok(row == Some(true))
        },
    )
    .await?;
    worker.stop().await?;
    let problems = &lagging_syncs(&rows).await?["note"].problems;
    assert!(problems.iter().any(|one| one.given_up), "{problems:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlong_words_are_discarded_naming_the_field_without_quoting() {
    if !are_here("words that are too long", &[Receiver::OpenSearch]) {
        return;
    }
    let server = tokio::task::spawn_blocking(OpenSearch::shared);
    let server = client(&server.await.unwrap().unwrap().url());
    let db = database(PgVersion::any()).await;
    let rows = db.client().await.unwrap();
    rows.run(NOTES).await.unwrap();
    let insert = "INSERT INTO note VALUES (1, 'short'), (2, repeat('secret', 6000))";
    rows.run(insert).await.unwrap();
    let keyword = json!({"mappings": {"properties": {"body": {"type": "keyword"}}}});
    let index = Elastic::new(server, alias()).definition(keyword);
    let table = Table::new(db.pool(2).unwrap(), "note");
    fill(&table, &index).await.unwrap();
    let pass = Pass {
        source: &table,
        index: &index,
        proof: Proof::Stored,
        bytes: 1 << 20,
    };
    let requests = ["1", "2"].map(|id| SyncRequest {
        id: id.to_owned(),
        ..SyncRequest::default()
    });
    let outcomes = pass.run(&requests).await;
    let [SyncOutcome::Written(_), SyncOutcome::Rejected(reason)] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert!(reason.contains("the document 2:"), "{reason}");
    assert!(
        reason.contains("immense term in field=\"body\""),
        "{reason}"
    );
    assert!(!reason.contains("115, 101, 99"), "{reason}");
}
