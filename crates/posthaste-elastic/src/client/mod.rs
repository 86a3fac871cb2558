//! The client: about a dozen calls, by hand over HTTP, because what a caller must know (which item
//! of a bulk request was refused, at which version a document is, whether a call may have been
//! done) is what it is for.

mod admin;
mod answer;
mod bulk;
mod document;
mod name;
mod operation;
mod search;
mod send;

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::HeaderValue;
use reqwest::redirect::Policy;
use reqwest::{ClientBuilder, Method, Url};
use serde::Deserialize;

use crate::Error;
pub use admin::AliasChange;
pub use document::{Document, Reading, Source};
pub use name::is_index_name;
pub use operation::{Condition, Effect, Operation, Refusal, Script, Seen, Written};
pub use search::{Hit, Page, PointInTime};
use send::Call;

/// An address that swallows packets is given up sooner than one that thinks.
const CONNECT: Duration = Duration::from_secs(10);
const NEW: &str = "client";

/// A client of one Elasticsearch or OpenSearch, or of the load balancer before several nodes.
///
/// Each call is made once, within the [time limit](Self::time_limit). Names of indexes are taken as
/// they are: a pattern, or a list, is refused. Writing to an index that is not there creates it,
/// unless configured otherwise by `action.auto_create_index`.
///
/// ```no_run
/// use posthaste_elastic::{Client, Condition, Operation};
/// use serde_json::json;
///
/// # async fn example() -> Result<(), posthaste_elastic::Error> {
/// let client = Client::new(reqwest::Client::builder(), "http://localhost:9200")?;
/// let newer = Condition::Newer(42);
/// let operations = [
///     Operation::index("notes", "1", &json!({"body": "hello"}))?.when(newer),
///     Operation::delete("notes", "2").when(newer),
/// ];
/// for outcome in client.bulk(&operations).await? {
///     match outcome {
///         Ok(written) => println!("at version {}", written.version),
///         Err(refusal) => println!("{refusal}"),
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    url: Url,
    authorization: Option<HeaderValue>,
    time_limit: Duration,
    largest_answer: usize,
    flavour: OnceLock<Flavour>,
    carrier: Option<Transport>,
}

/// What a client asks, for who [carries](Client::with_transport) it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `POST`, `PUT` or `DELETE`.
    pub method: String,
    /// The path, and what follows a question mark.
    pub path: String,
    /// The body.
    pub body: Vec<u8>,
}

/// Brings the status and the body of an answer, or none.
type Transport = Arc<dyn Fn(Request) -> PendingResponse + Send + Sync>;
type PendingResponse = Pin<Box<dyn Future<Output = Option<(u16, Vec<u8>)>> + Send>>;

/// Whose server it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// Elasticsearch.
    Elasticsearch,
    /// OpenSearch.
    OpenSearch,
}

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Whose it is.
    pub flavour: Flavour,
    /// Its version.
    pub version: String,
}

impl Client {
    /// Calls this address, with a client of this kind; which TLS there is, is the kind's affair.
    /// Where reqwest was built to leave the provider of TLS to the program, that is to be installed
    /// before, for `http://` too: reqwest panics without.
    ///
    /// A name and a password in the address become [`basic_auth`](Self::basic_auth).
    pub fn new(kind: ClientBuilder, url: &str) -> Result<Self, Error> {
        let mut url = Url::parse(url)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            // The address itself may hold a password: the error does not repeat it.
            .ok_or_else(|| Error::invalid(NEW, "the address must be http://… or https://…"))?;
        let credentials = name::credentials(&url);
        // Both fail only where there is no host.
        let _ = url.set_password(None);
        let _ = url.set_username("");
        url.set_query(None);
        url.set_fragment(None);
        let http = kind
            .redirect(Policy::none())
            .connect_timeout(CONNECT)
            .build()
            .map_err(|error| Error::invalid(NEW, send::describe(&error)))?;
        let client = Self {
            http,
            url,
            authorization: None,
            time_limit: Duration::from_secs(30),
            largest_answer: 64 << 20,
            flavour: OnceLock::new(),
            carrier: None,
        };
        match credentials {
            Some((user, password)) => client.basic_auth(&user, &password),
            None => Ok(client),
        }
    }

