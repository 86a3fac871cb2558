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
pub(crate) fn worker_jobs(id: &i64) -> String {
    let filter = crate::filter::Filter {
        worker: Some(*id),
        state: Some(posthaste::State::Running),
        ..Default::default()
    };
    filtered("/jobs", &filter)
}

/// The unfinished jobs of an ordering key.
pub(crate) fn key_jobs(key: &str) -> String {
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

/// A name shorter than this is shown as it is.
const LONG: usize = 24;

/// The parts of a long name between which a line may end.
pub(crate) fn parts<T: AsRef<str> + ?Sized>(name: &T) -> impl Iterator<Item = &str> {
    let name = name.as_ref();
    let is_long = name.chars().count() > LONG;
    name.split_inclusive(move |one| is_long && "._-/:".contains(one))
}

#[cfg(test)]
mod tests {
    #[test]
    fn long_names_break_after_their_separators() {
        let parts = |name: &str| Vec::from_iter(super::parts(name).map(str::to_owned));
        assert_eq!(parts("mail.send"), ["mail.send"]);
        let long = "webhook.deliver_once-to/every:one";
        let expected = ["webhook.", "deliver_", "once-", "to/", "every:", "one"];
        assert_eq!(parts(long), expected);
        assert_eq!(parts(&"é".repeat(40)).len(), 1);
    }

    #[test]
    fn urls_encode_any_queue_name() {
        assert_eq!(super::queue("a b&c"), "/jobs?filter=queue%3A%22a+b%26c%22");
        let both = super::of("/bulk", &[("do", "retry"), ("filter", "")]);
        assert_eq!(both, "/bulk?do=retry&filter=");
    }
}
