//! The web console of `console` and `up`: its options, authentication, and TLS.

mod table;
mod tls;

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use axum::Router;
use axum::http::HeaderName;
use posthaste_console::{Access, Network, PathPrefix, Proxy, Role, router};
use serde_json::json;
use tokio::net::TcpListener;

use crate::connect::Address;
use crate::elastic::ServerOptions;
use crate::failure;
use crate::serve::serve;
use crate::terminal::Terminal;
use crate::thresholds;
use tls::Certificate;

/// The default address.
const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8088);
/// Connections that serve pages; one more reads the snapshot that pages share.
const PAGE_CONNECTIONS: usize = 3;
/// The minimum length of a token in bytes: a shorter one could be guessed.
const MIN_TOKEN_BYTES: usize = 16;
/// The default header in which an authenticating proxy names the user.
const USER_HEADER: &str = "X-Forwarded-User";

/// Options of the web server, from the command line or a file.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct WebOptions {
    /// Serve at this address (default: 127.0.0.1:8088). An address that other machines can reach
    /// requires --token-file or --trust-proxy, and TLS or --without-tls
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,

    /// Allow actions: pause, retry, cancel, redrive, delete and re-index; the database user must
    /// have the rights
    #[arg(long)]
    operate: bool,

    /// Require the token in this file
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Accept only requests from a proxy at this address or network, such as 10.0.0.7 or
    /// 10.20.0.0/16, which must authenticate users (repeatable)
    #[arg(long, value_name = "CIDR")]
    trust_proxy: Vec<Network>,

    /// Header in which the proxy names the user (default: X-Forwarded-User). The proxy must not
    /// forward this header from clients
    #[arg(long, value_name = "HEADER")]
    user_header: Option<HeaderName>,

    /// Allow this user, as named by the proxy, to make changes; all others are read-only
    /// (repeatable)
    #[arg(long, value_name = "NAME")]
    operator: Vec<String>,

    /// Serve over TLS with the certificate chain in this file; a changed file is reloaded
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,

    /// Private key of the certificate
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,

    /// Serve other machines without TLS, because a proxy terminates TLS
    #[arg(long)]
    without_tls: bool,

    /// Also hide arguments whose keys contain this text (repeatable)
    #[arg(long, value_name = "KEY")]
    redact: Vec<String>,

    /// Name shown on every page, such as production or staging
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Serve under this path, such as /posthaste, from which a proxy forwards requests
    #[arg(long, value_name = "PATH")]
    path_prefix: Option<PathPrefix>,

    /// Whether the options come from a file, where names are spelled differently.
    #[arg(skip)]
    is_of_file: bool,
}

impl WebOptions {
    /// Returns options with this address and default settings.
    pub(crate) fn listening_at(listen: SocketAddr) -> Self {
        Self {
            listen: Some(listen),
            ..Self::default()
        }
    }

    /// Completes these options by those of a file. Authentication comes as a whole from one of
    /// them, and so does TLS.
    pub(crate) fn or_from_file(self, file: Self) -> Self {
        let has_access = self.token_file.is_some() || !self.trust_proxy.is_empty();
        let access = if has_access { &self } else { &file };
        let has_tls = self.tls_cert.is_some() || self.tls_key.is_some() || self.without_tls;
        let tls = if has_tls { &self } else { &file };
        Self {
            listen: self.listen.or(file.listen),
            operate: self.operate || file.operate,
            token_file: access.token_file.clone(),
            trust_proxy: access.trust_proxy.clone(),
            user_header: self.user_header.clone().or(access.user_header.clone()),
            operator: match self.operator.is_empty() {
                true => access.operator.clone(),
                false => self.operator.clone(),
            },
            tls_cert: tls.tls_cert.clone(),
            tls_key: tls.tls_key.clone(),
            without_tls: tls.without_tls,
            redact: [self.redact.clone(), file.redact.clone()].concat(),
            name: self.name.clone().or(file.name),
            path_prefix: self.path_prefix.clone().or(file.path_prefix),
            is_of_file: file.is_of_file && !has_access && !has_tls,
        }
    }

    fn address(&self) -> SocketAddr {
        self.listen.unwrap_or(DEFAULT_ADDRESS)
    }

    /// Returns the name of an option as it was written: on the command line or in a file.
    fn written_name(&self, option: &str) -> String {
        match self.is_of_file {
            true if option == "operator" => "operators".to_owned(),
            true => option.replace('-', "_"),
            false => format!("--{option}"),
        }
    }

