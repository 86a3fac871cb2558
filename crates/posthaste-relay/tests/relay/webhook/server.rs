//! An HTTP server that does what the path names, and records accepted requests.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::stream;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::Barrier;

/// An accepted request.
#[derive(Clone)]
pub(super) struct Request {
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Request {
    pub(super) fn header(&self, name: &str) -> String {
        self.headers[name].to_str().unwrap().to_owned()
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

pub(super) struct Server {
    address: SocketAddr,
    does: Arc<Does>,
}

#[derive(Default)]
struct Does {
    taken: Mutex<Vec<Request>>,
    /// The status of every answer, if set.
    refuses: Mutex<Option<StatusCode>>,
    refused: AtomicUsize,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
    held: Mutex<Option<Arc<Barrier>>>,
}

impl Server {
    pub(super) async fn start() -> Self {
        Self::at("127.0.0.1:0".parse().unwrap()).await
    }

    pub(super) async fn at(address: SocketAddr) -> Self {
        let does = Arc::new(Does::default());
        // No request is larger than a job's arguments.
        let routes = Router::new()
            .route("/{*path}", post(answer))
            .layer(axum::extract::DefaultBodyLimit::disable())
            .with_state(Arc::clone(&does));
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { address, does }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn taken(&self) -> Vec<Request> {
        self.does.taken.lock().unwrap().clone()
    }

    /// Answers everything with this status from now on; `None`: as the path names.
    pub(super) fn answers(&self, status: Option<StatusCode>) {
        *self.does.refuses.lock().unwrap() = status;
        self.does.refused.store(0, Ordering::SeqCst);
    }

    /// Returns how many requests were answered with that status.
    pub(super) fn refused(&self) -> usize {
        self.does.refused.load(Ordering::SeqCst)
    }

    /// Answers `hold` from now on once this many requests have arrived.
    pub(super) fn holds(&self, requests: usize) {
        *self.does.held.lock().unwrap() = Some(Arc::new(Barrier::new(requests)));
        self.does.most_at_once.store(0, Ordering::SeqCst);
    }

    pub(super) fn most_at_once(&self) -> usize {
        self.does.most_at_once.load(Ordering::SeqCst)
    }
}

async fn answer(
    State(does): State<Arc<Does>>,
    Path(path): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Some(status) = *does.refuses.lock().unwrap() {
        does.refused.fetch_add(1, Ordering::SeqCst);
        return status.into_response();
    }
    if body.starts_with(b"{\"unacceptable\"") {
        return StatusCode::UNPROCESSABLE_ENTITY.into_response();
    }
    match path.as_str() {
        "hook" => {
            let request = Request { headers, body };
            does.taken.lock().unwrap().push(request);
            StatusCode::NO_CONTENT.into_response()
        }
        "hold" => {
            let at_once = does.at_once.fetch_add(1, Ordering::SeqCst) + 1;
            does.most_at_once.fetch_max(at_once, Ordering::SeqCst);
            let held = does.held.lock().unwrap().clone();
            if let Some(held) = held {
                held.wait().await;
            }
            does.at_once.fetch_sub(1, Ordering::SeqCst);
            StatusCode::OK.into_response()
        }
        "hang" => std::future::pending().await,
        "endless" => {
            let chunk = || Ok::<_, std::io::Error>(Bytes::from_static(&[b'x'; 1024]));
            let body = Body::from_stream(stream::repeat_with(chunk));
            (StatusCode::INTERNAL_SERVER_ERROR, body).into_response()
        }
        "moved" => (StatusCode::FOUND, [(header::LOCATION, "/hook")]).into_response(),
        "wait" => {
            let headers = [(header::RETRY_AFTER, "120")];
            (StatusCode::TOO_MANY_REQUESTS, headers).into_response()
        }
        status => StatusCode::from_bytes(status.as_bytes())
            .unwrap()
            .into_response(),
    }
}
