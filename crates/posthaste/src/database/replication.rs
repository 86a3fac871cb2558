//! A connection for the replication protocol: connected and encrypted by the settings of the
//! database, before anything is sent to the server.

use tokio::io::{AsyncRead, AsyncWrite};
#[cfg(any(feature = "sqlx", feature = "rustls"))]
use {
    super::address::Address,
    crate::error::ErrorCause,
    std::io,
    std::time::Duration,
    tokio::io::{AsyncReadExt as _, AsyncWriteExt as _},
    tokio::net::{TcpStream, UnixStream},
    tokio_postgres::Config,
    tokio_postgres::config::{ChannelBinding, Host, SslMode},
    tokio_postgres::tls::{MakeTlsConnect, TlsConnect},
};

use super::{Database, Source};
use crate::error::{Error, ErrorKind};

/// The byte stream of a replication connection.
pub trait ReplicationStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ReplicationStream for S {}

/// A connection to the server, encrypted if the settings require it, on which nothing was sent yet.
/// Made by [`Database::replication`].
pub struct Replication {
    /// The connection.
    pub stream: Box<dyn ReplicationStream>,
    /// The credentials for the connection.
    pub login: ReplicationLogin,
}

/// The credentials for a replication connection.
#[derive(Clone)]
pub struct ReplicationLogin {
    /// The user.
    pub user: String,
    /// Its password, if the settings have one.
    pub password: Option<Vec<u8>>,
    /// The database.
    pub database: String,
}

impl Database {
    /// Connects to one of its servers, for a client of the replication protocol. The first server
    /// is 0; returns `None` if the settings name no server of that number. The connection is
    /// encrypted like every other one of this database; the caller logs in. Fails if the server
    /// cannot be reached, and for a database made from a deadpool pool, which does not expose its
    /// settings.
    #[doc(hidden)]
    #[cfg_attr(
        not(any(feature = "sqlx", feature = "rustls")),
        expect(unused_variables, reason = "only settings that are known name servers")
    )]
    pub async fn replication(&self, server: usize) -> Result<Option<Replication>, Error> {
        match &self.source {
            Source::Pool(_) => Err(ErrorKind::Config(
                "a pool of deadpool-postgres does not expose its settings, which a replication \
                 connection needs: use posthaste::connect"
                    .into(),
            )
            .into()),
            #[cfg(any(feature = "sqlx", feature = "rustls"))]
            Source::Address(address) => address.replication(server).await,
            #[cfg(feature = "sqlx")]
            Source::Refused(reason) => Err(ErrorKind::Config(reason.clone()).into()),
        }
    }
}

#[cfg(any(feature = "sqlx", feature = "rustls"))]
#[cfg_attr(
    not(feature = "rustls"),
    expect(clippy::clone_on_copy, reason = "no TLS is copied, rustls is cloned")
)]
impl Address {
    async fn replication(&self, server: usize) -> Result<Option<Replication>, Error> {
        let Some(endpoint) = ServerEndpoint::new(&self.config, server) else {
            return Ok(None);
        };
        let login = replication_login(&self.config).map_err(ErrorKind::Config)?;
        let limit = self.config.get_connect_timeout().copied();
        let connected = tokio::time::timeout(
            limit.unwrap_or(Duration::from_secs(10)),
            endpoint.connect(&self.config, self.tls.clone()),
        );
        let connected = connected.await.map_err(|_| {
            let error = io::Error::new(io::ErrorKind::TimedOut, "connection timed out");
            ErrorKind::Connect(ErrorCause::from_error(error))
        })?;
        let stream =
            connected.map_err(|error| ErrorKind::Connect(ErrorCause::from_error(error)))?;
        Ok(Some(Replication { stream, login }))
    }
}

#[cfg(any(feature = "sqlx", feature = "rustls"))]
fn replication_login(config: &Config) -> Result<ReplicationLogin, String> {
    if config.get_channel_binding() == ChannelBinding::Require {
        return Err("channel_binding=require is not supported for a replication connection".into());
    }
    let user = config
        .get_user()
        .ok_or("the URL of the database names no user, which a replication connection needs")?;
    Ok(ReplicationLogin {
        user: user.to_owned(),
        password: config.get_password().map(<[u8]>::to_vec),
        database: config.get_dbname().unwrap_or(user).to_owned(),
    })
}

