//! From a database URL to connections: the TLS that the library leaves to its caller, and the
//! errors of a connection that was refused, said plainly.
//!
//! `sslmode` means what it means to libpq: `disable` never encrypts, `prefer` (the default) and
//! `require` encrypt without asking who answers (Debian's own server shows a self-signed
//! certificate), `verify-full` also checks the certificate against the system's authorities
//! (`SSL_CERT_FILE` and `SSL_CERT_DIR` are honoured). `verify-ca` is held to `verify-full`.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres::config::Host;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::failure;

/// An address that swallows packets must not hang a command for the kernel's two minutes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the database is and how to get in.
#[derive(Clone)]
pub(crate) struct Address {
    config: Config,
    tls: MakeRustlsConnect,
    private: bool,
}

impl Address {
    /// Reads a `postgres://` URL or a `key=value` string.
    pub(crate) fn parse(url: &str) -> anyhow::Result<Self> {
        let (url, verify) = without_verify(url);
        // The parser's own words may quote what it took for an option, and that may be a piece of
        // a password: only its word on a value is passed on.
        let mut config: Config = url.parse().map_err(|error| {
            let detail = parse_detail(&error);
            anyhow!("DATABASE_URL is not a Postgres address{detail}. Write postgres://user:password@host:5432/database.")
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            anyhow::bail!(
                "DATABASE_URL names no host. Write postgres://user:password@host:5432/database."
            );
        }
        if let Some(password) = config.get_password() {
            failure::conceal(&String::from_utf8_lossy(password));
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name("posthaste");
        }
        Ok(Self {
            config,
            tls: MakeRustlsConnect::new(tls(verify)?),
            private: false,
        })
    }

    /// The private server on this machine's loopback, which speaks no TLS.
    pub(crate) fn private(port: u16, database: &str, password: &str) -> anyhow::Result<Self> {
        failure::conceal(password);
        let mut config = Config::new();
        config
            .host("127.0.0.1")
            .port(port)
            .user("posthaste")
            .password(password)
            .dbname(database)
            .application_name("posthaste")
            .connect_timeout(CONNECT_TIMEOUT)
            .ssl_mode(tokio_postgres::config::SslMode::Disable);
        Ok(Self {
            config,
            tls: MakeRustlsConnect::new(tls(false)?),
            private: true,
        })
    }

    /// A connection of its own, driven in the background until it is dropped.
    pub(crate) async fn connect(&self) -> anyhow::Result<Client> {
        let (client, connection) = self.attempt().await.map_err(|error| self.explain(error))?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// As [`Address::connect`], for callers that decide by the error's kind.
    pub(crate) async fn try_connect(&self) -> Result<Client, tokio_postgres::Error> {
        let (client, connection) = self.attempt().await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// A pool of at most `size` connections; nothing is connected yet.
    pub(crate) fn pool(&self, size: usize) -> anyhow::Result<Pool> {
        let manager = Manager::from_config(
            self.config.clone(),
            self.tls.clone(),
            ManagerConfig {
                recycling_method: RecyclingMethod::Fast,
            },
        );
        Pool::builder(manager)
            .max_size(size)
            .build()
            .context("cannot build the connection pool")
    }

    /// Lets a worker be told of jobs, over a connection of its own.
    pub(crate) fn ring_for(&self, worker: posthaste::WorkerBuilder) -> posthaste::WorkerBuilder {
        worker.bell(self.config.clone(), self.tls.clone())
    }

    /// `host:port`, or the socket's directory, of the first server named.
    pub(crate) fn place(&self) -> String {
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        match (
            self.config.get_hosts().first(),
            self.config.get_hostaddrs().first(),
        ) {
            (Some(Host::Tcp(host)), _) if host.contains(':') => format!("[{host}]:{port}"),
            (Some(Host::Tcp(host)), _) => format!("{host}:{port}"),
            #[cfg(unix)]
            (Some(Host::Unix(directory)), _) => {
                format!("{}/.s.PGSQL.{port}", directory.display())
            }
            (None, Some(address)) => format!("{address}:{port}"),
            (None, None) => format!("port {port}"),
        }
    }

    async fn attempt(
        &self,
    ) -> Result<(Client, impl Future<Output = ()> + Send + 'static + use<>), tokio_postgres::Error>
    {
        let (client, connection) = self.config.connect(self.tls.clone()).await?;
        let drive = async move {
            // Whoever uses the client sees the same failure at its next statement.
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to Postgres ended");
            }
        };
        Ok((client, drive))
    }

    /// Why the door stayed shut, in one line with the way out.
    fn explain(&self, error: tokio_postgres::Error) -> anyhow::Error {
        let place = self.place();
        let user = self.config.get_user().unwrap_or("(this system user)");
        let database = self.config.get_dbname().unwrap_or(user);
        if self.private {
            return anyhow::Error::new(error)
                .context(format!("cannot reach the private Postgres at {place}"));
        }
        match error.code() {
            Some(code)
                if *code == SqlState::INVALID_PASSWORD
                    || *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION =>
            {
                anyhow!(
                    "Postgres at {place} refused user \"{user}\": {}. Correct user and password in DATABASE_URL.",
                    message(&error)
                )
            }
            Some(code) if *code == SqlState::INVALID_CATALOG_NAME => {
                anyhow!(
                    "Postgres at {place} has no database \"{database}\". Create it (createdb {database}), or correct DATABASE_URL."
                )
            }
            Some(code) if *code == SqlState::TOO_MANY_CONNECTIONS => {
                anyhow!(
                    "Postgres at {place} has no free connection: {}. Close some, or raise its max_connections.",
                    message(&error)
                )
            }
            Some(_) => anyhow!(
                "Postgres at {place} refused the connection: {}. Correct DATABASE_URL, or try again.",
                message(&error)
            ),
            None => anyhow!(
                "cannot reach Postgres at {place}: {}. {}",
                message(&error),
                way_out(&error)
            ),
        }
    }
}

fn way_out(error: &tokio_postgres::Error) -> &'static str {
    match io_kind(error) {
        Some(io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {
            "Start it, or leave DATABASE_URL unset to let posthaste run its own."
        }
        _ if message(error).contains("certificate") => {
            "Name the file of its authority in SSL_CERT_FILE, or ask for less than sslmode=verify-full."
        }
        _ => "Correct DATABASE_URL, or leave it unset to let posthaste run its own.",
    }
}

/// The innermost cause in lower case and without the number that Rust's IO errors carry.
fn message(error: &tokio_postgres::Error) -> String {
    if let Some(refusal) = error.as_db_error() {
        return refusal.message().to_owned();
    }
    if io_kind(error) == Some(io::ErrorKind::ConnectionRefused) {
        return "connection refused".to_owned();
    }
    let mut innermost: &(dyn std::error::Error + 'static) = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    failure::reason(innermost)
}

fn io_kind(error: &tokio_postgres::Error) -> Option<io::ErrorKind> {
    let cause = std::error::Error::source(error)?;
    cause.downcast_ref::<io::Error>().map(io::Error::kind)
}

fn parse_detail(error: &tokio_postgres::Error) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    match cause {
        Some(text) if text.starts_with("invalid value for option") => format!(" ({text})"),
        _ => String::new(),
    }
}

/// tokio-postgres knows three of libpq's six modes; the others are read here.
fn without_verify(url: &str) -> (String, bool) {
    let separators: &[char] = if url.contains("://") {
        &['?', '&']
    } else {
        &[' ']
    };
    let mut verify = false;
    let mut rewritten = String::with_capacity(url.len());
    for part in url.split_inclusive(separators) {
        let bare = part.trim_end_matches(separators);
        match bare {
            "sslmode=verify-full" | "sslmode=verify-ca" => {
                verify = true;
                rewritten.push_str("sslmode=require");
            }
            "sslmode=allow" => rewritten.push_str("sslmode=prefer"),
            _ => rewritten.push_str(bare),
        }
        rewritten.push_str(&part[bare.len()..]);
    }
    (rewritten, verify)
}

fn tls(verify: bool) -> anyhow::Result<ClientConfig> {
    let builder = ClientConfig::builder();
    if verify {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        anyhow::ensure!(
            !roots.is_empty(),
            "no certificate authorities found on this system, and DATABASE_URL asks for sslmode=verify-full. Install ca-certificates, or set SSL_CERT_FILE."
        );
        return Ok(builder.with_root_certificates(roots).with_no_client_auth());
    }
    let provider = CryptoProvider::get_default()
        .cloned()
        .context("no TLS provider is installed")?;
    Ok(builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone(provider)))
        .with_no_client_auth())
}

/// Takes any certificate, as libpq does below `verify-ca`: the line is encrypted, and with SCRAM
/// the password is bound to this channel, but who answers is not checked.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libpq_modes_that_the_driver_lacks_are_read() {
        assert_eq!(
            without_verify("postgres://u@h/d?sslmode=verify-full&a=b"),
            ("postgres://u@h/d?sslmode=require&a=b".to_owned(), true)
        );
        assert_eq!(
            without_verify("host=h sslmode=allow user=u"),
            ("host=h sslmode=prefer user=u".to_owned(), false)
        );
        assert_eq!(
            without_verify("postgres://u:sslmode=verify-full@h/d"),
            ("postgres://u:sslmode=verify-full@h/d".to_owned(), false)
        );
    }
}
