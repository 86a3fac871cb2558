//! The TLS of a database with known settings: trusted authorities, and the client's certificate.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::{fmt, fs, io};

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::verifier::AnyName;

/// The verification of a server's certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Verify {
    /// No verification.
    #[default]
    Nobody,
    /// A trusted authority must have signed it.
    Authority,
    /// A trusted authority must have signed it for this host.
    Full,
}

/// The trusted authorities, and the client's certificate and key.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Trust {
    pub(super) verify: Verify,
    /// Authorities; `None`: those of the system.
    pub(super) authorities: Option<Pem>,
    pub(super) certificate: Option<Pem>,
    pub(super) key: Option<Pem>,
}

impl Trust {
    /// Trusts these authorities. As in libpq, naming some requires verification by them.
    pub(super) fn add_roots(&mut self, authorities: Option<Pem>) {
        self.authorities = authorities;
        if self.verify == Verify::Nobody {
            self.verify = Verify::Authority;
        }
    }

    /// Requires TLS if the certificate is to be verified.
    pub(super) fn require_tls(&self, config: &mut Config) {
        if self.verify != Verify::Nobody && config.get_ssl_mode() == SslMode::Prefer {
            config.ssl_mode(SslMode::Require);
        }
    }
}

/// A source of certificates or a key.
#[derive(PartialEq, Eq)]
pub(super) enum Pem {
    File(PathBuf),
    /// Text from the options of a sqlx pool.
    #[cfg(feature = "sqlx")]
    Text(String),
}

impl Pem {
    fn read(&self) -> io::Result<Cow<'_, [u8]>> {
        match self {
            Self::File(file) => fs::read(file).map(Cow::Owned),
            #[cfg(feature = "sqlx")]
            Self::Text(text) => Ok(Cow::Borrowed(text.as_bytes())),
        }
    }
}

/// Writes the file's path, never a key.
impl fmt::Display for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => write!(f, "{}", file.display()),
            #[cfg(feature = "sqlx")]
            Self::Text(_) => f.write_str("(a text)"),
        }
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Builds a TLS connector with rustls; errors name the file.
pub(super) fn connector(trust: &Trust) -> Result<MakeRustlsConnect, String> {
    let provider = CryptoProvider::get_default().cloned();
    let provider = provider.unwrap_or_else(|| Arc::new(rustls::crypto::ring::default_provider()));
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS: {error}"))?;
    let authorities = match trust.verify {
        Verify::Nobody => None,
        Verify::Authority | Verify::Full => Some(root_certificates(trust)?),
    };
    let builder = match (trust.verify, authorities) {
        (Verify::Full, Some(roots)) => builder.with_root_certificates(roots),
        (_, roots) => {
            let known = |roots| {
                let provider = Arc::clone(&provider);
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build()
            };
            let authorities = roots.map(known).transpose();
            let verifier = Arc::new(AnyName {
                authorities: authorities.map_err(|error| format!("sslrootcert: {error}"))?,
                provider,
            });
            builder
                .dangerous()
                .with_custom_certificate_verifier(verifier)
        }
    };
    let config = match (&trust.certificate, &trust.key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(certificate), Some(key)) => {
            let chain = certificates("sslcert", certificate)?;
            let shown = builder.with_client_auth_cert(chain, private_key(key)?);
            shown.map_err(|error| format!("sslcert {certificate} with sslkey {key}: {error}"))?
        }
        (Some(_), None) => return Err("sslcert needs sslkey, the file of its key".into()),
        (None, Some(_)) => return Err("sslkey needs sslcert, the file of its certificate".into()),
    };
    Ok(MakeRustlsConnect::new(config))
}

/// Returns the trusted authorities.
fn root_certificates(trust: &Trust) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if let Some(pem) = &trust.authorities {
        for certificate in certificates("sslrootcert", pem)? {
            let added = roots.add(certificate);
            added.map_err(|error| format!("sslrootcert {pem}: {error}"))?;
        }
        return Ok(roots);
    }
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match roots.is_empty() {
        false => Ok(roots),
        true => Err(
            "no certificate authorities found on this system, but sslmode=verify-full or verify-ca \
             is set. Install ca-certificates, or set sslrootcert or SSL_CERT_FILE to a file."
                .into(),
        ),
    }
}

fn certificates(what: &str, pem: &Pem) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = pem
        .read()
        .map_err(|error| unreadable_pem_text(what, pem, &error))?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match all {
        Ok(all) if all.is_empty() => Err(format!("{what} {pem} contains no certificate.")),
        all => all.map_err(|error| unreadable_pem_text(what, pem, &error)),
    }
}

fn private_key(pem: &Pem) -> Result<PrivateKeyDer<'static>, String> {
    let bytes = pem
        .read()
        .map_err(|error| unreadable_pem_text("sslkey", pem, &error))?;
    let key = PrivateKeyDer::from_pem_slice(&bytes);
    key.map_err(|error| {
        let why = unreadable_pem_text("sslkey", pem, &error);
        format!("{why}. The key must be in PEM format, without a passphrase.")
    })
}

fn unreadable_pem_text(what: &str, pem: &Pem, error: &dyn fmt::Display) -> String {
    format!("{what} {pem} cannot be read: {error}")
}
