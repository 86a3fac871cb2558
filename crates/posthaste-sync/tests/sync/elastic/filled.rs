//! How a new index is filled if rows are hidden or unreadable.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use posthaste_sync::{Audit, Index, Mark, Row, RowVersion, Source, SourceError, Write};
use posthaste_testkit::elastic::FakeElastic;

use super::rebuild::{Immediate, ROWS, index_behind_alias};
use crate::sync::conformance::write;
use crate::sync::world::World;

#[tokio::test]
async fn rows_shown_again_at_one_version_are_in_the_new_index() {
    let fake = Arc::new(FakeElastic::new(1));
    let world = World::default();
    let index = index_behind_alias(&fake, &world).await;
    // The index was not checked after the row was shown again.
    let version = world.inner().rows["3"].version;
    let hidden = Write {
        mark: Mark { version, pass: 1 },
        document: None,
        ..write("3", version, "")
    };
    index.write(&[hidden]).await.unwrap();
    let rows = Immediate(world.clone());
    let rebuilt = index.rebuild(&rows, Audit::default()).await.unwrap();
    assert_eq!(rebuilt.index, "notes-2");
    let shown = &fake.documents("notes")["3"];
    assert_eq!(Mark::from_number(shown.version), Mark { version, pass: 2 });
    assert!(shown.source.as_ref().unwrap()["text"].is_u64(), "{shown:?}");
    let found = Audit::default().run(&rows, &index).await.unwrap();
    assert!(found.is_equal(), "{found:?}");
}

/// Rows of which one makes every statement fail that reads it.
struct Failing(Immediate);

impl Failing {
    fn check(ids: &[String]) -> Result<(), SourceError> {
        match ids.iter().any(|id| id == "7") {
            true => Err(SourceError::Rows("division by zero".into())),
            false => Ok(()),
        }
    }
}

impl Source for Failing {
    fn versions<'a>(
        &'a self,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>> {
        Box::pin(async {
            Self::check(ids)?;
            self.0.versions(ids).await
        })
    }

    fn rows<'a>(&'a self, ids: &'a [String]) -> BoxFuture<'a, Result<Vec<Row>, SourceError>> {
        Box::pin(async {
            Self::check(ids)?;
            self.0.rows(ids).await
        })
    }

    fn walk<'a>(
        &'a self,
        after: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>> {
        self.0.walk(after, most)
    }
}

#[tokio::test]
async fn rebuilds_fill_all_readable_rows_and_name_the_unreadable_one() {
    let fake = Arc::new(FakeElastic::new(1));
    let world = World::default();
    let index = index_behind_alias(&fake, &world).await;
    let failing = Failing(Immediate(world.clone()));
    let error = index.rebuild(&failing, Audit::default()).await.unwrap_err();
    let expected = "1 documents still differ in notes-2; some of them: [\"7\"]";
    assert!(error.0.contains(expected), "{error}");
    assert_eq!(fake.documents("notes-2").len() as u64, ROWS);
    assert_eq!(fake.documents("notes"), fake.documents("notes-1"));
    // Once the row can be read, it is all that remains of the rebuild.
    let rebuilt = index.rebuild(&failing.0, Audit::default()).await.unwrap();
    assert_eq!((&*rebuilt.index, rebuilt.found.repaired), ("notes-2", 1));
    assert!(fake.documents("notes").contains_key("7"));
}
