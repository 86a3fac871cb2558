//! TLS of the console: the certificate is reloaded when its files change.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{Error as PemError, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;

use crate::failure;

/// A certificate and its key in two files, reloaded when they change.
#[derive(Debug)]
pub(super) struct Certificate {
    cert: PathBuf,
    key: PathBuf,
    last: Mutex<LastCertificate>,
}

#[derive(Debug)]
struct LastCertificate {
    read: Arc<CertifiedKey>,
    /// The stamps of the files when they were last read, whether or not they were valid.
    then: Option<[FileStamp; 2]>,
}

/// File metadata that changes when the file is written or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    changed: (i64, i64),
    file: (u64, u64),
    bytes: u64,
}

impl FileStamp {
    fn read(file: &Path) -> Option<Self> {
        let known = fs::metadata(file).ok()?;
        Some(Self {
            changed: (known.mtime(), known.mtime_nsec()),
            file: (known.dev(), known.ino()),
            bytes: known.len(),
        })
    }
}

impl Certificate {
    /// Reads the files. Fails if they are not a valid certificate with its key.
    pub(super) fn read(cert: &Path, key: &Path) -> anyhow::Result<Self> {
        let then = read_stamps(cert, key);
        let last = LastCertificate {
            read: Arc::new(read_certified_key(cert, key)?),
            then,
        };
        Ok(Self {
            cert: cert.to_owned(),
            key: key.to_owned(),
            last: Mutex::new(last),
        })
    }

    /// Returns the last valid certificate, after reloading changed files.
    fn current_key(&self) -> Arc<CertifiedKey> {
        let mut last = self.last.lock();
        let now = read_stamps(&self.cert, &self.key);
        // A file that is being replaced is read at the next connection.
        if now.is_some() && now != last.then {
            last.then = now;
            match read_certified_key(&self.cert, &self.key) {
                Ok(read) => last.read = Arc::new(read),
                Err(error) => {
                    let error = failure::error_line(&error);
                    tracing::warn!(
                        error,
                        "a new certificate cannot be used; the old one stays in use"
                    );
                }
            }
        }
        Arc::clone(&last.read)
    }
}

fn read_stamps(cert: &Path, key: &Path) -> Option<[FileStamp; 2]> {
    Some([FileStamp::read(cert)?, FileStamp::read(key)?])
}

fn read_certified_key(cert: &Path, key: &Path) -> anyhow::Result<CertifiedKey> {
    let wrong = |file: &Path, error: PemError| match error {
        PemError::Io(error) => anyhow!("{}: {}", file.display(), failure::io_error_text(&error)),
        PemError::NoItemsFound => anyhow!("{}: contains none in PEM format", file.display()),
        _ => anyhow!("{}: is not valid PEM", file.display()),
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
        anyhow!("{key} does not match the certificate in {cert}: {error}")
    })
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current_key())
    }
}

/// Returns the acceptor of TLS connections.
pub(super) fn tls_acceptor(certificate: Certificate) -> anyhow::Result<TlsAcceptor> {
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth();
    let mut config = config.with_cert_resolver(Arc::new(certificate));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config).into())
}
