//! The state of a database and of a process: read at a bounded rate, formatted for Prometheus,
//! served over HTTP, sent to a collector.

pub(crate) mod alerts;
mod collector;
mod exposition;
pub(crate) mod frame;
mod labels;
mod listen;
#[cfg(feature = "otlp")]
mod otlp;
#[cfg(not(feature = "otlp"))]
#[path = "observe/without_otlp.rs"]
mod otlp;
pub(crate) mod pending_alerts;
mod recorder;

pub(crate) use collector::Collector;
pub(crate) use labels::ExtraLabels;
pub(crate) use listen::{ListenOptions, MetricsServer};
pub(crate) use otlp::Otlp;
