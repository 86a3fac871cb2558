//! The requirements of every index. An index implements [`Subject`]; `conforms!` generates its
//! tests.

use std::time::Duration;

use posthaste_sync::{Index, IndexedVersion, Mark, Proof, Write, WriteOutcome};

/// An empty index that belongs to one test.
pub trait Subject: Send + Sync + Sized + 'static {
    type Index: Index;
    /// Starts the index; `None` if this machine lacks it, which is noted.
    fn start() -> impl Future<Output = Option<Self>> + Send;
    fn index(&self) -> &Self::Index;
    /// Returns the ids of the documents that a search finds now.
    fn search(&self, word: &str) -> impl Future<Output = Vec<String>> + Send;
    /// Returns a document that the index refuses.
    fn unacceptable(&self) -> String;
}

macro_rules! conforms {
    ($subject:ty: $($claim:ident),* $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $claim() {
            if let Some(subject) = <$subject as crate::sync::conformance::Subject>::start().await {
                crate::sync::conformance::$claim(&subject).await;
            }
        }
    )*};
    ($subject:ty) => {
        crate::sync::conformance::conforms!($subject:
            writes_are_read_back_with_mark_and_token,
            writes_that_are_not_newer_change_nothing,
            deletions_stop_late_writes_but_not_recreated_rows,
            a_rejected_document_does_not_affect_others,
            the_newest_of_concurrent_writes_wins,
            walks_return_every_document_once_in_id_order,
            searchable_reads_are_found_by_searches,
            old_deletion_marks_are_removed,
            holds_distinguishes_contents_and_absence,
        );
    };
}
pub(crate) use conforms;

fn document(word: &str) -> Option<String> {
    Some(format!("{{\"body\": \"{word}\"}}"))
}

pub fn write(id: &str, version: i64, word: &str) -> Write {
    Write {
        id: id.into(),
        mark: Mark::new(version),
        token: version * 7,
        document: document(word),
    }
}

fn delete(id: &str, version: i64) -> Write {
    Write {
        mark: Mark::deletion(version),
        document: None,
        ..write(id, version, "")
    }
}

fn live(write: &Write) -> Option<IndexedVersion> {
    Some(IndexedVersion {
        mark: write.mark,
        token: write.token,
        is_live: write.document.is_some(),
        is_altered: false,
        is_foreign: false,
    })
}

async fn seen(index: &impl Index, ids: &[&str]) -> Vec<Option<IndexedVersion>> {
    let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
    let stored = index.read(&ids, Proof::Stored).await.unwrap();
    let searchable = index.read(&ids, Proof::Searchable).await.unwrap();
    assert_eq!(stored, searchable);
    stored
}

pub async fn writes_are_read_back_with_mark_and_token(subject: &impl Subject) {
    let index = subject.index();
    let (first, mut second) = (write("1", 5, "one"), write("ä \"2\"/?", 6, "two"));
    second.mark.pass = 3;
    let gone = delete("3", 7);
    let writes = [first.clone(), second.clone(), gone.clone()];
    assert_eq!(
        index.write(&writes).await.unwrap(),
        vec![WriteOutcome::Taken; 3]
    );
    let ids = ["3", "1", "never", "ä \"2\"/?"];
    assert_eq!(
        seen(index, &ids).await,
        [live(&gone), live(&first), None, live(&second)]
    );
    assert_eq!(index.write(&[]).await.unwrap(), []);
}

pub async fn holds_distinguishes_contents_and_absence(subject: &impl Subject) {
    let index = subject.index();
    assert!(index.is_empty().await.unwrap());
    index
        .write(&[write("1", 5, "one"), write("2", 5, "two")])
        .await
        .unwrap();
    index.write(&[delete("3", 7)]).await.unwrap();
    assert!(!index.is_empty().await.unwrap());
    let of = |id: &str, word: &str| (id.to_owned(), document(word).unwrap());
    let asked = [
        of("3", "one"),
        of("2", "one"),
        of("1", "one"),
        of("4", "two"),
    ];
    let held = index.match_documents(&asked).await.unwrap();
    assert_eq!(held, [false, false, true, false]);
    assert_eq!(index.match_documents(&[]).await.unwrap(), [false; 0]);
}

pub async fn writes_that_are_not_newer_change_nothing(subject: &impl Subject) {
    let index = subject.index();
    let newest = write("1", 5, "newest");
    index.write(std::slice::from_ref(&newest)).await.unwrap();
    for older in [
        write("1", 4, "late"),
        write("1", 5, "again"),
        delete("1", 4),
    ] {
        assert_eq!(index.write(&[older]).await.unwrap(), [WriteOutcome::Older]);
    }
    assert_eq!(seen(index, &["1"]).await, [live(&newest)]);
    let mut forced = write("1", 5, "forced");
    forced.mark.pass = 1;
    assert_eq!(
        index.write(std::slice::from_ref(&forced)).await.unwrap(),
        [WriteOutcome::Taken]
    );
    assert_eq!(seen(index, &["1"]).await, [live(&forced)]);
    assert_eq!(subject.search("forced").await, ["1"]);
    assert_eq!(subject.search("newest").await.len(), 0);
}

