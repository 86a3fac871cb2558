//! Fields of forms and addresses, checked and clamped.

use std::collections::HashMap;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use posthaste::JobId;

use crate::fault::Fault;
use crate::format::count;

/// The most jobs that one form may select.
const MAX_SELECTED_JOBS: usize = 1_000;

/// The fields that were sent: all values of each name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields(HashMap<String, Vec<String>>);

impl Fields {
    fn parse(text: &[u8]) -> Self {
        let mut fields = Self::default();
        for (name, value) in url::form_urlencoded::parse(text) {
            let values = fields.0.entry(name.into_owned()).or_default();
            values.push(value.into_owned());
        }
        fields
    }

    /// Returns the first value of this name; `None` if it is absent or empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let first = self.0.get(name)?.first()?.as_str();
        (!first.is_empty()).then_some(first)
    }

    /// Returns a required text.
    pub(crate) fn text(&self, name: &'static str) -> Result<&str, Fault> {
        self.get(name)
            .ok_or_else(|| Fault::bad_request(format!("{name} is missing")))
    }

    /// Returns a required name, as it was sent or as a page of the console encoded it in `….exact`.
    pub(crate) fn name(&self, name: &'static str) -> Result<String, Fault> {
        match self.get(&format!("{name}.exact")) {
            Some(exact) => {
                let read = url::form_urlencoded::parse(exact.as_bytes()).next();
                let read = read.map(|(read, _)| read.into_owned());
                read.ok_or_else(|| Fault::bad_request(format!("{name} is missing")))
            }
            None => self.text(name).map(str::to_owned),
        }
    }

    /// Returns a number; `None` if it is absent, an error if it is outside these bounds.
    pub(crate) fn number_within(
        &self,
        name: &'static str,
        (least, most): (u32, u32),
    ) -> Result<Option<u32>, Fault> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        let number: Option<u32> = text.trim().parse().ok();
        match number.filter(|number| (least..=most).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(Fault::bad_request(format!(
                "{name} must be a number between {} and {}",
                count(least.into()),
                count(most.into())
            ))),
        }
    }

    /// Returns a number, clamped to these bounds; `None` if it is absent, an error if it is not a
    /// number.
    pub(crate) fn number(
        &self,
        name: &'static str,
        (least, most): (u32, u32),
    ) -> Result<Option<u32>, Fault> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        let number: Result<u64, _> = text.trim().parse();
        let number = number.map_err(|_| Fault::bad_request(format!("{name} is not a number")))?;
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        Ok(Some(number.clamp(least, most)))
    }

    /// Returns the selected jobs.
    pub(crate) fn selected_jobs(&self) -> Result<Vec<JobId>, Fault> {
        let ids = self.0.get("id").map(Vec::as_slice).unwrap_or_default();
        if ids.is_empty() {
            return Err(Fault::bad_request("no job is selected"));
        }
        if ids.len() > MAX_SELECTED_JOBS {
            return Err(Fault::bad_request(format!(
                "at most {MAX_SELECTED_JOBS} jobs are selected at once"
            )));
        }
        let ids = ids.iter().map(|id| id.parse().map(JobId));
        let ids: Result<Vec<JobId>, _> = ids.collect();
        ids.map_err(|_| Fault::bad_request("a job id is not a number"))
    }

    /// Returns the page to return to, which must be a page of this console.
    pub(crate) fn return_address(&self) -> &str {
        let is_ours = |path: &&str| {
            path.starts_with('/')
                && !path.starts_with("//")
                && path
                    .chars()
                    .all(|one| one.is_ascii_graphic() && one != '\\')
        };
        self.get("back").filter(is_ours).unwrap_or("/")
    }
}

/// The fields of an address.
pub(crate) struct Query(pub(crate) Fields);

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Fault> {
        let query = parts.uri.query().unwrap_or_default();
        Ok(Self(Fields::parse(query.as_bytes())))
    }
}

/// The fields of a form.
pub(crate) struct Form(pub(crate) Fields);

impl<S: Send + Sync> FromRequest<S> for Form {
    type Rejection = Fault;

    async fn from_request(request: Request, state: &S) -> Result<Self, Fault> {
        let body = axum::body::Bytes::from_request(request, state).await;
        let too_large = |_| Fault::new(StatusCode::PAYLOAD_TOO_LARGE, "the form is too large", "");
        Ok(Self(Fields::parse(&body.map_err(too_large)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_clamped_and_non_numbers_rejected() {
        let fields = Fields::parse(b"a=7&b=99999999999&c=x&d=");
        assert_eq!(fields.number("a", (10, 20)).unwrap(), Some(10));
        assert_eq!(fields.number("b", (10, 20)).unwrap(), Some(20));
        assert!(fields.number("c", (10, 20)).is_err());
        assert_eq!(fields.number("d", (10, 20)).unwrap(), None);
        assert_eq!(fields.number_within("a", (1, 20)).unwrap(), Some(7));
        for name in ["a", "b", "c"] {
            assert!(fields.number_within(name, (10, 20)).is_err(), "{name}");
        }
    }

    #[test]
    fn redirects_stay_within_the_console() {
        let back = |to: &str| {
            let mut text = url::form_urlencoded::Serializer::new(String::new());
            let text = text.append_pair("back", to).finish();
            Fields::parse(text.as_bytes()).return_address().to_owned()
        };
        assert_eq!(back("/jobs?filter=a%20b"), "/jobs?filter=a%20b");
        for to in [
            "//evil.example",
            "https://evil.example",
            "/\\evil",
            "/a\r\nb",
            "",
        ] {
            assert_eq!(back(to), "/", "{to}");
        }
    }

    #[test]
    fn names_round_trip_through_pages() {
        let name = "a=b&c\r\n\u{202e}\"";
        let mut text = url::form_urlencoded::Serializer::new(String::new());
        let text = text.append_pair("queue.exact", &crate::address::encode_exact_name(name));
        let fields = Fields::parse(text.finish().as_bytes());
        assert_eq!(fields.name("queue").unwrap(), name);
        assert_eq!(Fields::parse(b"queue=a").name("queue").unwrap(), "a");
        assert!(Fields::parse(b"").name("queue").is_err());
    }

    #[test]
    fn job_ids_are_numbers_and_bounded() {
        assert_eq!(
            Fields::parse(b"id=1&id=2").selected_jobs().unwrap(),
            [JobId(1), JobId(2)]
        );
        assert!(Fields::parse(b"id=x").selected_jobs().is_err());
        assert!(Fields::parse(b"").selected_jobs().is_err());
        assert!(
            Fields::parse("id=1&".repeat(1_001).as_bytes())
                .selected_jobs()
                .is_err()
        );
    }
}
