//! Addresses of pages, with what they are about. No IO.

use url::form_urlencoded::Serializer;

/// A page with fields.
pub(crate) fn of(path: &str, fields: &[(&str, &str)]) -> String {
    let mut address = Serializer::for_suffix(format!("{path}?"), path.len() + 1);
    address.extend_pairs(fields);
    address.finish()
}

/// An action on all jobs of a filter.
pub(crate) fn bulk(id: i32) -> String {
    format!("/bulk/{id}")
}

/// A list of jobs by a filter.
pub(crate) fn filtered(path: &str, filter: &dyn std::fmt::Display) -> String {
    of(path, &[("filter", &filter.to_string())])
}

/// A queue's jobs.
pub(crate) fn queue(name: &str) -> String {
    let filter = crate::filter::Filter {
        queue: Some(name.to_owned()),
        ..Default::default()
    };
    filtered("/jobs", &filter)
}

/// The jobs that a worker runs.
pub(crate) fn of_worker(id: &i64) -> String {
    let filter = crate::filter::Filter {
        worker: Some(*id),
        state: Some(posthaste::State::Running),
        ..Default::default()
    };
    filtered("/jobs", &filter)
}

/// The unfinished jobs of an ordering key.
pub(crate) fn of_key(key: &str) -> String {
    let filter = crate::filter::Filter {
        key: Some(key.to_owned()),
        ..Default::default()
    };
    filtered("/jobs", &filter)
}

/// A queue's own page, with its past.
pub(crate) fn past(name: &str) -> String {
    of("/queue", &[("queue", name)])
}

/// A name for a hidden field, from which [`Fields::name`](crate::form::Fields::name) has it back as
/// it was: browsers change line breaks, and nothing in it turns the page around.
pub(crate) fn exact(name: &str) -> String {
    url::form_urlencoded::byte_serialize(name.as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn urls_encode_any_queue_name() {
        assert_eq!(super::queue("a b&c"), "/jobs?filter=queue%3A%22a+b%26c%22");
        let both = super::of("/bulk", &[("do", "retry"), ("filter", "")]);
        assert_eq!(both, "/bulk?do=retry&filter=");
    }
}
