use std::time::Duration;

use super::{ChunkSize, CopiedTable, Page, TouchedRows};
use crate::change::{Change, Operation};
use crate::pgoutput::{Column, OldRow, Relation, ReplicaIdentity, Tuple, Value};

fn text(text: &str) -> Value {
    Value::Text(text.into())
}

fn table() -> CopiedTable {
    let column = |name: &str, is_key| Column {
        name: name.into(),
        kind: 25,
        is_key,
    };
    CopiedTable {
        relation: Relation {
            oid: 7,
            schema: "public".into(),
            name: "item".into(),
            identity: ReplicaIdentity::Key,
            columns: vec![column("a", true), column("v", false), column("b", true)],
        },
        // As the index has them.
        keys: vec!["b".into(), "a".into()],
    }
}

fn change(old: Option<OldRow>, new: Option<Tuple>) -> Change {
    Change {
        operation: Operation::Update,
        old,
        new,
    }
}

fn key(b: &str, a: &str) -> Vec<String> {
    vec![b.to_owned(), a.to_owned()]
}

fn page() -> Page {
    let row = |key: &str, is_wanted: &str| {
        let values = [text(key), text("v"), text("1")];
        [text("1"), text(key), text(is_wanted)]
            .into_iter()
            .chain(values)
            .collect()
    };
    let rows = vec![row("1", "t"), row("2", "t"), row("3", "f"), row("4", "t")];
    Page::new(&table(), "10:20:12".parse().unwrap(), rows)
}

fn ids_left(seen: &[(u32, TouchedRows)]) -> Vec<String> {
    let rows = page().rows_without_newer_version(seen).into_iter();
    rows.map(|row| match &row[0] {
        Value::Text(text) => text.clone(),
        other => format!("{other:?}"),
    })
    .collect()
}

#[test]
fn chunks_keep_rows_that_match_the_filter() {
    assert_eq!(ids_left(&[]), ["1", "2", "4"]);
    let page = page();
    assert_eq!(page.last_key(), Some(&key("1", "4")));
    assert!(page.is_last_page(5) && !page.is_last_page(4));
}

#[test]
fn unseen_changes_remove_their_rows_from_the_chunk() {
    let rows = |keys: &[&str]| TouchedRows::Rows(keys.iter().map(|one| key("1", one)).collect());
    // 5 was committed before the snapshot, 12 ran then, 20 began later.
    assert_eq!(ids_left(&[(5, rows(&["1"]))]), ["1", "2", "4"]);
    assert_eq!(ids_left(&[(12, rows(&["1", "9"]))]), ["2", "4"]);
    assert_eq!(ids_left(&[(20, rows(&["2"])), (12, rows(&["4"]))]), ["1"]);
    assert_eq!(ids_left(&[(5, TouchedRows::All)]), ["1", "2", "4"]);
    assert!(ids_left(&[(20, TouchedRows::All)]).is_empty());
}

#[test]
fn changes_touch_their_old_and_their_new_key() {
    let table = table();
    let touched = |change: &Change| table.touched_rows(&table.relation, change).unwrap();
    let new = || Some(vec![text("1"), text("x"), text("2")]);
    assert_eq!(
        touched(&change(None, new())),
        TouchedRows::Rows(vec![key("2", "1")])
    );
    let old = OldRow::Key(vec![text("5"), Value::Null, text("2")]);
    assert_eq!(
        touched(&change(Some(old), new())),
        TouchedRows::Rows(vec![key("2", "5"), key("2", "1")])
    );
    let mut other = table.relation.clone();
    other.oid = 8;
    assert_eq!(table.touched_rows(&other, &change(None, new())), None);
}

#[test]
fn changes_without_a_known_key_touch_all_rows() {
    let table = table();
    let touched = |change: &Change| table.touched_rows(&table.relation, change).unwrap();
    let new = Some(vec![text("1"), text("x"), Value::Unchanged]);
    assert_eq!(touched(&change(None, new.clone())), TouchedRows::All);
    let old = OldRow::Key(vec![text("5"), Value::Null, text("2")]);
    assert_eq!(
        touched(&change(Some(old), new)),
        TouchedRows::Rows(vec![key("2", "5"), key("2", "1")])
    );
    assert_eq!(touched(&change(None, None)), TouchedRows::All, "all rows");
    let mut renamed = table.relation.clone();
    renamed.columns[0].name = "c".into();
    let new = change(None, Some(vec![text("1"), text("x"), text("2")]));
    assert_eq!(table.touched_rows(&renamed, &new), Some(TouchedRows::All));
}

#[test]
fn chunks_grow_when_quick_and_shrink_when_slow() {
    let first = ChunkSize::default();
    let grown = first.next_after_read(&page(), Duration::from_millis(10));
    assert_eq!(grown.rows(), 4 * first.rows());
    let many = (0..9).fold(first, |pace, _| {
        pace.next_after_read(&page(), Duration::ZERO)
    });
    assert_eq!(many.rows(), 10_000);
    assert_eq!(
        many.next_after_read(&page(), Duration::from_millis(800))
            .rows(),
        5_000
    );
    assert_eq!(many.next_after_timeout().rows(), 2_500);
    let waited = Duration::from_secs(300);
    let late = (0..9).fold(many, |pace, _| pace.next_after_delivery(waited));
    assert_eq!(
        late, first,
        "a wait for others is no reason for single rows"
    );
    let least = (0..9).fold(first, |pace, _| pace.next_after_timeout());
    assert_eq!(least.rows(), 1);
}
