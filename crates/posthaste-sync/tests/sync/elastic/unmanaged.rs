//! Documents that other clients wrote to the index.

use posthaste_elastic::{Operation, Reading, Source};
use posthaste_sync::{
    Audit, AuditReport, Difference, Elastic, ElasticClient, Index, Mark, Pass, Proof, Reason,
    SyncOutcome, SyncRequest, Write,
};
use posthaste_testkit::elastic::FakeElastic;
use posthaste_testkit::receivers::OpenSearch;
use serde_json::json;

use super::rebuild::Immediate;
use super::{client, notes, on_the_server};
use crate::sync::conformance::write;
use crate::sync::world::{Line, World};

/// Runs an audit whose pages are smaller than the index.
async fn audited(rows: &Immediate, index: &Elastic, repair: bool) -> AuditReport {
    let audit = Audit {
        page: 4,
        repair,
        ..Audit::default()
    };
    audit.run(rows, index).await.unwrap()
}

async fn unmanaged_documents_are_found_and_deleted(
    server: ElasticClient,
    index: Elastic,
    target_index: &str,
) {
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
            mark: Mark::new(version),
            ..write(&n.to_string(), version, "word")
        });
    }
    let mut gone = write("gone", 99, "");
    gone.mark = Mark::deletion(99);
    gone.document = None;
    writes.push(gone);
    posthaste_sync::Index::write(&index, &writes).await.unwrap();
    let rows = Immediate(world.clone());
    let audited = async |repair: bool| audited(&rows, &index, repair).await;
    assert!(audited(false).await.is_equal());
    // Nine documents without a row, and one in the place of a row's document, whose version on the
    // server is that of the row with another pass.
    let strange: Vec<String> = (0..9).map(|n| format!("strange {n}")).collect();
    let ids = strange.iter().map(String::as_str).chain(["5"]);
    let puts: Vec<Operation> = ids
        .map(|id| Operation::index(target_index, id, &json!({"body": "word"})).unwrap())
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
    server.refresh(target_index).await.unwrap();
    // The documents of the rows, and the mark of the deletion.
    assert_eq!(server.count(target_index, None).await.unwrap(), 11);
}

/// A partial update by another client retains the sync's field, and the server increments the
/// version.
async fn altered_documents_are_reported_and_overwritten(
    server: ElasticClient,
    index: Elastic,
    target_index: &str,
) {
    let world = World::default();
    let mut writes = Vec::new();
    for n in 0..5_u64 {
        let version = world.inner().draw();
        let row = Line { version, text: n };
        writes.push(Write {
            mark: Mark::new(version),
            document: Some(crate::sync::world::document(n, 0)),
            ..write(&n.to_string(), version, "")
        });
        world.inner().rows.insert(n.to_string(), row);
    }
    Index::write(&index, &writes).await.unwrap();
    let rows = Immediate(world.clone());
    let audited = async |repair: bool, contents: bool| {
        let audit = Audit {
            repair,
            contents,
            ..Audit::default()
        };
        audit.run(&rows, &index).await.unwrap()
    };
    assert!(audited(false, true).await.is_equal());
    let field = Source::Whole;
    let ids = ["3"];
    let held = server
        .multi_get(target_index, &ids, Reading::Latest, field)
        .await
        .unwrap();
    let source = held
        .into_iter()
        .flatten()
        .flatten()
        .next()
        .unwrap()
        .source
        .unwrap();
    let mut evil: serde_json::Value = serde_json::from_str(source.get()).unwrap();
    evil["beside"] = json!(666);
    let put = Operation::index(target_index, "3", &evil).unwrap();
    server.write(&put).await.unwrap();
    let found = audited(false, false).await;
    assert_eq!((found.altered, found.differences()), (1, 1), "{found:?}");
    assert_eq!(found.named, [("3".to_owned(), Difference::Altered)]);
    let found = audited(true, false).await;
    assert_eq!((found.altered, found.repaired), (1, 1), "{found:?}");
    assert!(audited(false, true).await.is_equal());
    // The job of the row detects the change too, and overwrites it.
    server.write(&put).await.unwrap();
    let pass = Pass {
        source: &rows,
        index: &index,
        proof: Proof::Stored,
        bytes: 1 << 20,
    };
    let request = || {
        vec![SyncRequest {
            id: "3".into(),
            ..SyncRequest::default()
        }]
    };
    assert_eq!(
        pass.run(&request()).await,
        [SyncOutcome::Written(Reason::Different)]
    );
    assert_eq!(
        pass.run(&request()).await,
        [SyncOutcome::Done(Reason::Equal)]
    );
    assert!(audited(false, true).await.is_equal());
}

