//! Helpers of the tests.

use posthaste_elastic::{Client, Error, ErrorKind, Operation};
use posthaste_testkit::elastic::FakeElastic;
use posthaste_testkit::receivers::{self, OpenSearch, Receiver};
use serde_json::json;

/// Returns a client of the shared OpenSearch, `None` if this machine has none: the ledger then
/// names the test.
pub(crate) fn opensearch(test: &str) -> Option<Client> {
    if !receivers::are_here(test, &[Receiver::OpenSearch]) {
        return None;
    }
    let server = OpenSearch::shared().unwrap();
    Some(client(&server.url()))
}

/// Starts a fake that knows the script of the tests, and returns it with a client.
pub(crate) async fn fake(seed: u64) -> (FakeElastic, Client) {
    let fake = FakeElastic::start(seed).await.unwrap();
    for id in ["scripted-take", "agreed-take"] {
        fake.script(id, |ctx, params| {
            let by = params["by"].as_i64().ok_or("by is not a number")?;
            let n = ctx["_source"]["n"].as_i64().ok_or("n is not a number")?;
            if n < by {
                ctx["op"] = json!("none");
            } else {
                ctx["_source"]["n"] = json!(n - by);
            }
            Ok(())
        });
    }
    let client = client(&fake.url());
    (fake, client)
}

/// Reads a number from the environment, such as the number of schedules or a seed.
pub(crate) fn asked(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok();
    text.map(|text| text.parse().expect("a number"))
}

pub(crate) fn client(url: &str) -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
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
        "settings": {"number_of_replicas": 0, "number_of_shards": 1, "refresh_interval": "-1"},
        "mappings": {"dynamic": "strict", "properties": {"n": {"type": "long"},
        "at": {"type": "date"}}},
    });
    assert!(client.create_index(index, &definition).await.unwrap());
}
