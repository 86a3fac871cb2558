//! The trace context of a job in the headers of its message.

use posthaste::__private::is_traceparent;
use posthaste::Job;

use crate::message::TRACE_HEADERS;
use crate::message::template::find_argument;

/// Adds the trace context that a job was enqueued with, or that of its arguments, unless the route
/// sets one.
pub(crate) fn add_headers(job: &Job, headers: &mut Vec<(String, String)>) {
    let is_given = |headers: &[(String, String)], name: &str| {
        let mut names = headers.iter().map(|(given, _)| given);
        names.any(|given| given.eq_ignore_ascii_case(name))
    };
    if let Some(parent) = job.traceparent() {
        let [parent_name, state_name] = TRACE_HEADERS;
        // A tracestate belongs to the traceparent that it came with.
        if !is_given(headers, parent_name) {
            headers.push((parent_name.into(), parent.to_owned()));
            let state = job.tracestate();
            if let Some(state) = state.filter(|_| !is_given(headers, state_name)) {
                headers.push((state_name.into(), state.to_owned()));
            }
        }
        return;
    }
    let kwargs = job.kwargs_json();
    for name in TRACE_HEADERS {
        if !kwargs.contains(name) || is_given(headers, name) {
            continue;
        }
        let is_carried = |value: &str| match name {
            "traceparent" => is_traceparent(value),
            _ => value.len() <= 512 && value.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
        };
        match find_argument(kwargs, &[name.to_owned()], false) {
            Ok(value) if is_carried(&value) => headers.push((name.into(), value.into_owned())),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::message::mapping::Mapping;
    use crate::message::template::Template;
    use crate::message::tests::{ID, job};
    use posthaste::Job;

    fn message(kwargs: &str) -> crate::message::Message {
        let made = Mapping::default().message(job("mail.send", kwargs), ID);
        made.expect("a message")
    }

    #[test]
    fn trace_context_in_arguments_is_forwarded() {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let kwargs = format!(r#"{{"traceparent": "{parent}", "tracestate": "a=b"}}"#);
        let headers = [("traceparent", parent), ("tracestate", "a=b")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(message(&kwargs).headers, headers);
        assert_eq!(message(r#"{"traceparent": "00-x"}"#).headers, []);
        let mapping = Mapping::default().header("traceparent", Template::text("mine"));
        let made = mapping.message(job("a", &kwargs), ID).expect("a message");
        assert_eq!(made.headers[0].1, "mine");
    }

    #[test]
    fn trace_headers_prefer_the_route_then_the_job() {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let mut traced =
            (*job("a", r#"{"traceparent": "00-0-0-00", "tracestate": "c=d"}"#)).clone();
        let sent = |mapping: &Mapping, job: &Job| {
            let made = mapping.message(Arc::new(job.clone()), ID);
            made.expect("a message").headers
        };
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        traced.trace = Some(parent.into());
        let bare = Mapping::default();
        assert_eq!(sent(&bare, &traced), [header("traceparent", parent)]);
        traced.trace = Some(format!("{parent} a=b").into());
        let both = [header("traceparent", parent), header("tracestate", "a=b")];
        assert_eq!(sent(&bare, &traced), both);
        let other = Mapping::default().header("Traceparent", Template::text("mine"));
        assert_eq!(sent(&other, &traced), [header("Traceparent", "mine")]);
        let state = Mapping::default().header("tracestate", Template::text("mine"));
        let mixed = [header("tracestate", "mine"), header("traceparent", parent)];
        assert_eq!(sent(&state, &traced), mixed);
        // Only a client that may write rows of the store can enqueue such a value.
        traced.trace = Some(format!("{parent}\r\nset-cookie: a").into());
        assert_eq!(sent(&bare, &traced), [header("tracestate", "c=d")]);
    }
}
