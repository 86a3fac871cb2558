//! The spans of runs, as they are sent: linked to the trace in which the job was enqueued, with the
//! names of attributes that were asked for. No IO.

use std::time::Duration;

use opentelemetry::trace::{
    Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Key, KeyValue, Value};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

/// Makes of each span what is sent.
#[derive(Debug)]
pub(super) struct Runs<E> {
    to: E,
    has_messaging_names: bool,
}

impl<E> Runs<E> {
    pub(super) fn to(to: E, has_messaging_names: bool) -> Self {
        Self {
            to,
            has_messaging_names,
        }
    }
}

impl<E: SpanExporter> SpanExporter for Runs<E> {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        for span in &mut batch {
            complete(span, self.has_messaging_names);
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

/// Of the span that the library makes of a run.
fn complete(span: &mut SpanData, has_messaging_names: bool) {
    let of = |key: &str| {
        let all = span.attributes.iter();
        all.clone()
            .find(|one| one.key.as_str() == key)
            .map(|one| one.value.clone())
    };
    let text = |key: &str| of(key).map(|value| value.to_string()).unwrap_or_default();
    let (name, queue) = (text("name"), text("queue"));
    let link = of("traceparent").and_then(|parent| linked(&parent.as_str()));
    span.links
        .links
        .extend(link.map(|context| Link::new(context, Vec::new(), 0)));
    span.span_kind = SpanKind::Consumer;
    span.name = match has_messaging_names {
        true => format!("process {queue}").into(),
        false => format!("run {name}").into(),
    };
    let renamed = span.attributes.drain(..).filter_map(|one| {
        let key = match (one.key.as_str(), has_messaging_names) {
            ("job", false) => "posthaste.job.id",
            ("job", true) => "messaging.message.id",
            ("queue", false) => "posthaste.queue",
            ("queue", true) => "messaging.destination.name",
            ("name", _) => "posthaste.job.name",
            ("attempt", _) => "posthaste.job.attempt",
            // A link by now.
            ("traceparent", _) => return None,
            _ => return Some(one),
        };
        let value = match key {
            // OpenTelemetry wants an id of a message to be text.
            "posthaste.job.id" | "messaging.message.id" => one.value.to_string().into(),
            _ => one.value,
        };
        Some(KeyValue::new(key, value))
    });
    span.attributes = renamed.collect();
    if has_messaging_names {
        let process = || Value::from("process");
        span.attributes.extend([
            KeyValue::new("messaging.system", "posthaste"),
            KeyValue::new("messaging.operation.name", process()),
            KeyValue::new("messaging.operation.type", process()),
        ]);
    }
    if let Some(wrong) = span.events.iter().find_map(|event| {
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

/// What a `traceparent` names.
fn linked(parent: &str) -> Option<SpanContext> {
    if !posthaste::is_traceparent(parent) {
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
    fn a_link_is_what_a_traceparent_names_and_nothing_of_what_is_none() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let context = linked(parent).unwrap();
        let trace = context.trace_id().to_string();
        assert_eq!(trace, "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(context.span_id().to_string(), "b7ad6b7169203331");
        assert!(context.is_sampled() && context.is_remote());
        for wrong in ["", "00-0af7-b7-01", "x", &parent.replace('a', "g")] {
            assert_eq!(linked(wrong), None, "{wrong}");
        }
    }
}
