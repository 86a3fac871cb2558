//! The audit: what it finds is what differs, and what it repairs is true afterwards.

use posthaste::sync::{Audit, Difference, Index, Mark, Table, Write};

use super::{Setup, setup};

async fn audited(setup: &Setup, repair: bool) -> posthaste::sync::Audited {
    let source = Table::new(setup.db.pool(2).unwrap(), "note");
    // Pages so small that it takes many.
    let audit = Audit {
        page: 7,
        repair,
        ..Audit::default()
    };
    audit.run(&source, &setup.index).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_names_what_differs_and_repairs_it_when_asked() {
    let setup = setup().await;
    setup
        .run("INSERT INTO note SELECT n, 'n ' || n FROM generate_series(-20, 79) n")
        .await;
    let nothing = audited(&setup, false).await;
    assert_eq!(
        (nothing.rows, nothing.documents, nothing.missing),
        (100, 0, 100)
    );
    let filled = audited(&setup, true).await;
    assert_eq!((filled.missing, filled.repaired), (100, 100));
    let equal = audited(&setup, false).await;
    assert!(equal.is_equal() && equal.documents == 100, "{equal:?}");
    // Behind the index's back, and behind Postgres'.
    setup
        .run("DELETE FROM posthaste.search WHERE id = '7'; UPDATE note SET body = 'other' WHERE id = 8; DELETE FROM note WHERE id = 9")
        .await;
    let write = |id: &str, version| Write {
        id: id.into(),
        mark: Mark::of(version),
        token: 0,
        document: Some("{}".into()),
    };
    let strange = [write("500", 3), write("10", 1_000_000)];
    setup.index.inner.write(&strange).await.unwrap();
    let found = audited(&setup, true).await;
    let mut named = found.named.clone();
    named.sort_by_key(|(id, _)| id.parse::<i64>().unwrap());
    let names: Vec<(&str, Difference)> = named.iter().map(|(id, what)| (&**id, *what)).collect();
    let expected = [
        ("7", Difference::Missing),
        ("8", Difference::Stale),
        ("9", Difference::Orphaned),
        ("10", Difference::Ahead),
        ("500", Difference::Orphaned),
    ];
    assert_eq!(names, expected);
    assert_eq!(found.repaired, 4);
    let left = audited(&setup, false).await;
    assert_eq!(
        (left.ahead, left.missing + left.stale + left.orphaned),
        (1, 0)
    );
    setup
        .run("SELECT posthaste.sync_raise('note', 1000000, ARRAY['10'])")
        .await;
    assert_eq!(audited(&setup, true).await.repaired, 1);
    assert!(audited(&setup, false).await.is_equal());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_audit_looks_at_no_more_in_a_second_than_it_was_told() {
    let setup = setup().await;
    setup
        .run("INSERT INTO note SELECT n, 'word' FROM generate_series(1, 1000) n")
        .await;
    let source = Table::new(setup.db.pool(2).unwrap(), "note");
    let audit = Audit {
        page: 100,
        rate: Some(2_000),
        repair: false,
    };
    let begun = std::time::Instant::now();
    let found = audit.run(&source, &setup.index).await.unwrap();
    assert_eq!(found.rows, 1_000);
    let taken = begun.elapsed();
    assert!(taken >= std::time::Duration::from_millis(400), "{taken:?}");
}
