//! Ids with which nothing can be read: they are in their own way, and in that of no other.

use posthaste_sync::{Audit, Audited, Body, Difference, Index, Query, Source, Table, rows_of};

use super::conformance::write;
use super::{Setup, setup};

const WALK: &str = "SELECT id::text, version, true FROM note
    WHERE $1::text IS NULL OR id > $1::bigint ORDER BY note.id LIMIT $2";

/// Rows of which the seventh cannot be made.
fn dividing(setup: &Setup) -> Query {
    let rows = "SELECT id::text, version, jsonb_build_object('body', body, 'n', 1 / (id - 7)) \
                FROM note WHERE id = ANY ($1::bigint[])";
    Query::new(setup.db.pool(2).unwrap(), rows).walk(WALK)
}

async fn audited(setup: &Setup, source: &dyn Source, repair: bool) -> Audited {
    let audit = Audit {
        page: 7,
        repair,
        ..Audit::default()
    };
    audit.run(source, &setup.index).await.unwrap()
}

const FILL: &str = "INSERT INTO note SELECT n, 'word' FROM generate_series(1, 20) n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_cannot_be_read_is_named_by_the_audit_and_all_others_are_repaired() {
    let setup = setup().await;
    setup.run(FILL).await;
    let source = dividing(&setup);
    let filled = audited(&setup, &source, true).await;
    assert_eq!(
        (filled.missing, filled.repaired, filled.unreadable),
        (19, 19, 1)
    );
    assert_eq!(filled.unrepaired(), 1);
    assert!(filled.named.contains(&("7".into(), Difference::Unreadable)));
    let alone = [("7".to_owned(), Difference::Unreadable)];
    assert_eq!(audited(&setup, &source, false).await.named, alone);
    // It counts once where the index has a document of it, old or not.
    for version in [1, 1_000] {
        setup
            .index
            .inner
            .write(&[write("7", version, "word")])
            .await
            .unwrap();
        assert_eq!(audited(&setup, &source, true).await.named, alone);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_whose_id_cannot_be_one_of_the_table_is_an_orphan_and_goes() {
    let setup = setup().await;
    setup.run(FILL).await;
    let table = Table::new(setup.db.pool(2).unwrap(), "note");
    assert_eq!(audited(&setup, &table, true).await.repaired, 20);
    let strange = ["abc", "99999999999999999999"].map(|id| write(id, 3, "word"));
    setup.index.inner.write(&strange).await.unwrap();
    let found = audited(&setup, &table, false).await;
    assert_eq!((found.orphaned, found.differences()), (2, 2));
    assert_eq!(found.documents, 22);
    let found = audited(&setup, &table, true).await;
    assert_eq!((found.orphaned, found.repaired), (2, 2));
    assert!(audited(&setup, &table, false).await.is_equal());
    assert_eq!(setup.found("word").await.len(), 20);
    // Where only a statement could say whether there is such a row, it is named and stays.
    setup
        .index
        .inner
        .write(&[write("abd", 3, "word")])
        .await
        .unwrap();
    let rows = "SELECT id::text, version, jsonb_build_object('body', body) FROM note \
                WHERE id = ANY ($1::bigint[])";
    let query = Query::new(setup.db.pool(2).unwrap(), rows).walk(WALK);
    let found = audited(&setup, &query, true).await;
    assert_eq!(found.named, [("abd".to_owned(), Difference::Unreadable)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_shows_all_rows_but_the_one_that_cannot_be_made() {
    let setup = setup().await;
    setup.run(FILL).await;
    let ids: Vec<String> = (1..=20).rev().map(|n| n.to_string()).collect();
    let rows = rows_of(&dividing(&setup), &ids).await.unwrap();
    let shown: Vec<&str> = rows.iter().map(|row| &*row.id).collect();
    let expected: Vec<&String> = ids.iter().filter(|id| *id != "7").collect();
    assert_eq!(shown, expected);
    assert!(rows.iter().all(|row| matches!(row.body, Body::Document(_))));
}
