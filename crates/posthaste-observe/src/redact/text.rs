//! Hides secrets within a text: after a key, or after `Bearer`.

use std::borrow::Cow;

use super::address::address_passwords;

/// Replacement for a secret.
const REPLACEMENT: &str = "***";
/// Endings of keys that have a value after a colon. Other names before a colon may be part of a
/// sentence ("unexpected token: }").
const KEYS_BEFORE_COLON: [&str; 16] = [
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "authorization",
    "apikey",
    "privatekey",
    "accesskey",
    "secretkey",
    "clientsecret",
    "accesstoken",
    "refreshtoken",
    "cookie",
    "cvv",
    "cvc",
    "iban",
];
const AUTH_SCHEMES: [&str; 4] = ["bearer", "basic", "digest", "token"];
/// Lengths from which a word after `Bearer` is a secret, without and with a digit.
const MIN_SECRET_LENGTH: usize = 20;
const MIN_SECRET_LENGTH_WITH_DIGIT: usize = 8;

/// Replaces the values of secret keys and the passwords in addresses by `***`.
pub(super) fn hide_secrets(text: &str, is_secret: impl Fn(&str) -> bool) -> Cow<'_, str> {
    let clean = match text.contains("://") {
        true => Cow::Owned(address_passwords(text)),
        false => Cow::Borrowed(text),
    };
    match hide_values(&clean, is_secret) {
        Some(hidden) => Cow::Owned(hidden),
        None => clean,
    }
}

fn is_key_letter(one: char) -> bool {
    one.is_ascii_alphanumeric() || "_-.".contains(one)
}

fn hide_values(text: &str, is_secret: impl Fn(&str) -> bool) -> Option<String> {
    let mut shown = String::with_capacity(text.len());
    let mut is_changed = false;
    let mut rest = text;
    while let Some(at) = rest.find(is_key_letter) {
        let end = rest[at..].find(|one| !is_key_letter(one));
        let end = end.map_or(rest.len(), |length| at + length);
        let (key, after) = (&rest[at..end], &rest[end..]);
        let value = match separator_length(key, after) {
            Some(gap) if is_secret(key) => Some((gap, value_length(key, &after[gap..]))),
            Some(_) => None,
            None => scheme_value(key, after),
        };
        shown.push_str(&rest[..end]);
        rest = after;
        let Some((gap, length)) = value.filter(|(_, length)| *length > 0) else {
            continue;
        };
        shown.push_str(&after[..gap]);
        shown.push_str(REPLACEMENT);
        rest = &after[gap + length..];
        is_changed = true;
    }
    shown.push_str(rest);
    is_changed.then_some(shown)
}

/// Returns the length of the separator between a key and its value; `None` if no value follows.
fn separator_length(key: &str, after: &str) -> Option<usize> {
    let quote = ["\\\"", "\"", "'"]
        .into_iter()
        .find(|one| after.starts_with(one));
    let unquoted = &after[quote.map_or(0, str::len)..];
    let sign = unquoted.trim_start_matches(' ');
    let value = match sign.strip_prefix("=>").or_else(|| sign.strip_prefix('=')) {
        Some(value) => value,
        None => {
            let value = sign.strip_prefix(':')?;
            let is_path = value.starts_with(':') || value.starts_with("//");
            let key: String = key.chars().filter(|one| !"_-.".contains(*one)).collect();
            let key = key.to_ascii_lowercase();
            let has_value =
                quote.is_some() || KEYS_BEFORE_COLON.iter().any(|end| key.ends_with(end));
            (has_value && !is_path).then_some(value)?
        }
    };
    Some(after.len() - value.trim_start_matches(' ').len())
}

/// Returns the length of the value at the beginning.
fn value_length(key: &str, text: &str) -> usize {
    for quote in ["\\\"", "\"", "'"] {
        if let Some(inner) = text.strip_prefix(quote) {
            let end = closing_quote(inner, quote).unwrap_or(inner.len());
            return (2 * quote.len() + end).min(text.len());
        }
    }
    if text.starts_with(['{', '[']) {
        return bracketed_length(text);
    }
    if key.to_ascii_lowercase().ends_with("cookie") {
        return text.find('\n').unwrap_or(text.len());
    }
    let length = word_length(text);
    if ["null", "true", "false"].contains(&&text[..length]) {
        return 0;
    }
    let is_scheme = AUTH_SCHEMES.contains(&text[..length].to_ascii_lowercase().as_str());
    match text[length..].strip_prefix(' ') {
        Some(next) if is_scheme => length + 1 + word_length(next),
        _ => length,
    }
}

