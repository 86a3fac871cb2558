//! A tracing span for each pass of a sync: the index, the number of documents, the linked traces,
//! and the outcome. It contains nothing of a document.

use posthaste::consumer::Delivery;
use tracing::Span;
use tracing::field::Empty;

use super::compare::{SyncOutcome, SyncRequest};

/// The most traces that the span of a pass links to.
const MAX_LINKS: usize = 32;

/// Creates a span that stays open until it is dropped. It is never entered, so that log lines do
/// not repeat its fields.
pub(super) fn pass_span(index: &str, requested: &[(Delivery, SyncRequest)]) -> Span {
    let jobs = || requested.iter().map(|(delivery, _)| &delivery.job);
    let span = tracing::info_span!(
        "sync",
        index,
        queue = jobs().next().map_or("", |job| &*job.queue),
        jobs = requested.len(),
        links = Empty,
        done = Empty,
        written = Empty,
        rescheduled = Empty,
        failed = Empty,
        outcome = Empty,
        kind = Empty
    );
    if !span.is_disabled() {
        let traces = jobs().filter_map(|job| job.traceparent());
        let traces: Vec<&str> = traces.take(MAX_LINKS).collect();
        span.record("links", traces.join(" "));
    }
    span
}

/// Records the number of documents of each outcome.
pub(super) fn record_outcomes(span: &Span, outcomes: &[SyncOutcome]) {
    if span.is_disabled() {
        return;
    }
    let count = |is: fn(&SyncOutcome) -> bool| outcomes.iter().filter(|one| is(one)).count();
    let rejected = count(|one| matches!(one, SyncOutcome::Rejected(_)));
    let refused = count(|one| matches!(one, SyncOutcome::Failed(_)));
    let rescheduled = count(|one| matches!(one, SyncOutcome::Rescheduled(_)));
    span.record("done", count(|one| matches!(one, SyncOutcome::Done(_))));
    span.record(
        "written",
        count(|one| matches!(one, SyncOutcome::Written(_))),
    );
    span.record("rescheduled", rescheduled);
    span.record("failed", rejected + refused);
    let kind = match (rescheduled, rejected, refused) {
        (0, 0, 0) => None,
        // Postgres or the index did not answer, or no time was left.
        (1.., _, _) => Some("not_tried"),
        (0, 1.., _) => Some("refused"),
        _ => Some("error"),
    };
    let outcome = match kind {
        None => "completed",
        Some(_) if rescheduled + rejected + refused < outcomes.len() => "partly_completed",
        Some(_) => "failed",
    };
    span.record("outcome", outcome);
    if let Some(kind) = kind {
        span.record("kind", kind);
    }
}
