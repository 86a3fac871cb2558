//! What the loops of a worker process share, each with one duty. Nothing here knows a loop.

pub(crate) mod admission;
pub(crate) mod doubted;
pub(crate) mod gate;
pub(crate) mod in_hand;
pub(crate) mod notifications;
pub(crate) mod owed;
pub(crate) mod pulse;
pub(crate) mod queue;
pub(crate) mod sleep;
pub(crate) mod watched;