fn word_length(text: &str) -> usize {
    let ends = |one: char| one.is_whitespace() || ",;&()[]{}\"'<>\\".contains(one);
    text.find(ends).unwrap_or(text.len())
}

/// Returns where a quoted text ends.
fn closing_quote(inner: &str, quote: &str) -> Option<usize> {
    if quote.len() > 1 {
        return inner.find(quote);
    }
    let mut is_escaped = false;
    inner.char_indices().find_map(|(at, letter)| {
        let ends = !is_escaped && quote.starts_with(letter);
        is_escaped = letter == '\\' && !is_escaped;
        ends.then_some(at)
    })
}

/// Returns the length of an object or a list, up to its closing bracket.
fn bracketed_length(text: &str) -> usize {
    let mut deep = 0_usize;
    for (at, letter) in text.char_indices() {
        match letter {
            '{' | '[' => deep += 1,
            '}' | ']' => deep = deep.saturating_sub(1),
            _ => {}
        }
        if deep == 0 {
            return at + 1;
        }
    }
    text.len()
}

/// Returns the distance and the length of a value after `Bearer` or `Basic` that resembles a
/// secret.
fn scheme_value(word: &str, after: &str) -> Option<(usize, usize)> {
    let is_scheme = ["bearer", "basic"].contains(&word.to_ascii_lowercase().as_str());
    let value = after.strip_prefix(' ').filter(|_| is_scheme)?;
    let length = value.find(|one: char| !is_key_letter(one) && !"~+/=".contains(one));
    let value = &value[..length.unwrap_or(value.len())];
    let has_digit = value.contains(|one: char| one.is_ascii_digit());
    let is_long = value.len() >= MIN_SECRET_LENGTH
        || value.len() >= MIN_SECRET_LENGTH_WITH_DIGIT && has_digit;
    is_long.then_some((1, value.len()))
}

#[cfg(test)]
mod tests {
    use super::super::error_text;

    #[test]
    fn secrets_in_texts_are_hidden() {
        for (text, shown) in [
            (
                "postgres://a:b3c@host/db is down",
                "postgres://a:***@host/db is down",
            ),
            (
                "GET https://a/b?x=1&token=abc&y=2",
                "GET https://a/b?x=1&token=***&y=2",
            ),
            (
                "Authorization: Bearer abc, next",
                "Authorization: ***, next",
            ),
            ("sent Bearer eyJhbGciOi.J9 away", "sent Bearer *** away"),
            (
                "curl -H 'authorization: Basic dXNl='",
                "curl -H 'authorization: ***'",
            ),
            (
                r#"body {"password": "a \" b", "n": 1}"#,
                r#"body {"password": ***, "n": 1}"#,
            ),
            (r#""{\"pin\": 1234}""#, r#""{\"pin\": ***}""#),
            ("host=a password=b3c user=d", "host=a password=*** user=d"),
            ("password: hunter2", "password: ***"),
            ("{pwd => 'a b', n: 1}", "{pwd => ***, n: 1}"),
            (
                r#""credentials": {"a": ["b"]}, 1"#,
                r#""credentials": ***, 1"#,
            ),
            ("Set-Cookie: a=b; c=d\nnext", "Set-Cookie: ***\nnext"),
        ] {
            assert_eq!(error_text(text), shown, "{text}");
        }
    }

    #[test]
    fn texts_without_secrets_stay_as_they_are() {
        for text in [
            "unexpected token: }",
            "password authentication failed for user \"a\"",
            "auth::token::Error: expired",
            "Basic authentication is off",
            "the bearer of bad news",
            "postgres://user:password@host/db",
            r#"{"token": null, "author": "b"}"#,
            "secret.txt: no such file",
            "é = ü: ñ",
            "",
        ] {
            assert_eq!(error_text(text), text);
        }
    }
}
