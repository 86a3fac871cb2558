//! The token: as it is sent, and the cookie that stands for it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::HeaderMap;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

use crate::Access;

/// How long a login lasts.
pub(crate) const LASTS: Duration = Duration::from_secs(12 * 3_600);

const COOKIE: &str = "posthaste_console";

/// Knows the token, if there is one.
pub(crate) struct TokenAuth(Option<String>);

impl TokenAuth {
    pub(crate) fn new(access: &Access) -> Self {
        Self(match access {
            Access::Loopback | Access::Proxy(_) => None,
            Access::Token(token) => Some(token.clone()),
        })
    }

    /// Whether this is the token. It takes as long for a token that is nearly right.
    pub(crate) fn knows(&self, token: &str) -> bool {
        let own = self.0.as_ref().filter(|own| !own.is_empty());
        own.is_some_and(|own| {
            let (own, token) = (Sha256::digest(own), Sha256::digest(token));
            let differs = own
                .iter()
                .zip(token.iter())
                .fold(0, |all, (a, b)| all | (a ^ b));
            differs == 0
        })
    }

    /// Whether the token stands in the header.
    pub(crate) fn accepts_bearer(&self, headers: &HeaderMap) -> bool {
        let sent = headers
            .get("authorization")
            .and_then(|sent| sent.to_str().ok());
        let sent = sent.and_then(|sent| sent.split_once(' '));
        sent.is_some_and(|(scheme, token)| {
            scheme.eq_ignore_ascii_case("bearer") && self.knows(token.trim())
        })
    }

    /// Whether a cookie of ours came along, and is not too old.
    pub(crate) fn accepts_cookie(&self, headers: &HeaderMap) -> bool {
        let cookies = headers
            .get_all("cookie")
            .iter()
            .filter_map(|one| one.to_str().ok());
        let mut cookies = cookies
            .flat_map(|one| one.split(';'))
            .filter_map(|one| one.trim().strip_prefix(COOKIE)?.strip_prefix('='));
        cookies.any(|value| self.is_ours(value))
    }

    fn is_ours(&self, value: &str) -> bool {
        let Some((since, signature)) = value.split_once('.') else {
            return false;
        };
        let Ok(seconds) = since.parse::<u64>() else {
            return false;
        };
        let age = now().checked_sub(seconds);
        let is_fresh = age.is_some_and(|age| age <= LASTS.as_secs());
        is_fresh
            && self.signed(since).is_some_and(|mac| {
                unhex(signature).is_some_and(|bytes| mac.verify_slice(&bytes).is_ok())
            })
    }

    /// A cookie that authenticates its bearer for a while.
    pub(crate) fn cookie(&self, is_secure: bool) -> Option<String> {
        let since = now().to_string();
        let signature = self.signed(&since)?.finalize().into_bytes();
        let signature: String = signature.iter().map(|byte| format!("{byte:02x}")).collect();
        let (age, secure) = (LASTS.as_secs(), if is_secure { "; Secure" } else { "" });
        Some(format!(
            "{COOKIE}={since}.{signature}; HttpOnly; SameSite=Strict; Path=/; Max-Age={age}{secure}"
        ))
    }

    /// A cookie that lets in nobody.
    pub(crate) fn no_cookie() -> String {
        format!("{COOKIE}=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0")
    }

    fn signed(&self, since: &str) -> Option<Hmac<Sha256>> {
        let own = self.0.as_ref().filter(|own| !own.is_empty())?;
        let mut mac = Hmac::<Sha256>::new_from_slice(own.as_bytes()).ok()?;
        mac.update(b"posthaste console, logged in at ");
        mac.update(since.as_bytes());
        Some(mac)
    }
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map(|now| now.as_secs()).unwrap_or_default()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .map(|one| one.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect();
    let digits = digits?;
    let pairs = digits.chunks_exact(2);
    pairs
        .remainder()
        .is_empty()
        .then(|| pairs.map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeper(token: &str) -> TokenAuth {
        TokenAuth::new(&Access::Token(token.to_owned()))
    }

    fn with(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        headers
    }

    #[test]
    fn only_the_configured_token_authenticates() {
        assert!(keeper("abc").accepts_bearer(&with("authorization", "Bearer abc")));
        for sent in ["Bearer abd", "Bearer ab", "Basic abc", "abc", "Bearer "] {
            assert!(
                !keeper("abc").accepts_bearer(&with("authorization", sent)),
                "{sent}"
            );
        }
        assert!(!keeper("").knows(""));
        assert!(!TokenAuth::new(&Access::Loopback).knows(""));
    }

    #[test]
    fn only_cookies_of_the_current_token_authenticate() {
        let cookie = keeper("abc").cookie(true).unwrap();
        assert!(cookie.contains("HttpOnly; SameSite=Strict") && cookie.ends_with("; Secure"));
        let (pair, _) = cookie.split_once(';').unwrap();
        let sent = format!("other=1; {pair}");
        assert!(keeper("abc").accepts_cookie(&with("cookie", &sent)));
        assert!(!keeper("abd").accepts_cookie(&with("cookie", &sent)));
        let later = pair.replacen("posthaste_console=1", "posthaste_console=9", 1);
        let without = pair.split_once('.').unwrap().0;
        for forged in [
            later.as_str(),
            without,
            "posthaste_console=0.00",
            "posthaste_console=.",
        ] {
            assert!(
                !keeper("abc").accepts_cookie(&with("cookie", forged)),
                "{forged}"
            );
        }
    }
}
