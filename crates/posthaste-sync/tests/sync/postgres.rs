//! Postgres as the index, in the conformance suite.

use posthaste_sync::{Index, Postgres, Weight};
use posthaste_testkit::{PgVersion, Sql as _, TestDb};

use super::conformance::{Subject, conforms, write};
use crate::support::database;

struct Words {
    _db: TestDb,
    index: Postgres,
}

impl Subject for Words {
    type Index = Postgres;

    async fn start() -> Option<Self> {
        let db = database(PgVersion::any()).await;
        let pool = db.pool(4).unwrap();
        // Another index in the same table.
        let other = Postgres::new(pool.clone(), "other");
        let word = write("1", 99, "word newest forced");
        other.write(&[word]).await.unwrap();
        let index = Postgres::new(pool, "words");
        posthaste_testkit::ran::note("index-postgres");
        Some(Self { _db: db, index })
    }

    fn index(&self) -> &Postgres {
        &self.index
    }

    async fn search(&self, word: &str) -> Vec<String> {
        self.index.search(word, 100).await.unwrap()
    }

    fn unacceptable(&self) -> String {
        r#"{"body": "no \u0000 in Postgres"}"#.into()
    }
}

conforms!(Words);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_weights_rank_search_results() {
    let db = database(PgVersion::any()).await;
    let index = Postgres::new(db.pool(1).unwrap(), "words")
        .language("simple")
        .search_field("title", Weight::A)
        .search_field("body", Weight::D);
    let mut writes = [
        write("1", 1, "hen"),
        write("2", 1, "fox"),
        write("3", 1, ""),
    ];
    writes[1].document = Some(r#"{"title": "hen", "body": "fox"}"#.into());
    writes[2].document = Some(r#"{"other": "hen"}"#.into());
    index.write(&writes).await.unwrap();
    assert_eq!(index.search("hen", 10).await.unwrap(), ["2", "1"]);
    assert_eq!(index.search("hen -fox", 10).await.unwrap(), ["1"]);
    assert_eq!(index.search("hen", 1).await.unwrap(), ["2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_old_deletion_records_are_removed() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let fill = "INSERT INTO posthaste.search (index, id, version, pass, token, deleted_at, words)
        SELECT i, n::text, n, 4095, 1, CASE WHEN n % 5 > 0
          THEN now() - interval '8 days' END, ''::tsvector
          FROM generate_series(1, 30000) n, unnest(ARRAY['words', 'other']) i";
    client.run(fill).await.unwrap();
    let index = Postgres::new(db.pool(1).unwrap(), "words");
    let week = std::time::Duration::from_secs(7 * 86_400);
    assert_eq!(index.prune_deletions(week).await.unwrap(), 24_000);
    assert_eq!(index.prune_deletions(week).await.unwrap(), 0);
    let left = "SELECT count(*) FROM posthaste.search";
    assert_eq!(crate::support::number(&client, left).await, 36_000);
}