    /// Fails if the options contradict each other. Called before the database is opened.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let of = |option| self.written_name(option);
        let has_proxy = !self.trust_proxy.is_empty();
        if self.token_file.is_some() && has_proxy {
            bail!(
                "{} and {} exclude each other: give one of them.",
                of("token-file"),
                of("trust-proxy")
            );
        }
        let for_proxies = [
            (self.user_header.is_some(), "user-header"),
            (!self.operator.is_empty(), "operator"),
        ];
        for (is_given, option) in for_proxies {
            if is_given && !has_proxy {
                bail!("{} needs {}.", of(option), of("trust-proxy"));
            }
        }
        let has_tls = self.tls_cert.is_some();
        if has_tls != self.tls_key.is_some() {
            bail!("give both {} and {}.", of("tls-cert"), of("tls-key"));
        }
        if has_tls && self.without_tls {
            bail!(
                "{} and {} exclude each other: give one of them.",
                of("tls-cert"),
                of("without-tls")
            );
        }
        let has_authentication = self.token_file.is_some() || has_proxy;
        let is_tls_decided = has_tls || self.without_tls;
        let is_safe = self.address().ip().is_loopback() || (has_authentication && is_tls_decided);
        if !is_safe {
            bail!(
                "{} can be reached from other machines: give {} or {}, and {} with {}, or {} if a \
                 proxy terminates TLS; or listen at 127.0.0.1.",
                self.address(),
                of("token-file"),
                of("trust-proxy"),
                of("tls-cert"),
                of("tls-key"),
                of("without-tls")
            );
        }
        Ok(())
    }

    fn access(&self, terminal: &Terminal) -> anyhow::Result<Access> {
        if !self.trust_proxy.is_empty() {
            let header = self.user_header.as_ref().map(HeaderName::as_str);
            return Ok(Access::Proxy(Proxy {
                networks: self.trust_proxy.clone(),
                header: header.unwrap_or(USER_HEADER).to_owned(),
                operators: self.operator.clone(),
            }));
        }
        let Some(file) = &self.token_file else {
            return Ok(Access::Loopback);
        };
        let token = fs::read_to_string(file).map_err(|error| {
            anyhow::anyhow!("{}: {}", file.display(), failure::io_error_text(&error))
        })?;
        let token = token.trim();
        failure::conceal(token);
        if token.len() < MIN_TOKEN_BYTES {
            bail!(
                "{}: a token has at least {MIN_TOKEN_BYTES} characters: head -c 24 /dev/urandom | \
                 base64 generates one.",
                file.display()
            );
        }
        warn_if_world_readable(file, terminal);
        Ok(Access::Token(token.to_owned()))
    }

    fn certificate(&self, terminal: &Terminal) -> anyhow::Result<Option<Certificate>> {
        let (Some(cert), Some(key)) = (&self.tls_cert, &self.tls_key) else {
            return Ok(None);
        };
        let certificate = Certificate::read(cert, key)?;
        warn_if_world_readable(key, terminal);
        Ok(Some(certificate))
    }

    fn console_settings(
        &self,
        place: &ServerOptions,
        terminal: &Terminal,
    ) -> anyhow::Result<posthaste_console::Settings> {
        let mut settings = posthaste_console::Settings {
            access: self.access(terminal)?,
            over_tls: self.tls_cert.is_some(),
            two_phase: place.optional_coordinator()?.map(Arc::new),
            thresholds: thresholds::read_file(place.file()?)?,
            ..posthaste_console::Settings::default()
        };
        if self.operate {
            settings.role = Role::Operator;
        }
        settings.redacted.extend(self.redact.iter().cloned());
        settings.name = self.name.clone().unwrap_or_default();
        settings.path_prefix = self.path_prefix.clone().unwrap_or_default();
        Ok(settings)
    }

    /// Makes a console. Reads its files, and sends no query.
    pub(crate) fn open_console(
        &self,
        place: &ServerOptions,
        database: &Address,
        terminal: &Terminal,
    ) -> anyhow::Result<Console> {
        self.check()?;
        let settings = self.console_settings(place, terminal)?;
        let acts = settings.role == Role::Operator || !self.operator.is_empty();
        Ok(Console {
            listen: self.address(),
            path_prefix: settings.path_prefix.clone(),
            certificate: self.certificate(terminal)?,
            acts: match acts {
                true => "for viewing and acting".to_owned(),
                false if self.is_of_file => "read-only".to_owned(),
                false => "read-only; --operate allows actions".to_owned(),
            },
            router: router(database.pool(PAGE_CONNECTIONS)?, settings),
        })
    }
}

/// A console that is ready to listen.
pub(crate) struct Console {
    listen: SocketAddr,
    path_prefix: PathPrefix,
    certificate: Option<Certificate>,
    acts: String,
    router: Router,
}

impl Console {
    /// Listens, prints the address, and returns the future that serves until it is dropped.
    pub(crate) async fn listen(
        self,
        terminal: &Terminal,
        end: &str,
    ) -> anyhow::Result<impl Future<Output = ()> + Send + use<>> {
        let listener = TcpListener::bind(self.listen).await;
        let listener = listener.map_err(|error| {
            let reason = failure::io_error_text(&error);
            anyhow::anyhow!("cannot listen at {}: {reason}", self.listen)
        })?;
        let address = listener.local_addr().context("listening")?;
        let scheme = if self.certificate.is_some() {
            "https"
        } else {
            "http"
        };
        let url = format!("{scheme}://{address}{}/", self.path_prefix);
        let text = format!("console at {url}, {}{end}", self.acts);
        terminal.report_event("listening", &text, &json!({ "url": url }))?;
        let (router, certificate) = (self.router, self.certificate);
        let tls = certificate.map(tls::tls_acceptor).transpose()?;
        Ok(serve(listener, router, tls))
    }
}

/// Prints a warning if every user of this machine can read a secret.
fn warn_if_world_readable(file: &Path, terminal: &Terminal) {
    let mode = fs::metadata(file).map_or(0, |known| known.mode());
    if mode & 0o004 != 0 {
        let file = file.display();
        terminal.print_remark(&format!(
            "every user of this machine can read {file}: run chmod 600 {file}"
        ));
    }
}
