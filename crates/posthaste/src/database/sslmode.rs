//! Reads the parameters of an address that the driver does not know: how the server's certificate
//! is verified.

use percent_encoding::percent_decode_str;

use super::tls::{Pem, Trust, Verify};

/// Parameters of libpq that neither the driver nor this library reads. Their names are not secret.
const IGNORED_PARAMETERS: [&str; 10] = [
    "sslpassword",
    "sslcrl",
    "sslcrldir",
    "passfile",
    "service",
    "gssencmode",
    "krbsrvname",
    "requirepeer",
    "require_auth",
    "client_encoding",
];

/// Returns the address for the driver, and the parameters that were removed from it.
pub(super) fn split_tls_parameters(url: &str) -> Result<(String, Trust), String> {
    let mut trust = Trust::default();
    let mut left = String::with_capacity(url.len());
    let is_url = ["postgres://", "postgresql://"]
        .iter()
        .any(|scheme| url.starts_with(scheme));
    // The text before the last `@` may contain a password.
    let begin = match is_url {
        true => {
            let host = url.rfind('@').unwrap_or(0);
            url[host..].find('?').map_or(url.len(), |at| host + at + 1)
        }
        false => 0,
    };
    left.push_str(&url[..begin]);
    let pairs = match is_url {
        true => url[begin..].split('&').map(str::to_owned).collect(),
        false => split_pairs(url),
    };
    let file = |value: &str| match is_url {
        true => percent_decode_str(value).decode_utf8_lossy().into_owned(),
        false => unquote(value),
    };
    let (mut others, mut named) = (Vec::new(), None);
    for pair in pairs {
        let (key, value) = pair.split_once('=').unwrap_or((pair.as_str(), ""));
        match key.trim() {
            "sslmode" => match driver_ssl_mode(unquote(value).as_str()) {
                (mode, Some(verify)) => {
                    trust.verify = verify;
                    others.push(format!("sslmode={mode}"));
                }
                // The driver accepts or rejects any other mode.
                _ => others.push(pair),
            },
            "sslrootcert" => {
                let file = file(value);
                named = Some((file != "system").then(|| Pem::File(file.into())));
            }
            "sslcert" => trust.certificate = Some(Pem::File(file(value).into())),
            "sslkey" => trust.key = Some(Pem::File(file(value).into())),
            key if IGNORED_PARAMETERS.contains(&key) => {
                let problem = "the URL of the database has";
                return Err(format!(
                    "{problem} {key}, which posthaste does not support. Remove it."
                ));
            }
            _ => others.push(pair),
        }
    }
    left.push_str(&others.join(if is_url { "&" } else { " " }));
    match named {
        Some(None) if trust.verify != Verify::Full => {
            return Err("sslrootcert=system needs sslmode=verify-full".into());
        }
        Some(authorities) => trust.add_roots(authorities),
        None => {}
    }
    Ok((left, trust))
}

/// Converts a mode of libpq into one of the driver, and the verification that it requires.
fn driver_ssl_mode(word: &str) -> (&'static str, Option<Verify>) {
    match word {
        "verify-full" => ("require", Some(Verify::Full)),
        "verify-ca" => ("require", Some(Verify::Authority)),
        "allow" => ("prefer", Some(Verify::Nobody)),
        _ => ("", None),
    }
}

