//! Tantivy as the index, in the conformance suite, and failures that only an index in a folder has.

use posthaste_sync::{Index, Proof, Write, WriteOutcome};
use posthaste_tantivy::Tantivy;
use tempfile::TempDir;

use super::conformance::{Subject, conforms, write};

struct Files {
    _folder: TempDir,
    index: Tantivy,
}

impl Subject for Files {
    type Index = Tantivy;

    async fn start() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let index = Tantivy::builder(folder.path()).open().unwrap();
        posthaste_testkit::ran::note("index-tantivy");
        Some(Self {
            _folder: folder,
            index,
        })
    }

    fn index(&self) -> &Tantivy {
        &self.index
    }

    async fn search(&self, word: &str) -> Vec<String> {
        self.index.search(word, 100).await.unwrap()
    }

    fn unacceptable(&self) -> String {
        "[\"no object\"]".into()
    }
}

conforms!(Files);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_reopening_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Tantivy::builder(folder.path()).open();
    let index = open().unwrap();
    index.write(&[write("1", 5, "word")]).await.unwrap();
    // A folder has one writer in one process.
    assert!(open().is_err_and(|error| error.to_string().contains("lock")));
    let other_fields = || {
        Tantivy::builder(folder.path())
            .search_field("title", 1.0)
            .open()
    };
    drop(index);
    let soon = crate::support::SOON;
    let mut again = None;
    posthaste_testkit::eventually(soon, "its writer has ended", async || {
        again = open().ok();
        Ok(again.is_some())
    })
    .await
    .unwrap();
    let index = again.unwrap();
    let seen = index.read(&["1".into()], Proof::Stored).await.unwrap();
    assert_eq!(seen[0].map(|seen| seen.mark.version), Some(5));
    assert_eq!(index.search("words", 10).await.unwrap(), ["1"]);
    drop(index);
    assert!(other_fields().is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_are_searched_by_name_and_weight_excluding_deleted_rows() {
    let folder = tempfile::tempdir().unwrap();
    let index = Tantivy::builder(folder.path())
        .search_field("title", 3.0)
        .search_field("body", 1.0)
        .open()
        .unwrap();
    let document = |id: &str, text: &str| Write {
        document: Some(text.into()),
        ..write(id, 1, "")
    };
    let mut writes = vec![
        document("1", r#"{"title": "a fox", "body": "hens"}"#),
        document(
            "2",
            r#"{"title": "a hen", "body": ["and", {"deep": "foxes"}]}"#,
        ),
        document("3", r#"{"other": "hen", "title": "whale"}"#),
        document("4", r#"{"title": "hen"}"#),
    ];
    writes[3].document = None;
    assert_eq!(
        index.write(&writes).await.unwrap(),
        vec![WriteOutcome::Taken; 4]
    );
    assert_eq!(index.search("hen", 10).await.unwrap(), ["2", "1"]);
    assert_eq!(index.search("title:hen", 10).await.unwrap(), ["2"]);
    assert_eq!(index.search("hen fox", 10).await.unwrap().len(), 2);
    assert_eq!(index.search("*", 10).await.unwrap().len(), 3);
    assert_eq!(index.search("-hen", 10).await.unwrap(), ["3"]);
    assert_eq!(index.search("hen", 1).await.unwrap(), ["2"]);
    // An incomplete query is not an error.
    assert_eq!(index.search("whale AND (\"", 10).await.unwrap(), ["3"]);
}
