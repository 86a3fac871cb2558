//! One request and its answer.

use std::error::Error as _;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Method, Response, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Client, Request, Transport, answer};
use crate::{Error, ErrorKind};

const JSON_TYPE: &str = "application/json";
const NDJSON_TYPE: &str = "application/x-ndjson";

/// A request.
pub(super) struct Call<'a> {
    pub(super) name: &'static str,
    method: Method,
    path: &'a [&'a str],
    query: Vec<(&'static str, String)>,
    kind: &'static str,
    body: Option<Bytes>,
}

/// An answer with any status.
pub(super) struct HttpResponse {
    pub(super) status: u16,
    pub(super) body: Bytes,
    retry_after: Option<Duration>,
}

impl<'a> Call<'a> {
    pub(super) fn new(name: &'static str, method: Method, path: &'a [&'a str]) -> Self {
        Self {
            name,
            method,
            path,
            query: Vec::new(),
            kind: JSON_TYPE,
            body: None,
        }
    }

    pub(super) fn with_query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    pub(super) fn with_json(self, body: &impl Serialize) -> Result<Self, Error> {
        let body = serde_json::to_vec(body)
            .map_err(|error| Error::invalid(self.name, error.to_string()))?;
        Ok(Self {
            body: Some(body.into()),
            ..self
        })
    }

    pub(super) fn with_lines(self, body: Vec<u8>) -> Self {
        Self {
            kind: NDJSON_TYPE,
            body: Some(body.into()),
            ..self
        }
    }
}

impl HttpResponse {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Converts the answer to an error.
    pub(super) fn to_error(&self, call: &'static str) -> Error {
        let (kind, reason) = answer::interpret_error(self.status, &self.body);
        Error::new(call, kind, reason).with_status(self.status, self.retry_after)
    }

    /// Whether the error is in the server's format, not that of a proxy in front of it.
    pub(super) fn is_server_error(&self) -> bool {
        answer::parse_error(&self.body).is_some()
    }

    /// Whether it is an error of this type.
    pub(super) fn has_error_type(&self, named: &str) -> bool {
        answer::parse_error(&self.body).is_some_and(|error| error.error_type() == named)
    }

    pub(super) fn parse<T: DeserializeOwned>(&self, call: &'static str) -> Result<T, Error> {
        serde_json::from_slice(&self.body).map_err(|error| {
            // The text of the parser's error may quote the answer.
            let place = format!("line {} column {}", error.line(), error.column());
            let reason = format!("the answer could not be read, {place}");
            Error::new(call, ErrorKind::Unanswered, reason).with_status(self.status, None)
        })
    }
}

impl Client {
    /// Sends a call, and reads the body of a successful answer.
    pub(super) async fn send_and_parse<T: DeserializeOwned>(
        &self,
        call: Call<'_>,
    ) -> Result<T, Error> {
        let name = call.name;
        let answer = self.send(call).await?;
        if answer.is_success() {
            answer.parse(name)
        } else {
            Err(answer.to_error(name))
        }
    }

    /// Sends a call, and returns the answer with any status.
    pub(super) async fn send(&self, call: Call<'_>) -> Result<HttpResponse, Error> {
        let url = build_url(&self.url, call.path, &call.query);
        if let Some(carrier) = &self.carrier {
            return self.send_over(carrier, call, &url).await;
        }
        let mut request = self.http.request(call.method, url).timeout(self.time_limit);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        if let Some(body) = call.body {
            request = request.header(CONTENT_TYPE, call.kind).body(body);
        }
        let answer = request
            .send()
            .await
            .map_err(|e| error_from_reqwest(call.name, &e))?;
        let status = answer.status().as_u16();
        let retry_after = parse_retry_after(answer.headers());
        Ok(HttpResponse {
            body: self.read_body(call.name, answer).await?,
            status,
            retry_after,
        })
    }