/// Splits text into pairs of `key = 'value'`. Spaces separate them, except within quotes and beside
/// an equals sign.
fn split_pairs(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let (mut is_quoted, mut is_escaped, mut is_after) = (false, false, false);
    for letter in text.chars() {
        if letter.is_whitespace() && !is_quoted && !is_escaped {
            is_after = !word.is_empty();
            continue;
        }
        let is_begun = word.find('=').is_some_and(|at| at + 1 < word.len());
        let goes_on = letter == '=' || word.ends_with('=');
        if is_after && (is_begun || !goes_on) {
            words.push(std::mem::take(&mut word));
        }
        is_after = false;
        is_quoted ^= letter == '\'' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        word.push(letter);
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

fn unquote(value: &str) -> String {
    let bare = value.trim().trim_matches('\'');
    bare.replace("\\'", "'").replace("\\\\", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_as(url: &str) -> (String, Verify, Option<Pem>) {
        let (left, trust) = split_tls_parameters(url).expect("an address");
        (left, trust.verify, trust.authorities)
    }

    #[test]
    fn reads_libpq_ssl_modes_that_the_driver_lacks() {
        let cases = [
            (
                "postgres://u@h/d?sslmode=verify-full&a=b",
                "postgres://u@h/d?sslmode=require&a=b",
                Verify::Full,
            ),
            (
                "postgres://u@h/d?a=b&sslmode=verify-ca",
                "postgres://u@h/d?a=b&sslmode=require",
                Verify::Authority,
            ),
            (
                "host=h sslmode=allow user=u",
                "host=h sslmode=prefer user=u",
                Verify::Nobody,
            ),
            (
                "host = h sslmode = 'verify-full'",
                "host=h sslmode=require",
                Verify::Full,
            ),
            (
                "postgres://u:sslmode=verify-full@h/d",
                "postgres://u:sslmode=verify-full@h/d",
                Verify::Nobody,
            ),
            (
                "postgres://u:a?sslmode=verify-full@h/d",
                "postgres://u:a?sslmode=verify-full@h/d",
                Verify::Nobody,
            ),
            (
                "host=h password='a sslmode=verify-full b'",
                "host=h password='a sslmode=verify-full b'",
                Verify::Nobody,
            ),
            (
                "password=abc= host=h",
                "password=abc= host=h",
                Verify::Nobody,
            ),
            (
                "postgres://h/d?sslmode=disable",
                "postgres://h/d?sslmode=disable",
                Verify::Nobody,
            ),
        ];
        for (url, left, verify) in cases {
            assert_eq!(read_as(url), (left.to_owned(), verify, None), "{url}");
        }
    }

    #[test]
    fn reads_root_certificates_and_names_unreadable_ones() {
        let url = "postgres://u@h/d?sslrootcert=%2Fetc%2Fca.pem&sslmode=require";
        let file = || Some(Pem::File("/etc/ca.pem".into()));
        let left = "postgres://u@h/d?sslmode=require".to_owned();
        assert_eq!(read_as(url), (left, Verify::Authority, file()));
        let text = "host=h sslmode=verify-full sslrootcert=/etc/ca.pem";
        let left = "host=h sslmode=require".to_owned();
        assert_eq!(read_as(text), (left, Verify::Full, file()));
        let weaker = "postgres://u@h/d?sslrootcert=/etc/ca.pem&sslmode=allow";
        assert_eq!(read_as(weaker).1, Verify::Authority);
        let system = "postgres://u@h/d?sslmode=verify-full&sslrootcert=system";
        assert_eq!(read_as(system).2, None);
        let anybody = split_tls_parameters("postgres://u@h/d?sslmode=require&sslrootcert=system");
        let refusal = anybody.expect_err("not as libpq has it");
        assert_eq!(refusal, "sslrootcert=system needs sslmode=verify-full");
        let foreign = split_tls_parameters("postgres://u:p@h/d?sslcrl=x").expect_err("not read");
        assert!(foreign.contains("has sslcrl,"), "{foreign}");
    }

    #[test]
    fn client_certificate_and_key_are_read_from_files() {
        let pem = |file: &str| Some(Pem::File(file.into()));
        for url in [
            "postgres://u@h/d?sslcert=/my%20own.crt&sslkey=/my.key",
            "host=h sslcert='/my own.crt' sslkey = /my.key",
        ] {
            let (left, trust) = split_tls_parameters(url).expect("an address");
            assert!(!left.contains("/my"), "{left}");
            assert_eq!(
                (trust.certificate, trust.key),
                (pem("/my own.crt"), pem("/my.key"))
            );
        }
    }
}
