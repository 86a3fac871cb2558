//! Addresses of pages with their parameters. No IO.

use url::form_urlencoded::Serializer;

/// Returns the address of a page with these fields.
pub(crate) fn with_fields(path: &str, fields: &[(&str, &str)]) -> String {
    let mut address = Serializer::for_suffix(format!("{path}?"), path.len() + 1);
    address.extend_pairs(fields);
    address.finish()
}

/// Returns the address of an action on all jobs of a filter.
pub(crate) fn bulk_action(id: i32) -> String {
    format!("/bulk/{id}")
}

/// Returns the address of a list of jobs with a filter.
pub(crate) fn filtered_jobs(path: &str, filter: &dyn std::fmt::Display) -> String {
    with_fields(path, &[("filter", &filter.to_string())])
}

/// Returns the address of the list of a queue's jobs.
pub(crate) fn queue_jobs(name: &str) -> String {
    let filter = crate::filter::Filter {
        queue: Some(name.to_owned()),
        ..Default::default()
    };
    filtered_jobs("/jobs", &filter)
}

/// Returns the address of the list of jobs that a worker runs.
pub(crate) fn worker_jobs(id: &i64) -> String {
    let filter = crate::filter::Filter {
        worker: Some(*id),
        state: Some(posthaste::State::Running),
        ..Default::default()
    };
    filtered_jobs("/jobs", &filter)
}

/// Returns the address of the list of unfinished jobs of an ordering key.
pub(crate) fn key_jobs(key: &str) -> String {
    let filter = crate::filter::Filter {
        key: Some(key.to_owned()),
        ..Default::default()
    };
    filtered_jobs("/jobs", &filter)
}

/// Returns the address of the page of a queue, with its history.
pub(crate) fn queue_page(name: &str) -> String {
    with_fields("/queue", &[("queue", name)])
}

/// Encodes a name for a hidden field, from which [`Fields::name`](crate::form::Fields::name)
/// restores it exactly: browsers change line breaks, and direction characters would affect the
/// page.
pub(crate) fn encode_exact_name(name: &str) -> String {
    url::form_urlencoded::byte_serialize(name.as_bytes()).collect()
}

/// Characters up to which a name is not split.
const MAX_UNSPLIT_CHARS: usize = 24;

/// Splits a long name at the places where a line may break.
pub(crate) fn breakable_parts<T: AsRef<str> + ?Sized>(name: &T) -> impl Iterator<Item = &str> {
    let name = name.as_ref();
    let is_long = name.chars().count() > MAX_UNSPLIT_CHARS;
    name.split_inclusive(move |one| is_long && "._-/:".contains(one))
}

#[cfg(test)]
mod tests {
    #[test]
    fn long_names_break_after_their_separators() {
        let parts = |name: &str| Vec::from_iter(super::breakable_parts(name).map(str::to_owned));
        assert_eq!(parts("mail.send"), ["mail.send"]);
        let long = "webhook.deliver_once-to/every:one";
        let expected = ["webhook.", "deliver_", "once-", "to/", "every:", "one"];
        assert_eq!(parts(long), expected);
        assert_eq!(parts(&"é".repeat(40)).len(), 1);
    }

    #[test]
    fn urls_encode_any_queue_name() {
        assert_eq!(
            super::queue_jobs("a b&c"),
            "/jobs?filter=queue%3A%22a+b%26c%22"
        );
        let both = super::with_fields("/bulk", &[("do", "retry"), ("filter", "")]);
        assert_eq!(both, "/bulk?do=retry&filter=");
    }
}