/// A server of the settings.
#[cfg(any(feature = "sqlx", feature = "rustls"))]
struct ServerEndpoint {
    host: Host,
    /// The address to connect to instead of resolving the host's name.
    address: Option<std::net::IpAddr>,
    port: u16,
}

#[cfg(any(feature = "sqlx", feature = "rustls"))]
impl ServerEndpoint {
    fn new(config: &Config, server: usize) -> Option<Self> {
        let address = config.get_hostaddrs().get(server).copied();
        let named = config.get_hosts().get(server).cloned();
        let ports = config.get_ports();
        let port = ports.get(server).or(ports.first());
        Some(Self {
            host: named.or_else(|| Some(Host::Tcp(address?.to_string())))?,
            address,
            port: port.copied().unwrap_or(5432),
        })
    }

    async fn connect<T>(&self, config: &Config, tls: T) -> io::Result<Box<dyn ReplicationStream>>
    where
        T: MakeTlsConnect<TcpStream>,
        T::Stream: Send + 'static,
    {
        let stream = match (&self.host, self.address) {
            (Host::Unix(folder), None) => {
                let socket = folder.join(format!(".s.PGSQL.{}", self.port));
                return Ok(Box::new(UnixStream::connect(socket).await?));
            }
            (Host::Tcp(name), None) => TcpStream::connect((&**name, self.port)).await?,
            (_, Some(address)) => TcpStream::connect((address, self.port)).await?,
        };
        stream.set_nodelay(true)?;
        self.encrypt(stream, config.get_ssl_mode(), tls).await
    }

    async fn encrypt<T>(
        &self,
        mut stream: TcpStream,
        mode: SslMode,
        mut tls: T,
    ) -> io::Result<Box<dyn ReplicationStream>>
    where
        T: MakeTlsConnect<TcpStream>,
        T::Stream: Send + 'static,
    {
        /// The SSLRequest message: its length, and a code instead of a version.
        const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
        let may_encrypt = cfg!(feature = "rustls") || mode == SslMode::Require;
        if mode == SslMode::Disable || !may_encrypt {
            return Ok(Box::new(stream));
        }
        stream.write_all(&SSL_REQUEST).await?;
        let mut answer = [0];
        stream.read_exact(&mut answer).await?;
        match (answer, mode) {
            ([b'S'], _) => {}
            (_, SslMode::Require) => {
                return Err(io::Error::other("the server does not support TLS"));
            }
            _ => return Ok(Box::new(stream)),
        }
        let name = match &self.host {
            Host::Tcp(name) => &**name,
            Host::Unix(_) => "",
        };
        let connector = tls
            .make_tls_connect(name)
            .map_err(|error| io::Error::other(error.into()))?;
        let encrypted = connector.connect(stream).await;
        let encrypted = encrypted.map_err(|error| io::Error::other(error.into()))?;
        Ok(Box::new(encrypted))
    }
}

#[cfg(all(test, feature = "rustls"))]
mod tests {
    use super::{ServerEndpoint, replication_login};

    #[test]
    fn servers_keep_the_order_of_the_url() {
        let config = "postgres://app@a.example:1,b.example:2/app"
            .parse()
            .unwrap();
        let place = |server| ServerEndpoint::new(&config, server).map(|one| (one.host, one.port));
        let host = |name: &str| tokio_postgres::config::Host::Tcp(name.into());
        assert_eq!(place(0), Some((host("a.example"), 1)));
        assert_eq!(place(1), Some((host("b.example"), 2)));
        assert_eq!(place(2), None);
    }

    #[test]
    fn database_name_defaults_to_the_user() {
        let login =
            |url: &str| replication_login(&url.parse().unwrap()).map(|login| login.database);
        assert_eq!(login("postgres://app@h"), Ok("app".into()));
        assert_eq!(login("postgres://app@h/other"), Ok("other".into()));
        assert!(login("postgres://app@h?channel_binding=require").is_err());
    }
}
