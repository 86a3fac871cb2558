//! Elasticsearch as the index, in the conformance suite and in the schedules, and failures that
//! only a server has.

mod deleted;
mod faults;
mod filled;
mod mapped;
mod rebuild;
mod too_large;
mod unmanaged;

use std::time::Duration;

use posthaste_sync::{Direct, Elastic, ElasticClient, Index, Proof};
use posthaste_testkit::elastic::{FakeElastic, Fault, Faults};
use posthaste_testkit::receivers::{OpenSearch, Receiver, are_here};
use serde_json::{Value, json};

use super::conformance::{Subject, conforms, write};
use super::fake_server;
use super::schedules::run;
use super::seeds::all;
use super::world::Twin;

pub fn client(url: &str) -> ElasticClient {
    let _ = rustls::crypto::ring::default_provider().install_default();
    ElasticClient::new(reqwest::Client::builder().no_proxy(), url).unwrap()
}

/// The definition of the test indexes.
pub fn notes() -> Value {
    json!({"settings": {"number_of_shards": 1, "number_of_replicas": 0, "refresh_interval": "-1"},
        "mappings": {"properties": {"body": {"type": "text"}}}})
}

/// Returns an alias that no other test has.
pub fn alias() -> String {
    posthaste_testkit::unique("notes")
}

/// Returns a new index on the server that all tests share, or `None` if this machine lacks the
/// server.
pub async fn on_the_server(test: &str) -> Option<Elastic> {
    if !are_here(test, &[Receiver::OpenSearch]) {
        return None;
    }
    let server = tokio::task::spawn_blocking(OpenSearch::shared);
    let client = client(&server.await.unwrap().unwrap().url());
    let index = Elastic::new(client, alias()).definition(notes());
    index.open().await.unwrap();
    posthaste_testkit::ran::note("index-elastic");
    Some(index)
}

struct Served(Elastic);

impl Subject for Served {
    type Index = Elastic;

    async fn start() -> Option<Self> {
        on_the_server("the index sync on OpenSearch")
            .await
            .map(Self)
    }

    fn index(&self) -> &Elastic {
        &self.0
    }

    async fn search(&self, word: &str) -> Vec<String> {
        self.0.search(word, 100).await.unwrap()
    }

    fn unacceptable(&self) -> String {
        r#"{"body": {"no": "text"}}"#.into()
    }
}

mod on_the_server {
    super::conforms!(super::Served);
}

struct Faked {
    _fake: FakeElastic,
    index: Elastic,
}

impl Subject for Faked {
    type Index = Elastic;

    async fn start() -> Option<Self> {
        let fake = FakeElastic::start(7).await.unwrap();
        let index = Elastic::new(client(&fake.url()), "notes").definition(notes());
        index.open().await.unwrap();
        Some(Self { _fake: fake, index })
    }

    fn index(&self) -> &Elastic {
        &self.index
    }

    async fn search(&self, word: &str) -> Vec<String> {
        // The fake matches whole texts, not words.
        let found = json!({"term": {"body": word}});
        self.index.search_by(&found, 100).await.unwrap()
    }

    fn unacceptable(&self) -> String {
        r#"{"body": {"no": "text"}}"#.into()
    }
}

mod on_the_fake {
    super::conforms!(super::Faked);
}

#[test]
fn the_index_converges_within_two_polls_after_any_server_fault() {
    let schedules = all("elastic", |seed| run(seed, Twin::None, fake_server::any));
    posthaste_testkit::ran::count("schedules-elastic", schedules);
}

