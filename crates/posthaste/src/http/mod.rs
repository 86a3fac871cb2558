//! Shared parts of requests over HTTP of handlers and of relays: the headers, how much of an answer
//! is read, and the meaning of the answer. For crates of this repository.

mod answer;
mod faults;
mod keep_alive;
mod signature;
mod turns;

use std::error::Error as _;
use std::io;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use reqwest::header::{CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Response, Url};
use uuid::Uuid;

use crate::error::{Error, ErrorKind};
use crate::job::Job;
pub use answer::Verdict;
pub use faults::{Asked, Blame, Faults};
pub use keep_alive::{KeepAlive, OpenRequest};
pub use signature::Secret;
pub use turns::Turns;

/// The most bytes of an answer's body that are read.
const MAX_BODY_BYTES: usize = 8 << 10;
/// The longest wait for the body of a successful answer.
const MAX_BODY_WAIT: Duration = Duration::from_secs(1);
/// The longest time to connect: an address that drops packets fails sooner than a slow answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which an idle connection is closed: in a process with a low limit of open files other
/// connections, also those to the database, wait for a file descriptor.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The text that [`describe`] returns if no file descriptor is left.
pub const NO_FILES: &str = "this process has reached its limit of open files (ulimit -n)";
/// EMFILE and ENFILE, which have these numbers on every platform that has them.
const NO_FILES_ERRNOS: [i32; 2] = [24, 23];

/// The headers of every request, which no other header may replace.
pub const OURS: [&str; 8] = [
    "idempotency-key",
    "posthaste-attempt",
    "posthaste-job-name",
    "posthaste-queue",
    "posthaste-tag",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
];

/// Returns a quarter of the file descriptors that this process may have: the share for other uses,
/// so that connections to the database and to receivers find some.
pub fn quarter_of_descriptors() -> usize {
    #[cfg(unix)]
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    #[cfg(not(unix))]
    let descriptors = None;
    usize::try_from(descriptors.unwrap_or(u64::MAX)).unwrap_or(usize::MAX) / 4
}

/// Builds a client that follows no redirects.
pub fn client(kind: ClientBuilder) -> Result<Client, Error> {
    let client = kind
        .redirect(Policy::none())
        .connect_timeout(CONNECT_TIMEOUT);
    let client = client.pool_idle_timeout(IDLE_TIMEOUT);
    let client = client.build();
    client.map_err(|error| ErrorKind::Config(describe(&error)).into())
}

/// Parses an address of HTTP or HTTPS; the error does not repeat it.
pub fn address(url: &str) -> Result<Url, Error> {
    let url = Url::parse(url).ok();
    url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        // The address may contain a password: the error does not repeat it.
        .ok_or_else(|| Error::invalid("url", "must be http://host/path or https://host/path"))
}

/// Returns the headers of a request: properties of the job, the id that stays the same at each
/// attempt, and the signature.
pub fn headers(
    job: &Job,
    id: Uuid,
    body: &[u8],
    secrets: &[Secret],
    now: Timestamp,
) -> Result<HeaderMap, String> {
    let (id, now) = (id.to_string(), now.as_second());
    let mut all = vec![
        ("posthaste-job-name", percent_encode(&job.name)),
        ("posthaste-queue", percent_encode(&job.queue)),
        ("posthaste-attempt", job.attempt.to_string()),
        ("posthaste-tag", percent_encode(&job.tag)),
        ("webhook-timestamp", now.to_string()),
    ];
    if !secrets.is_empty() {
        let signature = signature::sign(secrets, &id, now, body);
        all.push(("webhook-signature", signature));
    }
    all.extend([("idempotency-key", id.clone()), ("webhook-id", id)]);
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in all {
        let value =
            HeaderValue::try_from(value).map_err(|error| format!("the header {name}: {error}"))?;
        headers.insert(HeaderName::from_static(name), value);
    }
    Ok(headers)
}

/// Reads an answer and decides what it means for its job.
pub async fn verdict(answer: Response) -> Verdict {
    let status = answer.status().as_u16();
    let after = requested_delay(answer.headers());
    let is_done = answer.status().is_success();
    let read = read_body_start(answer);
    let body = match is_done {
        // A body that is read completely keeps its connection usable; one that never ends is
        // abandoned.
        true => tokio::time::timeout(MAX_BODY_WAIT, read)
            .await
            .unwrap_or_default(),
        false => read.await,
    };
    answer::decide_by_status(status, after, &body)
}

/// Returns the delay that the server requested, by its own clock if it sent a Date.
fn requested_delay(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok();
    let date = text(DATE).and_then(|date| httpdate::parse_http_date(date).ok());
    answer::retry_after(text(RETRY_AFTER)?, date.unwrap_or_else(SystemTime::now))
}

/// Reads the first bytes of the body, or as many as came before it broke off.
async fn read_body_start(mut answer: Response) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < MAX_BODY_BYTES
        && let Ok(Some(chunk)) = answer.chunk().await
    {
        body.extend_from_slice(&chunk[..chunk.len().min(MAX_BODY_BYTES - body.len())]);
    }
    body
}

/// Describes an error without the address, which may contain a password.
pub fn describe(error: &reqwest::Error) -> String {
    if lacks_files(error) {
        return NO_FILES.into();
    }
    let what = if error.is_timeout() {
        "no answer in time"
    } else if error.is_connect() {
        "cannot connect"
    } else {
        "the request failed"
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
        None => what.to_owned(),
    }
}

/// Whether no file descriptor was left, of this process or of the whole machine: then the server is
/// not at fault.
pub fn lacks_files(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            if error
                .raw_os_error()
                .is_some_and(|code| NO_FILES_ERRNOS.contains(&code))
            {
                return true;
            }
            // The wrapped error of an `io::Error` is not its source.
            if let Some(within) = error.get_ref() {
                return lacks_files(within);
            }
        }
        cause = error.source();
    }
    false
}

/// Percent-encodes text for a header.
fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_names_that_headers_cannot_carry() {
        assert_eq!(percent_encode("mail.send-1/x"), "mail.send-1/x");
        assert_eq!(percent_encode("a b%\r\nü"), "a%20b%25%0D%0A%C3%BC");
    }

    #[test]
    fn file_descriptor_exhaustion_is_found_anywhere_in_an_error_chain() {
        let raw = io::Error::from_raw_os_error;
        for error in [
            raw(24),
            raw(23),
            io::Error::other(raw(24)),
            io::Error::other(io::Error::other(raw(23))),
        ] {
            assert!(lacks_files(&error), "{error:?}");
        }
        for error in [raw(111), io::Error::other(raw(111)), io::Error::other("24")] {
            assert!(!lacks_files(&error), "{error:?}");
        }
    }

    #[test]
    fn accepts_only_http_urls_and_does_not_repeat_them() {
        for wrong in ["", "ftp://h/x", "h:1/geheim", "http://", "unix:/geheim"] {
            let error = address(wrong).unwrap_err();
            assert!(error.is_invalid() && !error.to_string().contains("geheim"));
        }
        assert!(address("http://u:geheim@h:1/p").is_ok());
    }
}
