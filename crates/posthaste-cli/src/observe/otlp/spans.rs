//! Converts spans before export: links them to the traces in which the jobs were enqueued, and
//! names attributes by the configured convention. No IO.

use std::time::Duration;

use opentelemetry::trace::{
    Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Key, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

/// An exporter that converts spans.
#[derive(Debug)]
pub(super) struct RunSpanExporter<E> {
    to: E,
    has_messaging_names: bool,
}

impl<E> RunSpanExporter<E> {
    pub(super) fn new(to: E, has_messaging_names: bool) -> Self {
        Self {
            to,
            has_messaging_names,
        }
    }
}

impl<E: SpanExporter> SpanExporter for RunSpanExporter<E> {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        for span in &mut batch {
            complete_span(span, self.has_messaging_names);
        }
        self.to.export(batch).await
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.to.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.to.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.to.set_resource(resource);
    }
}

/// Spans of the libraries: a run, a batch of a relay, a pass of a sync.
pub(super) const SPAN_NAMES: [&str; 3] = ["job", "send", "sync"];

/// Adds the name, kind and attributes of OpenTelemetry to a span.
fn complete_span(span: &mut SpanData, has_messaging_names: bool) {
    let of = |key: &str| {
        let all = span.attributes.iter();
        all.clone()
            .find(|one| one.key.as_str() == key)
            .map(|one| one.value.clone())
    };
    let text = |key: &str| of(key).map(|value| value.to_string()).unwrap_or_default();
    let (name, queue) = (text("name"), text("queue"));
    let (kind, operation, called) = match &*span.name {
        // The messages carry the trace that enqueued them, not this span.
        "send" => (SpanKind::Client, "send", format!("send {queue}")),
        "sync" => (SpanKind::Consumer, "process", format!("sync {queue}")),
        _ => (SpanKind::Consumer, "process", format!("run {name}")),
    };
    let system = match &*span.name {
        "send" => {
            let destination = text("destination");
            let system = destination.split_whitespace().next().unwrap_or_default();
            system.to_lowercase()
        }
        _ => "posthaste".to_owned(),
    };
    let wrong = of("kind").map(|kind| kind.to_string());
    let parents = format!("{} {}", text("traceparent"), text("links"));
    let links = parents.split_whitespace().filter_map(parse_traceparent);
    let links = links.map(|context| Link::new(context, Vec::new(), 0));
    span.links.links.extend(links);
    span.span_kind = kind;
    span.name = match has_messaging_names {
        true => format!("{operation} {queue}").into(),
        false => called.into(),
    };
    let renamed = span.attributes.drain(..);
    let renamed = renamed.filter_map(|one| renamed_attribute(one, has_messaging_names));
    span.attributes = renamed.collect();
    if has_messaging_names {
        span.attributes.extend([
            KeyValue::new("messaging.system", system),
            KeyValue::new("messaging.operation.name", operation),
            KeyValue::new("messaging.operation.type", operation),
        ]);
    }
    if let Some(wrong) = wrong {
        span.status = Status::error(wrong);
    } else if let Some(wrong) = span.events.iter().find_map(|event| {
        let all = event.attributes.iter();
        let is = |key: &str| all.clone().find(|one| one.key == Key::new(key.to_owned()));
        let level = is("level")?.value.as_str().into_owned();
        let error = is("error").or_else(|| is("exception.message"));
        let error = error.map(|error| error.value.as_str().into_owned());
        matches!(&*level, "WARN" | "ERROR").then(|| error.unwrap_or_default())
    }) {
        span.status = Status::error(wrong);
    }
}

/// Returns an attribute under its exported name.
fn renamed_attribute(one: KeyValue, has_messaging_names: bool) -> Option<KeyValue> {
    let key = match (one.key.as_str(), has_messaging_names) {
        ("job", false) => "posthaste.job.id",
        ("job", true) => "messaging.message.id",
        ("jobs", false) => "posthaste.jobs",
        ("jobs", true) => "messaging.batch.message_count",
        ("queue", false) => "posthaste.queue",
        ("queue", true) => "messaging.destination.name",
        ("name", _) => "posthaste.job.name",
        ("attempt", _) => "posthaste.job.attempt",
        ("destination", _) => "posthaste.destination",
        ("index", _) => "posthaste.index",
        ("outcome", _) => "posthaste.outcome",
        ("accepted", _) => "posthaste.accepted",
        ("failed", _) => "posthaste.failed",
        ("done", _) => "posthaste.done",
        ("written", _) => "posthaste.written",
        ("rescheduled", _) => "posthaste.rescheduled",
        ("kind", _) => "error.type",
        // Exported as a link.
        ("traceparent" | "links", _) => return None,
        _ => return Some(one),
    };
    let value = match key {
        // OpenTelemetry requires message ids to be strings.
        "posthaste.job.id" | "messaging.message.id" => one.value.to_string().into(),
        _ => one.value,
    };
    Some(KeyValue::new(key, value))
}

/// Returns the span context of a `traceparent`, `None` if it is invalid.
fn parse_traceparent(parent: &str) -> Option<SpanContext> {
    if !posthaste::__private::is_traceparent(parent) {
        return None;
    }
    let mut parts = parent.split('-').skip(1);
    let trace = TraceId::from_hex(parts.next()?).ok()?;
    let span = SpanId::from_hex(parts.next()?).ok()?;
    let flags = u8::from_str_radix(parts.next()?, 16).ok()?;
    let state = TraceState::default();
    let context = SpanContext::new(trace, span, TraceFlags::new(flags), true, state);
    context.is_valid().then_some(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_traceparents_make_no_link() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let context = parse_traceparent(parent).unwrap();
        let trace = context.trace_id().to_string();
        assert_eq!(trace, "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(context.span_id().to_string(), "b7ad6b7169203331");
        assert!(context.is_sampled() && context.is_remote());
        for wrong in ["", "00-0af7-b7-01", "x", &parent.replace('a', "g")] {
            assert_eq!(parse_traceparent(wrong), None, "{wrong}");
        }
    }
}
