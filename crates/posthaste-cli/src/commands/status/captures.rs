//! Captures in the output of `posthaste status`, below the relays.

use std::fmt;

use posthaste_capture::Overview;
use posthaste_observe::format::{age, bytes};
use serde::Serialize;

/// A row of one capture.
#[derive(Serialize)]
pub(super) struct CaptureRow<'a> {
    state: &'static str,
    #[serde(flatten)]
    capture: &'a Overview,
}

impl<'a> CaptureRow<'a> {
    pub(super) fn new(capture: &'a Overview) -> Self {
        Self {
            state: capture.state(),
            capture,
        }
    }
}

/// The rows as text.
pub(super) struct CaptureTable<'a>(pub(super) &'a [CaptureRow<'a>]);

impl fmt::Display for CaptureTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|line| line.capture.name.chars().count());
        let names = names.max().unwrap_or(0).max(7);
        write!(
            f,
            "{:names$}  {:11}  {:>8}  {:>12}  {:>10}",
            "capture", "state", "lag", "retained log", "events"
        )?;
        for CaptureRow { state, capture } in self.0 {
            let lag = capture.lag_seconds.map_or_else(|| "-".to_owned(), age);
            let retained = capture.retained_bytes.map_or_else(|| "-".to_owned(), bytes);
            write!(
                f,
                "\n{:names$}  {state:11}  {lag:>8}  {retained:>12}  {:>10}",
                capture.name, capture.events
            )?;
        }
        Ok(())
    }
}
