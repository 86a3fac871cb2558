//! Keys whose values are secret.

use std::borrow::Cow;

use super::text;

/// The keys that are secret.
#[derive(Clone, Debug)]
pub struct SecretKeys {
    parts: Vec<String>,
    words: Vec<String>,
}

impl Default for SecretKeys {
    fn default() -> Self {
        Self::new(&Self::DEFAULT_PARTS[..], &Self::DEFAULT_WORDS[..])
    }
}

impl SecretKeys {
    /// Default parts: a key that contains one is secret. Case, `_`, `-`, `.` and spaces make no
    /// difference.
    pub const DEFAULT_PARTS: [&str; 19] = [
        "password",
        "passwd",
        "passphrase",
        "passcode",
        "secret",
        "token",
        "authorization",
        "api_key",
        "private_key",
        "access_key",
        "credential",
        "cookie",
        "card_number",
        "credit_card",
        "session_id",
        "signature",
        "bearer",
        "cvc",
        "ssn",
    ];

    /// Default words: a key is secret if one of its words is in this list, as in `userPin` or
    /// `auth-header`. Parts of other words do not count: `author`, `shipping`.
    pub const DEFAULT_WORDS: [&str; 8] =
        ["pwd", "pass", "auth", "cvv", "otp", "pin", "jwt", "iban"];

    /// Selects keys that contain one of these parts or have one of these words.
    pub fn new<S: AsRef<str>>(parts: &[S], words: &[S]) -> Self {
        let normal = |all: &[S]| -> Vec<String> {
            let all = all.iter().map(|one| normalize_key(one.as_ref()));
            all.filter(|one| !one.is_empty()).collect()
        };
        Self {
            parts: normal(parts),
            words: normal(words),
        }
    }

    /// Returns whether the value of this key is secret.
    pub fn contain(&self, key: &str) -> bool {
        let whole = normalize_key(key);
        self.parts.iter().any(|part| whole.contains(part))
            || split_words(key)
                .iter()
                .any(|word| self.words.iter().any(|one| one == word))
    }

    /// Replaces secrets in a text by `***`: `password=…`, `"password": "…"`, `?token=…`,
    /// `Authorization: Bearer …`, `scheme://user:…@host`.
    pub fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        text::hide_secrets(text, |key| self.contain(key))
    }
}

/// Removes separators and lowercases a key.
fn normalize_key(key: &str) -> String {
    let letters = key.chars().filter(|one| !"_-. ".contains(*one));
    letters.flat_map(char::to_lowercase).collect()
}

/// Returns the words of a key in lower case: `userPIN2` has `user` and `pin`.
fn split_words(key: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    let mut letters = key.chars().peekable();
    while let Some(letter) = letters.next() {
        let is_last_capital = letter.is_uppercase()
            && before.is_uppercase()
            && letters.peek().is_some_and(|next| next.is_lowercase());
        let begins = letter.is_uppercase() && before.is_lowercase() || is_last_capital;
        if begins || !letter.is_alphabetic() {
            words.push(String::new());
        }
        if letter.is_alphabetic()
            && let Some(word) = words.last_mut()
        {
            word.extend(letter.to_lowercase());
        }
        before = letter;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_words_are_secret_only_as_whole_words() {
        let secrets = SecretKeys::default();
        for key in [
            "pin",
            "userPIN",
            "PINCode",
            "pin2",
            "card-pin",
            "pwd",
            "db_pass",
            "Auth",
            "cvv",
            "iban",
            "jwt",
            "otp",
            "sessionId",
            "X-Api-Key",
            "creditCard",
            "Signature",
        ] {
            assert!(secrets.contain(key), "{key}");
        }
        for key in [
            "author",
            "shipping",
            "compass",
            "footprint",
            "pinned",
            "name",
            "",
        ] {
            assert!(!secrets.contain(key), "{key}");
        }
    }

    #[test]
    fn configured_parts_are_secret_within_words() {
        let secrets = SecretKeys::new(&["pin", "-"], &[]);
        assert!(secrets.contain("shipping") && !secrets.contain("iban"));
    }
}
