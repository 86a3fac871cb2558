//! The user whom a proxy names. No IO.

use std::net::IpAddr;

use axum::http::{HeaderMap, StatusCode};

use crate::Proxy;
use crate::fault::Fault;

/// The longest user name, in characters.
const MAX_USER_CHARS: usize = 200;

/// Returns the user whom the proxy names, or the fault if there is none.
pub(super) fn authenticated_user(
    proxy: &Proxy,
    peer: Option<IpAddr>,
    headers: &HeaderMap,
) -> Result<String, Fault> {
    let is_proxy = |peer: IpAddr| proxy.networks.iter().any(|one| one.contains(peer));
    if !peer.is_some_and(is_proxy) {
        let peer = peer.map_or_else(|| "you".to_owned(), |peer| peer.to_canonical().to_string());
        return Err(Fault::new(
            StatusCode::FORBIDDEN,
            format!(
                "this console accepts requests of its proxy only, and {peer} is another \
                     address"
            ),
            "Requests must come through the configured proxy.",
        ));
    }
    user_header(proxy, headers).ok_or_else(|| {
        Fault::new(
            StatusCode::UNAUTHORIZED,
            "the proxy did not send your user name",
            format!("It must send one name in the header {}.", proxy.header),
        )
    })
}

/// Returns the name if one header contains exactly one. A header that is repeated, or that contains
/// a list, is rejected.
fn user_header(proxy: &Proxy, headers: &HeaderMap) -> Option<String> {
    let mut sent = headers.get_all(&*proxy.header).iter();
    let (Some(one), None) = (sent.next(), sent.next()) else {
        return None;
    };
    let name = std::str::from_utf8(one.as_bytes()).ok()?.trim();
    let is_name = !name.is_empty()
        && name.chars().count() <= MAX_USER_CHARS
        && !name.contains(|letter: char| letter.is_control() || matches!(letter, ',' | ';'));
    is_name.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy() -> Proxy {
        Proxy {
            networks: vec!["10.0.0.0/8".parse().unwrap()],
            header: "X-Forwarded-User".to_owned(),
            operators: Vec::new(),
        }
    }

    fn authenticate(peer: Option<&str>, sent: &[&[u8]]) -> Result<String, StatusCode> {
        let mut headers = HeaderMap::new();
        for value in sent {
            let value = axum::http::HeaderValue::from_bytes(value).unwrap();
            headers.append("x-forwarded-user", value);
        }
        let peer = peer.map(|peer| peer.parse().unwrap());
        authenticated_user(&proxy(), peer, &headers).map_err(|fault| fault.status)
    }

    #[test]
    fn user_names_count_only_from_the_proxy() {
        assert_eq!(
            authenticate(Some("10.1.2.3"), &[b" ada "]),
            Ok("ada".to_owned())
        );
        let mapped = authenticate(Some("::ffff:10.1.2.3"), &["Jos\u{e9}".as_bytes()]);
        assert_eq!(mapped, Ok("Jos\u{e9}".to_owned()));
        for peer in [None, Some("11.0.0.1"), Some("::1"), Some("127.0.0.1")] {
            assert_eq!(
                authenticate(peer, &[b"ada"]),
                Err(StatusCode::FORBIDDEN),
                "{peer:?}"
            );
        }
    }

    #[test]
    fn proxied_requests_need_exactly_one_user() {
        let long = [b'a'; MAX_USER_CHARS + 1];
        let all: [&[&[u8]]; 8] = [
            &[],
            &[b""],
            &[b"  "],
            &[b"ada", b"eve"],
            &[b"ada", b"ada"],
            &[b"ada, eve"],
            &[b"ada\xff"],
            &[&long],
        ];
        for sent in all {
            assert_eq!(
                authenticate(Some("10.0.0.1"), sent),
                Err(StatusCode::UNAUTHORIZED)
            );
        }
    }

    #[test]
    fn malformed_user_headers_are_rejected() {
        let mut proxy = proxy();
        proxy.header = "no header".to_owned();
        assert_eq!(user_header(&proxy, &HeaderMap::new()), None);
    }
}
