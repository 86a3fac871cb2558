//! The headers of a request: those that all requests have, and the route's.

use jiff::Timestamp;
use posthaste::__private::http;
use posthaste::{Job, Secret};
use reqwest::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING,
};
use uuid::Uuid;

/// Encodes all headers of a request.
pub(super) fn encode_headers(
    job: &Job,
    id: Uuid,
    body: &[u8],
    given: &[(String, String)],
    secrets: &[Secret],
    now: Timestamp,
) -> Result<HeaderMap, String> {
    let mut headers = http::headers(job, id, body, secrets, now)?;
    for (name, value) in given {
        let wrong = |why: &str| format!("the header {name:?} {why}");
        if let Some(why) = header_objection(name) {
            return Err(wrong(&why));
        }
        let cannot = || wrong("cannot be sent");
        let name = HeaderName::try_from(name).map_err(|_| cannot())?;
        let value = HeaderValue::try_from(value).map_err(|_| cannot())?;
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Returns why a route may not set a header of this name. The client sets the headers that frame
/// the request.
pub(super) fn header_objection(name: &str) -> Option<String> {
    let Ok(name) = HeaderName::try_from(name) else {
        return Some("is not a valid header name".into());
    };
    let frames = [HOST, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING].contains(&name);
    let is_ours = http::OURS.contains(&name.as_str());
    (frames || is_ours).then(|| "cannot be set by a route".into())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::message::tests::{ID, job};

    #[test]
    fn headers_match_the_reference_library() {
        let golden = include_str!("../../../tests/relay/golden/webhook.json");
        let golden: Value = serde_json::from_str(golden).unwrap();
        for case in golden["cases"].as_array().unwrap() {
            let input = |name: &str| case["input"][name].as_str().unwrap();
            let at = case["input"]["timestamp"].as_i64().unwrap();
            let headers = encode_headers(
                &job("mail", "{}"),
                input("id").parse().unwrap(),
                input("body").as_bytes(),
                &[],
                &[input("secret").parse().unwrap()],
                Timestamp::from_second(at).unwrap(),
            );
            let headers = headers.unwrap();
            for (name, value) in case["headers"].as_object().unwrap() {
                assert_eq!(headers[name], value.as_str().unwrap(), "{}", case["case"]);
            }
        }
    }

    #[test]
    fn routes_add_headers_but_cannot_override_reserved_ones() {
        let with = |name: &str, value: &str| {
            let given = [(name.to_owned(), value.to_owned())];
            encode_headers(
                &job("mail", "{}"),
                ID,
                b"{}",
                &given,
                &[],
                Timestamp::UNIX_EPOCH,
            )
        };
        assert_eq!(
            with("authorization", "Bearer x").unwrap()["authorization"],
            "Bearer x"
        );
        let text = with("Content-Type", "text/plain").unwrap();
        assert_eq!(text.get_all("content-type").iter().count(), 1);
        for (name, value) in [
            ("host", "a"),
            ("Transfer-Encoding", "chunked"),
            ("webhook-id", "1"),
            ("Idempotency-Key", "1"),
            ("webhook-signature", "1"),
            ("a b", "1"),
            ("x", "1\r\ny: 2"),
            ("x", "\0"),
        ] {
            assert!(with(name, value).is_err(), "{name}: {value:?}");
        }
    }
}
