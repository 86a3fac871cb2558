//! The path under which a reverse proxy serves the console. Pages are written for `/`; the prefix
//! is added to their addresses when they are sent, so no page needs to know it.

use std::fmt;
use std::str::FromStr;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Redirect, Response};

/// The path under which a reverse proxy serves the console, such as `/posthaste`. By default it is
/// empty, and the console is at `/`.
///
/// ```
/// use posthaste_console::PathPrefix;
///
/// # fn example() -> Result<(), posthaste_console::NotAPathPrefix> {
/// let prefix: PathPrefix = "/tools/posthaste".parse()?;
/// assert_eq!(prefix.to_string(), "/tools/posthaste");
/// assert!("posthaste".parse::<PathPrefix>().is_err());
/// # Ok(()) }
/// # example().unwrap();
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathPrefix(String);

/// The error for a text that is not a [`PathPrefix`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it must be a path such as /posthaste, of letters, digits, '-', '_', '.' and '/'")]
pub struct NotAPathPrefix;

impl fmt::Display for PathPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for PathPrefix {
    type Err = NotAPathPrefix;

    fn from_str(text: &str) -> Result<Self, NotAPathPrefix> {
        let text = text.strip_suffix('/').unwrap_or(text);
        let is_name = |one: &str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            one.bytes().all(is_plain) && !["", ".", ".."].contains(&one)
        };
        match text.strip_prefix('/') {
            None if text.is_empty() => Ok(Self::default()),
            Some(rest) if rest.split('/').all(is_name) => Ok(Self(text.to_owned())),
            _ => Err(NotAPathPrefix),
        }
    }
}

impl PathPrefix {
    /// Serves the router under this path. The pages also answer without the prefix, for proxies
    /// that remove it and for probes.
    pub(crate) fn mount(&self, router: Router) -> Router {
        if self.0.is_empty() {
            return router;
        }
        let layer = from_fn_with_state(self.clone(), translate);
        Router::new().fallback_service(router).layer(layer)
    }

    /// Returns the address without the prefix; `None` if it is the prefix alone.
    fn strip_prefix(&self, uri: &Uri) -> Option<PathAndQuery> {
        let whole = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let rest = match whole.strip_prefix(&self.0) {
            Some(rest) if rest.starts_with('/') => rest,
            Some(rest) if rest.is_empty() || rest.starts_with('?') => return None,
            _ => whole,
        };
        rest.parse().ok()
    }

    /// Adds the prefix to each address of a page. Foreign text is never taken for an address,
    /// because pages escape its quotes.
    fn prefix_links(&self, html: &str) -> String {
        const ADDRESS_START: &str = "=\"/";
        let mut page = String::with_capacity(html.len() + html.len() / 16);
        let mut rest = html;
        while let Some(at) = rest.find(ADDRESS_START) {
            let (before, after) = rest.split_at(at);
            page.push_str(before);
            page.push_str("=\"");
            let is_address = ["href", "action", "src", "data-live"];
            if is_address.iter().any(|name| before.ends_with(name)) {
                page.push_str(&self.0);
            }
            rest = &after[ADDRESS_START.len() - 1..];
        }
        page.push_str(rest);
        page
    }

    fn prefix_headers(&self, headers: &mut HeaderMap) {
        let location = |text: &str| match text.starts_with('/') {
            true => format!("{}{text}", self.0),
            false => text.to_owned(),
        };
        rewrite_header(headers, header::LOCATION, location);
        // Other programs on the same host do not get the session cookie.
        let path = format!("Path={}/;", self.0);
        rewrite_header(headers, header::SET_COOKIE, |text| {
            text.replace("Path=/;", &path)
        });
    }
}

fn rewrite_header(headers: &mut HeaderMap, name: HeaderName, change: impl Fn(&str) -> String) {
    let all = headers.get_all(&name).iter();
    let all = all.map(|one| match one.to_str() {
        Ok(text) => HeaderValue::from_str(&change(text)).unwrap_or_else(|_| one.clone()),
        Err(_) => one.clone(),
    });
    let all: Vec<HeaderValue> = all.collect();
    headers.remove(&name);
    for one in all {
        headers.append(&name, one);
    }
}

