//! The body of a request for any payload.

use std::collections::BTreeMap;

use serde_json::json;

use super::super::payloads::{is_text, sent};
use super::server::Server;
use super::{SECRET, client};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_deliver_any_payload_with_its_content_type() {
    // A TLS provider must be installed from here on.
    let _ = client();
    let server = Server::start().await;
    let to = format!("http://{}/hook", server.address());
    let put = sent(json!({
        "to": to, "queue": "m", "networks": ["127.0.0.1"], "secrets": [SECRET],
    }));
    let put = put.await;
    let taken: BTreeMap<String, _> = server
        .taken()
        .into_iter()
        .map(|request| (request.header("webhook-id"), request))
        .collect();
    assert_eq!(taken.len(), put.len());
    for (id, request) in taken {
        let one = &put[&id];
        assert!(request.body == one.payload, "{}", one.read);
        assert!(one.is_shown_as(&request.body), "{}", one.read);
        let is_json = serde_json::from_slice::<serde_json::Value>(&one.payload).is_ok();
        let content_type = match (is_json, is_text(&one.payload)) {
            (true, _) => "application/json",
            (_, true) => "text/plain; charset=utf-8",
            _ => "application/octet-stream",
        };
        assert_eq!(request.header("content-type"), content_type, "{}", one.read);
        assert!(request.header("webhook-signature").starts_with("v1,"));
    }
}
