//! Serves the fake over HTTP.

use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::execute::{FakeServer, Request};

type Shared = Arc<Mutex<FakeServer>>;

pub(super) async fn serve(inner: Shared) -> anyhow::Result<(SocketAddr, JoinHandle<()>)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    // The fake itself limits the size of requests.
    let router = Router::new()
        .fallback(answer)
        .layer(axum::extract::DefaultBodyLimit::disable())
        .with_state(inner);
    let serving = tokio::spawn(async move {
        // The task ends when it is aborted.
        let _ = axum::serve(listener, router).await;
    });
    Ok((address, serving))
}

async fn answer(
    State(inner): State<Shared>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::new(method.as_str(), path, body.to_vec());
    let authorization = headers.get(header::AUTHORIZATION);
    request.authorization = authorization
        .and_then(|header| header.to_str().ok())
        .map(str::to_owned);
    let (reply, keeps_silent) = {
        let mut inner = inner.lock().unwrap_or_else(PoisonError::into_inner);
        (inner.handle(request), inner.keeps_silent)
    };
    match reply {
        Some(reply) => {
            let status = StatusCode::from_u16(reply.status).unwrap_or_default();
            let kind = [(header::CONTENT_TYPE, "application/json")];
            (status, kind, reply.body.to_string()).into_response()
        }
        None if keeps_silent => pending().await,
        None => {
            // A body that fails breaks the connection.
            let lost = io::Error::other("the answer is lost");
            Body::from_stream(stream::iter([Err::<Bytes, _>(lost)])).into_response()
        }
    }
}
