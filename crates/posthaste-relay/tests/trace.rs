//! Trace context in messages to a receiver.

use posthaste::{NewJob, enqueue};
use posthaste_relay::{Route, preview};
use posthaste_testkit::PgVersion;
use serde_json::{Value, json};

use crate::support::database;

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 vendor=a:1, other=b@2";

#[tokio::test]
async fn previews_show_the_trace_unless_the_route_sets_one() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let traced = NewJob::new("mail", &json!({})).unwrap();
    let traced = traced.queue("m").trace(TRACE);
    enqueue(&client, &traced).await.unwrap();
    let (parent, state) = TRACE.split_once(' ').unwrap();
    for (settings, headers) in [
        (
            json!({ "to": "stdout:" }),
            json!({ "traceparent": parent, "tracestate": state }),
        ),
        (
            json!({ "to": "stdout:", "headers": { "traceparent": "{name}" } }),
            json!({ "traceparent": "mail" }),
        ),
    ] {
        let route = Route::read("m", settings.as_object().unwrap()).unwrap();
        let lines = preview(&client, &route, 10).await.unwrap();
        let line: Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!(line["headers"], headers);
    }
}
