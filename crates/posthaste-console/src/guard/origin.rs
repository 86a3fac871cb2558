//! The site that a request comes from, and the host name that it uses. No IO.

use axum::http::HeaderMap;

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Returns whether a request names this machine as its host: by a loopback address or as
/// `localhost`. A foreign name that resolves to this machine (DNS rebinding) does not count.
///
/// ```
/// use axum::http::{HeaderMap, HeaderValue};
///
/// let mut headers = HeaderMap::new();
/// headers.insert("host", HeaderValue::from_static("localhost:9187"));
/// assert!(posthaste_console::is_loopback_host(&headers));
/// ```
pub fn is_loopback_host(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all("host").iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return false;
    };
    host.to_str().is_ok_and(|host| {
        let name = match host.strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((name, port)) if port.is_empty() || is_port(port) => name,
                _ => return false,
            },
            None => match host.split_once(':') {
                Some((name, port)) if port.parse::<u16>().is_ok() => name,
                Some(_) => return false,
                None => host,
            },
        };
        let address = name.parse::<std::net::IpAddr>();
        name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|one| one.is_loopback())
    })
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':')
        .is_some_and(|port| port.parse::<u16>().is_ok())
}

/// Returns whether a page of the console sends the request. Browsers send these headers themselves,
/// and scripts cannot set them.
pub(super) fn is_same_origin(headers: &HeaderMap) -> bool {
    if let Some(site) = header(headers, "sec-fetch-site") {
        return site == "same-origin";
    }
    let (Some(origin), Some(host)) = (header(headers, "origin"), header(headers, "host")) else {
        return false;
    };
    let authority = origin
        .strip_prefix("https://")
        .or_else(|| origin.strip_prefix("http://"));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

/// Returns whether no header indicates a browser.
pub(super) fn has_no_browser_headers(headers: &HeaderMap) -> bool {
    header(headers, "origin").is_none() && header(headers, "sec-fetch-site").is_none()
}

/// Returns whether the page that sends the request was served over TLS.
pub(crate) fn is_secure(headers: &HeaderMap) -> bool {
    header(headers, "origin").is_some_and(|origin| origin.starts_with("https://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn only_names_of_this_machine_are_loopback() {
        let is = |host: &str| is_loopback_host(&headers(&[("host", host)]));
        for host in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1:8080",
            "127.9.9.9",
            "[::1]:1",
            "[::1]",
        ] {
            assert!(is(host), "{host}");
        }
        for host in [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example:80",
            "127.0.0.1:80@evil.example",
            "10.0.0.1",
            "[::2]:80",
            "[::1]evil",
            "",
        ] {
            assert!(!is(host), "{host}");
        }
        assert!(!is_loopback_host(&headers(&[])));
        assert!(!is_loopback_host(&headers(&[
            ("host", "localhost"),
            ("host", "evil.example")
        ])));
    }

    #[test]
    fn foreign_origins_are_distinguished_from_our_own() {
        let is = |all: &[(&'static str, &str)]| is_same_origin(&headers(all));
        assert!(is(&[("sec-fetch-site", "same-origin")]));
        assert!(is(&[("origin", "http://a:80"), ("host", "a:80")]));
        assert!(is(&[("origin", "https://a"), ("host", "A")]));
        for site in ["cross-site", "same-site", "none", ""] {
            let also = [
                ("sec-fetch-site", site),
                ("origin", "http://a"),
                ("host", "a"),
            ];
            assert!(!is(&also), "{site}");
        }
        assert!(!is(&[("origin", "null"), ("host", "a")]));
        assert!(!is(&[("origin", "http://b"), ("host", "a")]));
        assert!(!is(&[("host", "a")]));
    }
}
