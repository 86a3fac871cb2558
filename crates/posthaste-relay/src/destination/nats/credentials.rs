//! The login to NATS, from the address or a file of credentials. Pure.

use async_nats::{ConnectOptions, ServerAddr};
use percent_encoding::percent_decode_str;

use crate::destination::reason::{Failure, Reason};

/// Returns the options of a connection to these servers.
pub(super) fn connect_options(
    servers: &[ServerAddr],
    credentials: Option<&str>,
) -> Result<ConnectOptions, Reason> {
    let options = match credentials {
        Some(credentials) => ConnectOptions::with_credentials(credentials)
            .map_err(|_| Reason::new(Failure::Auth, "NATS: the credentials cannot be read"))?,
        None => options_from_address(servers),
    };
    // Only the first of several servers has a scheme.
    Ok(options.require_tls(servers.iter().any(ServerAddr::tls_required)))
}

/// Reads the login from the address, which the client does not.
fn options_from_address(servers: &[ServerAddr]) -> ConnectOptions {
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let mut named = servers
        .iter()
        .filter_map(|server| Some((server.username()?, server.password())));
    match named.next() {
        Some((user, Some(password))) => {
            ConnectOptions::with_user_and_password(decoded(user), decoded(password))
        }
        Some((token, None)) => ConnectOptions::with_token(decoded(token)),
        None => ConnectOptions::new(),
    }
}