#[test]
fn server_fault_schedules_detect_a_presence_only_check() {
    let fails = |seed: &u64| run(*seed, Twin::Presence, fake_server::any).is_err();
    assert!((0..200).any(|seed| fails(&seed)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn searches_find_words_and_exclude_deleted_rows() {
    let test = "words are found and what a deletion leaves is not";
    let Some(index) = on_the_server(test).await else {
        return;
    };
    let mut writes = [
        write("1", 5, "the red fox"),
        write("2", 5, "a red hen"),
        write("3", 5, "red"),
    ];
    writes[2].document = None;
    index.write(&writes).await.unwrap();
    let ids = ["1".to_owned()];
    index.read(&ids, Proof::Searchable).await.unwrap();
    let found = async |query: &str| index.search(query, 10).await.unwrap();
    assert_eq!(found("red").await.len(), 2);
    assert_eq!(found("red fox").await, ["1"]);
    assert_eq!(found("-fox").await, ["2"]);
    assert_eq!(found("\"hen red\" | fox").await, ["1"]);
    // An incomplete query is not an error.
    assert_eq!(found("\"fox (").await, ["1"]);
    let all = json!({"match_all": {}});
    assert_eq!(index.search_by(&all, 10).await.unwrap().len(), 2);
    assert_eq!(index.search_by(&all, 1).await.unwrap().len(), 1);
}

#[tokio::test]
async fn oversized_requests_are_split_and_rate_limited_ones_retried() {
    let fake = FakeElastic::start(3).await.unwrap();
    let index = Elastic::new(client(&fake.url()), "notes").pause(Duration::from_millis(1));
    index.open().await.unwrap();
    fake.largest_request(2_000);
    let mut writes: Vec<_> = (0..100).map(|n| write(&n.to_string(), 5, "word")).collect();
    writes[41].document = Some(json!({"body": "x".repeat(3_000)}).to_string());
    let answers = index.write(&writes).await.unwrap();
    for (n, answer) in answers.iter().enumerate() {
        use posthaste_sync::WriteOutcome::{Never, Taken};
        let is_right = match answer {
            Never { reason } => {
                n == 41 && reason.contains("the document 41 has") && reason.contains("413")
            }
            answer => n != 41 && *answer == Taken,
        };
        assert!(is_right, "{n}: {answer:?}");
    }
    // The size limit is remembered, so later requests are split immediately.
    let before = fake.requests();
    writes.truncate(20);
    index.write(&writes).await.unwrap();
    assert!(fake.requests() - before <= 4);
    // First some writes of a request are refused for a while, then whole requests are.
    writes.iter_mut().for_each(|write| write.mark.version = 6);
    let partial = Faults {
        partial: 0.1,
        too_many: 0.2,
        ..Faults::default()
    };
    fake.faults(partial);
    let mut waiting = writes.len();
    let soon = crate::support::SOON;
    posthaste_testkit::eventually(soon, "all are taken", async || {
        let answers = index.write(&writes).await.unwrap_or_default();
        use posthaste_sync::WriteOutcome::{Older, Taken};
        let there = answers.iter().filter(|one| matches!(one, Taken | Older));
        waiting = writes.len() - there.count();
        Ok(waiting == 0)
    })
    .await
    .unwrap();
    for write in &writes {
        let held = fake.document("notes", &write.id).unwrap();
        assert_eq!(Some(held.version), write.mark.as_number());
    }
}

#[tokio::test]
async fn a_direct_write_is_one_request_during_a_rebuild() {
    let fake = FakeElastic::start(5).await.unwrap();
    let client = client(&fake.url());
    let index = Elastic::new(client.clone(), "notes");
    index.open().await.unwrap();
    client.create_index("notes-2", &json!({})).await.unwrap();
    client.switch_alias("notes-next", "notes-2").await.unwrap();
    let direct = Direct::to(index).budget(Duration::from_secs(30));
    let before = fake.requests();
    direct.put("1", 5, "{}").await;
    direct.delete("1", 6).await;
    assert_eq!((direct.counts().taken, fake.requests() - before), (2, 2));
    // If the server is overloaded, the job retries and the direct write does not.
    fake.next([Fault::TooMany]);
    direct.put("2", 7, "{}").await;
    assert_eq!((direct.counts().failed, fake.requests() - before), (1, 3));
}

#[tokio::test]
async fn documents_overwritten_by_another_client_are_reported_as_altered() {
    let fake = FakeElastic::start(6).await.unwrap();
    let client = client(&fake.url());
    let index = Elastic::new(client.clone(), "notes");
    index.open().await.unwrap();
    let theirs = [
        ("1", json!({"body": "theirs"})),
        ("2", json!({"posthaste": {"id": 7}})),
    ];
    for (id, theirs) in theirs {
        index.write(&[write(id, 7, "word")]).await.unwrap();
        let put = posthaste_elastic::Operation::index("notes", id, &theirs).unwrap();
        client.write(&put).await.unwrap();
        let seen = index.read(&[id.into()], Proof::Stored).await.unwrap();
        let is_altered = seen[0].is_some_and(|seen| seen.is_altered);
        assert!(is_altered, "{theirs}: {seen:?}");
    }
}

#[tokio::test]
async fn foreign_indexes_are_refused_and_direct_writes_create_none() {
    let fake = FakeElastic::start(4).await.unwrap();
    let client = client(&fake.url());
    let index = Elastic::new(client.clone(), "notes");
    let direct = index.write(&[write("1", 5, "word")]).await.unwrap();
    assert!(matches!(
        &direct[0],
        posthaste_sync::WriteOutcome::Retry { .. }
    ));
    assert!(!client.index_exists("notes").await.unwrap());
    client.create_index("other", &json!({})).await.unwrap();
    client.switch_alias("notes", "other").await.unwrap();
    let refused = index.open().await.unwrap_err();
    assert!(refused.0.contains("lacks the field posthaste"), "{refused}");
    client.delete_index("other").await.unwrap();
    index.open().await.unwrap();
    assert_eq!(client.resolve_alias("notes").await.unwrap(), ["notes-1"]);
    index.open().await.unwrap();
    let late = index
        .read(&["1".into(), String::new()], Proof::Stored)
        .await;
    assert_eq!(late.unwrap(), [None, None]);
}