    /// Has requests carried by this function in the place of HTTP, which decides what becomes of
    /// each: there is no time limit.
    ///
    /// So a test meets the same answers in the same order each time that it draws them from the
    /// same seed, as it never does over sockets.
    pub fn with_transport<F>(self, carry: impl Fn(Request) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Option<(u16, Vec<u8>)>> + Send + 'static,
    {
        let carrier: Transport = Arc::new(move |request| Box::pin(carry(request)));
        let carrier = Some(carrier);
        Self { carrier, ..self }
    }

    /// Says who we are by a name and a password.
    pub fn basic_auth(self, user: &str, password: &str) -> Result<Self, Error> {
        self.authorized(&format!(
            "Basic {}",
            STANDARD.encode(format!("{user}:{password}"))
        ))
    }

    /// Says who we are by an API key, as the server gave it in base64 (`encoded`).
    pub fn api_key(self, encoded: &str) -> Result<Self, Error> {
        self.authorized(&format!("ApiKey {encoded}"))
    }

    fn authorized(self, header: &str) -> Result<Self, Error> {
        let mut value = HeaderValue::from_str(header).map_err(|_| {
            Error::invalid(
                NEW,
                "the credentials contain characters that no header may have",
            )
        })?;
        value.set_sensitive(true);
        Ok(Self {
            authorization: Some(value),
            ..self
        })
    }

    /// How long a call may take, from connecting to the last byte of the answer; 30 s by default.
    ///
    /// The server gets it too, so that it does not wait longer than we do for a shard that is away.
    /// What it has begun it ends all the same.
    pub fn time_limit(self, time_limit: Duration) -> Self {
        Self { time_limit, ..self }
    }

    /// How many bytes of an answer are read; 64 MiB by default. A longer one is none
    /// ([`TooLong`](crate::ErrorKind::TooLong)).
    pub fn largest_answer(self, largest_answer: usize) -> Self {
        Self {
            largest_answer,
            ..self
        }
    }

    /// Asks the server who it is.
    pub async fn info(&self) -> Result<Info, Error> {
        #[derive(Deserialize)]
        struct InfoBody {
            version: Version,
        }
        #[derive(Deserialize)]
        struct Version {
            number: String,
            distribution: Option<String>,
        }
        let body: InfoBody = self.ask(Call::new("info", Method::GET, &[])).await?;
        let flavour = match body.version.distribution.as_deref() {
            Some("opensearch") => Flavour::OpenSearch,
            _ => Flavour::Elasticsearch,
        };
        let _ = self.flavour.set(flavour);
        let version = body.version.number;
        Ok(Info { flavour, version })
    }

    /// Whose server it is, asked once.
    async fn flavour(&self) -> Result<Flavour, Error> {
        match self.flavour.get() {
            Some(flavour) => Ok(*flavour),
            None => Ok(self.info().await?.flavour),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A path may be a secret; what proves who we are is one.
        let place = self.url.host_str().map(str::to_owned);
        let mut shown = f.debug_struct("Client");
        shown.field("host", &place).field("port", &self.url.port());
        shown.finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(url: &str) -> Result<Client, Error> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Client::new(ClientBuilder::new(), url)
    }

    #[test]
    fn credentials_are_never_shown() {
        let client = client("http://elastic:geh%20eim@h:9200/way?key=geheim").unwrap();
        let shown = format!("{client:?}");
        assert!(!shown.contains("eim"), "{shown}");
        assert_eq!(client.url.as_str(), "http://h:9200/way");
        let sent = client.authorization.as_ref().unwrap();
        let expected = format!("Basic {}", STANDARD.encode("elastic:geh eim"));
        assert_eq!(sent.to_str().unwrap(), expected);
        let shown = format!("{:?}", client.api_key("geheim").unwrap());
        assert!(!shown.contains("geheim"), "{shown}");
    }

    #[test]
    fn rejects_non_http_addresses_without_repeating_them() {
        for wrong in ["", "ftp://h/geheim", "h:1/geheim", "unix:/geheim"] {
            let error = client(wrong).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Invalid);
            assert!(!format!("{error} {error:?}").contains("geheim"));
        }
        assert!(
            client("http://h")
                .unwrap()
                .api_key("two\nlines geheim")
                .is_err_and(|error| !error.to_string().contains("geheim"))
        );
    }
}
