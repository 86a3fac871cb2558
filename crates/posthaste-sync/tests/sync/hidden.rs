//! Rows that another table hides and shows while their version stays the same.

use posthaste_sync::{Audit, IndexSync, Proof, Query, Source, SourceError, Table};

use super::{Setup, setup};
use crate::support::all_done;

const ROWS: &str = "SELECT n.id::text, n.posthaste_version,
      CASE WHEN a.is_shown THEN jsonb_build_object('body', n.body) END
    FROM note n CROSS JOIN author a WHERE n.id = ANY ($1::bigint[])";

fn source(setup: &Setup) -> Query {
    let walk = "SELECT n.id::text, n.posthaste_version, a.is_shown FROM note n CROSS JOIN author a
        WHERE $1::text IS NULL OR n.id > $1::bigint ORDER BY n.id LIMIT $2";
    Query::new(setup.db.pool(2).unwrap(), ROWS).walk(walk)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_shown_again_at_one_version_are_found() {
    let setup = setup().await;
    setup
        .run(
            "CREATE TABLE author (is_shown boolean); INSERT INTO author \
             VALUES (true); INSERT INTO note SELECT n, 'word' FROM generate_series(1, 20) n",
        )
        .await;
    let (worker, sync) = setup.start(setup.sync_of(source(&setup))).await;
    all_done(&setup.client).await;
    for round in 0..2 {
        for (is_shown, found) in [(false, 0), (true, 20)] {
            for force in [round % 2 == 0, round % 2 == 1] {
                let change = format!(
                    "BEGIN; UPDATE author SET is_shown = {is_shown}; SELECT posthaste.sync('note', \
                     id::text, '0', force => {force}) FROM note; COMMIT"
                );
                setup.run(&change).await;
                all_done(&setup.client).await;
                assert_eq!(setup.found("word").await.len(), found, "{round} {force}");
                let audited = Audit::default().run(&source(&setup), &setup.index).await;
                let audited = audited.unwrap();
                assert!(audited.is_equal(), "{audited:?}");
                assert_eq!(audited.documents, found as u64);
            }
        }
    }
    // No attempt was counted.
    assert_eq!(sync.status().total("failed"), 0);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_requests_the_configured_proof() {
    for proof in [Proof::Stored, Proof::Searchable] {
        let setup = setup().await;
        setup.run("INSERT INTO note VALUES (1, 'word')").await;
        let table = Table::new(setup.db.pool(2).unwrap(), "note");
        let sync = IndexSync::builder(table, setup.index.clone())
            .period(std::time::Duration::from_millis(100))
            .proof(proof);
        let (worker, _) = setup.start(sync).await;
        all_done(&setup.client).await;
        worker.stop().await.unwrap();
        let asked = setup.index.proofs.lock().unwrap().clone();
        assert!(asked.len() >= 2 && asked.iter().all(|one| *one == proof));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_hidden_by_row_security_are_errors_not_deletions() {
    let setup = setup().await;
    setup.run("INSERT INTO note VALUES (1, 'word')").await;
    let (worker, _) = setup.start(setup.sync()).await;
    all_done(&setup.client).await;
    worker.stop().await.unwrap();
    let role = setup.db.name();
    posthaste::grant_roles(&mut setup.db.client().await.unwrap())
        .await
        .unwrap();
    let hide = format!(
        "CREATE ROLE \"{role}\" LOGIN IN ROLE posthaste_worker; \
         GRANT SELECT ON note TO \"{role}\"; ALTER TABLE note ENABLE ROW LEVEL SECURITY; \
         UPDATE note SET body = 'whale'"
    );
    setup.run(&hide).await;
    let pool = setup.db.pool_as(role, 4).unwrap();
    let own =
        "SELECT id::text, posthaste_version, to_jsonb(n) FROM note n WHERE id = ANY ($1::bigint[])";
    let sources: [Box<dyn Source>; 2] = [
        Box::new(Table::new(pool.clone(), "note")),
        Box::new(Query::new(pool.clone(), own)),
    ];
    let ids = ["1".to_owned()];
    for source in &sources {
        let refused = source.rows(&ids).await.unwrap_err();
        let is_down = matches!(&refused, SourceError::Down(why) if why.contains("row-level"));
        assert!(is_down, "{refused:?}");
        assert!(source.versions(&ids).await.is_err());
    }
    assert!(sources[0].walk(None, 10).await.is_err());
    assert!(sources[0].fill().await.is_err());
    // TRUNCATE would leave the documents of hidden rows in the index.
    let truncate =
        format!("GRANT TRUNCATE ON note TO \"{role}\"; SET ROLE \"{role}\"; TRUNCATE note");
    let refused = setup.client.batch_execute(&truncate).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "42501", "{refused:?}");
    setup.run("RESET ROLE").await;
    setup.run(&format!("ALTER ROLE \"{role}\" BYPASSRLS")).await;
    let sync = setup.sync_of(Table::new(pool, "note"));
    let (worker, _) = setup.start(sync).await;
    all_done(&setup.client).await;
    assert_eq!(setup.found("whale").await, ["1"]);
    worker.stop().await.unwrap();
}
