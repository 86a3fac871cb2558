//! Makes a database from the settings of a sqlx pool.

use percent_encoding::percent_decode_str;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{ConnectOptions, PgPool};
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use super::address::{self, Address, Tls};
#[cfg(feature = "rustls")]
use super::tls::{self, Pem, Trust, Verify};
use super::{Database, Source};

impl From<&PgPool> for Database {
    fn from(pool: &PgPool) -> Self {
        database_from_options(&pool.connect_options(), cfg!(feature = "rustls"))
    }
}

impl From<PgPool> for Database {
    fn from(pool: PgPool) -> Self {
        (&pool).into()
    }
}

fn database_from_options(options: &PgConnectOptions, speaks_tls: bool) -> Database {
    let source = match read_address(options, speaks_tls) {
        Ok(address) => Source::Address(Box::new(address)),
        Err(reason) => Source::Refused(reason),
    };
    source.into()
}

fn read_address(options: &PgConnectOptions, speaks_tls: bool) -> Result<Address, String> {
    let mut config = Config::new();
    match options.get_socket() {
        Some(folder) => {
            #[cfg(unix)]
            config.host_path(folder);
            #[cfg(not(unix))]
            config.host(folder.to_string_lossy());
        }
        // An IPv6 address is in brackets in a URL.
        None => {
            let host = options.get_host();
            config.host(host.trim_start_matches('[').trim_end_matches(']'));
        }
    }
    let is_local = address::is_local(&config);
    config
        .port(options.get_port())
        .user(options.get_username())
        .ssl_mode(driver_ssl_mode(options.get_ssl_mode()));
    if let Some(database) = options.get_database() {
        config.dbname(database);
    }
    if let Some(name) = options.get_application_name() {
        config.application_name(name);
    }
    if let Some(options) = options.get_options() {
        config.options(options);
    }
    let rest = UrlOptions::new(options);
    if let Some(password) = &rest.password {
        config.password(password);
    }
    if !is_local && !speaks_tls && config.get_ssl_mode() == SslMode::Require {
        return Err(format!(
            "the sqlx pool requires TLS (its ssl mode is {}), but posthaste was built without it: \
             enable the feature `rustls` of posthaste",
            ssl_mode_name(options.get_ssl_mode())
        ));
    }
    // TLS does not apply to a local socket.
    let tls = match is_local {
        true => tls_connector(&mut config, UrlOptions::default(), PgSslMode::Disable),
        false => tls_connector(&mut config, rest, options.get_ssl_mode()),
    }?;
    Ok(Address::new(config, tls))
}

/// The options that sqlx exposes only in its URL.
#[derive(Default)]
struct UrlOptions {
    password: Option<String>,
    #[cfg(feature = "rustls")]
    authorities: Option<Pem>,
    #[cfg(feature = "rustls")]
    certificate: Option<Pem>,
    #[cfg(feature = "rustls")]
    key: Option<Pem>,
}

impl UrlOptions {
    fn new(options: &PgConnectOptions) -> Self {
        // Values that were read above are replaced, because an `@` or a colon in them would make an
        // invalid URL.
        let plain = options.clone().host("host").username("user").database("d");
        let url = plain.to_url_lossy();
        let password = url.password().map(percent_decode_str);
        #[cfg(feature = "rustls")]
        let pem = |key: &str| {
            let mut pairs = url.query_pairs();
            let (_, value) = pairs.find(|(name, _)| name == key)?;
            Some(match value.strip_prefix("file: ") {
                Some(file) => Pem::File(file.into()),
                None => Pem::Text(value.into_owned()),
            })
        };
        Self {
            password: password.map(|password| password.decode_utf8_lossy().into_owned()),
            #[cfg(feature = "rustls")]
            authorities: pem("sslrootcert"),
            #[cfg(feature = "rustls")]
            certificate: pem("sslcert"),
            #[cfg(feature = "rustls")]
            key: pem("sslkey"),
        }
    }
}

