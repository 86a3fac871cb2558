//! What a program decides about its console: who may come in, what they may do, what they see.

use std::fmt;
use std::sync::Arc;

use posthaste_elastic::two_phase::Coordinator;
use posthaste_observe::Thresholds;
use posthaste_observe::redact::Secrets;

use crate::network::Network;
use crate::path_prefix::PathPrefix;

/// What the console lets people do, and what it hides from them.
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
    /// Where a reverse proxy serves it: with `/posthaste`, all addresses of its pages begin so.
    pub path_prefix: PathPrefix,
    /// What everybody who comes in may do. A [`Proxy`] may name people who may do more.
    pub role: Role,
    /// Who may come in.
    pub access: Access,
    /// Arguments whose keys contain one of these are hidden, at any depth. Case, `_`, `-`, `.` and
    /// spaces make no difference.
    pub redacted: Vec<String>,
    /// Arguments are hidden, too, if one of these is a word of their key: `pin` hides `userPin` and
    /// not `shipping`.
    pub redacted_words: Vec<String>,
    /// From when on something is reported.
    pub thresholds: Thresholds,
    /// Whether it is served over TLS, by this program or by a proxy before it: its cookie is sent
    /// over nothing else.
    pub over_tls: bool,
    /// Where transactions over documents are, if there are any: these are shown too.
    pub two_phase: Option<Arc<Coordinator>>,
}

/// Read-only, for this machine only, and what is usually secret is hidden.
impl Default for Settings {
    fn default() -> Self {
        Self {
            name: String::new(),
            path_prefix: PathPrefix::default(),
            role: Role::Observer,
            access: Access::Loopback,
            redacted: Secrets::PARTS.map(str::to_owned).into(),
            redacted_words: Secrets::WORDS.map(str::to_owned).into(),
            thresholds: Thresholds::default(),
            over_tls: false,
            two_phase: None,
        }
    }
}

impl Settings {
    /// Whether anybody may make changes.
    pub(crate) fn lets_anybody_act(&self) -> bool {
        let by_name = match &self.access {
            Access::Proxy(proxy) => !proxy.operators.is_empty(),
            Access::Loopback | Access::Token(_) => false,
        };
        by_name || self.role == Role::Operator
    }
}

/// What people may do in the console.
///
/// ```
/// use posthaste_console::{Role, Settings};
///
/// assert_eq!(Settings::default().role, Role::Observer);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Read.
    Observer,
    /// Read, and act: pause, limit, retry, cancel, redrive, delete, re-index and the like.
    Operator,
}

impl Role {
    /// As people read it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Observer => "Observer",
            Self::Operator => "Operator",
        }
    }
}

/// Who may come in.
///
/// ```
/// use posthaste_console::Access;
///
/// let access = Access::Token("a long secret".to_owned());
/// assert_eq!(format!("{access:?}"), "Token(..)");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub enum Access {
    /// Any program that reaches it by a loopback address or as `localhost`. Bind it to nothing
    /// else.
    Loopback,
    /// Who sends this token: as `Authorization: Bearer …`, or once in a form, for a cookie. Nobody
    /// gets in by an empty one. Over a network it wants TLS before it.
    Token(String),
    /// Whom a proxy names that has asked who they are. Everybody else is turned away.
    Proxy(Proxy),
}

/// A proxy that lets people in, and says in a header who each is.
///
/// The header counts only from the proxy's own address, and only where it names one person. The
/// proxy must take it out of what it is sent, or write over it.
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
    /// From where it asks.
    pub networks: Vec<Network>,
    /// The header in which it names who asks.
    pub header: String,
    /// These users may make changes, while others are read-only.
    pub operators: Vec<String>,
}

/// The token stays out of logs.
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
