//! Documents that somebody has put into the index beside the sync.

use posthaste::sync::{Audit, Difference, Elastic, ElasticClient, Mark, Write};
use posthaste_elastic::Operation;
use posthaste_testkit::elastic::FakeElastic;
use posthaste_testkit::receivers::OpenSearch;
use serde_json::json;

use super::rebuild::Immediate;
use super::{client, notes, on_the_server};
use crate::sync::conformance::write;
use crate::sync::world::{Line, World};

async fn are_found_and_go(server: ElasticClient, index: Elastic, behind: &str) {
    let world = World::default();
    let mut writes: Vec<Write> = Vec::new();
    for n in 0..10_u64 {
        let version = world.inner().draw();
        let row = Line {
            version,
            text: n * 11,
        };
        world.inner().rows.insert(n.to_string(), row);
        writes.push(Write {
            mark: Mark::of(version),
            ..write(&n.to_string(), version, "word")
        });
    }
    let mut gone = write("gone", 99, "");
    gone.mark = Mark::deletion(99);
    gone.document = None;
    writes.push(gone);
    posthaste::sync::Index::write(&index, &writes)
        .await
        .unwrap();
    let rows = Immediate(world.clone());
    let audited = async |repair: bool| {
        let audit = Audit {
            page: 4,
            repair,
            ..Audit::default()
        };
        audit.run(&rows, &index).await.unwrap()
    };
    assert!(audited(false).await.is_equal());
    // Some that no row has, and one in the place of a row's, whose version on the server is that of its own with another pass.
    let strange: Vec<String> = (0..9).map(|n| format!("strange {n}")).collect();
    let ids = strange.iter().map(String::as_str).chain(["5"]);
    let puts: Vec<Operation> = ids
        .map(|id| Operation::index(behind, id, &json!({"body": "word"})).unwrap())
        .collect();
    for outcome in server.bulk(&puts).await.unwrap() {
        outcome.unwrap();
    }
    let found = audited(false).await;
    assert_eq!((found.orphaned, found.differences()), (10, 10), "{found:?}");
    assert_eq!(found.named.len(), 4);
    let is_orphan = |(_, how): &(String, Difference)| *how == Difference::Orphaned;
    assert!(found.named.iter().all(is_orphan));
    let found = audited(true).await;
    assert_eq!((found.orphaned, found.repaired), (10, 10), "{found:?}");
    let found = audited(false).await;
    assert!(found.is_equal() && found.documents == 10, "{found:?}");
    server.refresh(behind).await.unwrap();
    // The rows' documents, and what the deletion left.
    assert_eq!(server.count(behind, None).await.unwrap(), 11);
}

#[tokio::test]
async fn documents_that_no_sync_wrote_are_found_by_the_audit_and_go_on_the_fake() {
    let fake = FakeElastic::start(8).await.unwrap();
    let server = client(&fake.url());
    let index = Elastic::new(server.clone(), "notes").definition(notes());
    index.open().await.unwrap();
    are_found_and_go(server, index, "notes-1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_that_no_sync_wrote_are_found_by_the_audit_and_go() {
    let Some(index) = on_the_server("documents that no sync wrote").await else {
        return;
    };
    let server = client(&OpenSearch::shared().unwrap().url());
    let targets = posthaste::sync::Index::targets(&index).await.unwrap();
    let label = targets[0].label();
    let behind = label.strip_prefix("elastic: ").unwrap();
    are_found_and_go(server, index, behind).await;
}
