//! The context of a request: its user, its origin, and its rights.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};

use crate::Role;
use crate::fault::Fault;
use crate::notice;
use crate::token::Login;

/// The context of a request that was authenticated, or is about to be.
#[derive(Clone, Debug)]
pub(crate) struct Visit {
    /// The nonce of the script and the style of the page.
    pub(crate) nonce: String,
    /// How it was authenticated, or the user whom the proxy named.
    pub(crate) who: String,
    /// The role of its user.
    pub(crate) role: Role,
    /// The client's address, if the program provides it.
    pub(crate) peer: Option<String>,
    /// Its path and query.
    pub(crate) path: String,
    /// Whether it only reads, so that it may be repeated.
    pub(crate) is_read: bool,
    /// The login of its cookie.
    pub(crate) login: Option<Login>,
    /// The cookie with the notice about the last action, for the next page.
    pub(crate) notice: Option<String>,
}

impl Visit {
    pub(crate) fn new(request: &Request) -> Self {
        let path = request.uri().path_and_query();
        Self {
            nonce: uuid::Uuid::new_v4().simple().to_string(),
            who: ANONYMOUS.to_owned(),
            role: Role::Observer,
            peer: client_address(request).map(|peer| peer.to_string()),
            path: path.map_or_else(|| "/".to_owned(), ToString::to_string),
            is_read: request.method() == Method::GET,
            login: None,
            notice: notice::cookie_value(request.headers()),
        }
    }

    /// Returns whether it is authenticated.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.who != ANONYMOUS
    }
}

const ANONYMOUS: &str = "nobody";

impl<S: Sync> FromRequestParts<S> for Visit {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Fault> {
        let visit = parts.extensions.get::<Self>().cloned();
        visit.ok_or_else(|| {
            Fault::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the request was rejected",
                "",
            )
        })
    }
}

/// Returns the client's address, if the program provides it.
pub(crate) fn client_address(request: &Request) -> Option<IpAddr> {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    peer.map(|peer| peer.0.ip())
}
