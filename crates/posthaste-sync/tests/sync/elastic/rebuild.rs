//! Rebuilds: the index of the alias is consistent before, during and after a rebuild, wherever its
//! process dies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use posthaste_sync::{
    Audit, Elastic, ElasticClient, Index, IndexSync, Mark, Pass, Proof, Reason, Row, RowVersion,
    Source, SourceError, SyncOutcome, SyncRequest, Table, Write,
};
use posthaste_testkit::elastic::FakeElastic;
use posthaste_testkit::{PgVersion, Sql as _, eventually};
use serde_json::json;

use super::faults::LONG;
use super::{client, notes, on_the_server};
use crate::support::{database, unfinished, worker};
use crate::sync::NOTES;
use crate::sync::conformance::write;
use crate::sync::world::{Line, World};

/// The rows of a world, which are read immediately.
pub struct Immediate(pub World);

impl Source for Immediate {
    fn versions<'a>(
        &'a self,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>> {
        Box::pin(async { Ok(self.0.inner().versions(ids)) })
    }

    fn rows<'a>(&'a self, ids: &'a [String]) -> BoxFuture<'a, Result<Vec<Row>, SourceError>> {
        Box::pin(async { Ok(self.0.inner().made(ids)) })
    }

    fn walk<'a>(
        &'a self,
        after: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>> {
        Source::walk(&self.0, after, most)
    }
}

/// As [`Immediate`], but another index is begun when the versions are read.
struct Begins {
    rows: Immediate,
    fake: Arc<FakeElastic>,
}

impl Source for Begins {
    fn versions<'a>(
        &'a self,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>> {
        // On the second read the index exists.
        self.fake.call("PUT", "/notes-2", &definition("notes-next"));
        self.rows.versions(ids)
    }

    fn rows<'a>(&'a self, ids: &'a [String]) -> BoxFuture<'a, Result<Vec<Row>, SourceError>> {
        self.rows.rows(ids)
    }

    fn walk<'a>(
        &'a self,
        after: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>> {
        self.rows.walk(after, most)
    }
}

/// Returns a client whose requests are lost after this number of requests, until it is reset.
fn mortal(fake: &Arc<FakeElastic>, left: &Arc<AtomicU64>, after: bool) -> ElasticClient {
    let (fake, left) = (Arc::clone(fake), Arc::clone(left));
    client("http://fake").with_transport(move |request| {
        let (fake, left) = (Arc::clone(&fake), Arc::clone(&left));
        async move {
            let lives = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
            // With `after`, the lost requests are executed.
            if lives.is_err() && !after {
                return None;
            }
            let response = fake.call(&request.method, &request.path, &request.body)?;
            lives.ok()?;
            Some((response.0, response.1.to_string().into_bytes()))
        }
    })
}

pub const ROWS: u64 = 30;

/// Creates rows 0 to 29, and an index with an old version of some, a superfluous document, and the
/// mark of the deletion of "gone".
pub async fn index_behind_alias(fake: &Arc<FakeElastic>, world: &World) -> Elastic {
    let forever = Arc::new(AtomicU64::new(u64::MAX));
    let index = Elastic::new(mortal(fake, &forever, false), "notes").pause(Duration::ZERO);
    index.open().await.unwrap();
    world.inner().sequence = 100;
    for n in 0..ROWS {
        let version = world.inner().draw();
        let row = Line {
            version,
            text: n * 11,
        };
        world.inner().rows.insert(n.to_string(), row);
    }
    let mut writes: Vec<Write> = (0..20).map(|n| write(&n.to_string(), 1, "old")).collect();
    writes.push(write("too many", 1, "old"));
    let mut gone = write("gone", 5, "");
    gone.mark = Mark::deletion(5);
    gone.document = None;
    writes.push(gone);
    index.write(&writes).await.unwrap();
    index
}

#[tokio::test]
async fn an_interrupted_rebuild_resumes_with_the_same_result() {
    let mut deaths = 0;
    for after in [false, true] {
        for requests in 0.. {
            let fake = Arc::new(FakeElastic::new(requests));
            let world = World::default();
            let immediate = Immediate(world.clone());
            index_behind_alias(&fake, &world).await;
            let left = Arc::new(AtomicU64::new(requests));
            let index = Elastic::new(mortal(&fake, &left, after), "notes").pause(Duration::ZERO);
            let audit = Audit {
                page: 7,
                ..Audit::default()
            };
            let lived = index.rebuild(&immediate, audit).await.is_ok();
            // Searches find everything that was found before, before and after the switch.
            assert!(fake.documents("notes").len() >= 22);
            left.store(u64::MAX, Ordering::SeqCst);
            let is_over = lived
                || !fake.documents("notes-2").is_empty() && fake.documents("notes-next").is_empty();
            if !is_over {
                let rebuilt = index.rebuild(&immediate, audit).await.unwrap();
                assert_eq!(
                    (&*rebuilt.index, &*rebuilt.replaced),
                    ("notes-2", "notes-1")
                );
            }
            let documents = fake.documents("notes");
            assert_eq!(documents, fake.documents("notes-2"), "{requests}");
            assert!(fake.documents("notes-next").is_empty());
            assert_eq!(documents.len() as u64, ROWS + 1, "{documents:?}");
            for (id, row) in &world.inner().rows {
                let version = Mark::from_number(documents[id].version).version;
                assert_eq!(version, row.version, "{id}");
            }
            // A deleted document stays deleted when a late write arrives.
            let late = write("gone", 4, "late");
            index.write(&[late]).await.unwrap();
            assert_eq!(documents, fake.documents("notes"));
            if lived {
                break;
            }
            deaths += 1;
        }
    }
    assert!(deaths > 40, "{deaths}");
    posthaste_testkit::ran::count("rebuild-deaths", deaths);
}

