//! The client: approximately a dozen calls, written by hand over HTTP, because callers need details
//! of every answer: which item of a bulk request was refused, at which version a document is,
//! whether a call may have been executed.

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

/// Timeout of connecting: an address that drops packets fails sooner than a slow server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const NEW_CALL: &str = "client";

/// A client of one Elasticsearch or OpenSearch node, or of the load balancer in front of several.
///
/// Each call is sent once, within the [time limit](Self::time_limit). Names of indexes are literal:
/// patterns and lists are refused. A write to a missing index creates it, unless the server's
/// `action.auto_create_index` forbids that.
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

/// A request of the client, for a custom [transport](Client::with_transport).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `POST`, `PUT` or `DELETE`.
    pub method: String,
    /// The path, with the query string.
    pub path: String,
    /// The body.
    pub body: Vec<u8>,
}

/// Returns the status and the body of an answer, `None` if there is none.
type Transport = Arc<dyn Fn(Request) -> PendingResponse + Send + Sync>;
type PendingResponse = Pin<Box<dyn Future<Output = Option<(u16, Vec<u8>)>> + Send>>;

/// The product that the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// Elasticsearch.
    Elasticsearch,
    /// OpenSearch.
    OpenSearch,
}

/// The server's description of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// The product.
    pub flavour: Flavour,
    /// Its version.
    pub version: String,
}

impl Client {
    /// Creates a client of this address from an HTTP client builder, which decides about TLS. If
    /// reqwest was built without a TLS provider, the program must install one before, for `http://`
    /// too: reqwest panics without.
    ///
    /// A user name and a password in the address become [`basic_auth`](Self::basic_auth).
    pub fn new(kind: ClientBuilder, url: &str) -> Result<Self, Error> {
        let mut url = Url::parse(url)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            // The address may contain a password: the error does not repeat it.
            .ok_or_else(|| Error::invalid(NEW_CALL, "the address must be http://… or https://…"))?;
        let credentials = name::credentials(&url);
        // Both fail only if the address has no host.
        let _ = url.set_password(None);
        let _ = url.set_username("");
        url.set_query(None);
        url.set_fragment(None);
        let http = kind
            .redirect(Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .build()
            .map_err(|error| Error::invalid(NEW_CALL, send::describe_error(&error)))?;
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

    /// Sends requests by this function instead of HTTP. The function decides the outcome of each
    /// request; the time limit does not apply.
    ///
    /// A test can thus replay the same answers in the same order from the same seed, which sockets
    /// do not allow.
    pub fn with_transport<F>(self, carry: impl Fn(Request) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Option<(u16, Vec<u8>)>> + Send + 'static,
    {
        let carrier: Transport = Arc::new(move |request| Box::pin(carry(request)));
        let carrier = Some(carrier);
        Self { carrier, ..self }
    }

    /// Authenticates with a user name and a password.
    pub fn basic_auth(self, user: &str, password: &str) -> Result<Self, Error> {
        self.authorized(&format!(
            "Basic {}",
            STANDARD.encode(format!("{user}:{password}"))
        ))
    }

    /// Authenticates with an API key, in the base64 form that the server returned (`encoded`).
    pub fn api_key(self, encoded: &str) -> Result<Self, Error> {
        self.authorized(&format!("ApiKey {encoded}"))
    }

    fn authorized(self, header: &str) -> Result<Self, Error> {
        let mut value = HeaderValue::from_str(header).map_err(|_| {
            Error::invalid(
                NEW_CALL,
                "the credentials contain characters that no header may have",
            )
        })?;
        value.set_sensitive(true);
        Ok(Self {
            authorization: Some(value),
            ..self
        })
    }

    /// Sets the time limit of a call, from connecting to the last byte of the answer; 30 s by
    /// default.
    ///
    /// The limit is also sent to the server, so that it does not wait longer than the client for an
    /// unavailable shard. The server completes work that it has begun regardless of the limit.
    pub fn time_limit(self, time_limit: Duration) -> Self {
        Self { time_limit, ..self }
    }

    /// Sets the most bytes of an answer that are read; 64 MiB by default. A longer answer is an
    /// error ([`TooLong`](crate::ErrorKind::TooLong)).
    pub fn largest_answer(self, largest_answer: usize) -> Self {
        Self {
            largest_answer,
            ..self
        }
    }

    /// Reads the product and the version of the server.
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
        let body: InfoBody = self
            .send_and_parse(Call::new("info", Method::GET, &[]))
            .await?;
        let flavour = match body.version.distribution.as_deref() {
            Some("opensearch") => Flavour::OpenSearch,
            _ => Flavour::Elasticsearch,
        };
        let _ = self.flavour.set(flavour);
        let version = body.version.number;
        Ok(Info { flavour, version })
    }

    /// Returns the product of the server, which is read once.
    async fn flavour(&self) -> Result<Flavour, Error> {
        match self.flavour.get() {
            Some(flavour) => Ok(*flavour),
            None => Ok(self.info().await?.flavour),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The path may be a secret; the credentials are one.
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
