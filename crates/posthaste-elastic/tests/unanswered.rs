//! Outcomes of calls that are too large, or that get no answer.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use posthaste_elastic::{ErrorKind, Operation};
use posthaste_testkit::receivers::OpenSearch;
use posthaste_testkit::{Proxy, unique};
use serde_json::json;

use crate::support::{client, created, opensearch, put};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oversized_requests_are_rejected_as_a_whole() {
    let Some(client) = opensearch("a request that is too large is refused as a whole") else {
        return;
    };
    let (index, text) = (unique("large"), "x".repeat(OpenSearch::LARGEST_REQUEST + 1));
    let large = Operation::index(&index, "a", &json!({ "text": text })).unwrap();
    let error = client.write(&large).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(!client.index_exists(&index).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_are_ambiguous_and_unsent_calls_are_not() {
    let test = "a call whose answer is lost may have been done";
    let Some(direct) = opensearch(test) else {
        return;
    };
    created(&direct, "lost").await;
    let server = OpenSearch::shared().unwrap();
    let target = (Ipv4Addr::LOCALHOST, server.port()).into();
    let proxy = Proxy::start_raw(target).await.unwrap();
    let url = format!("http://{}", proxy.address());
    let client = client(&url).time_limit(Duration::from_secs(2));
    client.write(&put("lost", "a", 1)).await.unwrap();
    proxy.mute();
    let error = client.write(&put("lost", "a", 2)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.may_have_been_done());
    let document = direct.get("lost", "a").await.unwrap().unwrap();
    assert_eq!(document.version, 2, "and it was");

    proxy.cut().await;
    // A new client has no pooled connection that could seem alive.
    let client = crate::support::client(&url);
    let error = client.write(&put("lost", "a", 3)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(!error.may_have_been_done(), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_and_malformed_responses_count_as_no_answer() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for body in ["{\"items\":[]}".into(), "<html>".into(), "x".repeat(2_000)] {
            let (mut connection, _) = listener.accept().unwrap();
            // An answer before the whole request is read would reset the connection.
            read_request(&mut connection);
            let head = "HTTP/1.1 200 OK\r\nConnection: close\r\n";
            let length = body.len();
            write!(connection, "{head}Content-Length: {length}\r\n\r\n{body}").unwrap();
        }
    });
    let client = client(&url).largest_answer(1_000);
    let kinds = [
        ErrorKind::Unanswered,
        ErrorKind::Unanswered,
        ErrorKind::TooLong,
    ];
    for kind in kinds {
        let error = client.write(&put("any", "a", 1)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.may_have_been_done() && !error.to_string().contains("html"));
    }
}

/// A proxy whose backend is unavailable answers itself, and knows no indexes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_404_from_a_proxy_does_not_mean_a_missing_alias() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let missing = "{\"error\":\"alias [any] missing\",\"status\":404}";
        for body in ["<html>404</html>", "default backend - 404", "{}", missing] {
            let (mut connection, _) = listener.accept().unwrap();
            read_request(&mut connection);
            let head = "HTTP/1.1 404 Not Found\r\nConnection: close\r\n";
            let length = body.len();
            write!(connection, "{head}Content-Length: {length}\r\n\r\n{body}").unwrap();
        }
    });
    let client = client(&url);
    for _ in 0..3 {
        client.resolve_alias("any").await.unwrap_err();
    }
    assert!(client.resolve_alias("any").await.unwrap().is_empty());
}

fn read_request(connection: &mut TcpStream) {
    let mut request = BufReader::new(connection);
    let mut length = 0;
    loop {
        let mut line = String::new();
        request.read_line(&mut line).unwrap();
        if line.trim_end().is_empty() {
            break;
        }
        if let Some(stated) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = stated.trim().parse().unwrap();
        }
    }
    request.read_exact(&mut vec![0; length]).unwrap();
}
