//! The signature of Standard Webhooks 1.0.0 (standardwebhooks.com), symmetric scheme `v1`. No IO
//! and no clock.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::error::Error;

const SECRET_PREFIX: &str = "whsec_";
/// The length of a key that the standard requires, in bytes.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A secret that signs requests: `whsec_` and base64 of 24 to 64 random bytes, in the format of
/// Standard Webhooks. It is never shown.
///
/// ```
/// use posthaste::Secret;
/// let secret: Secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD".parse().unwrap();
/// assert_eq!(format!("{secret:?}"), "Secret(..)");
/// assert!("swordfish".parse::<Secret>().is_err());
/// ```
#[derive(Clone)]
pub struct Secret(Vec<u8>);

impl FromStr for Secret {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        // Invalid text may still be a secret: the error does not repeat it.
        let key = text.trim().strip_prefix(SECRET_PREFIX);
        key.and_then(|key| STANDARD.decode(key).ok())
            .filter(|key| KEY_BYTES.contains(&key.len()))
            .map(Self)
            .ok_or_else(|| {
                Error::invalid(
                    "secret",
                    "must be whsec_ and base64 of 24 to 64 random bytes",
                )
            })
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Returns the header `webhook-signature`: one signature per secret.
pub(super) fn sign(secrets: &[Secret], id: &str, timestamp: i64, body: &[u8]) -> String {
    let signatures = secrets.iter().filter_map(|Secret(key)| {
        // HMAC takes keys of any length.
        let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
        for part in [id, ".", &timestamp.to_string(), "."] {
            mac.update(part.as_bytes());
        }
        mac.update(body);
        let signature = STANDARD.encode(mac.finalize().into_bytes());
        Some(format!("v1,{signature}"))
    });
    signatures.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_reference_implementation() {
        let secret: Secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD".parse().unwrap();
        let body = r#"{"email":"test@example.com","username":"test_user"}"#;
        let signed = |secrets: &[Secret]| {
            let id = "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk";
            sign(secrets, id, 1_649_367_553, body.as_bytes())
        };
        let known = "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=";
        assert_eq!(signed(std::slice::from_ref(&secret)), known);
        assert_eq!(
            signed(&[secret.clone(), secret]),
            format!("{known} {known}"),
            "two secrets while one replaces the other"
        );
    }

    #[test]
    fn rejects_malformed_secrets_without_repeating_them() {
        let short = format!("{SECRET_PREFIX}{}", STANDARD.encode([7; 23]));
        let long = format!("{SECRET_PREFIX}{}", STANDARD.encode([7; 65]));
        let bare = STANDARD.encode([7; 32]);
        for wrong in ["", "whsec_", "whsec_%%%", &short, &long, &bare] {
            let error = wrong.parse::<Secret>().unwrap_err().to_string();
            assert_eq!(
                error,
                "secret: must be whsec_ and base64 of 24 to 64 random bytes"
            );
        }
    }
}