#[tokio::test]
async fn a_lost_switch_answer_is_resolved_by_the_alias() {
    for is_carried_out in [true, false] {
        let (fake, world) = (Arc::new(FakeElastic::new(1)), World::default());
        index_behind_alias(&fake, &world).await;
        let server = Arc::clone(&fake);
        let losing = client("http://fake").with_transport(move |request| {
            let server = Arc::clone(&server);
            async move {
                let is_switch = request.path.starts_with("/_aliases");
                if is_switch && !is_carried_out {
                    return None;
                }
                let response = server.call(&request.method, &request.path, &request.body)?;
                (!is_switch).then(|| (response.0, response.1.to_string().into_bytes()))
            }
        });
        let index = Elastic::new(losing, "notes").pause(Duration::ZERO);
        let rebuilt = index.rebuild(&Immediate(world), Audit::default()).await;
        assert_eq!(rebuilt.is_ok(), is_carried_out, "{rebuilt:?}");
        assert_eq!(fake.documents("notes-next").is_empty(), is_carried_out);
    }
}

#[tokio::test]
async fn during_a_rebuild_jobs_wait_for_both_indexes() {
    let fake = Arc::new(FakeElastic::new(1));
    let world = World::default();
    let immediate = Immediate(world.clone());
    let index = index_behind_alias(&fake, &world).await;
    let next = fake.call("PUT", "/notes-2", &definition("notes-next"));
    assert_eq!(next.unwrap().0, 200);
    let requests: Vec<SyncRequest> = ["0", "25", "gone"].iter().map(|id| request(id)).collect();
    let pass = Pass {
        source: &immediate,
        index: &index,
        proof: Proof::Stored,
        bytes: 1 << 20,
    };
    let outcomes = pass.run(&requests).await;
    let written = [Reason::Different, Reason::Missing].map(SyncOutcome::Written);
    assert_eq!(outcomes[..2], written);
    let outcomes = pass.run(&requests).await;
    let equal = SyncOutcome::Done(Reason::Equal);
    assert_eq!(outcomes[..2], [equal.clone(), equal]);
    for name in ["notes-1", "notes-2"] {
        let documents = fake.documents(name);
        assert_eq!(Mark::from_number(documents["0"].version).version, 101);
        assert!(documents.contains_key("25"));
    }
    // Direct writes go to the index that is searched.
    index.write(&[write("25", 999, "direct")]).await.unwrap();
    let version = |name: &str| Mark::from_number(fake.documents(name)["25"].version).version;
    assert_eq!((version("notes-1"), version("notes-2")), (999, 126));
    assert!(index.give_up_rebuild().await.unwrap());
    assert!(!index.give_up_rebuild().await.unwrap());
    assert!(fake.documents("notes-2").is_empty());
}

#[tokio::test]
async fn a_pass_overtaken_by_a_rebuild_completes_no_job() {
    let fake = Arc::new(FakeElastic::new(1));
    let world = World::default();
    let index = index_behind_alias(&fake, &world).await;
    let begins = Begins {
        rows: Immediate(world.clone()),
        fake: Arc::clone(&fake),
    };
    let pass = Pass {
        source: &begins,
        index: &index,
        proof: Proof::Stored,
        bytes: 1 << 20,
    };
    let row = world.inner().rows["0"].clone();
    let true_already = Write {
        mark: Mark::new(row.version),
        ..write("0", 1, "as it is")
    };
    index.write(&[true_already]).await.unwrap();
    let outcomes = pass.run(&[request("0")]).await;
    assert!(
        matches!(&outcomes[0], SyncOutcome::Rescheduled(why) if why.contains("another index")),
        "{outcomes:?}"
    );
    let outcomes = pass.run(&[request("0")]).await;
    assert!(
        matches!(outcomes[0], SyncOutcome::Written(_)),
        "{outcomes:?}"
    );
}