async fn translate(State(prefix): State<PathPrefix>, mut request: Request, next: Next) -> Response {
    let Some(inner) = prefix.strip_prefix(request.uri()) else {
        return Redirect::temporary(&format!("{prefix}/")).into_response();
    };
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = Some(inner);
    let Ok(uri) = Uri::from_parts(parts) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    *request.uri_mut() = uri;
    let (mut head, body) = next.run(request).await.into_parts();
    prefix.prefix_headers(&mut head.headers);
    let kind = head.headers.get(header::CONTENT_TYPE);
    let is_page = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"));
    if !is_page {
        return Response::from_parts(head, body);
    }
    head.headers.remove(header::CONTENT_LENGTH);
    let Ok(body) = to_bytes(body, usize::MAX).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let page = prefix.prefix_links(&String::from_utf8_lossy(&body));
    Response::from_parts(head, Body::from(page))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix() -> PathPrefix {
        "/a/b".parse().unwrap()
    }

    #[test]
    fn prefixes_are_paths_of_plain_names() {
        for text in ["/posthaste", "/a/b-c_d.e/", "", "/"] {
            let read: PathPrefix = text.parse().unwrap();
            assert_eq!(read.to_string(), text.trim_end_matches('/'));
        }
        for text in [
            "a",
            "//",
            "//evil.example",
            "/a//b",
            "/a/..",
            "/.",
            "/a?b",
            "/a\"b",
            "/ä",
        ] {
            assert!(text.parse::<PathPrefix>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_prefix_is_taken_from_requests_once() {
        for (sent, inner) in [
            ("/a/b/", Some("/")),
            ("/a/b/jobs?filter=%2Fa%2Fb", Some("/jobs?filter=%2Fa%2Fb")),
            ("/a/b/a/b/", Some("/a/b/")),
            ("/a/bc", Some("/a/bc")),
            ("/live", Some("/live")),
            ("/a/b", None),
            ("/a/b?x=1", None),
        ] {
            let found = prefix().strip_prefix(&sent.parse().unwrap());
            assert_eq!(found.as_ref().map(PathAndQuery::as_str), inner, "{sent}");
        }
    }

    #[test]
    fn links_of_a_page_get_the_prefix_and_its_texts_do_not() {
        let html = "<body data-live=\"/events\"><a href=\"/\">href=&#34;/x&#34;</a>\
                    <button formaction=\"/jobs/cancel\"><input name=\"back\" value=\"/jobs\">\
                    <a href=\"#main\">";
        let page = "<body data-live=\"/a/b/events\"><a href=\"/a/b/\">href=&#34;/x&#34;</a>\
                    <button formaction=\"/a/b/jobs/cancel\"><input name=\"back\" value=\"/jobs\">\
                    <a href=\"#main\">";
        assert_eq!(prefix().prefix_links(html), page);
    }

    #[test]
    fn redirects_and_cookies_stay_under_the_prefix() {
        let mut headers = HeaderMap::new();
        let mut add = |name: HeaderName, value| {
            headers.append(name, HeaderValue::from_static(value));
        };
        add(header::LOCATION, "/jobs");
        add(header::SET_COOKIE, "a=1; HttpOnly; Path=/; Max-Age=1");
        add(header::SET_COOKIE, "b=2; Path=/; Max-Age=1; Secure");
        prefix().prefix_headers(&mut headers);
        let all = |name| {
            Vec::from_iter(
                headers
                    .get_all(name)
                    .iter()
                    .map(|one| one.to_str().unwrap()),
            )
        };
        assert_eq!(all(header::LOCATION), ["/a/b/jobs"]);
        assert_eq!(
            all(header::SET_COOKIE),
            [
                "a=1; HttpOnly; Path=/a/b/; Max-Age=1",
                "b=2; Path=/a/b/; Max-Age=1; Secure"
            ]
        );
    }
}
