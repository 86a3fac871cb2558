//! The token of the console, and the session cookie.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::HeaderMap;
use hmac::{Hmac, KeyInit as _, Mac as _};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use crate::Access;

/// Lifetime of a login.
pub(crate) const LOGIN_LIFETIME: Duration = Duration::from_secs(12 * 3_600);

const LOGIN_COOKIE: &str = "posthaste_console";

/// Checks the token, if there is one, and the cookies of logins.
pub(crate) struct TokenAuth {
    token: Option<String>,
    /// Logins that were ended before they expired, with the time when each began.
    ended: Mutex<HashMap<String, u64>>,
}

/// A login, which is one cookie.
#[derive(Clone, Debug)]
pub(crate) struct Login {
    id: String,
    since: u64,
}

impl TokenAuth {
    pub(crate) fn new(access: &Access) -> Self {
        let token = match access {
            Access::Loopback | Access::Proxy(_) => None,
            Access::Token(token) => Some(token.clone()),
        };
        Self {
            token,
            ended: Mutex::default(),
        }
    }

    /// Returns whether this is the token. The duration does not depend on how many characters
    /// match.
    pub(crate) fn is_token(&self, token: &str) -> bool {
        let own = self.token.as_ref().filter(|own| !own.is_empty());
        own.is_some_and(|own| {
            let (own, token) = (Sha256::digest(own), Sha256::digest(token));
            let differs = own
                .iter()
                .zip(token.iter())
                .fold(0, |all, (a, b)| all | (a ^ b));
            differs == 0
        })
    }

    /// Returns whether the header contains the token.
    pub(crate) fn accepts_bearer(&self, headers: &HeaderMap) -> bool {
        let sent = headers
            .get("authorization")
            .and_then(|sent| sent.to_str().ok());
        let sent = sent.and_then(|sent| sent.split_once(' '));
        sent.is_some_and(|(scheme, token)| {
            scheme.eq_ignore_ascii_case("bearer") && self.is_token(token.trim())
        })
    }

    /// Returns the valid login of a cookie of the request.
    pub(crate) fn login(&self, headers: &HeaderMap) -> Option<Login> {
        let cookies = headers
            .get_all("cookie")
            .iter()
            .filter_map(|one| one.to_str().ok());
        let mut cookies = cookies
            .flat_map(|one| one.split(';'))
            .filter_map(|one| one.trim().strip_prefix(LOGIN_COOKIE)?.strip_prefix('='));
        cookies.find_map(|value| self.verify_login(value))
    }

    fn verify_login(&self, value: &str) -> Option<Login> {
        let (signed, signature) = value.rsplit_once('.')?;
        let (since, id) = signed.split_once('.')?;
        let login = Login {
            id: id.to_owned(),
            since: since.parse().ok()?,
        };
        let signature = decode_hex(signature)?;
        let is_ours = self
            .login_signature(signed)?
            .verify_slice(&signature)
            .is_ok();
        (is_ours && !self.has_ended(&login)).then_some(login)
    }

    /// Returns whether a login has expired or was ended.
    pub(crate) fn has_ended(&self, login: &Login) -> bool {
        let age = unix_seconds().checked_sub(login.since);
        let is_fresh = age.is_some_and(|age| age <= LOGIN_LIFETIME.as_secs());
        let ended = self.ended.lock();
        !is_fresh || ended.contains_key(&login.id)
    }

    /// Ends a login: its cookie is no longer accepted.
    pub(crate) fn end_login(&self, login: Login) {
        let mut ended = self.ended.lock();
        let oldest = unix_seconds().saturating_sub(LOGIN_LIFETIME.as_secs());
        ended.retain(|_, since| *since >= oldest);
        ended.insert(login.id, login.since);
    }

    /// Returns the cookie of a new login.
    pub(crate) fn cookie(&self, is_secure: bool) -> Option<String> {
        let since = format!("{}.{}", unix_seconds(), uuid::Uuid::new_v4().simple());
        let signature = self.login_signature(&since)?.finalize().into_bytes();
        let signature: String = signature.iter().map(|byte| format!("{byte:02x}")).collect();
        let (age, secure) = (
            LOGIN_LIFETIME.as_secs(),
            if is_secure { "; Secure" } else { "" },
        );
        Some(format!(
            "{LOGIN_COOKIE}={since}.{signature}; HttpOnly; SameSite=Strict; Path=/; \
             Max-Age={age}{secure}"
        ))
    }

    /// Returns a header that removes the cookie.
    pub(crate) fn removal_cookie() -> String {
        format!("{LOGIN_COOKIE}=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0")
    }

    fn login_signature(&self, login: &str) -> Option<Hmac<Sha256>> {
        let own = self.token.as_ref().filter(|own| !own.is_empty())?;
        let mut mac = Hmac::<Sha256>::new_from_slice(own.as_bytes()).ok()?;
        mac.update(b"posthaste console, logged in at ");
        mac.update(login.as_bytes());
        Some(mac)
    }
}

fn unix_seconds() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map(|now| now.as_secs()).unwrap_or_default()
}

fn decode_hex(text: &str) -> Option<Vec<u8>> {
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
        assert!(!keeper("").is_token(""));
        assert!(!TokenAuth::new(&Access::Loopback).is_token(""));
    }

    #[test]
    fn ended_logins_do_not_authenticate() {
        let keeper = keeper("abc");
        let cookies = [keeper.cookie(true).unwrap(), keeper.cookie(true).unwrap()];
        let [one, other] = cookies.map(|cookie| with("cookie", cookie.split(';').next().unwrap()));
        let login = keeper.login(&one).unwrap();
        keeper.end_login(login.clone());
        assert!(keeper.has_ended(&login) && keeper.login(&one).is_none());
        assert!(keeper.login(&other).is_some());
    }

    #[test]
    fn only_cookies_of_the_current_token_authenticate() {
        let cookie = keeper("abc").cookie(true).unwrap();
        assert!(cookie.contains("HttpOnly; SameSite=Strict") && cookie.ends_with("; Secure"));
        let (pair, _) = cookie.split_once(';').unwrap();
        let sent = format!("other=1; {pair}");
        assert!(keeper("abc").login(&with("cookie", &sent)).is_some());
        assert!(keeper("abd").login(&with("cookie", &sent)).is_none());
        let later = pair.replacen("posthaste_console=1", "posthaste_console=9", 1);
        let without = pair.split_once('.').unwrap().0;
        for forged in [
            later.as_str(),
            without,
            "posthaste_console=0.00",
            "posthaste_console=.",
            "posthaste_console=0..00",
        ] {
            assert!(
                keeper("abc").login(&with("cookie", forged)).is_none(),
                "{forged}"
            );
        }
    }
}
