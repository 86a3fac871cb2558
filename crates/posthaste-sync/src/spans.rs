//! A span for each pass of a sync: which index, how many documents, by whose traces, and what came
//! of it. Nothing of a document stands in it.

use posthaste::consumer::Delivery;
use tracing::Span;
use tracing::field::Empty;

use super::compare::{SyncOutcome, SyncRequest};

/// A span of a pass is linked to no more traces than this.
const LINKS: usize = 32;

/// A span that is open until it is dropped. Nobody enters it: lines of the log stay as short as
/// they are.
pub(super) fn passing(index: &str, requested: &[(Delivery, SyncRequest)]) -> Span {
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
        let traces: Vec<&str> = traces.take(LINKS).collect();
        span.record("links", traces.join(" "));
    }
    span
}

/// What came of it, counted.
pub(super) fn passed(span: &Span, outcomes: &[SyncOutcome]) {
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
        // Neither Postgres nor the index can be asked, or there was no time.
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
