//! The progress of a capture. Pure.

use crate::lsn::Lsn;
use crate::position::Position;

/// The progress of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The last change that is done. Its transaction may have more.
    pub(crate) position: Position,
    /// Everything committed before this place is done.
    pub(crate) done: Lsn,
}

/// Events that are done, and their approximate size in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EventCounts {
    pub(crate) events: usize,
    pub(crate) bytes: usize,
}

impl EventCounts {
    pub(crate) fn add(&mut self, more: Self) {
        self.events += more.events;
        self.bytes += more.bytes;
    }
}