#[tokio::test]
async fn a_rebuild_with_refused_documents_keeps_the_old_index() {
    let fake = Arc::new(FakeElastic::new(1));
    let world = World::default();
    let immediate = Immediate(world.clone());
    let index = index_behind_alias(&fake, &world).await;
    let strict =
        json!({"mappings": {"dynamic": "strict", "properties": {"text": {"type": "long"}}}});
    let error = index
        .clone()
        .definition(strict)
        .rebuild(&immediate, Audit::default())
        .await;
    let error = error.unwrap_err().0;
    assert!(
        error.contains("30 documents still differ in notes-2"),
        "{error}"
    );
    assert_eq!(fake.documents("notes"), fake.documents("notes-1"));
    assert!(index.give_up_rebuild().await.unwrap());
    let rebuilt = index.rebuild(&immediate, Audit::default()).await.unwrap();
    assert_eq!(rebuilt.index, "notes-2");
}

#[tokio::test]
async fn a_rebuild_with_another_definition_is_refused_until_the_first_is_abandoned() {
    let fake = Arc::new(FakeElastic::new(1));
    let world = World::default();
    let immediate = Immediate(world.clone());
    let index = index_behind_alias(&fake, &world).await;
    let defined = |of: &str| {
        let text = json!({"text": {"type": of}});
        let definition = json!({"mappings": {"dynamic": "strict", "properties": text}});
        index.clone().definition(definition)
    };
    let audit = Audit::default();
    // The rebuild cannot complete: the mapping lacks one of the fields.
    defined("long")
        .rebuild(&immediate, audit)
        .await
        .unwrap_err();
    let error = defined("keyword").rebuild(&immediate, audit).await;
    let error = error.unwrap_err().0;
    assert!(
        error.contains("notes-2 was started with another definition"),
        "{error}"
    );
    // A rebuild with the same definition continues with the index, which was not deleted.
    let error = defined("long").rebuild(&immediate, audit).await;
    let error = error.unwrap_err().0;
    assert!(error.contains("still differ in notes-2"), "{error}");
    assert!(index.give_up_rebuild().await.unwrap());
    let error = defined("keyword").rebuild(&immediate, audit).await;
    let error = error.unwrap_err().0;
    assert!(error.contains("still differ in notes-2"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_under_traffic_misses_nothing() {
    let test = "a new index takes the place of the old one under traffic and nothing is missed";
    let Some(index) = on_the_server(test).await else {
        return;
    };
    let db = database(PgVersion::any()).await;
    let pool = db.pool(3).unwrap();
    let rows = db.client().await.unwrap();
    rows.run(NOTES).await.unwrap();
    let table = Table::new(pool.clone(), "note");
    let sync = IndexSync::builder(table.clone(), index.clone());
    let sync = sync.period(Duration::from_millis(100)).start().unwrap();
    let worker = worker(&pool).consumer("sync.note", sync.clone());
    let worker = worker.start().await.unwrap();
    let fill = "INSERT INTO note SELECT n, 'old ' || n FROM generate_series(1, 300) n; DELETE \
                FROM note WHERE id % 9 = 0";
    rows.run(fill).await.unwrap();
    let drained = async || {
        eventually(LONG, "all jobs are done", async || {
            Ok(unfinished(&rows).await == 0)
        })
        .await
    };
    drained().await.unwrap();
    let is_over = AtomicBool::new(false);
    let traffic = async {
        let mut rounds = 0;
        // Faster changes than the index can follow would only accumulate jobs.
        let mut pace = tokio::time::interval(Duration::from_millis(50));
        while !is_over.load(Ordering::SeqCst) {
            pace.tick().await;
            rounds += 1;
            let edit = format!(
                "UPDATE note SET body = 'round {rounds}' WHERE id % 31 = {rounds} % 31; DELETE
                 FROM note WHERE id % 37 = {rounds} % 37;
                 INSERT INTO note SELECT n, 'again {rounds}' FROM generate_series({rounds} % 3 + 1,
                   300, 3) n ON CONFLICT DO NOTHING"
            );
            rows.run(&edit).await.unwrap();
        }
        rounds
    };
    let rebuild = async {
        let page = Audit {
            page: 50,
            ..Audit::default()
        };
        let anew = index.clone().definition(notes());
        let rebuilt = anew.rebuild(&table, page).await;
        is_over.store(true, Ordering::SeqCst);
        rebuilt
    };
    let (rebuilt, rounds) = tokio::join!(rebuild, traffic);
    let rebuilt = rebuilt.unwrap();
    assert!(rebuilt.index.ends_with("-2") && rounds > 3, "{rebuilt:?}");
    drained().await.unwrap();
    worker.stop().await.unwrap();
    let found = Audit::default().run(&table, &index).await.unwrap();
    assert!(found.is_equal(), "{found:?}");
    let again = format!("again {rounds}");
    assert!(!index.search(&again, 10).await.unwrap().is_empty());
    posthaste_testkit::ran::note("elastic-rebuild");
}

fn request(id: &str) -> SyncRequest {
    SyncRequest {
        id: id.into(),
        ..SyncRequest::default()
    }
}

fn definition(alias: &str) -> Vec<u8> {
    let ours = json!({"properties": {"id": {"type": "keyword"}, "token": {"type": "long"},
        "deleted_at": {"type": "long"}}});
    json!({"aliases": {alias: {}}, "mappings": {"properties": {"posthaste": ours}}})
        .to_string()
        .into_bytes()
}
