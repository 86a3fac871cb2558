//! What the tests share.

use posthaste_elastic::{Client, Error, ErrorKind, Operation};
use posthaste_testkit::receivers::{self, OpenSearch, Receiver};
use serde_json::json;

/// A client of the OpenSearch that all tests share, unless this machine has none: then the ledger names the test.
pub(crate) fn opensearch(test: &str) -> Option<Client> {
    if !receivers::are_here(test, &[Receiver::OpenSearch]) {
        return None;
    }
    let server = OpenSearch::shared().unwrap();
    Some(client(&server.url()))
}

pub(crate) fn client(url: &str) -> Client {
    Client::new(reqwest::Client::builder().no_proxy(), url).unwrap()
}

pub(crate) fn put(index: &str, id: &str, n: i64) -> Operation {
    Operation::index(index, id, &json!({"n": n})).unwrap()
}

pub(crate) fn kind<T>(outcome: Result<T, Error>) -> ErrorKind {
    outcome.err().expect("it should have failed").kind()
}

pub(crate) async fn created(client: &Client, index: &str) {
    let definition = json!({
        "settings": {"number_of_replicas": 0, "number_of_shards": 1},
        "mappings": {"dynamic": "strict", "properties": {"n": {"type": "long"}, "at": {"type": "date"}}},
    });
    assert!(client.create_index(index, &definition).await.unwrap());
}
