//! A request: who asks, from where, and what it may do.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};

use crate::Role;
use crate::fault::Fault;
use crate::notice;
use crate::token::Login;

/// A request that was let in, or is about to be.
#[derive(Clone, Debug)]
pub(crate) struct Visit {
    /// Marks the script and the style that the page itself asks for.
    pub(crate) nonce: String,
    /// By what it was let in, or whom the proxy named.
    pub(crate) who: String,
    /// What it may do.
    pub(crate) role: Role,
    /// From where it came, where the program tells.
    pub(crate) peer: Option<String>,
    /// Its path and query.
    pub(crate) path: String,
    /// It only reads, so it may be repeated.
    pub(crate) is_read: bool,
    /// The login of its cookie.
    pub(crate) login: Option<Login>,
    /// The cookie that says what was just done, for the next page.
    pub(crate) notice: Option<String>,
}

impl Visit {
    pub(crate) fn new(request: &Request) -> Self {
        let path = request.uri().path_and_query();
        Self {
            nonce: uuid::Uuid::new_v4().simple().to_string(),
            who: NOBODY.to_owned(),
            role: Role::Observer,
            peer: peer(request).map(|peer| peer.to_string()),
            path: path.map_or_else(|| "/".to_owned(), ToString::to_string),
            is_read: request.method() == Method::GET,
            login: None,
            notice: notice::sent(request.headers()),
        }
    }

    /// Whether it may see more than the door.
    pub(crate) fn is_in(&self) -> bool {
        self.who != NOBODY
    }
}

const NOBODY: &str = "nobody";

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

/// From where it was asked, where the program tells.
pub(crate) fn peer(request: &Request) -> Option<IpAddr> {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    peer.map(|peer| peer.0.ip())
}
