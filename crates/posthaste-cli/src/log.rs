//! Logs to standard error: text for people, or one JSON document per line for log collectors.
//! docs/operate/logs.md lists the fields.

use std::error::Error;
use std::fmt;
use std::io::{IsTerminal as _, Write as _};
use std::panic;

use anyhow::bail;
use serde_json::{Map, Number, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::MakeWriter as _;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, registry};

use crate::log_line::{self, Format};
use crate::observe::Otlp;
use crate::terminal::Terminal;

/// The default filter. It leaves out the pool's reports of connections that the server closed, some
/// of which were closed on purpose. It includes the audit of the console, and recoveries.
const DEFAULT_FILTER: &str = "warn,deadpool.postgres=error,posthaste::console::audit=info,\
    posthaste::heartbeat=info,posthaste_relay::engine::health=info";

/// Starts logging: lines to the terminal as filtered by `POSTHASTE_LOG`, and spans to a collector
/// if one is configured.
pub(crate) fn start_logging(
    format: Format,
    terminal: &Terminal,
    otlp: Option<&Otlp>,
) -> anyhow::Result<()> {
    let wanted = log_line::env_or_empty("POSTHASTE_LOG")?;
    let filter = match wanted.as_str() {
        "" => EnvFilter::new(DEFAULT_FILTER),
        wanted => match EnvFilter::try_new(wanted) {
            Ok(filter) => filter,
            Err(error) => bail!("POSTHASTE_LOG is invalid: {error}"),
        },
    };
    let lines = match format {
        Format::Text => tracing_subscriber::fmt::layer()
            .with_writer(terminal.clone())
            .with_target(false)
            .with_ansi(std::io::stderr().is_terminal())
            .boxed(),
        Format::Json => JsonLinesLayer(terminal.clone()).boxed(),
    };
    registry()
        .with(otlp.map(Otlp::layer))
        .with(lines.with_filter(filter))
        .init();
    let terminal = terminal.clone();
    panic::set_hook(Box::new(move |panic| match format {
        Format::Json => tracing::error!(error = %panic, "a panic"),
        Format::Text => {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or("<unnamed>");
            terminal.print_remark(&format!("thread '{name}' {panic}"));
        }
    }));
    Ok(())
}

/// A layer that writes one JSON document for each event, with its fields and those of its spans.
struct JsonLinesLayer(Terminal);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for JsonLinesLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut all = Fields::default();
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(outer) = span.extensions().get::<Fields>() {
                for (name, value) in &outer.0 {
                    // A field of an inner span has precedence.
                    all.0.entry(name).or_insert_with(|| value.clone());
                }
            }
        }
        event.record(&mut all);
        let message = match all.0.remove("message") {
            Some(Value::String(message)) => message,
            _ => String::new(),
        };
        for own in ["timestamp", "level", "target"] {
            all.0.remove(own);
        }
        let of = event.metadata();
        let mut line = log_line::event_line(*of.level(), of.target(), &message, &all.0);
        line.push('\n');
        // If standard error is closed, the line is lost.
        let _ = self.0.make_writer().write_all(line.as_bytes());
    }
}

#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, Number::from_f64(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.put(field, value.to_string());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}
