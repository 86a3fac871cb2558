//! Makes a database from its URL.

use tokio_postgres::Config;

use super::address::Address;
use super::{Database, Source, sslmode, tls};
use crate::error::{Error, ErrorKind};

const EXPECTED_FORM: &str = "Write postgres://user:password@host:5432/database.";

/// Returns the database at a `postgres://` URL, or at libpq's `key=value` text, for
/// [`Worker::builder`](crate::Worker::builder). It does not connect yet.
///
/// TLS is rustls, with the provider that your program installed, else ring. `sslmode` has the
/// meaning of libpq's documentation:
///
/// - `disable` never encrypts. `allow` and `prefer`, the default, encrypt where the server offers
///   it. `require` always does. None of them verifies the server's certificate.
/// - `verify-ca` also requires that an authority has signed the certificate, and `verify-full` that
///   it is for this host.
/// - `sslrootcert` names the file of the authorities, and means at least `verify-ca`. Without it
///   they are the system's (`SSL_CERT_FILE` and `SSL_CERT_DIR` are honoured).
/// - `sslcert` and `sslkey` name the files of the client's certificate and of its key, in PEM and
///   without a passphrase.
///
/// A Unix socket is not encrypted, whatever the mode. An attempt to connect ends after 10 s unless
/// `connect_timeout` has another value, and `application_name` is `posthaste` unless the URL has
/// one. A connection ends when sent data is not acknowledged for 30 s (`tcp_user_timeout`), or when
/// three probes, 10 s apart, are not answered after 30 s of silence (`keepalives_retries`,
/// `keepalives_interval`, `keepalives_idle`), unless the URL has other values.
/// Fails if the URL is invalid, names no host or has an unsupported parameter, and if the file of a
/// certificate cannot be read. No error contains the password.
///
/// ```no_run
/// use posthaste::{Outcome, Worker};
///
/// # async fn example() -> Result<(), posthaste::Error> {
/// let database = posthaste::connect("postgres://app@db.example.org/app?sslmode=verify-full")?;
/// posthaste::migrate(&mut *database.client().await?).await?;
/// let worker = Worker::builder(database)
///     .queue("default", 16)
///     .handler("mail.welcome", |_context, _job| async { Ok(Outcome::Done) });
/// worker.start().await?.run_until_signal().await
/// # }
/// ```
pub fn connect(url: &str) -> Result<Database, Error> {
    parse_address(url)
        .map(|address| Source::Address(Box::new(address)).into())
        .map_err(|problem| ErrorKind::Config(problem).into())
}

fn parse_address(url: &str) -> Result<Address, String> {
    let (url, trust) = sslmode::split_tls_parameters(url)?;
    // The parser's message may quote what it took for an option, which may be part of a password:
    // only messages about invalid values are passed on.
    let mut config: Config = url.parse().map_err(|error| {
        let detail = parse_error_detail(&error);
        format!("the URL of the database is not a Postgres address{detail}. {EXPECTED_FORM}")
    })?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(format!(
            "the URL of the database names no host. {EXPECTED_FORM}"
        ));
    }
    trust.require_tls(&mut config);
    Ok(Address::new(config, tls::connector(&trust)?))
}

fn parse_error_detail(error: &tokio_postgres::Error) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    match cause {
        Some(text) if text.starts_with("invalid value for option") => format!(" ({text})"),
        _ => String::new(),
    }
}
