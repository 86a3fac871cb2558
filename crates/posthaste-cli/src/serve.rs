//! HTTP servers of this program. Each limits its connections, so that clients cannot exhaust the
//! file descriptors that jobs need.

mod connections;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, Request};
use axum::middleware::{Next, from_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use posthaste::__private::http::quarter_of_descriptors;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use connections::{Connection, Connections};

/// The timeout of a TLS handshake and of the head of a request; it also closes idle connections.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The smallest and the largest limit of a server's connections. Between them it is a quarter of
/// the file descriptors that the process may open.
const MIN_CONNECTIONS: usize = 16;
const MAX_CONNECTIONS: usize = 1_000;
/// Delay after a connection could not be accepted.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Serves until it is dropped. Requests have the address of their client
/// (`ConnectInfo<SocketAddr>`).
pub(crate) async fn serve(listener: TcpListener, router: Router, tls: Option<TlsAcceptor>) {
    let server = listener.local_addr();
    let server = server.map_or_else(|_| String::new(), |address| address.to_string());
    let most = quarter_of_descriptors().clamp(MIN_CONNECTIONS, MAX_CONNECTIONS);
    let connections = Arc::new(Connections::new(server, most));
    let _serving = CloseAllOnDrop {
        connections: Arc::clone(&connections),
    };
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                handle_accept_error(&error, &connections).await;
                continue;
            }
        };
        let connection = connections.open();
        let (router, tls) = (router.clone(), tls.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = connection.wait_until_closed() => {}
                () = serve_connection(stream, peer, &connection, router, tls) => {}
            }
        });
    }
}

/// A guard that closes all connections when the server is dropped.
struct CloseAllOnDrop {
    connections: Arc<Connections>,
}

impl Drop for CloseAllOnDrop {
    fn drop(&mut self) {
        self.connections.close_all();
    }
}

/// Handles an error of `accept`: without a free file descriptor it closes the idlest connection and
/// waits.
async fn handle_accept_error(error: &io::Error, connections: &Connections) {
    let is_theirs = matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
    );
    if !is_theirs {
        connections.close_idlest();
        tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
    }
}

async fn serve_connection(
    stream: TcpStream,
    peer: SocketAddr,
    connection: &Connection,
    router: Router,
    tls: Option<TlsAcceptor>,
) {
    let Some(tls) = tls else {
        return serve_requests(stream, peer, connection, router).await;
    };
    match tokio::time::timeout(HEAD_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => serve_requests(stream, peer, connection, router).await,
        Ok(Err(error)) => {
            let peer = peer.ip();
            tracing::debug!(%peer, %error, "a TLS handshake failed");
        }
        Err(_) => tracing::debug!(peer = %peer.ip(), "a TLS handshake timed out"),
    }
}

async fn serve_requests(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    connection: &Connection,
    router: Router,
) {
    let asks = connection.request_recorder();
    let router = router.layer(from_fn(move |mut request: Request, next: Next| {
        asks.record_request();
        request.extensions_mut().insert(ConnectInfo(peer));
        next.run(request)
    }));
    let answers = TowerToHyperService::new(router);
    let mut server = Builder::new(TokioExecutor::new()).http1_only();
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT);
    let served = server.serve_connection(TokioIo::new(stream), answers).await;
    if let Err(error) = served {
        tracing::debug!(peer = %peer.ip(), %error, "a connection ended");
    }
}
