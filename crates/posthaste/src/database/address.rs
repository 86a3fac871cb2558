//! Settings of connections that are known: the driver's own, and the TLS that belongs to them.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::error::{Error, ErrorKind};
use crate::store::session::{self, Listen};

/// An address that swallows packets must not hang a start for the kernel's two minutes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(feature = "rustls")]
pub(super) type Tls = tokio_postgres_rustls::MakeRustlsConnect;
#[cfg(not(feature = "rustls"))]
pub(super) type Tls = tokio_postgres::NoTls;

#[derive(Clone)]
pub(super) struct Address {
    pub(super) config: Config,
    tls: Tls,
}

#[cfg_attr(
    not(feature = "rustls"),
    expect(clippy::clone_on_copy, reason = "no TLS is copied, rustls is cloned")
)]
impl Address {
    pub(super) fn new(mut config: Config, tls: Tls) -> Self {
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name("posthaste");
        }
        // As libpq has it: whatever the mode, a socket of this machine is not encrypted.
        if is_local(&config) {
            config.ssl_mode(SslMode::Disable);
        }
        Self { config, tls }
    }

    pub(super) fn pool(&self, size: usize) -> Result<Pool, Error> {
        let recycling_method = RecyclingMethod::Fast;
        let manager = Manager::from_config(
            self.config.clone(),
            self.tls.clone(),
            ManagerConfig { recycling_method },
        );
        let pool = Pool::builder(manager).max_size(size).build();
        pool.map_err(|error| ErrorKind::Config(format!("cannot build a pool: {error}")).into())
    }

    pub(super) fn listen(&self) -> Listen {
        session::connector(self.config.clone(), self.tls.clone())
    }
}

/// Whether all its hosts are sockets of this machine.
pub(super) fn is_local(config: &Config) -> bool {
    let hosts = config.get_hosts();
    !hosts.is_empty() && hosts.iter().all(|host| !matches!(host, Host::Tcp(_)))
}