    async fn read_body(&self, call: &'static str, mut answer: Response) -> Result<Bytes, Error> {
        let mut body = Vec::new();
        while let Some(chunk) = answer
            .chunk()
            .await
            .map_err(|e| error_from_reqwest(call, &e))?
        {
            self.check_length(call, body.len() + chunk.len())?;
            body.extend_from_slice(&chunk);
        }
        Ok(body.into())
    }

    async fn send_over(
        &self,
        carrier: &Transport,
        call: Call<'_>,
        url: &Url,
    ) -> Result<HttpResponse, Error> {
        let query = url.query().map(|query| format!("?{query}"));
        let request = Request {
            method: call.method.to_string(),
            path: format!("{}{}", url.path(), query.unwrap_or_default()),
            body: call.body.map(Vec::from).unwrap_or_default(),
        };
        let (status, body) = carrier(request)
            .await
            .ok_or_else(|| Error::new(call.name, ErrorKind::Unanswered, "no answer"))?;
        self.check_length(call.name, body.len())?;
        Ok(HttpResponse {
            status,
            body: body.into(),
            retry_after: None,
        })
    }

    fn check_length(&self, call: &'static str, length: usize) -> Result<(), Error> {
        if length <= self.largest_answer {
            return Ok(());
        }
        let reason = format!("the answer is longer than {} bytes", self.largest_answer);
        Err(Error::new(call, ErrorKind::TooLong, reason))
    }

    /// Returns the time limit in the servers' format.
    pub(super) fn timeout_parameter(&self) -> String {
        format!("{}ms", self.time_limit.as_millis().max(1))
    }
}

fn build_url(base: &Url, path: &[&str], query: &[(&str, String)]) -> Url {
    let mut url = base.clone();
    // A URL with a host always has path segments.
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(path);
    }
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    url
}

fn error_from_reqwest(call: &'static str, error: &reqwest::Error) -> Error {
    let reason = describe_error(error);
    if error.is_connect() {
        Error::not_sent(call, reason)
    } else if error.is_timeout() {
        Error::new(call, ErrorKind::TimedOut, reason)
    } else if error.is_builder() {
        Error::invalid(call, reason)
    } else {
        Error::new(call, ErrorKind::Unanswered, reason)
    }
}

/// Describes the error with the host, without the rest of the address: it may contain a secret.
pub(super) fn describe_error(error: &reqwest::Error) -> String {
    let place = error.url().and_then(|url| {
        let port = url.port_or_known_default()?;
        Some(format!("{}:{port}", url.host_str()?))
    });
    let place = place.as_deref().unwrap_or("the server");
    let what = if error.is_connect() {
        format!("cannot connect to {place}")
    } else if error.is_timeout() {
        format!("no answer in time from {place}")
    } else {
        "the request failed".to_owned()
    };
    let mut cause = error.source();
    while let Some(deeper) = cause.and_then(|cause| cause.source()) {
        cause = Some(deeper);
    }
    match cause {
        Some(cause) => {
            let cause = cause.to_string();
            let cause = cause.split(" (os error").next().unwrap_or_default();
            format!("{what}: {cause}")
        }
        None => what,
    }
}

/// Reads `Retry-After` in seconds, the format of proxies in front of these servers.
fn parse_retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    seconds.parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_extend_the_address_and_names_are_encoded() {
        let made = |base: &str, path: &[&str]| {
            build_url(&Url::parse(base).unwrap(), path, &[]).to_string()
        };
        assert_eq!(made("http://h", &["_bulk"]), "http://h/_bulk");
        assert_eq!(
            made("http://h/way/", &["a", "_mget"]),
            "http://h/way/a/_mget"
        );
        assert_eq!(
            made("http://h", &["a b", "c/d?e"]),
            "http://h/a%20b/c%2Fd%3Fe"
        );
        let asked = build_url(
            &Url::parse("http://h").unwrap(),
            &["_bulk"],
            &[("timeout", "5&x".into())],
        );
        assert_eq!(asked.as_str(), "http://h/_bulk?timeout=5%26x");
    }
}
