//! TLS of the console: a certificate that is read again when its files change, and connections that
//! wait for nobody's handshake.

use std::fs;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use axum::Router;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::serve::{IncomingStream, Listener};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{Error as PemError, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::failure;

/// A handshake that takes longer is given up.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The most that are under way at once; others wait in the system's queue.
const AT_ONCE: usize = 256;

/// A certificate with its key, as they stand in two files now.
#[derive(Debug)]
pub(super) struct Certificate {
    cert: PathBuf,
    key: PathBuf,
    last: Mutex<Last>,
}

#[derive(Debug)]
struct Last {
    read: Arc<CertifiedKey>,
    /// What the files were when they were last read, whether or not they were good.
    then: Option<[Stamp; 2]>,
}

/// What changes where a file is written, or another one takes its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    changed: (i64, i64),
    file: (u64, u64),
    bytes: u64,
}

impl Stamp {
    fn of(file: &Path) -> Option<Self> {
        let known = fs::metadata(file).ok()?;
        Some(Self {
            changed: (known.mtime(), known.mtime_nsec()),
            file: (known.dev(), known.ino()),
            bytes: known.len(),
        })
    }
}

impl Certificate {
    /// Says what is wrong with these files.
    pub(super) fn read(cert: &Path, key: &Path) -> anyhow::Result<Self> {
        let then = stamps(cert, key);
        let last = Last {
            read: Arc::new(pair(cert, key)?),
            then,
        };
        Ok(Self {
            cert: cert.to_owned(),
            key: key.to_owned(),
            last: Mutex::new(last),
        })
    }

    /// The last one that was good.
    fn now(&self) -> Arc<CertifiedKey> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = stamps(&self.cert, &self.key);
        // A file that is about to be put in its place is looked for by the next one who comes.
        if now.is_some() && now != last.then {
            last.then = now;
            match pair(&self.cert, &self.key) {
                Ok(read) => last.read = Arc::new(read),
                Err(error) => {
                    let error = failure::line(&error);
                    tracing::warn!(error, "a new certificate cannot be used; the old one stays");
                }
            }
        }
        Arc::clone(&last.read)
    }
}

fn stamps(cert: &Path, key: &Path) -> Option<[Stamp; 2]> {
    Some([Stamp::of(cert)?, Stamp::of(key)?])
}

fn pair(cert: &Path, key: &Path) -> anyhow::Result<CertifiedKey> {
    let wrong = |file: &Path, error: PemError| match error {
        PemError::Io(error) => anyhow!("{}: {}", file.display(), failure::reason(&error)),
        PemError::NoItemsFound => anyhow!("{}: has none in PEM", file.display()),
        _ => anyhow!("{}: is no good PEM", file.display()),
    };
    let chain = CertificateDer::pem_file_iter(cert).and_then(Iterator::collect);
    let chain: Vec<_> = chain
        .map_err(|error| wrong(cert, error))
        .context("the certificate cannot be read")?;
    if chain.is_empty() {
        return Err(wrong(cert, PemError::NoItemsFound)).context("the certificate cannot be read");
    }
    let secret = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| wrong(key, error))
        .context("the private key cannot be read")?;
    CertifiedKey::from_der(chain, secret, &default_provider()).map_err(|error| {
        let (cert, key) = (cert.display(), key.display());
        anyhow!("{key} is no key of the certificate in {cert}: {error}")
    })
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.now())
    }
}

/// Serves until it is dropped.
pub(super) async fn serve(
    listener: TcpListener,
    certificate: Certificate,
    router: Router,
) -> io::Result<()> {
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth();
    let mut config = config.with_cert_resolver(Arc::new(certificate));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let address = listener.local_addr()?;
    let (sender, ready) = mpsc::channel(1);
    let handshakes = handshakes(listener, Arc::new(config).into(), sender);
    let listener = Secured { ready, address };
    let router = router.layer(from_fn(with_peer));
    let console = router.into_make_service_with_connect_info::<Peer>();
    tokio::select! {
        served = axum::serve(listener, console).into_future() => served,
        () = handshakes => Ok(()),
    }
}

/// A connection behind its handshake, and from where it came.
type Ready = (TlsStream<TcpStream>, SocketAddr);

async fn handshakes(mut listener: TcpListener, tls: TlsAcceptor, ready: mpsc::Sender<Ready>) {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let (stream, peer) = Listener::accept(&mut listener).await;
        let (tls, ready) = (tls.clone(), ready.clone());
        tokio::spawn(async move {
            let shaken = tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await;
            let shaken = shaken.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            match shaken {
                Ok(stream) => _ = ready.send((stream, peer)).await,
                Err(error) => {
                    let peer = peer.ip();
                    tracing::debug!(%peer, %error, "somebody came to the console without TLS");
                }
            }
            drop(place);
        });
    }
}

/// Gives connections whose handshake has succeeded.
struct Secured {
    ready: mpsc::Receiver<Ready>,
    address: SocketAddr,
}

impl Listener for Secured {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> Ready {
        match self.ready.recv().await {
            Some(ready) => ready,
            None => pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

/// From where a connection came.
#[derive(Clone, Copy)]
struct Peer(SocketAddr);

impl Connected<IncomingStream<'_, Secured>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Secured>) -> Self {
        Self(*stream.remote_addr())
    }
}

/// Hands on the address of who asks, where a console without TLS finds it.
async fn with_peer(
    ConnectInfo(Peer(peer)): ConnectInfo<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    request.extensions_mut().insert(ConnectInfo(peer));
    next.run(request).await
}
