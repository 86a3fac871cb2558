//! Indexes that are deleted while they are written: the deletion is reported, and the index is
//! created again by its definition, never by the mappings that a server guesses for a write in
//! flight.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use posthaste_elastic::{Condition, Operation};
use posthaste_sync::{
    Audit, Elastic, ElasticClient, Index, IndexSync, Pass, Proof, Reason, Row, RowVersion, Source,
    SourceError, SyncOutcome, SyncRequest, Table, WriteOutcome, fill,
};
use posthaste_testkit::elastic::FakeElastic;
use posthaste_testkit::receivers::OpenSearch;
use posthaste_testkit::{PgVersion, Sql as _, TestDb, TestResult, eventually};
use serde_json::{Value, json};
use tokio_postgres::Client;

use super::faults::LONG;
use super::rebuild::Immediate;
use super::{alias, client, notes, on_the_server};
use crate::support::{database, number, unfinished, worker};
use crate::sync::NOTES;
use crate::sync::conformance::write;
use crate::sync::world::{Line, World};

/// Rows that delete their index just before they are read.
struct Deletes {
    rows: Arc<dyn Source>,
    server: ElasticClient,
    index: String,
}

impl Source for Deletes {
    fn versions<'a>(
        &'a self,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>> {
        self.rows.versions(ids)
    }

    fn rows<'a>(&'a self, ids: &'a [String]) -> BoxFuture<'a, Result<Vec<Row>, SourceError>> {
        Box::pin(async move {
            assert!(self.server.delete_index(&self.index).await.unwrap());
            self.rows.rows(ids).await
        })
    }

    fn walk<'a>(
        &'a self,
        after: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>> {
        self.rows.walk(after, most)
    }
}

/// Returns the only index that a sync of this alias writes.
async fn target(index: &Elastic) -> String {
    let targets = index.targets().await.unwrap();
    let label = targets[0].label();
    label.strip_prefix("elastic: ").unwrap().to_owned()
}

/// Returns whether the index was created by the definition of these tests: guessed mappings would
/// give the text a second field.
async fn is_as_defined(server: &ElasticClient, index: &str) -> bool {
    let described = server.describe_index(index).await.unwrap().unwrap();
    described["mappings"]["properties"]["body"] == json!({"type": "text"})
        && described["mappings"]["_meta"]["posthaste"]["definition"].is_string()
}