pub async fn deletions_stop_late_writes_but_not_recreated_rows(subject: &impl Subject) {
    let index = subject.index();
    index.write(&[write("1", 5, "word")]).await.unwrap();
    let gone = delete("1", 8);
    assert_eq!(
        index.write(std::slice::from_ref(&gone)).await.unwrap(),
        [WriteOutcome::Taken]
    );
    for late in [
        write("1", 5, "word"),
        write("1", 7, "word"),
        write("1", 8, "word"),
    ] {
        assert_eq!(index.write(&[late]).await.unwrap(), [WriteOutcome::Older]);
    }
    assert_eq!(seen(index, &["1"]).await, [live(&gone)]);
    assert_eq!(subject.search("word").await.len(), 0);
    let again = write("1", 9, "word");
    assert_eq!(
        index.write(std::slice::from_ref(&again)).await.unwrap(),
        [WriteOutcome::Taken]
    );
    assert_eq!(seen(index, &["1"]).await, [live(&again)]);
    assert_eq!(subject.search("word").await, ["1"]);
}

pub async fn a_rejected_document_does_not_affect_others(subject: &impl Subject) {
    let index = subject.index();
    let mut writes: Vec<Write> = (0..20).map(|n| write(&n.to_string(), 5, "word")).collect();
    writes[13].document = Some(subject.unacceptable());
    let answers = index.write(&writes).await.unwrap();
    for (n, answer) in answers.iter().enumerate() {
        match answer {
            WriteOutcome::Rejected { reason } if n == 13 => assert!(!reason.is_empty()),
            answer => assert_eq!((n == 13, answer), (false, &WriteOutcome::Taken), "{n}"),
        }
    }
    assert_eq!(seen(index, &["13", "14"]).await, [None, live(&writes[14])]);
    assert_eq!(subject.search("word").await.len(), 19);
}

pub async fn the_newest_of_concurrent_writes_wins(subject: &impl Subject) {
    let index = subject.index();
    let ids: Vec<String> = (0..10).map(|n| n.to_string()).collect();
    let batch = |version: i64| -> Vec<Write> {
        // Different orders, so that the writes could deadlock.
        let mut writes: Vec<Write> = ids.iter().map(|id| write(id, version, "word")).collect();
        writes.rotate_left(version as usize % ids.len());
        if version % 2 == 0 {
            writes.reverse();
        }
        writes
    };
    let batches: Vec<Vec<Write>> = (1..=30).map(batch).collect();
    let all = batches.iter().map(|writes| index.write(writes));
    for answers in futures_util::future::join_all(all).await {
        answers.unwrap();
    }
    let newest: Vec<_> = ids.iter().map(|id| live(&write(id, 30, "word"))).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    assert_eq!(seen(index, &ids).await, newest);
}

pub async fn walks_return_every_document_once_in_id_order(subject: &impl Subject) {
    let index = subject.index();
    let mut writes: Vec<Write> = (0..95)
        .map(|n| write(&(n * 7).to_string(), 5, "word"))
        .collect();
    writes.push(write("Zoë", 6, "word"));
    writes.push(write("zoe", 6, "word"));
    writes[40] = delete("280", 9);
    index.write(&writes).await.unwrap();
    writes.sort_by(|one, other| one.id.as_bytes().cmp(other.id.as_bytes()));
    let mut walked: Vec<(String, IndexedVersion)> = Vec::new();
    loop {
        let after = walked.last().map(|(id, _)| id.clone());
        let page = index.walk(after.as_deref(), 10).await.unwrap();
        let is_last = page.len() < 10;
        walked.extend(page);
        if is_last {
            break;
        }
    }
    let all = writes
        .iter()
        .map(|one| (one.id.clone(), live(one).unwrap()));
    assert_eq!(walked, all.collect::<Vec<_>>());
}

pub async fn searchable_reads_are_found_by_searches(subject: &impl Subject) {
    let index = subject.index();
    for version in 1..10 {
        let word = format!("word{version}");
        index.write(&[write("1", version, &word)]).await.unwrap();
        let seen = index.read(&["1".into()], Proof::Searchable).await.unwrap();
        assert_eq!(seen, [live(&write("1", version, &word))]);
        assert_eq!(subject.search(&word).await, ["1"]);
    }
}

pub async fn old_deletion_marks_are_removed(subject: &impl Subject) {
    let index = subject.index();
    index
        .write(&[write("1", 5, "word"), delete("2", 5)])
        .await
        .unwrap();
    assert_eq!(
        index
            .prune_deletions(Duration::from_secs(3600))
            .await
            .unwrap(),
        0
    );
    assert_eq!(seen(index, &["2"]).await, [live(&delete("2", 5))]);
    // Some time must pass by the index's clock.
    let mut forgotten = 0;
    let soon = crate::support::SOON;
    posthaste_testkit::eventually(soon, "it is forgotten", async || {
        forgotten += index.prune_deletions(Duration::from_millis(1)).await?;
        Ok(forgotten == 1)
    })
    .await
    .unwrap();
    assert_eq!(
        seen(index, &["1", "2"]).await,
        [live(&write("1", 5, "word")), None]
    );
}
