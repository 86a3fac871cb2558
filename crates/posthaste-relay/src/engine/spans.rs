//! A span for each batch that is sent: the destination, the number of messages, their traces, and
//! the outcome. It contains no part of a message.

use posthaste::consumer::Ticket;
use tracing::Span;
use tracing::field::Empty;

use crate::destination::answer::Answer;
use crate::destination::contract::Destination;

/// The most traces to which a span links.
const MAX_LINKS: usize = 32;

/// Creates a span that is open until it is dropped. No code enters it, so log lines do not get
/// longer.
pub(crate) fn send_span(destination: &dyn Destination, tickets: &[Ticket]) -> Span {
    let span = tracing::info_span!(
        "send",
        destination = destination.label(),
        queue = tickets.first().map_or("", |one| &*one.job().queue),
        jobs = tickets.len(),
        links = Empty,
        accepted = Empty,
        failed = Empty,
        outcome = Empty,
        kind = Empty
    );
    if !span.is_disabled() {
        let traces = tickets.iter().filter_map(|one| one.job().traceparent());
        let traces: Vec<&str> = traces.take(MAX_LINKS).collect();
        span.record("links", traces.join(" "));
    }
    span
}

/// Records how many messages were accepted, and the first kind of failure.
pub(crate) fn record_answers(span: &Span, answers: &[Option<Answer>]) {
    if span.is_disabled() {
        return;
    }
    let taken = answers.iter().flatten();
    let accepted = taken.filter(|one| **one == Answer::Accepted).count();
    let mut failures = answers.iter().flatten().filter_map(Answer::failure);
    let first = failures.next();
    let outcome = match (first, accepted) {
        (None, 0) => "given_back",
        (None, _) => "accepted",
        (Some(_), 0) => "failed",
        (Some(_), _) => "partly_accepted",
    };
    span.record("accepted", accepted);
    span.record("failed", failures.count() + usize::from(first.is_some()));
    span.record("outcome", outcome);
    if let Some(first) = first {
        span.record("kind", first.name());
    }
}