#[tokio::test]
async fn audits_find_altered_documents_by_mark_on_the_fake() {
    let fake = FakeElastic::start(9).await.unwrap();
    let server = client(&fake.url());
    let index = Elastic::new(server.clone(), "notes").definition(notes());
    index.open().await.unwrap();
    altered_documents_are_reported_and_overwritten(server, index, "notes-1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audits_find_altered_documents_by_mark() {
    let Some(index) = on_the_server("documents that others have altered").await else {
        return;
    };
    let server = client(&OpenSearch::shared().unwrap().url());
    let targets = Index::targets(&index).await.unwrap();
    let label = targets[0].label();
    let target_index = label.strip_prefix("elastic: ").unwrap();
    altered_documents_are_reported_and_overwritten(server, index, target_index).await;
}

#[tokio::test]
async fn audits_delete_unmanaged_documents_on_the_fake() {
    let fake = FakeElastic::start(8).await.unwrap();
    let server = client(&fake.url());
    let index = Elastic::new(server.clone(), "notes").definition(notes());
    index.open().await.unwrap();
    unmanaged_documents_are_found_and_deleted(server, index, "notes-1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audits_delete_unmanaged_documents() {
    let Some(index) = on_the_server("documents that no sync wrote").await else {
        return;
    };
    let server = client(&OpenSearch::shared().unwrap().url());
    let targets = posthaste_sync::Index::targets(&index).await.unwrap();
    let label = targets[0].label();
    let target_index = label.strip_prefix("elastic: ").unwrap();
    unmanaged_documents_are_found_and_deleted(server, index, target_index).await;
}

/// A copy retains the id that it was written with, by which documents are sorted, under another id.
#[tokio::test]
async fn copied_documents_are_orphans_and_do_not_loop_audits() {
    let fake = FakeElastic::start(10).await.unwrap();
    let server = client(&fake.url());
    let index = Elastic::new(server.clone(), "notes").definition(notes());
    index.open().await.unwrap();
    let world = World::default();
    let mut writes: Vec<Write> = Vec::new();
    for n in 0..10_u64 {
        let version = world.inner().draw();
        let row = Line { version, text: n };
        world.inner().rows.insert(n.to_string(), row);
        writes.push(write(&n.to_string(), version, "word"));
    }
    Index::write(&index, &writes).await.unwrap();
    let copy = async |before: &str| {
        let documents = fake.documents("notes").into_iter().take(10);
        let copies = documents.map(|(id, held)| {
            let (id, source) = (format!("{before}{id}"), held.source.unwrap());
            Operation::index("notes-1", &id, &source).unwrap()
        });
        let copies: Vec<Operation> = copies.collect();
        for outcome in server.bulk(&copies).await.unwrap() {
            outcome.unwrap();
        }
    };
    // Their own ids are larger than all others: the walk would end there.
    copy("copy ").await;
    let rows = Immediate(world.clone());
    let audited = async |repair: bool| audited(&rows, &index, repair).await;
    let found = audited(false).await;
    assert_eq!((found.orphaned, found.differences()), (10, 10), "{found:?}");
    let found = audited(true).await;
    assert_eq!((found.orphaned, found.repaired), (10, 10), "{found:?}");
    let found = audited(false).await;
    assert!(found.is_equal() && found.documents == 10, "{found:?}");
    // Their own ids are smaller than all others: the walk would begin again.
    copy("!").await;
    let mut after: Option<String> = None;
    for pages in 0.. {
        assert!(pages < 20, "it never ends");
        let page = Index::walk(&index, after.as_deref(), 3).await.unwrap();
        if page.len() < 3 {
            break;
        }
        after = page.last().map(|(id, _)| id.clone());
    }
}
