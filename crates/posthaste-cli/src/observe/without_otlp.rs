//! In place of `otlp`, for a program that was built without it.

use metrics::NoopRecorder;
use tokio::runtime::Handle;
use tracing_subscriber::layer::Identity;

use super::collector::Collector;

/// There is none.
pub(crate) enum Otlp {}

impl Otlp {
    pub(crate) fn start(_: &Handle) -> anyhow::Result<Option<Self>> {
        Ok(None)
    }

    pub(crate) fn layer(&self) -> Identity {
        Identity::new()
    }

    pub(crate) fn end(self) {}
}

pub(crate) fn meters() -> Option<NoopRecorder> {
    None
}

pub(crate) fn observe(_: Collector) {}