async fn rows() -> (TestDb, Client) {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    client.run(NOTES).await.unwrap();
    client
        .run("INSERT INTO note SELECT n, 'n ' || n FROM generate_series(1, 50) n")
        .await
        .unwrap();
    (db, client)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_index_is_created_by_a_fill_and_never_by_writes() {
    let Some(index) = on_the_server("a write to an index that is gone").await else {
        return;
    };
    let server = client(&OpenSearch::shared().unwrap().url());
    let (db, _client) = rows().await;
    let table = Table::new(db.pool(2).unwrap(), "note");
    let gone = target(&index).await;
    let deletes = Deletes {
        rows: Arc::new(table.clone()),
        server: server.clone(),
        index: gone.clone(),
    };
    let requests: Vec<SyncRequest> = (1..=50)
        .map(|n| SyncRequest {
            id: n.to_string(),
            ..SyncRequest::default()
        })
        .collect();
    let over = async |source: &dyn Source| {
        let pass = Pass {
            source,
            index: &index,
            proof: Proof::Stored,
            bytes: 1 << 20,
        };
        pass.run(&requests).await
    };
    let outcomes = over(&deletes).await;
    let is_told = |outcome: &SyncOutcome| match outcome {
        SyncOutcome::Rescheduled(why) => why.contains("is not an alias yet"),
        _ => false,
    };
    assert!(outcomes.iter().all(is_told), "{:?}", outcomes[0]);
    assert!(!server.index_exists(&gone).await.unwrap());
    // Neither a direct write nor the removal of an old deletion creates the index.
    let late = index.write(&[write("1", 1, "late")]).await.unwrap();
    let is_refused = match &late[0] {
        WriteOutcome::Retry { reason } => reason.contains("is not an alias"),
        _ => false,
    };
    assert!(is_refused, "{late:?}");
    let unchanged = Condition::Unchanged(posthaste_elastic::Seen {
        seq_no: 1,
        primary_term: 1,
    });
    let deletion = Operation::delete(&gone, "1").when(unchanged);
    server.write(&deletion).await.unwrap_err();
    assert!(!server.index_exists(&gone).await.unwrap());
    assert_eq!(fill(&table, &index).await.unwrap(), 50);
    let outcomes = over(&table).await;
    let written = SyncOutcome::Written(Reason::Missing);
    assert!(
        outcomes.iter().all(|outcome| *outcome == written),
        "{:?}",
        outcomes[0]
    );
    assert!(is_as_defined(&server, &gone).await);
    let outcomes = over(&table).await;
    assert_eq!(outcomes[49], SyncOutcome::Done(Reason::Equal));
    posthaste_testkit::ran::note("elastic-deleted");
}

/// An index created at the end of this pass would have documents before it is found empty.
#[tokio::test]
async fn only_a_fill_recreates_a_deleted_index() {
    let fake = FakeElastic::start(12).await.unwrap();
    let server = client(&fake.url());
    let index = Elastic::new(server.clone(), "notes").definition(notes());
    index.open().await.unwrap();
    let world = World::default();
    let version = world.inner().draw();
    let row = Line { version, text: 11 };
    world.inner().rows.insert("1".into(), row);
    let deletes = Deletes {
        rows: Arc::new(Immediate(world.clone())),
        server: server.clone(),
        index: "notes-1".into(),
    };
    let pass = Pass {
        source: &deletes,
        index: &index,
        proof: Proof::Stored,
        bytes: 1 << 20,
    };
    let request = SyncRequest {
        id: "1".into(),
        ..SyncRequest::default()
    };
    let outcomes = pass.run(&[request]).await;
    let SyncOutcome::Rescheduled(why) = &outcomes[0] else {
        panic!("{outcomes:?}");
    };
    assert!(why.contains("is not an alias yet"), "{why}");
    assert!(!server.index_exists("notes-1").await.unwrap());
    assert!(index.is_empty().await.unwrap());
    fill(&Immediate(world), &index).await.unwrap();
    assert!(is_as_defined(&server, "notes-1").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeatedly_deleted_index_is_recreated_as_defined() -> TestResult {
    let Some(index) = on_the_server("an index that is deleted again and again").await else {
        return Ok(());
    };
    let server = client(&OpenSearch::shared().unwrap().url());
    let (db, rows) = rows().await;
    let table = Table::new(db.pool(2)?, "note");
    let sync = IndexSync::builder(table.clone(), index.clone());
    let sync = sync.period(Duration::from_millis(100)).start().unwrap();
    let worker = worker(&db.pool(2)?).consumer("sync.note", sync.clone());
    let worker = worker.start().await?;
    let name = target(&index).await;
    for round in 0..3 {
        let edit = format!("UPDATE note SET body = 'round {round}'");
        rows.run(&edit).await?;
        let passes = sync.status().passes;
        eventually(LONG, "a pass is in progress", async || {
            Ok(sync.status().passes > passes)
        })
        .await?;
        server.delete_index(&name).await?;
        // If everything was confirmed before, no check would follow.
        rows.run(&edit).await?;
        eventually(LONG, "it is there again", async || {
            Ok(server.index_exists(&name).await?)
        })
        .await?;
        assert!(is_as_defined(&server, &name).await, "{round}");
    }
    eventually(LONG, "all jobs are done", async || {
        Ok(unfinished(&rows).await == 0)
    })
    .await?;
    worker.stop().await?;
    // A document verified between a check and the deletion of the index has no job: a repair
    // restores it.
    let repair = Audit {
        repair: true,
        ..Audit::default()
    };
    let found = repair.run(&table, &index).await?;
    assert_eq!(found.unrepaired(), 0, "{found:?}");
    let found = Audit::default().run(&table, &index).await?;
    assert!(found.is_equal() && found.documents == 50, "{found:?}");
    assert!(is_as_defined(&server, &name).await);
    Ok(())
}

/// With one changed row or none, all rows are written to the index that replaces the deleted one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recreated_index_is_filled_without_changes() -> TestResult {
    let fake = FakeElastic::start(11).await?;
    let server = client(&fake.url());
    let (db, rows) = rows().await;
    let index = Elastic::new(server.clone(), "notes").definition(notes());
    let sync = IndexSync::builder(Table::new(db.pool(2)?, "note"), index);
    let sync = sync.period(Duration::from_millis(100)).start().unwrap();
    let worker = worker(&db.pool(2)?).consumer("sync.note", sync.clone());
    let worker = worker.start().await?;
    let all_are_there = async || {
        eventually(LONG, "all are there and nothing is left", async || {
            Ok(fake.documents("notes").len() == 50 && unfinished(&rows).await == 0)
        })
        .await
        .unwrap();
    };
    all_are_there().await;
    for change in ["SELECT", "UPDATE note SET body = 'one' WHERE id = 1"] {
        server.delete_index("notes-1").await?;
        rows.run(change).await?;
        all_are_there().await;
    }
    // The job of an invalid id is discarded while its row exists, and done when the row is gone.
    let long = "CREATE TABLE name (id text PRIMARY KEY);
        SELECT posthaste.sync_table('name', delay => '0');
        INSERT INTO name VALUES (repeat('x', 513)), ('short')";
    rows.run(long).await?;
    let index = Elastic::new(server.clone(), "names").definition(notes());
    let sync = IndexSync::builder(Table::new(db.pool(2)?, "name"), index);
    let sync = sync.period(Duration::from_millis(100)).start().unwrap();
    let names = crate::support::worker(&db.pool(2)?).consumer("sync.name", sync.clone());
    let names = names.start().await?;
    let given_up = "SELECT count(*) FROM posthaste.job WHERE state = 'discarded'
        AND queue = 'sync.name' AND last_error LIKE '%1 to 512 bytes%'";
    let tried = "SELECT count(*) FROM posthaste.job WHERE state <> 'discarded'";
    eventually(LONG, "it is given up with the reason", async || {
        Ok(number(&rows, given_up).await > 0 && number(&rows, tried).await == 0)
    })
    .await?;
    let before = number(&rows, given_up).await;
    rows.run("DELETE FROM name").await?;
    eventually(LONG, "nothing is left to be tried", async || {
        Ok(number(&rows, tried).await == 0)
    })
    .await?;
    assert_eq!(number(&rows, given_up).await, before);
    assert_eq!(sync.status().total("failed"), 0);
    worker.stop().await?;
    names.stop().await?;
    Ok(())
}

/// The retried fill job of a refused row prevents another fill job of that row only. While it runs,
/// a fill enqueues another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_index_is_refilled_despite_a_refused_row() {
    let fake = FakeElastic::start(13).await.unwrap();
    let server = client(&fake.url());
    let (db, rows) = rows().await;
    let unfit = "ALTER TABLE note ADD unfit jsonb;
        UPDATE note SET unfit = '\"no number\"' WHERE id = 7";
    rows.run(unfit).await.unwrap();
    let mut definition = notes();
    definition["mappings"]["properties"]["unfit"] = json!({"type": "long"});
    let index = Elastic::new(server.clone(), "notes").definition(definition);
    let sync = IndexSync::builder(Table::new(db.pool(2).unwrap(), "note"), index);
    let sync = sync.period(Duration::from_millis(100)).start().unwrap();
    let worker = worker(&db.pool(2).unwrap()).consumer("sync.note", sync);
    let worker = worker.start().await.unwrap();
    let refused = "SELECT count(*) FROM posthaste.job
        WHERE tag = 'fill' AND kwargs ->> 'id' = '7' AND attempt > 0";
    let others = "SELECT count(*) FROM posthaste.job WHERE kwargs ->> 'id' <> '7'";
    for deleted in [false, true] {
        if deleted {
            server.delete_index("notes-1").await.unwrap();
        }
        eventually(LONG, "all others are there", async || {
            let left = (number(&rows, refused).await, number(&rows, others).await);
            Ok(fake.documents("notes").len() == 49 && left.0 >= 1 && left.1 == 0)
        })
        .await
        .unwrap();
    }
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_named_like_the_alias_is_reported_and_not_written() {
    let Some(other) = on_the_server("an index that has the name of the alias").await else {
        return;
    };
    drop(other);
    let server = client(&OpenSearch::shared().unwrap().url());
    let name = alias();
    server.create_index(&name, &notes()).await.unwrap();
    let index = Elastic::new(server.clone(), name.clone()).definition(notes());
    let refused = index.open().await.unwrap_err().0;
    assert!(refused.contains("same name as the alias"), "{refused}");
    let answers = index.write(&[write("1", 1, "x")]).await.unwrap();
    let later = |one: &WriteOutcome| match one {
        WriteOutcome::Retry { reason } => reason.contains("is not an alias"),
        _ => false,
    };
    assert!(later(&answers[0]), "{answers:?}");
    server.refresh(&name).await.unwrap();
    assert_eq!(server.count(&name, None).await.unwrap(), 0);
}

#[tokio::test]
async fn unusable_definitions_are_refused_before_any_request() {
    let fake = FakeElastic::start(6).await.unwrap();
    let wrong: [(Value, &str); 3] = [
        (
            json!({"mappings": "geheim"}),
            "definition: mappings must be",
        ),
        (
            json!({"settings": ["geheim"]}),
            "definition: settings must be",
        ),
        (json!("geheim"), "definition: must be an object"),
    ];
    for (definition, expected) in wrong {
        let index = Elastic::new(client(&fake.url()), "notes").definition(definition);
        let Err(refused) = index.targets().await else {
            panic!("it was taken");
        };
        assert!(refused.0.contains(expected), "{refused}");
        assert_eq!(index.open().await.unwrap_err(), refused);
    }
    assert_eq!(fake.requests(), 0);
}