#[cfg(feature = "rustls")]
fn tls_connector(config: &mut Config, rest: UrlOptions, mode: PgSslMode) -> Result<Tls, String> {
    let mut trust = Trust {
        verify: match mode {
            PgSslMode::VerifyFull => Verify::Full,
            PgSslMode::VerifyCa => Verify::Authority,
            _ => Verify::Nobody,
        },
        certificate: rest.certificate,
        key: rest.key,
        authorities: None,
    };
    if rest.authorities.is_some() {
        trust.add_roots(rest.authorities);
    }
    trust.require_tls(config);
    tls::connector(&trust)
}

#[cfg(not(feature = "rustls"))]
fn tls_connector(_: &mut Config, _: UrlOptions, _: PgSslMode) -> Result<Tls, String> {
    Ok(tokio_postgres::NoTls)
}

/// Converts the mode for the driver, which does not verify certificates: the TLS connector does.
fn driver_ssl_mode(mode: PgSslMode) -> SslMode {
    match mode {
        PgSslMode::Disable => SslMode::Disable,
        PgSslMode::Allow | PgSslMode::Prefer => SslMode::Prefer,
        PgSslMode::Require | PgSslMode::VerifyCa | PgSslMode::VerifyFull => SslMode::Require,
    }
}

fn ssl_mode_name(mode: PgSslMode) -> &'static str {
    match mode {
        PgSslMode::Disable => "disable",
        PgSslMode::Allow => "allow",
        PgSslMode::Prefer => "prefer",
        PgSslMode::Require => "require",
        PgSslMode::VerifyCa => "verify-ca",
        PgSslMode::VerifyFull => "verify-full",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Outcome, Worker};

    fn refusal(url: &str) -> Option<String> {
        read_address(&url.parse().expect("options"), false).err()
    }

    #[tokio::test]
    async fn rejects_tls_pools_without_the_tls_feature() {
        for mode in ["require", "verify-ca", "verify-full"] {
            let url = format!("postgres://ann:geheim@127.0.0.1:1/app?sslmode={mode}");
            let database = database_from_options(&url.parse().expect("options"), false);
            let worker = Worker::builder(database)
                .queue("default", 1)
                .handler("x", async |_, _| Ok(Outcome::Done));
            let refusal = worker.start().await.err().expect("a refusal").to_string();
            assert!(
                refusal.contains(&format!("(its ssl mode is {mode})")),
                "{refusal}"
            );
            assert!(
                refusal.ends_with("enable the feature `rustls` of posthaste"),
                "{refusal}"
            );
            assert!(!refusal.contains("geheim"), "{refusal}");
        }
        for mode in ["disable", "allow", "prefer"] {
            assert_eq!(refusal(&format!("postgres://db/app?sslmode={mode}")), None);
        }
        let socket = "postgres:///app?host=/run/postgresql&sslmode=verify-full";
        assert_eq!(
            refusal(socket),
            None,
            "a socket of this machine needs no TLS"
        );
    }

    #[test]
    fn pool_settings_are_taken_over() {
        let options = PgConnectOptions::new_without_pgpass()
            .host("::1")
            .port(7)
            .username("a@b:c/d %")
            .password("p@:/ %25?#é\\'")
            .database("x/y?z#é")
            .application_name("shop & co")
            .options([("search_path", "a b"), ("geqo", "off")])
            .ssl_mode(PgSslMode::Disable);
        let config = read_address(&options, true).expect("an address").config;
        let mut expected = Config::new();
        expected
            .host("::1")
            .port(7)
            .user("a@b:c/d %")
            .password("p@:/ %25?#é\\'")
            .dbname("x/y?z#é")
            .application_name("shop & co")
            .options(r"-c search_path=a\ b -c geqo=off")
            .ssl_mode(SslMode::Disable)
            .connect_timeout(std::time::Duration::from_secs(10))
            .tcp_user_timeout(std::time::Duration::from_secs(30))
            .keepalives_idle(std::time::Duration::from_secs(30))
            .keepalives_interval(std::time::Duration::from_secs(10))
            .keepalives_retries(3);
        assert!(config == expected, "{config:?}");
    }
}
