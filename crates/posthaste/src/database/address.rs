//! Connection settings that are known: the driver's configuration and its TLS.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::error::{Error, ErrorKind};
use crate::store::session::{self, Listen};

/// The default limit of an attempt to connect: an address that drops packets must not block a start
/// for the kernel's two minutes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time after which unacknowledged data ends its connection: no longer than the engine waits for
/// any answer.
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(30);
/// Silence after which a connection is probed, the time between two probes, and their number; then
/// the connection ends. The driver's default of two hours would leave sessions of vanished servers
/// open.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;

#[cfg(feature = "rustls")]
pub(super) type Tls = tokio_postgres_rustls::MakeRustlsConnect;
#[cfg(not(feature = "rustls"))]
pub(super) type Tls = tokio_postgres::NoTls;

#[derive(Clone)]
pub(super) struct Address {
    pub(super) config: Config,
    pub(super) tls: Tls,
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
        set_keepalives(&mut config);
        // As in libpq: a local socket is not encrypted, whatever the mode.
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

/// Sets the timeouts by which a vanished server is noticed, where the settings have none. An idle
/// time of two hours is the driver's default and counts as not set.
fn set_keepalives(config: &mut Config) {
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(UNACKNOWLEDGED_TIMEOUT);
    }
    if config.get_keepalives_idle() == Config::new().get_keepalives_idle() {
        config.keepalives_idle(KEEPALIVE_IDLE);
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_interval(KEEPALIVE_INTERVAL);
    }
    if config.get_keepalives_retries().is_none() {
        config.keepalives_retries(KEEPALIVE_PROBES);
    }
}

/// Whether all its hosts are local sockets.
pub(super) fn is_local(config: &Config) -> bool {
    let hosts = config.get_hosts();
    !hosts.is_empty() && hosts.iter().all(|host| !matches!(host, Host::Tcp(_)))
}

#[cfg(all(test, feature = "rustls"))]
mod tests {
    use std::time::Duration;

    #[test]
    fn tcp_timeouts_have_defaults_that_the_url_overrides() {
        let times = |url: &str| {
            let database = crate::connect(url).expect("an address");
            let config = database.config().expect("its settings");
            (
                config.get_tcp_user_timeout().map(Duration::as_secs),
                config.get_keepalives(),
                config.get_keepalives_idle().as_secs(),
                config.get_keepalives_interval().map(|time| time.as_secs()),
                config.get_keepalives_retries(),
            )
        };
        assert_eq!(
            times("postgres://app@db.example.org/app"),
            (Some(30), true, 30, Some(10), Some(3))
        );
        let chosen = "postgres://app@db.example.org/app?tcp_user_timeout=7&keepalives=0\
                      &keepalives_idle=8&keepalives_interval=9&keepalives_retries=4";
        assert_eq!(times(chosen), (Some(7), false, 8, Some(9), Some(4)));
    }
}
