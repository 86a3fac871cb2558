//! How far a capture is. Pure.

use crate::lsn::Lsn;
use crate::position::Position;

/// How far a capture is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The last change that is done; its transaction may go on.
    pub(crate) position: Position,
    /// All that was committed before is done.
    pub(crate) done: Lsn,
}

/// Events that are done, and about how many bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) events: usize,
    pub(crate) bytes: usize,
}

impl Counted {
    pub(crate) fn add(&mut self, more: Self) {
        self.events += more.events;
        self.bytes += more.bytes;
    }
}
