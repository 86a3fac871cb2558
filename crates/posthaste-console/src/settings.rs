//! The settings of a console: who may come in, the rights of users, and what is hidden.

use std::fmt;
use std::sync::Arc;

use posthaste_elastic::two_phase::Coordinator;
use posthaste_observe::Thresholds;
use posthaste_observe::redact::SecretKeys;

use crate::network::Network;
use crate::path_prefix::PathPrefix;

/// The settings of a console.
///
/// ```
/// use posthaste_console::{Access, Role, Settings, Thresholds};
///
/// let settings = Settings {
///     access: Access::Token("a long secret".to_owned()),
///     role: Role::Operator,
///     thresholds: Thresholds::default(),
///     ..Settings::default()
/// };
/// # let _ = settings;
/// ```
#[derive(Clone, Debug)]
pub struct Settings {
    /// The environment, such as `production`, which every page shows; empty for none.
    pub name: String,
    /// The path under which a reverse proxy serves it: with `/posthaste`, all addresses of its
    /// pages begin with that.
    pub path_prefix: PathPrefix,
    /// The role of every user. A [`Proxy`] may name users who may do more.
    pub role: Role,
    /// The users who may come in.
    pub access: Access,
    /// Arguments are hidden, at any depth, if their key contains one of these. Case, `_`, `-`, `.`
    /// and spaces make no difference.
    pub redacted: Vec<String>,
    /// Arguments are also hidden if one of these is a word of their key: `pin` hides `userPin` but
    /// not `shipping`.
    pub redacted_words: Vec<String>,
    /// The values from which problems are reported.
    pub thresholds: Thresholds,
    /// Whether it is served over TLS, by this program or by a proxy in front of it. If so, its
    /// cookie is only sent over TLS.
    pub over_tls: bool,
    /// The coordinator of transactions over several documents, which the console then shows; `None`
    /// if there is none.
    pub two_phase: Option<Arc<Coordinator>>,
}

/// Read-only, for this machine only, and with the usual secrets hidden.
impl Default for Settings {
    fn default() -> Self {
        Self {
            name: String::new(),
            path_prefix: PathPrefix::default(),
            role: Role::Observer,
            access: Access::Loopback,
            redacted: SecretKeys::DEFAULT_PARTS.map(str::to_owned).into(),
            redacted_words: SecretKeys::DEFAULT_WORDS.map(str::to_owned).into(),
            thresholds: Thresholds::default(),
            over_tls: false,
            two_phase: None,
        }
    }
}

impl Settings {
    /// Returns whether any user may make changes.
    pub(crate) fn lets_anybody_act(&self) -> bool {
        let by_name = match &self.access {
            Access::Proxy(proxy) => !proxy.operators.is_empty(),
            Access::Loopback | Access::Token(_) => false,
        };
        by_name || self.role == Role::Operator
    }
}

/// The rights of a user.
///
/// ```
/// use posthaste_console::{Role, Settings};
///
/// assert_eq!(Settings::default().role, Role::Observer);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// May read.
    Observer,
    /// May read and act: pause, limit, retry, cancel, redrive, delete, re-index and the like.
    Operator,
}

impl Role {
    /// Returns its name for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Observer => "Observer",
            Self::Operator => "Operator",
        }
    }
}

/// The users who may come in.
///
/// ```
/// use posthaste_console::Access;
///
/// let access = Access::Token("a long secret".to_owned());
/// assert_eq!(format!("{access:?}"), "Token(..)");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub enum Access {
    /// Any program that uses a loopback address or `localhost`. Do not listen on any other address.
    Loopback,
    /// Clients that send this token: as `Authorization: Bearer …`, or once in a form, for a cookie.
    /// An empty token is never accepted. Over a network, use TLS.
    Token(String),
    /// Users whom an authenticating proxy names. All other requests are rejected.
    Proxy(Proxy),
}

/// A proxy that authenticates users and names each in a header.
///
/// The header counts only if the request comes from the proxy's own address, and only if it names
/// exactly one user. The proxy must remove or overwrite the header in requests that it receives.
///
/// ```
/// use posthaste_console::{Access, Proxy, Settings};
///
/// # fn example() -> Result<(), posthaste_console::NotANetwork> {
/// let proxy = Proxy {
///     networks: vec!["10.0.0.7".parse()?],
///     header: "X-Forwarded-User".to_owned(),
///     operators: vec!["ada@example.com".to_owned()],
/// };
/// let settings = Settings {
///     access: Access::Proxy(proxy),
///     ..Settings::default()
/// };
/// # let _ = settings;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// The addresses of the proxy.
    pub networks: Vec<Network>,
    /// The header that contains the user's name.
    pub header: String,
    /// The users who may make changes; all others have the console's role.
    pub operators: Vec<String>,
}

/// Hides the token, so that it is never logged.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loopback => "Loopback",
            Self::Token(_) => "Token(..)",
            Self::Proxy(proxy) => return proxy.fmt(f),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_disabled_by_default() {
        let mut settings = Settings::default();
        assert!(!settings.lets_anybody_act());
        settings.role = Role::Operator;
        assert!(settings.lets_anybody_act());
    }
}
